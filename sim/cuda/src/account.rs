//! What this process holds on a card, entered into the state that all processes share. Whoever asks
//! for more is checked against its own limit and the card under one lock.

use mpshare_sim_state::{ComputeMode, Health, ProcessKind, SimGpu, SimProcess, SimState};

use crate::runtime::Runtime;
use crate::status::Status;

/// Raises this process's entry for a card to `mib`, opening it if there is none.
pub(crate) fn grow(runtime: &Runtime, uuid: &str, mib: u64) -> Result<(), Status> {
    let entry = SimProcess {
        id: runtime.id,
        uid: rustix::process::geteuid().as_raw(),
        name: runtime.name.clone(),
        gpu: uuid.to_owned(),
        kind: runtime.kind(),
        used_mib: mib,
        limit_mib: runtime.limit_mib(uuid),
        percent_tenths: runtime.percent_tenths(),
        sticky_error: None,
    };
    runtime.store.update(|state| enter(state, entry)).map_err(|_| Status::UNKNOWN)?
}

/// Lowers this process's entry for a card to `mib`.
pub(crate) fn shrink(runtime: &Runtime, uuid: &str, mib: u64) -> Result<(), Status> {
    let lower = |state: &mut SimState| {
        let mine = state.processes.iter_mut().find(|entry| is_of(entry, runtime, uuid));
        if let Some(mine) = mine {
            mine.used_mib = mib;
        }
    };
    runtime.store.update(lower).map_err(|_| Status::UNKNOWN)
}

/// Takes this process off a card.
pub(crate) fn close(runtime: &Runtime, uuid: &str) -> Result<(), Status> {
    let remove = |state: &mut SimState| {
        state.processes.retain(|entry| !is_of(entry, runtime, uuid));
    };
    runtime.store.update(remove).map_err(|_| Status::UNKNOWN)
}

fn is_of(entry: &SimProcess, runtime: &Runtime, uuid: &str) -> bool {
    entry.id == runtime.id && entry.gpu == uuid
}

/// What is free on a card in MiB, for whoever asks first.
pub(crate) fn free_mib(state: &SimState, gpu: &SimGpu) -> u64 {
    let on_card = state.processes.iter().filter(|entry| entry.gpu == gpu.uuid);
    let used: u64 = on_card.map(|entry| entry.used_mib).sum();
    gpu.total_mib.saturating_sub(gpu.reserved_mib + used)
}

fn enter(state: &mut SimState, entry: SimProcess) -> Result<(), Status> {
    let card = state.gpus.iter().find(|gpu| gpu.uuid == entry.gpu).ok_or(Status::INVALID_DEVICE)?;
    if card.health == Health::Lost {
        return Err(Status::UNKNOWN);
    }
    let is_mine = |other: &SimProcess| other.id == entry.id && other.gpu == entry.gpu;
    let mine = state.processes.iter().position(is_mine);
    if mine.is_none() && !admits(card, state, &entry) {
        return Err(Status::DEVICE_UNAVAILABLE);
    }
    let held = mine.and_then(|index| state.processes.get(index)).map_or(0, |mine| mine.used_mib);
    let over_limit = entry.limit_mib.is_some_and(|limit| entry.used_mib > limit);
    if over_limit || entry.used_mib.saturating_sub(held) > free_mib(state, card) {
        return Err(Status::OUT_OF_MEMORY);
    }
    match mine.and_then(|index| state.processes.get_mut(index)) {
        Some(mine) => mine.used_mib = entry.used_mib,
        None => state.processes.push(entry),
    }
    Ok(())
}

/// Whether the compute mode lets this process onto the card. A client comes under its server's
/// name, which holds an exclusive card.
fn admits(card: &SimGpu, state: &SimState, entry: &SimProcess) -> bool {
    let is_client = matches!(entry.kind, ProcessKind::MpsClient { .. });
    let others = || state.processes.iter().any(|other| other.gpu == card.uuid);
    match card.compute_mode {
        ComputeMode::Default => true,
        ComputeMode::ExclusiveProcess => is_client || !others(),
        ComputeMode::Prohibited => false,
    }
}

#[cfg(test)]
mod tests {
    use mpshare_sim_state::ProcId;

    use super::*;

    fn entry(pid: i32, kind: ProcessKind, used_mib: u64) -> SimProcess {
        SimProcess {
            id: ProcId { pid, start: 1 },
            uid: 0,
            name: "python".to_owned(),
            gpu: "GPU-t4".to_owned(),
            kind,
            used_mib,
            limit_mib: None,
            percent_tenths: 1000,
            sticky_error: None,
        }
    }

    fn node(mode: ComputeMode) -> SimState {
        let mut card = SimGpu::of_model("t4", 0, "GPU-t4").unwrap();
        card.compute_mode = mode;
        SimState { gpus: vec![card], ..SimState::default() }
    }

    const CLIENT: ProcessKind = ProcessKind::MpsClient { server: 1 };

    #[test]
    fn an_exclusive_card_takes_one_plain_process_and_any_client() {
        let mut state = node(ComputeMode::ExclusiveProcess);
        assert_eq!(enter(&mut state, entry(1, ProcessKind::MpsServer, 30)), Ok(()));
        let plain = entry(2, ProcessKind::Plain, 312);
        assert_eq!(enter(&mut state, plain), Err(Status::DEVICE_UNAVAILABLE));
        assert_eq!(enter(&mut state, entry(3, CLIENT, 312)), Ok(()));
    }

    #[test]
    fn a_prohibited_card_takes_nobody() {
        let mut state = node(ComputeMode::Prohibited);
        let refused = enter(&mut state, entry(1, ProcessKind::Plain, 312));
        assert_eq!(refused, Err(Status::DEVICE_UNAVAILABLE));
    }

    #[test]
    fn memory_ends_at_the_limit_and_at_the_card() {
        let mut state = node(ComputeMode::Default);
        let limited = |used| SimProcess { limit_mib: Some(1000), ..entry(1, CLIENT, used) };
        assert_eq!(enter(&mut state, limited(1000)), Ok(()));
        assert_eq!(enter(&mut state, limited(1001)), Err(Status::OUT_OF_MEMORY));
        let rest = 15360 - 448 - 1000;
        let over = entry(2, CLIENT, rest + 1);
        assert_eq!(enter(&mut state, over), Err(Status::OUT_OF_MEMORY));
        assert_eq!(enter(&mut state, entry(2, CLIENT, rest)), Ok(()));
        assert_eq!(enter(&mut state, entry(2, CLIENT, rest + 1)), Err(Status::OUT_OF_MEMORY));
    }
}
