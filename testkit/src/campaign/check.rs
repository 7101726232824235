//! What has to be true after each beat (the invariants of ARCHITECTURE.md).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use anyhow::{Result, ensure};
use mpshare_api::{Allocations, read_document};
use mpshare_sim_state::{ComputeMode, ProcessKind, SimGpu, SimProcess, SimState};

use super::Campaign;
use super::loads::{CONTAINER, Held};
use crate::fakekubelet::Phase;

/// What a kubelet says by itself when it refuses a pod, or when the plugin was killed while it was
/// asked.
const OF_KUBELET: [&str; 9] = [
    "requested number of devices unavailable",
    "no healthy devices present",
    "unregistered device",
    "code = Unavailable",
    "code = Canceled",
    "code = Unknown",
    "code = Internal",
    "endpoint is stopped",
    "kubelet",
];

impl Campaign {
    /// Looks at everything once.
    pub(super) fn check(&mut self) -> Result<()> {
        let state = self.node.store().read()?;
        self.check_cards(&state)?;
        self.check_ledger(&state)?;
        self.check_clients(&state)?;
        self.check_refusals()?;
        self.check_report()?;
        let violations = self.node.kubelet().violations();
        ensure!(violations.is_empty(), "the kubelet was hurt: {violations:?}");
        let ended = self.node.ended_roles();
        ensure!(ended.is_empty(), "{ended:?} ended by themselves");
        Ok(())
    }

    /// The simulator's own account: what the clients of each pod may take, against the card.
    fn check_cards(&self, state: &SimState) -> Result<()> {
        for gpu in &state.gpus {
            let mine: Vec<&SimProcess> =
                state.processes.iter().filter(|process| process.gpu == gpu.uuid).collect();
            let count = |kind| mine.iter().filter(|process| process.kind == kind).count();
            let (plain, servers) = (count(ProcessKind::Plain), count(ProcessKind::MpsServer));
            let is_exclusive = gpu.compute_mode == ComputeMode::ExclusiveProcess;
            ensure!(
                !is_exclusive || plain == 0 || servers == 0,
                "{plain} processes without MPS beside {servers} servers on `{}`: {mine:#?}",
                gpu.uuid
            );
            let limits = self.limits(gpu, &mine);
            let sum: u64 = limits.values().fold(0, |sum, limit| sum.saturating_add(*limit));
            ensure!(
                sum <= gpu.total_mib,
                "limits of pods {limits:?} MiB are more than `{}` has: {mine:#?}",
                gpu.uuid
            );
        }
        Ok(())
    }

    /// The share that each pod's processes show: the largest of their limits, since all of them
    /// have the same or less.
    fn limits(&self, gpu: &SimGpu, processes: &[&SimProcess]) -> BTreeMap<String, u64> {
        let mut limits = BTreeMap::new();
        for process in processes {
            if process.kind == ProcessKind::MpsServer {
                continue;
            }
            // Whoever got past its limit on purpose, or isn't a pod's, has no share.
            let Some(pod) = self.pod_of(process.id.pid) else { continue };
            if self.loads.escaped.contains(&pod) {
                continue;
            }
            let limit = process.limit_mib.unwrap_or(gpu.total_mib);
            let of_pod = limits.entry(pod).or_insert(0);
            *of_pod = limit.max(*of_pod);
        }
        limits
    }

    /// UID of the pod that a process is of.
    pub(super) fn pod_of(&self, pid: i32) -> Option<String> {
        let path = self.node.path().join("proc").join(pid.to_string()).join("cgroup");
        let text = std::fs::read_to_string(path).ok()?;
        let (_, rest) = text.split_once("pod")?;
        let end = rest.find(|c: char| !(c.is_ascii_hexdigit() || c == '-' || c == '_'));
        Some(rest.get(..end.unwrap_or(rest.len()))?.replace('_', "-"))
    }

    /// The product's account.
    fn check_ledger(&self, state: &SimState) -> Result<()> {
        // A damaged one counts as absent.
        let read = read_document::<Allocations>(&self.node.mps_root().allocations());
        let records = read.ok().flatten().unwrap_or_default().records;
        for gpu in &state.gpus {
            let mine = records.iter().filter(|record| record.gpu == gpu.uuid);
            let shares: Vec<u64> = mine.map(|record| record.memory_mib).collect();
            let sum: u64 = shares.iter().sum();
            ensure!(
                sum <= gpu.total_mib,
                "records of {shares:?} MiB are more than `{}` has",
                gpu.uuid
            );
        }
        Ok(())
    }

    /// Whoever held memory still does, but for what this campaign did to its card.
    fn check_clients(&mut self, state: &SimState) -> Result<()> {
        let policy = self.policy;
        for tracked in self.loads.pods.iter_mut().filter(|tracked| tracked.goes_on(policy)) {
            let name = &tracked.pod.spec().name;
            let mut kept = BTreeMap::new();
            for (pid, held) in std::mem::take(&mut tracked.held) {
                let process = state.processes.iter().find(|process| process.id.pid == pid);
                if process.is_some_and(|process| process.sticky_error.is_none()) {
                    kept.insert(pid, held);
                } else if !self.harm.excuses(&held.card, held.since) {
                    let log = tracked.pod.log(CONTAINER);
                    let status = tracked.pod.status();
                    anyhow::bail!(
                        "client {pid} of `{name}` on `{}` was ended or hurt: {process:?}\n{status:?}\n{log}",
                        held.card
                    );
                }
            }
            for pid in holding(&tracked.pod.log(CONTAINER)) {
                let process = state.processes.iter().find(|process| process.id.pid == pid);
                if let Some(process) = process
                    && process.sticky_error.is_none()
                    && !kept.contains_key(&pid)
                {
                    self.clients += 1;
                    let held = Held { card: process.gpu.clone(), since: Instant::now() };
                    kept.insert(pid, held);
                }
            }
            tracked.held = kept;
        }
        Ok(())
    }

    /// Refusals are sentences that say what to do.
    fn check_refusals(&mut self) -> Result<()> {
        for tracked in self.loads.pods.iter_mut().filter(|tracked| !tracked.is_refused) {
            let status = tracked.pod.status();
            if status.phase != Phase::Failed || status.reason.is_none() {
                continue;
            }
            tracked.is_refused = true;
            let message = status.message.unwrap_or_default();
            let is_of_kubelet = OF_KUBELET.iter().any(|part| message.contains(part));
            ensure!(
                is_of_kubelet || message.contains("hint: "),
                "`{}` was refused without a hint: {:?} {message}",
                tracked.pod.spec().name,
                status.reason
            );
            *self.refused.entry(without_numbers(&message)).or_default() += 1;
        }
        Ok(())
    }

    /// So are the reasons in the report.
    fn check_report(&self) -> Result<()> {
        let Some(status) = self.node.status() else { return Ok(()) };
        // Whatever goes on around it, the spared card's server takes clients.
        let spared = self.card(self.spared)?;
        let reason = status.gpu(spared).and_then(|gpu| gpu.reason.as_ref());
        let is_accused = reason.is_some_and(|reason| reason.code == "ServerWedged");
        ensure!(!is_accused, "a false alarm: {reason:?}");
        let of_cards = status.gpus.iter().flat_map(|gpu| gpu.reason.iter().chain(&gpu.findings));
        for reason in of_cards.chain(&status.reasons) {
            ensure!(
                reason.message.contains("hint: "),
                "a reason without a hint: {}: {}",
                reason.code,
                reason.message
            );
        }
        Ok(())
    }
}

/// PIDs that say that they hold what they asked for: `[4711] holding 64 MiB`.
fn holding(log: &str) -> BTreeSet<i32> {
    let said = log.lines().filter_map(|line| line.strip_prefix('[')?.split_once("] holding"));
    said.filter_map(|(pid, _)| pid.parse().ok()).collect()
}

/// One kind of sentence, whatever its numbers and names.
fn without_numbers(message: &str) -> String {
    let mut kind = String::new();
    for word in message.split(' ') {
        let word = if word.contains(|c: char| c.is_ascii_digit()) { "#" } else { word };
        if !(word == "#" && kind.ends_with("# ")) {
            kind.push_str(word);
            kind.push(' ');
        }
    }
    kind.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_is_read_from_the_log() {
        let log = "[12] allocated 1 MiB\n[12] holding 64 MiB\n[7] holding 1 MiB\nholding";
        assert_eq!(holding(log), BTreeSet::from([7, 12]));
    }

    #[test]
    fn sentences_that_differ_in_numbers_are_of_one_kind() {
        assert_eq!(without_numbers("3 units of 5 GiB, 7 8 left"), "# units of # GiB, # left");
    }
}
