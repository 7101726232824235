//! See ARCHITECTURE.md.

pub mod campaign;
pub mod fakekube;
pub mod fakekubelet;
pub mod simnode;
