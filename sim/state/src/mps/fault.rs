//! A fatal GPU fault under MPS and whom it hits.

use std::collections::BTreeSet;

use crate::{Error, ProcessKind, SimState, Store};

/// Records a fatal fault of a client of `server` on card `gpu`: every client that is joined to it
/// by shared cards gets `error` for ever, and the server goes to FAULT until they have exited
/// (facts/mps.md 4.1). Raises no Xid.
pub fn raise_fault(store: &Store, server: i32, gpu: &str, error: i32) -> Result<(), Error> {
    store.update(|state| {
        let cards = joined(state, server, gpu);
        for process in &mut state.processes {
            if process.kind == (ProcessKind::MpsClient { server }) && cards.contains(&process.gpu) {
                process.sticky_error = Some(error);
            }
        }
        if !state.faults.faulted_servers.contains(&server) {
            state.faults.faulted_servers.push(server);
        }
    })
}

/// The cards that clients of `server` join to `gpu`, itself included.
fn joined(state: &SimState, server: i32, gpu: &str) -> BTreeSet<String> {
    let mut cards = BTreeSet::from([gpu.to_owned()]);
    loop {
        let contexts = || {
            state
                .processes
                .iter()
                .filter(|process| process.kind == ProcessKind::MpsClient { server })
        };
        let clients: BTreeSet<_> = contexts()
            .filter(|process| cards.contains(&process.gpu))
            .map(|process| process.id)
            .collect();
        let before = cards.len();
        cards.extend(
            contexts()
                .filter(|process| clients.contains(&process.id))
                .map(|process| process.gpu.clone()),
        );
        if cards.len() == before {
            return cards;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ProcId, SimProcess};

    fn context(pid: i32, gpu: &str) -> SimProcess {
        SimProcess {
            id: ProcId { pid, start: 1 },
            uid: 0,
            name: "client".to_owned(),
            gpu: gpu.to_owned(),
            kind: ProcessKind::MpsClient { server: 9 },
            used_mib: 0,
            limit_mib: None,
            percent_tenths: 1000,
            sticky_error: None,
        }
    }

    #[test]
    fn a_fault_spreads_over_cards_joined_by_clients_and_no_further() {
        let processes = vec![
            context(1, "GPU-a"),
            context(2, "GPU-a"),
            context(2, "GPU-b"),
            context(3, "GPU-c"),
        ];
        let state = SimState { processes, ..SimState::default() };
        let cards = joined(&state, 9, "GPU-b");
        assert_eq!(cards, BTreeSet::from(["GPU-a".to_owned(), "GPU-b".to_owned()]));
    }
}
