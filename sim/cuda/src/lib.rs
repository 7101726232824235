//! `libcuda.so.1` of the simulated node: as much of the CUDA driver API as a small program needs.
//!
//! What is real about it is what a manager of MPS must get right: `cuInit` goes to MPS if a control
//! daemon answers and silently without it if none does; limits hold per process and count the
//! context; a client shares the fate of its server. What is only played: kernels compute nothing.
//!
//! * A module is any image, a function any name. A launch takes [`launch`]'s time: the function
//!   `spin_ms_250` keeps the whole card busy for 250 ms, and proportionally longer at a lower
//!   active thread percentage. Launches return at once; synchronising waits.
//! * A fatal fault comes from `cuMemsetD8_v2` at [`fault::ADDRESS`]: error 700 for ever, an Xid 31
//!   on the card, and under MPS the same for every client that shares it.
//! * Memory is counted and not held; what is copied in can be copied out again.
//!
//! [`exports`] is the C edge and only converts. Everything is decided in safe functions of the
//! other modules over one [`runtime::Runtime`] per process.

#![expect(unsafe_code, reason = "a C library: exported symbols and the caller's pointers")]

mod abi;
mod account;
mod attribute;
mod context;
mod current;
mod exports;
mod fault;
mod init;
mod launch;
mod memory;
mod runtime;
mod shared_memory;
mod status;
