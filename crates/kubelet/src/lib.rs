//! The kubelet's two gRPC interfaces that a device plugin meets: device plugin `v1beta1` and
//! pod resources `v1`, client and server, with thin helpers around them.
//!
//! It holds no policy: what devices exist and what a container gets is the device plugin's
//! business. The protos are our own, written from the field tables of `facts/kubernetes.md` 3
//! and 4; only this crate names prost. Works with the kubelets of Kubernetes 1.26 and newer
//! (older ones send an `:authority` that Rust's h2 refuses, hyperium/h2#487).

pub mod checkpoint;
pub mod device_plugin;
mod generated;
pub mod pod_resources;
pub mod socket;
