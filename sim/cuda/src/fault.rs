//! Fatal faults: one at a program's request, and a card that is lost.

use mpshare_sim_state::mps::raise_fault;
use mpshare_sim_state::{Health, SimState, Xid};

use crate::context;
use crate::runtime::Runtime;
use crate::status::Status;

/// `cuMemsetD8_v2` at this address is an access that the card can't make.
pub(crate) const ADDRESS: u64 = 0xdead_0000;

/// NVIDIA's number of an MMU fault.
const MMU_FAULT: u32 = 31;

/// Faults on the card of the current context. Under MPS all who share it get the same.
pub(crate) fn raise(runtime: &mut Runtime) -> Result<(), Status> {
    let uuid = runtime.device(context::current_device(runtime)?)?.to_owned();
    let error = Status::ILLEGAL_ADDRESS;
    runtime.store.update(|state| add_xid(state, &uuid)).map_err(|_| Status::UNKNOWN)?;
    if let Some(session) = &runtime.session {
        raise_fault(&runtime.store, session.server(), &uuid, error.0)
            .map_err(|_| Status::UNKNOWN)?;
    }
    runtime.sticky = Some(error);
    Err(error)
}

/// Fails for ever once a card of the current context is lost.
pub(crate) fn notice_loss(runtime: &mut Runtime) -> Result<(), Status> {
    let gpu = runtime.gpu(context::current_device(runtime)?)?;
    if gpu.health == Health::Lost {
        runtime.sticky = Some(Status::UNKNOWN);
    }
    runtime.sticky.map_or(Ok(()), Err)
}

fn add_xid(state: &mut SimState, uuid: &str) {
    state.sequence += 1;
    let sequence = state.sequence;
    if let Some(gpu) = state.gpus.iter_mut().find(|gpu| gpu.uuid == uuid) {
        gpu.xids.push(Xid { sequence, xid: MMU_FAULT });
    }
}
