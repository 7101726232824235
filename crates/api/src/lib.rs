//! Every form that crosses a process: files under the MPS root, the config file, names of labels,
//! annotations, resources and environment variables.
//!
//! Each file has one writer (see [`layout`]), carries a version, and is read tolerantly: unknown
//! fields are ignored, and a damaged file is an error value that the reader treats as an absent
//! one. The types here are wire forms; [`mpshare_core`] owns the rules.

pub mod admission_review;
pub mod admitted_pod;
pub mod allocations;
pub mod bound_pods;
pub mod chosen;
pub mod config;
pub mod document;
pub mod drain;
pub mod extender;
pub mod holdings;
pub mod inventory_annotation;
pub mod layout;
pub mod names;
pub mod plugin_status;
pub mod pod;
pub mod pod_allocation;
pub mod status;
pub mod yaml;

pub use allocations::{AllocationRecord, Allocations};
pub use bound_pods::BoundPods;
pub use chosen::ChosenConfig;
pub use document::{
    DocumentError, FileStamp, Versioned, read_document, read_file, read_versioned, write_derived,
    write_document,
};
pub use drain::DrainWish;
pub use holdings::Holdings;
pub use layout::{GpuPaths, MpsRoot};
pub use plugin_status::PluginStatus;
pub use status::{GpuState, GpuStatus, NodeStatus, SharedMemory};
