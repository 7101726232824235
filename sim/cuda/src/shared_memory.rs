//! Meeting the MPS server in the memory below `/dev/shm`.
//!
//! A client whose `/dev/shm` is another one than the server's, or isn't writable, can't work: that
//! is what a container without the right mount looks like.

use mpshare_sim_state::shm::{self, Segment};

use crate::status::Status;

/// Makes a segment and looks for the server's. Ours has done its duty then.
pub(crate) fn meet(server: i32) -> Result<(), Status> {
    let _ours = Segment::create().map_err(|_| Status::MPS_CONNECTION_FAILED)?;
    if shm::is_visible(server) { Ok(()) } else { Err(Status::MPS_CONNECTION_FAILED) }
}
