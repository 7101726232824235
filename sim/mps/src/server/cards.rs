//! The cards that a server runs on: which, whether they let it, and the limits for new clients.

use std::thread;
use std::time::Duration;

use mpshare_sim_state::mps::{PinnedLimit, SERVER_MIB, effective_limits, visible_devices};
use mpshare_sim_state::{
    ComputeMode, Health, ProcId, ProcessKind, SimGpu, SimProcess, SimState, Store,
};
use thiserror::Error;

use crate::profile::Profile;

/// Why a server didn't come up. The texts are CUDA's.
#[derive(Debug, Error)]
pub(crate) enum StartFailure {
    /// No driver, no card, or none visible.
    #[error("no CUDA-capable device is detected")]
    NoDevice,
    /// The compute mode keeps the server away.
    #[error("CUDA-capable device(s) is/are busy or unavailable")]
    Busy,
    /// A card fell off the bus.
    #[error("unknown error")]
    Lost,
    /// Injected.
    #[error("initialization error")]
    Injected,
    /// `/dev/shm` is missing or full.
    #[error("MPS Server failed to create/open SHM segment")]
    NoSharedMemory,
    /// The control daemon went away.
    #[error("MPS client failed to connect to the MPS control daemon or the MPS server")]
    NoDaemon,
}

/// A card of the server, in the daemon's numbering.
#[derive(Debug, Clone)]
pub(crate) struct Card {
    pub(crate) uuid: String,
    pub(crate) name: String,
    pub(crate) capability: (u32, u32),
    /// For clients to come.
    pub(crate) limit: Option<PinnedLimit>,
}

/// The injected faults of a start: slow, stuck for ever, or failing.
pub(crate) fn obey_start_faults(store: &Store) -> Result<(), StartFailure> {
    let state = store.read().map_err(|_| StartFailure::NoDevice)?;
    let faults = state.faults;
    if faults.server_hangs_at_start {
        loop {
            thread::park();
        }
    }
    thread::sleep(Duration::from_millis(faults.server_start_delay_ms));
    if faults.server_fails_at_start {
        return Err(StartFailure::Injected);
    }
    if faults.driver_not_loaded {
        return Err(StartFailure::NoDevice);
    }
    Ok(())
}

/// Makes this process the server on every card that its environment shows, or on none.
pub(crate) fn occupy(store: &Store) -> Result<Vec<Card>, StartFailure> {
    let variable = |name| std::env::var(name).ok();
    let visible = variable("CUDA_VISIBLE_DEVICES");
    let cards = store.update(|state| {
        let gpus = visible_gpus(state, visible.as_deref());
        if gpus.is_empty() {
            return Err(StartFailure::NoDevice);
        }
        for gpu in &gpus {
            admit(state, gpu)?;
        }
        state.processes.extend(gpus.iter().map(|gpu| own_context(&gpu.uuid)));
        Ok(gpus.iter().map(card).collect::<Vec<_>>())
    });
    let mut cards = cards.map_err(|_| StartFailure::NoDevice)??;
    // The daemon's own variable reaches its servers by inheritance.
    let served: Vec<_> = cards.iter().map(|card| (card.uuid.clone(), None)).collect();
    let inherited = variable("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
    let limits = effective_limits(&served, inherited.as_deref());
    for (card, limit) in cards.iter_mut().zip(limits) {
        card.limit = limit;
    }
    Ok(cards)
}

fn visible_gpus(state: &SimState, variable: Option<&str>) -> Vec<SimGpu> {
    let all: Vec<String> = state.gpus.iter().map(|gpu| gpu.uuid.clone()).collect();
    let named = visible_devices(&all, variable);
    let gpu = |uuid: &String| state.gpus.iter().find(|gpu| &gpu.uuid == uuid).cloned();
    named.iter().filter_map(gpu).collect()
}

fn card(gpu: &SimGpu) -> Card {
    Card {
        uuid: gpu.uuid.clone(),
        name: gpu.name.clone(),
        capability: gpu.compute_capability,
        limit: None,
    }
}

/// Whether the card takes a server now.
fn admit(state: &SimState, gpu: &SimGpu) -> Result<(), StartFailure> {
    if gpu.health == Health::Lost {
        return Err(StartFailure::Lost);
    }
    let holder = |process: &&SimProcess| {
        process.gpu == gpu.uuid
            && matches!(process.kind, ProcessKind::Plain | ProcessKind::MpsServer)
    };
    match gpu.compute_mode {
        ComputeMode::Prohibited => Err(StartFailure::Busy),
        ComputeMode::ExclusiveProcess if state.processes.iter().any(|process| holder(&process)) => {
            Err(StartFailure::Busy)
        }
        ComputeMode::Default | ComputeMode::ExclusiveProcess => Ok(()),
    }
}

fn own_context(uuid: &str) -> SimProcess {
    SimProcess {
        id: ProcId::current(),
        uid: rustix::process::getuid().as_raw(),
        name: "nvidia-cuda-mps-server".to_owned(),
        gpu: uuid.to_owned(),
        kind: ProcessKind::MpsServer,
        used_mib: SERVER_MIB,
        limit_mib: None,
        percent_tenths: 1000,
        sticky_error: None,
    }
}

/// Gives the cards the daemon's default limits, which win over the inherited variable. One for a
/// card that the server hasn't is ignored.
pub(crate) fn apply_limits(cards: &mut [Card], profile: Profile, limits: &[(String, u64)]) {
    for (device, bytes) in limits {
        if let Some(card) = named(cards, profile, device) {
            card.limit = PinnedLimit::from_bytes(*bytes);
        }
    }
}

/// The card that an ordinal or a UUID names. Older drivers do nothing with a UUID
/// (facts/mps.md 6.11).
pub(crate) fn named<'a>(
    cards: &'a mut [Card],
    profile: Profile,
    device: &str,
) -> Option<&'a mut Card> {
    match device.parse::<usize>() {
        Ok(index) => cards.get_mut(index),
        Err(_) if profile.knows_limits_by_uuid() => {
            cards.iter_mut().find(|card| card.uuid == device)
        }
        Err(_) => None,
    }
}

/// What the server calls itself in its log.
pub(crate) fn role(cards: &[Card]) -> &'static str {
    if cards.iter().all(is_legacy) { "Legacy Server" } else { "Server" }
}

/// Before Volta there was another kind of MPS.
pub(crate) fn is_legacy(card: &Card) -> bool {
    card.capability.0 < 7
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cards() -> Vec<Card> {
        ["GPU-a", "GPU-b"]
            .map(|uuid| Card {
                uuid: uuid.to_owned(),
                name: String::new(),
                capability: (7, 5),
                limit: None,
            })
            .to_vec()
    }

    #[test]
    fn a_limit_by_uuid_does_nothing_on_older_drivers() {
        let limit_of_b = |driver| {
            let mut cards = cards();
            let profile = Profile::of_driver(driver).unwrap();
            apply_limits(&mut cards, profile, &[("GPU-b".to_owned(), 1 << 30)]);
            cards[1].limit.map(PinnedLimit::mib)
        };
        assert_eq!(limit_of_b("550.163.01"), None);
        assert_eq!(limit_of_b("555.58.02"), Some(1024));
    }

    #[test]
    fn an_exclusive_card_takes_no_second_holder_but_its_clients() {
        let mut gpu = SimGpu::of_model("t4", 0, "GPU-a").unwrap();
        gpu.compute_mode = ComputeMode::ExclusiveProcess;
        let mut state = SimState { gpus: vec![gpu.clone()], ..SimState::default() };
        assert!(admit(&state, &gpu).is_ok());
        let client = ProcessKind::MpsClient { server: 1 };
        state.processes.push(SimProcess { kind: client, ..own_context("GPU-a") });
        assert!(admit(&state, &gpu).is_ok());
        state.processes.push(SimProcess { kind: ProcessKind::Plain, ..own_context("GPU-a") });
        assert!(matches!(admit(&state, &gpu), Err(StartFailure::Busy)));
    }
}
