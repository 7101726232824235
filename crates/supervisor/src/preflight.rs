//! One message that says all that this node lacks for MPS, at the start and when that changes.
//!
//! It is made from the report, so that it can't say anything else than condition and Events do.

use std::collections::BTreeSet;

use mpshare_api::status::ReasonText;
use mpshare_api::{GpuState, MpsRoot, NodeStatus};
use mpshare_core::{ComputeCapability, Gpu, MigMode, Reason, VersionProfile};
use tracing::{info, warn};

use crate::obstacles::{self, Obstacles};
use crate::options::Ports;

/// Codes of reasons that stay until a person does something to the node.
const LACKS: [&str; 13] = [
    "DriverUnavailable",
    "DriverTooOld",
    "MigEnabled",
    "NoMemoryIsolation",
    "SameDirectory",
    "ProgramMissing",
    "HostUnreachable",
    "ForeignDaemon",
    "ForeignMps",
    "ForeignDaemonNearby",
    "CardInUse",
    "ComputeModeDenied",
    "GpuLost",
];

/// All that keeps cards of this node from being shared, as seen now and whatever the config says.
/// It changes nothing and needs no supervisor.
pub fn look(ports: &Ports, root: &MpsRoot) -> Vec<Reason> {
    let inventory = match ports.inventory.inventory() {
        Ok(inventory) => inventory,
        Err(error) => return vec![Reason::DriverUnavailable { problem: error.to_string() }],
    };
    let driver = &inventory.driver;
    let too_old = VersionProfile::of(driver).is_none();
    let too_old = too_old.then(|| Reason::DriverTooOld { driver: driver.clone() });
    let obstacles = Obstacles::default();
    let of_card = |gpu: &Gpu| [of_model(gpu), obstacles.of_card(ports, root, gpu)];
    let of_cards = inventory.gpus.iter().flat_map(of_card).flatten();
    let nearby = obstacles::nearby(ports, root, &inventory.gpus);
    too_old.into_iter().chain(of_cards).chain(nearby).collect()
}

/// What a card itself can't do.
fn of_model(gpu: &Gpu) -> Option<Reason> {
    let uuid = gpu.uuid.clone();
    let (model, capability) = (gpu.model.clone(), gpu.compute_capability);
    if gpu.mig == MigMode::Enabled {
        return Some(Reason::MigEnabled { gpu: uuid });
    }
    let is_isolating = capability >= ComputeCapability::VOLTA;
    (!is_isolating).then_some(Reason::NoMemoryIsolation { gpu: uuid, model, capability })
}

/// What was said last.
#[derive(Debug, Default)]
pub(crate) struct Preflight {
    said: Option<Vec<String>>,
}

impl Preflight {
    /// Says what is lacking, unless that was said last.
    pub(crate) fn tell(&mut self, status: &NodeStatus) {
        let Some(lacking) = lacking(status) else { return };
        if self.said.as_ref() == Some(&lacking) {
            return;
        }
        if lacking.is_empty() {
            info!(cards = status.gpus.len(), "preflight: nothing that MPS needs is missing here");
        } else {
            warn!(problems = lacking.len(), "preflight: {}", numbered(&lacking));
        }
        self.said = Some(lacking);
    }
}

/// All that is lacking; `None` while a card is on its way to where that will be known.
fn lacking(status: &NodeStatus) -> Option<Vec<String>> {
    let is_open =
        |state, reason: &Option<ReasonText>| state == GpuState::Starting && reason.is_none();
    if status.gpus.iter().any(|gpu| is_open(gpu.state, &gpu.reason)) {
        return None;
    }
    let of_cards = status.gpus.iter().filter_map(|gpu| gpu.reason.as_ref());
    let reasons = status.reasons.iter().chain(of_cards);
    let lacking = reasons.filter(|reason| LACKS.contains(&reason.code.as_str()));
    let mut told = BTreeSet::new();
    // A reason of the node as a whole may be one of each card too.
    Some(lacking.map(|it| it.message.clone()).filter(|it| told.insert(it.clone())).collect())
}

fn numbered(sentences: &[String]) -> String {
    let numbered = (1..).zip(sentences).map(|(n, sentence)| format!("({n}) {sentence}"));
    numbered.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use crate::testing::t4;
    use mpshare_api::GpuStatus;
    use mpshare_api::SharedMemory;
    use mpshare_api::status::FormerPods;

    use super::*;

    fn card(state: GpuState, reason: Option<&Reason>) -> GpuStatus {
        let gpu = Gpu { mig: MigMode::Enabled, ..t4("GPU-ab") };
        let reason = reason.map(ReasonText::from);
        GpuStatus { state, reason, ..GpuStatus::starting(&gpu) }
    }

    fn node(gpus: Vec<GpuStatus>) -> NodeStatus {
        NodeStatus {
            version: NodeStatus::VERSION,
            config: String::new(),
            driver: "550.54.15".to_owned(),
            shared_memory: SharedMemory::PerCard,
            gpus,
            former_pods: FormerPods::default(),
            reasons: Vec::new(),
        }
    }

    #[test]
    fn all_that_is_lacking_is_in_one_list_and_what_only_has_to_wait_is_not() {
        let mig = Reason::MigEnabled { gpu: "GPU-ab".parse().unwrap() };
        let wait = Reason::WaitingForClients { gpu: "GPU-cd".parse().unwrap(), clients: 1 };
        let unknown = card(GpuState::Starting, None);
        let cards = vec![
            card(GpuState::Refused, Some(&mig)),
            card(GpuState::Draining, Some(&wait)),
            card(GpuState::Ready, None),
        ];
        assert_eq!(lacking(&node(cards.clone())), Some(vec![mig.to_string()]));
        assert_eq!(lacking(&node([cards, vec![unknown]].concat())), None);
        assert_eq!(lacking(&node(Vec::new())), Some(Vec::new()));
    }

    #[test]
    fn every_code_that_counts_is_one_that_exists() {
        assert!(LACKS.iter().all(|code| Reason::CODES.contains(code)));
    }
}
