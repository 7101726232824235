//! `libnvidia-ml.so.1` of the simulated node: NVML answered from the shared state.
//!
//! Enough for `nvml-wrapper`, for `nvidia-smi` of this workspace and for NVIDIA's own Go programs
//! (the symbols and values of facts/nvml.md). [`exports`] is the C edge and only converts;
//! everything is decided in safe functions of the other modules. Relies on `mpshare-sim-state` for
//! the truth: nothing but the count of initialisations and the event sets lives in the process.
//!
//! Loading must leave no trace, since the Go programs load the library three times and unload it
//! twice before the first call: no threads, no constructors, no exit handlers.

#![expect(unsafe_code, reason = "a C library: exported symbols and the caller's pointers")]

mod abi;
mod device;
mod events;
mod exports;
mod meter;
mod pci;
mod processes;
mod product;
mod session;
mod status;
