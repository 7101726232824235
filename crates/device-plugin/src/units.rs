//! Which device list the kubelet should have now: a function of the plan, the supervisor's
//! report, what was sent before, and the time.
//!
//! A unit is healthy only while the supervisor reports its card ready at the very generation that
//! the plan names. Two exceptions keep the list calm: a config change on a ready card (see
//! [`Standing::Settling`]), and ids that leave the plan, which go unhealthy first and vanish when
//! no kubelet can be handing them out any more (facts/kubernetes.md 1.3).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use mpshare_api::{GpuState, GpuStatus, NodeStatus};
use mpshare_core::{
    DeviceId, Generation, GpuPlan, GpuUuid, LiveShare, NodePlan, ResourceName, UnitState,
};
use mpshare_kubelet::device_plugin::{Device, HEALTHY, NumaNode, TopologyInfo, UNHEALTHY};

use crate::activity::Activity;

/// What was decided last: the lists, and what the next decision needs to remember.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Offers {
    cards: BTreeMap<GpuUuid, Card>,
    lists: BTreeMap<ResourceName, UnitList>,
}

/// The units of one resource.
pub(crate) type UnitList = BTreeMap<DeviceId, Offered>;

/// One unit in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Offered {
    /// Whether it may be handed out.
    pub(crate) health: Health,
    numa_node: Option<u32>,
    /// Since when it has been about to leave the list.
    leaving: Option<Instant>,
}

/// Whether the kubelet may hand a unit out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Health {
    /// Yes.
    Healthy,
    /// No.
    Unhealthy,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Card {
    generation: Generation,
    standing: Standing,
}

/// Whether new units of a card are on offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Verified.
    Verified,
    /// The plan has moved on and the supervisor is following: what was on offer stays so for a
    /// moment. `Allocate` already decides by the new plan, and containers wait before they start.
    Settling { since: Instant },
    /// Not on offer.
    Down,
}

/// What a decision depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inputs<'a> {
    /// What the node should offer; `None` while config or inventory is unknown.
    pub(crate) plan: Option<&'a NodePlan>,
    /// The supervisor's report.
    pub(crate) status: Option<&'a NodeStatus>,
    /// Shares that containers hold.
    pub(crate) live: &'a [LiveShare],
    /// What the kubelet is asking.
    pub(crate) activity: Activity,
    /// How long a change may take to be followed.
    pub(crate) settle: Duration,
    /// How long a leaving id stays.
    pub(crate) leaving: Duration,
}

/// A decision and when it has to be made again, if nothing happens before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decision {
    /// The lists.
    pub(crate) offers: Offers,
    /// When time alone changes them.
    pub(crate) again: Option<Instant>,
}

impl Offers {
    /// The lists by resource; one that has become empty stays, for the kubelet to see.
    pub(crate) fn lists(&self) -> &BTreeMap<ResourceName, UnitList> {
        &self.lists
    }

    /// Whether every card of the plan has the supervisor's verdict, good or bad.
    pub(crate) fn all_judged(&self, status: Option<&NodeStatus>) -> bool {
        let judged = |(uuid, card): (&GpuUuid, &Card)| {
            let state = status.and_then(|status| status.gpu(uuid.as_str()));
            let is_bad = state.is_some_and(|gpu| match gpu.state {
                GpuState::Absent | GpuState::Fault | GpuState::Refused => true,
                GpuState::Draining => gpu.generation == card.generation.as_str(),
                GpuState::Starting | GpuState::Ready => false,
            });
            card.standing == Standing::Verified || is_bad
        };
        !self.cards.is_empty() && self.cards.iter().all(judged)
    }
}

/// Decides what to offer after `former`.
pub(crate) fn decide(former: &Offers, inputs: &Inputs<'_>, now: Instant) -> Decision {
    let plans = inputs.plan.iter().flat_map(|plan| &plan.gpus);
    let cards: BTreeMap<GpuUuid, Card> = plans
        .map(|plan| (plan.gpu.clone(), card(former.cards.get(&plan.gpu), plan, inputs, now)))
        .collect();
    let mut lists = wanted(former, &cards, inputs);
    let mut again: Vec<Instant> = Vec::new();
    for (resource, before) in &former.lists {
        let list = lists.entry(resource.clone()).or_default();
        for (id, offered) in before {
            if list.contains_key(id) {
                continue;
            }
            let leaving = Offered {
                health: Health::Unhealthy,
                leaving: offered.leaving.or(Some(now)),
                ..*offered
            };
            match leaves_at(leaving, inputs) {
                Some(at) if at <= now => {}
                at => {
                    list.insert(id.clone(), leaving);
                    again.extend(at);
                }
            }
        }
    }
    again.extend(cards.values().filter_map(|card| match card.standing {
        Standing::Settling { since } => Some(since + inputs.settle),
        Standing::Verified | Standing::Down => None,
    }));
    Decision { offers: Offers { cards, lists }, again: again.into_iter().min() }
}

/// When a leaving unit may go; `None` while a call of the kubelet is under way.
fn leaves_at(unit: Offered, inputs: &Inputs<'_>) -> Option<Instant> {
    let quiet = inputs.activity.quiet_since(unit.leaving?)?;
    Some(quiet + inputs.leaving)
}

fn card(former: Option<&Card>, plan: &GpuPlan, inputs: &Inputs<'_>, now: Instant) -> Card {
    let generation = plan.generation.clone();
    let status = gpu_status(inputs, &plan.gpu);
    let standing = standing(former, &generation, status, now);
    let expired = matches!(standing, Standing::Settling { since } if now >= since + inputs.settle);
    Card { generation, standing: if expired { Standing::Down } else { standing } }
}

fn standing(
    former: Option<&Card>,
    generation: &Generation,
    status: Option<&GpuStatus>,
    now: Instant,
) -> Standing {
    let Some(status) = status else {
        return Standing::Down;
    };
    if status.state == GpuState::Ready && status.generation == generation.as_str() {
        return Standing::Verified;
    }
    // While the supervisor follows, a card is ready at the old generation or being set up.
    let follows = matches!(status.state, GpuState::Ready | GpuState::Starting);
    match former {
        Some(card) if follows => match card.standing {
            Standing::Verified if card.generation != *generation => {
                Standing::Settling { since: now }
            }
            Standing::Settling { since } => Standing::Settling { since },
            Standing::Verified | Standing::Down => Standing::Down,
        },
        Some(_) | None => Standing::Down,
    }
}

/// The lists that the plan names, and without a plan the units that are held.
fn wanted(
    former: &Offers,
    cards: &BTreeMap<GpuUuid, Card>,
    inputs: &Inputs<'_>,
) -> BTreeMap<ResourceName, UnitList> {
    let mut lists: BTreeMap<ResourceName, UnitList> = BTreeMap::new();
    let mut add = |resource: &ResourceName, id: &DeviceId, health| {
        let numa_node = gpu_status(inputs, id.gpu()).and_then(|gpu| gpu.numa_node);
        let offered = Offered { health, numa_node, leaving: None };
        let list = lists.entry(resource.clone()).or_default();
        list.insert(id.clone(), offered);
    };
    for unit in inputs.plan.iter().flat_map(|plan| &plan.gpus).flat_map(|gpu| &gpu.units) {
        let before = former.lists.get(&unit.resource).and_then(|list| list.get(&unit.id));
        let health = match unit.state {
            UnitState::Held => held_health(gpu_status(inputs, unit.id.gpu())),
            UnitState::Free => free_health(cards.get(unit.id.gpu()), before),
            UnitState::Unbacked => Health::Unhealthy,
        };
        add(&unit.resource, &unit.id, health);
    }
    let is_planned = |gpu: &GpuUuid| inputs.plan.is_some_and(|plan| plan.gpu(gpu).is_some());
    for live in inputs.live.iter().filter(|live| !is_planned(&live.gpu)) {
        for id in &live.ids {
            add(&live.resource, id, held_health(gpu_status(inputs, &live.gpu)));
        }
    }
    lists
}

/// A kubelet that restarts admits its pods again and fails one whose ids are unhealthy, if a
/// container of it isn't running (facts/kubernetes.md 1.8): held units are unhealthy only where
/// the card is, never because of a configuration.
fn held_health(status: Option<&GpuStatus>) -> Health {
    match status.map(|status| status.state) {
        Some(GpuState::Ready | GpuState::Starting | GpuState::Draining | GpuState::Refused) => {
            Health::Healthy
        }
        Some(GpuState::Absent | GpuState::Fault) | None => Health::Unhealthy,
    }
}

fn free_health(card: Option<&Card>, before: Option<&Offered>) -> Health {
    let was_offered = before.is_some_and(|unit| unit.health == Health::Healthy);
    match card.map(|card| card.standing) {
        Some(Standing::Verified) => Health::Healthy,
        Some(Standing::Settling { .. }) if was_offered => Health::Healthy,
        Some(Standing::Settling { .. } | Standing::Down) | None => Health::Unhealthy,
    }
}

fn gpu_status<'a>(inputs: &Inputs<'a>, gpu: &GpuUuid) -> Option<&'a GpuStatus> {
    inputs.status.and_then(|status| status.gpu(gpu.as_str()))
}

/// A list as the kubelet takes it.
pub(crate) fn devices(list: &UnitList) -> Vec<Device> {
    let device = |(id, unit): (&DeviceId, &Offered)| Device {
        id: id.to_string(),
        health: match unit.health {
            Health::Healthy => HEALTHY.into(),
            Health::Unhealthy => UNHEALTHY.into(),
        },
        topology: unit
            .numa_node
            .map(|node| TopologyInfo { nodes: vec![NumaNode { id: node.into() }] }),
    };
    list.iter().map(device).collect()
}

#[cfg(test)]
mod tests;
