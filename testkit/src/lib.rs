//! See ARCHITECTURE.md.

pub mod fakekube;
pub mod fakekubelet;
pub mod simnode;
