//! Handles, and what one card answers. Not processes and not events.
//!
//! A handle is a number made from the card's index and never a real address, so it stays valid
//! through shutdown, initialisation and even unloading, and a wrong one is only an error.

use mpshare_sim_state::{ComputeMode, Faults, Health, SimGpu, SimState};
use rustix::process::{Uid, geteuid};

use crate::abi::Handle;
use crate::pci::PciAddress;
use crate::session;
use crate::status::Status;

const FIRST_HANDLE: usize = 0x4e56_0010;
const HANDLE_STEP: usize = 0x10;

/// The card behind `handle`, with the state that it is part of.
pub(crate) struct Device {
    /// The whole node.
    pub(crate) state: SimState,
    index: usize,
}

impl Device {
    /// Looks the card up; a lost one fails every call.
    pub(crate) fn of(handle: Handle) -> Result<Self, Status> {
        let index = index_of(handle).ok_or(Status::INVALID_ARGUMENT)?;
        let device = Self { state: session::state()?, index };
        match device.gpu()?.health {
            Health::Ok => Ok(device),
            Health::Lost => Err(Status::GPU_IS_LOST),
        }
    }

    /// The card itself.
    pub(crate) fn gpu(&self) -> Result<&SimGpu, Status> {
        self.state.gpus.get(self.index).ok_or(Status::INVALID_ARGUMENT)
    }

    /// Memory that processes hold, in MiB.
    fn used_mib(&self) -> Result<u64, Status> {
        let gpu = self.gpu()?;
        let on_card = self.state.processes.iter().filter(|process| process.gpu == gpu.uuid);
        Ok(on_card.map(|process| process.used_mib).sum())
    }

    /// The card's memory in bytes.
    pub(crate) fn memory(&self) -> Result<Memory, Status> {
        const MIB: u64 = 1 << 20;
        let gpu = self.gpu()?;
        let used = self.used_mib()?;
        Ok(Memory {
            total: gpu.total_mib * MIB,
            reserved: gpu.reserved_mib * MIB,
            used: used * MIB,
            free: gpu.total_mib.saturating_sub(gpu.reserved_mib + used) * MIB,
        })
    }
}

/// Bytes; the total is the sum of the other three.
pub(crate) struct Memory {
    pub(crate) total: u64,
    pub(crate) reserved: u64,
    pub(crate) used: u64,
    pub(crate) free: u64,
}

/// The handle of the first card that `is_it`; lost cards can't be opened.
pub(crate) fn find(is_it: impl Fn(usize, &SimGpu) -> bool) -> Result<Handle, Status> {
    let state = session::state()?;
    let mut gpus = state.gpus.iter().enumerate();
    let (index, gpu) = gpus.find(|(index, gpu)| is_it(*index, gpu)).ok_or(Status::NOT_FOUND)?;
    match gpu.health {
        Health::Ok => Ok(handle_of(index)),
        Health::Lost => Err(Status::GPU_IS_LOST),
    }
}

/// The handle of the card at `address`, written in either form.
pub(crate) fn find_by_pci(address: &str) -> Result<Handle, Status> {
    let wanted = PciAddress::parse(address).ok_or(Status::INVALID_ARGUMENT)?;
    find(|_, gpu| PciAddress::parse(&gpu.pci_bus_id) == Some(wanted))
}

/// The handle of the card at `index`.
pub(crate) fn handle_of(index: usize) -> Handle {
    Handle::from_number(FIRST_HANDLE + index * HANDLE_STEP)
}

/// The index that the handle stands for; whether there is such a card is another question.
pub(crate) fn index_of(handle: Handle) -> Option<usize> {
    let offset = handle.number().checked_sub(FIRST_HANDLE)?;
    (offset % HANDLE_STEP == 0).then_some(offset / HANDLE_STEP)
}

/// `nvmlComputeMode_t`.
pub(crate) fn compute_mode_number(mode: ComputeMode) -> u32 {
    match mode {
        ComputeMode::Default => 0,
        ComputeMode::Prohibited => 2,
        ComputeMode::ExclusiveProcess => 3,
    }
}

/// Sets the compute mode from NVML's number.
pub(crate) fn set_compute_mode(handle: Handle, number: u32) -> Result<(), Status> {
    let mode = match number {
        0 => ComputeMode::Default,
        1 => return Err(Status::NOT_SUPPORTED), // EXCLUSIVE_THREAD is gone since CUDA 8
        2 => ComputeMode::Prohibited,
        3 => ComputeMode::ExclusiveProcess,
        _ => return Err(Status::INVALID_ARGUMENT),
    };
    change(handle, |gpu| gpu.compute_mode = mode)
}

/// Sets the persistence mode from NVML's number.
pub(crate) fn set_persistence_mode(handle: Handle, number: u32) -> Result<(), Status> {
    change(handle, |gpu| gpu.persistence_mode = number != 0)
}

fn change(handle: Handle, apply: impl FnOnce(&mut SimGpu)) -> Result<(), Status> {
    // Among all cards of the node this one may have another index.
    let uuid = Device::of(handle)?.gpu()?.uuid.clone();
    let update = |state: &mut SimState| {
        if !may_change(&state.faults, geteuid()) {
            return Err(Status::NO_PERMISSION);
        }
        let gpu = state.gpus.iter_mut().find(|gpu| gpu.uuid == uuid);
        gpu.map(apply).ok_or(Status::INVALID_ARGUMENT)
    };
    session::store()?.update(update).map_err(|_| Status::UNKNOWN)?
}

/// The real driver's rule applies only where the state says so: a simulated node works without root.
fn may_change(faults: &Faults, caller: Uid) -> bool {
    !faults.compute_mode_denied && (caller.is_root() || !faults.compute_mode_needs_root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_stands_for_its_index_and_other_numbers_for_none() {
        assert_eq!(index_of(handle_of(3)), Some(3));
        assert_eq!(index_of(Handle::from_number(0)), None);
        assert_eq!(index_of(Handle::from_number(handle_of(3).number() + 1)), None);
    }

    #[test]
    fn who_may_change_modes_depends_on_the_rule_and_the_denial() {
        let (root, user) = (Uid::ROOT, Uid::from_raw(1000));
        let lax = Faults::default();
        let strict = Faults { compute_mode_needs_root: true, ..Faults::default() };
        let denied = Faults { compute_mode_denied: true, ..Faults::default() };
        assert!(may_change(&lax, user));
        assert!(!may_change(&strict, user));
        assert!(may_change(&strict, root));
        assert!(!may_change(&denied, root));
    }
}
