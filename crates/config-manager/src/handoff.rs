//! What pods' annotations should say of their cards: what the kubelet says that they have.
//!
//! The scheduler's ledger believes the annotations, so an order of writes matters. Two pods of
//! equal size that got each other's cards, corrected one after the other, would for a moment both
//! be on one card, and the other would look free. So the wrong claims are withdrawn first, all of
//! them: a pod without a claim counts on every card.
//!
//! And a pod that took the place of one that is still on its way isn't corrected before that one
//! has taken the place that is left: until then the two claims add up to the truth, card by card.
//! Nobody waits for others than such, or with pods that come and go nothing would ever be corrected.
//! By the same reason what the device plugin steers by are the plans, and not the claims, while
//! these are being corrected ([`plans`]).

use std::collections::{BTreeMap, BTreeSet};

use mpshare_api::Holdings;
use mpshare_api::bound_pods::PodEnding;
use mpshare_api::holdings::{Holding, PodKey};
use mpshare_api::inventory_annotation::NodeGpus;
use mpshare_api::names::{
    ALLOCATION, MEMORY_RESOURCE, V1_ASSIGNED, V1_ASSUME_TIME, V1_DEVICE, V1_INDEX, V2_ALLOCATION,
    V2_ASSIGNED, V2_ASSUME_TIME,
};
use mpshare_api::pod::Pod;
use mpshare_api::pod_allocation::annotations;
use mpshare_core::GpuUuid;
use mpshare_core::ledger::{Allocation, Card, Claim, Demand, PodFacts, PodUid, Wish};

use crate::pods::kubelet_uid;

/// The annotations that say whether units have been handed out, and what they say then.
const ASSIGNED: [&str; 2] = [V1_ASSIGNED, V2_ASSIGNED];
const TRUE: &str = "true";

/// A pod of the node that asks for units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePod {
    /// What the ledger knows of it.
    pub facts: PodFacts,
    /// Its UID in the kubelet's books: of a static pod it is another one than the API's
    /// (facts/kubernetes.md 10).
    pub kubelet_uid: String,
    /// When it was created.
    pub created: String,
    /// Whether its annotations say that its units have been handed out, where they say such things.
    pub is_assigned: bool,
    /// That the kubelet is ending it.
    pub ending: Option<PodEnding>,
}

impl NodePod {
    /// Of a pod; `None` when it asks for nothing of ours or has ended.
    pub fn of(pod: &Pod, created: String) -> Option<Self> {
        let facts = pod.facts()?;
        let asks_memory =
            facts.demand.wishes().iter().any(|wish| wish.resource.as_str() == MEMORY_RESOURCE);
        let says_so = |key| pod.metadata.annotations.get(key).is_some_and(|value| value == TRUE);
        let is_assigned = !asks_memory || ASSIGNED.into_iter().all(says_so);
        let kubelet_uid = kubelet_uid(pod).to_owned();
        Some(Self { facts, kubelet_uid, created, is_assigned, ending: None })
    }
}

/// A change of one pod's annotations.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Correction {
    /// The pod's namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// A pod that has the name by now is another one.
    pub uid: String,
    /// What to change.
    pub change: Change,
}

/// What to change.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// The claim is wrong.
    Withdraw,
    /// The claim is right, and the units have been handed out.
    Assigned,
    /// These annotations say where the pod really is.
    Claim(BTreeMap<&'static str, String>),
}

impl Change {
    /// The annotations to write; `None` for one that is to go.
    pub fn annotations(&self) -> BTreeMap<&'static str, Option<String>> {
        match self {
            Self::Withdraw => {
                [ALLOCATION, V1_INDEX, V1_DEVICE, V2_ALLOCATION].map(|key| (key, None)).into()
            }
            Self::Assigned => ASSIGNED.map(|key| (key, Some(TRUE.to_owned()))).into(),
            Self::Claim(all) => {
                all.iter().map(|(key, value)| (*key, Some(value.clone()))).collect()
            }
        }
    }
}

/// Where pods were planned, by UID. A pod's plan is its claim, but for the time in which claims are
/// being corrected: then it is what the claim was before, so that all plans together go on to add up
/// to the truth.
pub type Plans = BTreeMap<PodUid, Claim>;

/// The plans from now on.
pub fn plans(
    before: &Plans,
    pods: &[NodePod],
    holdings: Option<&Holdings>,
    gpus: Option<&NodeGpus>,
) -> Plans {
    let is_calm = holdings.zip(gpus).is_some_and(|(holdings, gpus)| {
        let cards = gpus.cards();
        let is_true = |pod: &NodePod| match truth(pod, holdings, &cards) {
            Truth::At(truth) => pod.facts.claim == Claim::Of(truth),
            Truth::OnItsWay | Truth::Odd | Truth::NotShared => true,
        };
        pods.iter().all(is_true)
    });
    let plan = |pod: &NodePod| {
        let known = before.get(&pod.facts.uid).filter(|_| !is_calm);
        (pod.facts.uid.clone(), known.unwrap_or(&pod.facts.claim).clone())
    };
    pods.iter().map(plan).collect()
}

/// What has to be written now, given the node's cards and who holds what of them.
pub fn corrections(
    pods: &[NodePod],
    plans: &Plans,
    holdings: &Holdings,
    gpus: Option<&NodeGpus>,
) -> Vec<Correction> {
    let Some(gpus) = gpus else { return Vec::new() };
    let cards = gpus.cards();
    let (mut now, mut wrong, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    let mut exchanged = Exchange::default();
    for pod in pods {
        let truth = match truth(pod, holdings, &cards) {
            Truth::At(truth) => truth,
            Truth::OnItsWay => {
                exchanged.await_one(plans.get(&pod.facts.uid));
                continue;
            }
            Truth::Odd | Truth::NotShared => continue,
        };
        exchanged.note(plans.get(&pod.facts.uid), &truth);
        match &pod.facts.claim {
            Claim::Of(claimed) if *claimed == truth && pod.is_assigned => {}
            Claim::Of(claimed) if *claimed == truth => now.push(correct(pod, Change::Assigned)),
            Claim::Of(_) => wrong.push(correct(pod, Change::Withdraw)),
            Claim::Absent | Claim::Unreadable => {
                let all = claim(&truth, &pod.facts, &cards);
                missing.push(correct(pod, Change::Claim(all)));
            }
        }
    }
    if exchanged.is_over() {
        now.append(if wrong.is_empty() { &mut missing } else { &mut wrong });
    }
    now.sort_unstable();
    now
}

/// Whose place has been taken by whom.
#[derive(Debug, Default)]
struct Exchange {
    /// Places that were taken, less those that were planned, of pods that have come; by units and
    /// card.
    taken: BTreeMap<(u64, GpuUuid), i64>,
    /// The plans of those that haven't.
    awaited: BTreeSet<(u64, GpuUuid)>,
}

impl Exchange {
    fn note(&mut self, plan: Option<&Claim>, truth: &Allocation) {
        let plan = plan.into_iter().flat_map(claimed_places).map(|place| (place, -1));
        for (place, one) in places(truth).map(|place| (place, 1)).chain(plan) {
            *self.taken.entry(place).or_default() += one;
        }
    }

    fn await_one(&mut self, plan: Option<&Claim>) {
        self.awaited.extend(plan.into_iter().flat_map(claimed_places));
    }

    /// Whether nobody is on its way whose place somebody has taken.
    fn is_over(&self) -> bool {
        let more_than_planned = self.taken.iter().filter(|(_, count)| **count > 0);
        more_than_planned.map(|(place, _)| place).all(|place| !self.awaited.contains(place))
    }
}

/// The places that a claim names, by units and card.
fn claimed_places(claim: &Claim) -> impl Iterator<Item = (u64, GpuUuid)> {
    let allocation = if let Claim::Of(allocation) = claim { Some(allocation) } else { None };
    allocation.into_iter().flat_map(places)
}

fn places(allocation: &Allocation) -> impl Iterator<Item = (u64, GpuUuid)> {
    allocation.0.values().flatten().map(|(gpu, units)| (*units, gpu.clone()))
}

/// How many units of each card pods have that are there: the truth that a scheduler's ledger can be
/// compared with.
pub(crate) fn held(pods: &[NodePod], holdings: &Holdings) -> BTreeMap<String, u64> {
    let mut held = BTreeMap::new();
    for pod in pods {
        // Containers that hold the same units one after the other are one pod's peak.
        for (gpu, units) in peaks(pod, holdings) {
            *held.entry(gpu).or_default() += units;
        }
    }
    held
}

fn peaks(pod: &NodePod, holdings: &Holdings) -> BTreeMap<String, u64> {
    let mut by_card: BTreeMap<String, Vec<Wish>> = BTreeMap::new();
    for wish in pod.facts.demand.wishes() {
        for holding in holdings.entries.iter().filter(|it| is_for(it, pod, wish)) {
            let wish = Wish { units: holding.units, ..wish.clone() };
            by_card.entry(holding.gpu.clone()).or_default().push(wish);
        }
    }
    by_card.into_iter().map(|(gpu, wishes)| (gpu, Demand::new(wishes).peak())).collect()
}

/// Whether a holding is of the container that wishes.
fn is_for(holding: &Holding, pod: &NodePod, wish: &Wish) -> bool {
    is_of(&holding.pod, pod)
        && holding.container == wish.container
        && holding.resource == wish.resource.as_str()
}

/// All that is to be said of a pod that is there. The time of the decision is its scheduler's.
fn claim(truth: &Allocation, pod: &PodFacts, cards: &[Card]) -> BTreeMap<&'static str, String> {
    let mut all = annotations(truth, &pod.demand, cards, 0);
    all.retain(|key, _| ![V1_ASSUME_TIME, V2_ASSUME_TIME].contains(key));
    for key in ASSIGNED {
        all.entry(key).and_modify(|value| TRUE.clone_into(value));
    }
    all
}

/// Whether a container asks for units of shared cards of the node.
fn is_shared(wish: &Wish, cards: &[Card]) -> bool {
    let mut offered = cards.iter().filter(|card| card.resource == wish.resource);
    // Units of memory are placed also where a card has one alone.
    if wish.resource.is_memory() {
        return offered.next().is_some();
    }
    // A whole card is told of only when it is drained, beside shared ones too.
    let is_drained_whole = |card: &&Card| card.is_whole() && card.not_ready.is_some();
    let mut offered = offered.filter(|card| !is_drained_whole(card)).peekable();
    offered.peek().is_some() && offered.all(|card| !card.is_whole())
}

/// Where a pod is.
enum Truth {
    /// All of its containers are there.
    At(Allocation),
    /// A container has nothing yet.
    OnItsWay,
    /// A container has something else than it asks for, such as units of a former config.
    Odd,
    /// Not on shared cards of this node.
    NotShared,
}

fn truth(pod: &NodePod, holdings: &Holdings, cards: &[Card]) -> Truth {
    let shared: Vec<&Wish> =
        pod.facts.demand.wishes().iter().filter(|wish| is_shared(wish, cards)).collect();
    if shared.is_empty() {
        return Truth::NotShared;
    }
    let mut allocation = Allocation::default();
    for wish in shared {
        let mine: Vec<&Holding> =
            holdings.entries.iter().filter(|holding| is_for(holding, pod, wish)).collect();
        let here = match mine.as_slice() {
            [] => return Truth::OnItsWay,
            [one] if one.units == wish.units => {
                cards.iter().find(|card| card.uuid.as_str() == one.gpu)
            }
            _ => None,
        };
        let Some(card) = here else { return Truth::Odd };
        allocation.0.insert(wish.container.clone(), [(card.uuid.clone(), wish.units)].into());
    }
    Truth::At(allocation)
}

fn is_of(key: &PodKey, pod: &NodePod) -> bool {
    match key {
        PodKey::Uid(uid) => *uid == pod.kubelet_uid,
        PodKey::Name { namespace, name } => {
            *namespace == pod.facts.namespace && *name == pod.facts.name
        }
    }
}

fn correct(pod: &NodePod, change: Change) -> Correction {
    Correction {
        namespace: pod.facts.namespace.clone(),
        name: pod.facts.name.clone(),
        uid: pod.facts.uid.0.clone(),
        change,
    }
}

#[cfg(test)]
mod tests;
