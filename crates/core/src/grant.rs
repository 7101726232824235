//! Device ids -> the share that a container gets, or the reason why it gets none.
//!
//! An id names a card and counts as one unit of the plan in force now, whatever its number: a
//! kubelet may hand out an id of a former configuration in the moment in which its last owner
//! ends. So an answer depends only on what the card has left, and the sum of live shares can't
//! pass the card's memory.

use crate::plan::plan;
use crate::share::without_ids;
use crate::{
    DeviceId, Gpu, GpuPlan, GpuUuid, Inventory, LargeRequests, LiveShare, Memory, Mode, NodeConfig,
    NodePlan, Reason, ResourceName, Share, ThreadPercent, UnitKind,
};

/// What one request gets: one share under MPS, or one or more whole cards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// One entry per card, in the order of the inventory; never empty.
    pub shares: Vec<LiveShare>,
    /// The live shares of the node once this grant is in force.
    pub live: Vec<LiveShare>,
    /// How many units the card has in all, where they are amounts of memory.
    pub memory_units: Option<u32>,
}

/// Decides on a request of one container for `ids` of `resource`.
pub fn grant(
    config: &NodeConfig,
    inventory: &Inventory,
    live: &[LiveShare],
    resource: &ResourceName,
    ids: &[DeviceId],
) -> Result<Grant, Reason> {
    let mut ids = ids.to_vec();
    ids.sort();
    ids.dedup();
    let others = without_ids(live, resource, &ids);
    let node = plan(config, inventory, &others);
    let requests = by_gpu(inventory, &ids)?;
    let kinds = requests
        .iter()
        .map(|(gpu, ids)| share_of(&node, gpu, resource, ids))
        .collect::<Result<Vec<_>, _>>()?;
    let is_shared = kinds.iter().any(|share| share.mode == Mode::Mps);
    if is_shared && kinds.len() > 1 {
        return Err(spans(&node, ids.len()));
    }
    let memory_units = memory_units(&node, &kinds);
    let is_replica = is_shared && memory_units.is_none();
    if is_replica && ids.len() > 1 && config.large_requests == LargeRequests::Refuse {
        return Err(Reason::OneUnitOnly { asked: ids.len() });
    }
    let live = others.into_iter().chain(kinds.iter().cloned()).collect();
    Ok(Grant { shares: kinds, live, memory_units })
}

fn memory_units(node: &NodePlan, shares: &[LiveShare]) -> Option<u32> {
    let mut cards = shares.iter().filter_map(|share| node.gpu(&share.gpu));
    let card = cards.find(|plan| plan.kind == Some(UnitKind::Memory))?;
    Some(card.replicas)
}

fn by_gpu<'a>(
    inventory: &'a Inventory,
    ids: &[DeviceId],
) -> Result<Vec<(&'a Gpu, Vec<DeviceId>)>, Reason> {
    if ids.is_empty() {
        return Err(Reason::EmptyRequest);
    }
    if let Some(id) = ids.iter().find(|id| inventory.gpu(id.gpu()).is_none()) {
        return Err(Reason::UnknownDevice { id: id.to_string() });
    }
    let of = |gpu: &Gpu| ids.iter().filter(|id| *id.gpu() == gpu.uuid).cloned().collect();
    let all = inventory.gpus.iter().map(|gpu| (gpu, of(gpu)));
    Ok(all.filter(|(_, ids): &(_, Vec<_>)| !ids.is_empty()).collect())
}

fn share_of(
    node: &NodePlan,
    gpu: &Gpu,
    resource: &ResourceName,
    ids: &[DeviceId],
) -> Result<LiveShare, Reason> {
    let uuid = &gpu.uuid;
    let plan = node.gpu(uuid).ok_or_else(|| Reason::UnknownDevice { id: uuid.to_string() })?;
    let asked = u32::try_from(ids.len()).unwrap_or(u32::MAX);
    if asked > plan.free || !plan.offers(resource) {
        return Err(refusal(plan, asked));
    }
    let unit = plan.unit.ok_or_else(|| refusal(plan, asked))?;
    let mode = if plan.is_shared() { Mode::Mps } else { Mode::Exclusive };
    Ok(LiveShare {
        ids: ids.to_vec(),
        gpu: uuid.clone(),
        resource: resource.clone(),
        mode,
        share: times(plan, unit, asked, gpu),
    })
}

/// n units; all parts of a card are the whole card, with what rounding took from each.
fn times(plan: &GpuPlan, unit: Share, asked: u32, gpu: &Gpu) -> Share {
    let is_whole = asked == plan.replicas && plan.free == plan.replicas;
    if is_whole && plan.kind != Some(UnitKind::Memory) {
        return Share { memory: gpu.memory, percent: ThreadPercent::FULL };
    }
    Share { memory: unit.memory.times(asked.into()), percent: unit.percent.times(asked) }
}

fn refusal(plan: &GpuPlan, asked: u32) -> Reason {
    if let Some(reason) = plan.reason.clone().filter(|_| plan.free == 0) {
        return reason;
    }
    Reason::NotEnoughLeft {
        gpu: plan.gpu.clone(),
        asked,
        free: plan.free,
        unit: plan.unit.map_or(Memory::ZERO, |unit| unit.memory),
        left: plan.left,
    }
}

fn spans(node: &NodePlan, asked: usize) -> Reason {
    let free: Vec<(GpuUuid, u32)> =
        node.gpus.iter().map(|plan| (plan.gpu.clone(), plan.free)).collect();
    Reason::SpansGpus { asked, free }
}

#[cfg(test)]
mod tests;
