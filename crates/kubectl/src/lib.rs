//! Plugins for `kubectl`: what people look at a cluster of shared GPUs with.
//!
//! They read and write nodes and pods with the rights of whoever runs them, and talk to no part of
//! mpshare; `kubectl inspect cgpu` works on clusters of Alibaba's own plugin too. What is decided is pure, from the few fields of these
//! objects to a report, and from that to text.
//!
//! | module | idea |
//! |---|---|
//! | `cluster` | which API server is asked, and what to say when it doesn't answer |
//! | `objects` | nodes and pods, by the few fields that matter, page by page |
//! | `annotations` | the cards that a node names, the cards that a pod was given (pure) |
//! | `quantity` | how many units an amount of a resource is (pure) |
//! | `placement` | which cards a pod's units are on (pure) |
//! | `report` | cards, units and pods of all nodes (pure) |
//! | `elastic` | columns (pure) |
//! | `text`, `json` | the report as people and programs read it (pure) |
//! | `drain` | `kubectl mpshare drain` and `undrain` |
//! | `completion` | what `kubectl inspect cgpu <TAB>` offers |

mod annotations;
mod cluster;
mod completion;
mod drain;
mod elastic;
pub mod inspect_cgpu;
mod json;
pub mod mpshare;
mod objects;
mod placement;
mod quantity;
mod report;
mod text;
