//! The node annotations that say which cards are shared into which units, for schedulers and for
//! people: what the node can hand out, and what becomes of it.

use std::collections::BTreeMap;

use mpshare_api::inventory_annotation::{NodeGpu, NodeGpus};
use mpshare_api::names::{GPU_COUNT, NODE_GPUS};
use mpshare_api::{GpuState, GpuStatus, NodeStatus};
use mpshare_core::{GpuPlan, LiveShare, ResourceName, UnitState, plan};

use crate::usage::Usage;
use crate::view::Config;

/// What a unit of a card without units is said to be.
const USUAL_UNIT_MIB: u64 = 1024;

/// The annotations of a node; `None` for one that isn't there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Annotations {
    gpus: Option<String>,
    count: Option<String>,
}

impl Annotations {
    /// Those among all annotations of a node.
    pub(crate) fn among(all: &BTreeMap<String, String>) -> Self {
        Self { gpus: all.get(NODE_GPUS).cloned(), count: all.get(GPU_COUNT).cloned() }
    }

    /// The cards that they tell of.
    pub(crate) fn gpus(&self) -> Option<NodeGpus> {
        self.gpus.as_ref()?.parse().ok()
    }

    /// By key, with `None` for one that is to go.
    pub(crate) const fn entries(&self) -> [(&'static str, &Option<String>); 2] {
        [(NODE_GPUS, &self.gpus), (GPU_COUNT, &self.count)]
    }
}

/// What becomes of the cards' units.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UseOfCards<'a> {
    /// Units that pods have, by card; `None` where that isn't known.
    pub(crate) held: Option<&'a BTreeMap<String, u64>>,
    /// Memory that processes use.
    pub(crate) usage: &'a Usage,
}

impl UseOfCards<'_> {
    fn held(&self, uuid: &str) -> Option<u64> {
        Some(self.held?.get(uuid).copied().unwrap_or(0))
    }
}

/// What the annotations should say; `None` while too little is known, and then they stay.
pub(crate) fn annotations(
    in_force: Option<&Config>,
    status: Option<&NodeStatus>,
    live: &[LiveShare],
    use_of_cards: UseOfCards<'_>,
) -> Option<Annotations> {
    let Some(config) = in_force else {
        return Some(Annotations::default());
    };
    let status = status?;
    let node = plan(&config.accepted.node, &status.inventory()?, live);
    let is_shared = node.gpus.iter().any(GpuPlan::is_shared);
    if !is_shared && !node.gpus.iter().any(|plan| plan.is_drained) {
        return Some(Annotations::default());
    }
    let unit = node.gpus.iter().filter(|plan| plan.is_shared()).find_map(unit_mib);
    let usual = Usual {
        use_of_cards,
        driver: &status.driver,
        resource: node
            .gpus
            .iter()
            .filter(|plan| plan.is_shared())
            .find_map(|p| p.resource.as_ref()),
        unit_mib: unit.unwrap_or(USUAL_UNIT_MIB),
    };
    let cards = status.gpus.iter().zip(&node.gpus);
    let is_counted = |plan: &GpuPlan| is_shared && (plan.is_shared() || plan.kind.is_none());
    let count = node.gpus.iter().filter(|plan| is_counted(plan)).count();
    // Of a whole card there is nothing to tell but that it is out of service.
    let told = cards.filter(|(_, plan)| is_counted(plan) || plan.is_drained);
    let gpus: Vec<NodeGpu> = told.map(|(gpu, plan)| node_gpu(gpu, plan, &usual)).collect();
    Some(Annotations {
        count: is_shared.then(|| count.to_string()),
        gpus: Some(NodeGpus(gpus).to_annotation()),
    })
}

/// What isn't of one card's plan: what cards have that the config is refused on, and what is used.
struct Usual<'a> {
    use_of_cards: UseOfCards<'a>,
    driver: &'a str,
    resource: Option<&'a ResourceName>,
    unit_mib: u64,
}

fn node_gpu(gpu: &GpuStatus, plan: &GpuPlan, usual: &Usual<'_>) -> NodeGpu {
    let (major, minor) = gpu.compute_capability;
    let resource = plan.resource.as_ref().or(usual.resource);
    NodeGpu {
        uuid: gpu.uuid.clone(),
        index: gpu.index,
        model: gpu.model.clone(),
        memory_mib: gpu.memory_mib,
        unit_mib: unit_mib(plan).unwrap_or(usual.unit_mib),
        units: units(plan),
        state: state(gpu, plan).to_string(),
        resource: resource.map(ToString::to_string),
        reason_code: gpu.reason.as_ref().map(|reason| reason.code.clone()),
        reason: gpu.reason.as_ref().or(gpu.findings.first()).map(|reason| reason.message.clone()),
        held_units: usual.use_of_cards.held(&gpu.uuid),
        used_mib: usual.use_of_cards.usage.of(&gpu.uuid),
        outside_mib: usual.use_of_cards.usage.outside(&gpu.uuid),
        compute_capability: Some(format!("{major}.{minor}")),
        driver: Some(usual.driver.to_owned()),
    }
}

fn unit_mib(plan: &GpuPlan) -> Option<u64> {
    plan.unit.map(|unit| unit.memory.mib())
}

/// Units that containers hold or could: those that shares of a former config leave no room for
/// don't count. A card that is to be emptied has its units still, it is its state that keeps
/// containers away.
fn units(plan: &GpuPlan) -> u64 {
    let is_there = |unit: &&mpshare_core::Unit| {
        plan.resource.as_ref() == Some(&unit.resource)
            && (unit.state != UnitState::Unbacked || plan.is_drained)
    };
    u64::try_from(plan.units.iter().filter(is_there).count()).unwrap_or(u64::MAX)
}

/// A card that is ready for a former config isn't for this one.
fn state(gpu: &GpuStatus, plan: &GpuPlan) -> GpuState {
    match gpu.state {
        _ if plan.kind.is_none() && !plan.is_drained => GpuState::Refused,
        GpuState::Ready if gpu.generation != plan.generation.as_str() => GpuState::Starting,
        state => state,
    }
}

#[cfg(test)]
mod tests;
