//! Real Kubernetes on one machine, with simulated GPUs on its nodes.
//!
//! Everything but the GPUs is real: API server, scheduler, controllers, kubelets, containerd and
//! runc. What a node's NVIDIA driver and container runtime would do is done by the simulator, which
//! is installed on each node's "host" as the driver is on a real one.

pub mod bench;
pub mod campaign;
mod cgroups;
pub mod chart;
pub mod clients;
pub mod cluster;
pub mod driver_root;
pub mod image;
pub mod machine;
pub mod pods;
pub mod scenarios;
pub mod wait;
