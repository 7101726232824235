//! The user programs of the simulated node: `nvidia-smi` and `cuda-sample`.
//!
//! Neither knows the simulator. Both load the driver libraries by their public names, as the real
//! programs do, so they show what any other program would see.

pub mod sample;
pub mod smi;
