//! The stand-in for NVIDIA's container runtime: an OCI runtime that gives containers the simulated
//! driver as the real one gives them the real driver, and leaves everything else to runc.
//!
//! It does what the real one does in its `legacy` mode. What a container asks for is in its
//! environment or in its mounts ([`request`]); which cards that means is decided against the node's
//! cards ([`select`]); what the container gets is files of the driver root, bind-mounted
//! ([`driver`], [`inject`]). Device nodes are regular files here, and the simulated driver looks at
//! them as the real one does (`mpshare_sim_state::nodes`). The state directory stands for the kernel
//! module: it comes with the device nodes.
//!
//! A container with CDI devices in its annotations gets these and nothing else ([`cdi`]).

mod arguments;
mod bundle;
pub mod cdi;
pub mod config;
pub mod driver;
mod inject;
mod log;
mod program;
mod request;
mod select;

pub use config::Config;
pub use program::run;
