//! A node: its kubelet's device manager, which counts units per card, and our plugin beside it, which
//! names the card.

use std::collections::{BTreeMap, BTreeSet};

use mpshare_api::holdings::{Holding, PodKey};
use mpshare_api::names::MEMORY_RESOURCE;
use mpshare_api::pod::Pod;
use mpshare_api::pod_allocation::claim;
use mpshare_api::{BoundPods, Holdings};
use mpshare_config_manager::handoff::{NodePod, Plans, corrections, plans};
use mpshare_core::ResourceName;
use mpshare_core::ledger::{Allocation, Claim, PodFacts};
use mpshare_core::preference::Slot;
use mpshare_device_plugin::handoff::{Come, slots};
use mpshare_kubelet::checkpoint::Entry;

use crate::api::Api;

/// How the plugin finds the card for a request of the kubelet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Steering {
    /// By the plan of the very container. A real one doesn't know for whom it is asked.
    Exact,
    /// By the plans that nobody has taken yet.
    BySize,
    /// It doesn't know yet that anybody waits; any card will do, and this number decides.
    Blind(usize),
}

/// One `Allocate`.
struct Request<'a> {
    uid: &'a str,
    container: &'a str,
    units: u64,
}

/// A card.
#[derive(Debug, Clone)]
pub(crate) struct Card {
    pub(crate) uuid: String,
    /// What it was built with.
    pub(crate) size: u64,
    /// What is offered.
    pub(crate) units: u64,
    pub(crate) is_ready: bool,
}

/// What a container got: which card, how many units.
type Held = BTreeMap<String, (usize, u64)>;

/// A node.
#[derive(Debug)]
pub(crate) struct Kubelet {
    pub(crate) name: &'static str,
    pub(crate) cards: Vec<Card>,
    /// Per pod, what its containers hold.
    pub(crate) held: BTreeMap<String, Held>,
    /// Pods that it has decided about.
    seen: BTreeSet<String>,
    /// What config-manager tells the plugin to steer by.
    plans: Plans,
    come: Come,
}

/// What became of a pod that came to the kubelet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It runs.
    Admitted,
    /// `UnexpectedAdmissionError`.
    Failed,
}

/// What a pod's annotation claims.
pub(crate) fn claimed(pod: &Pod) -> Option<Allocation> {
    let text = pod.metadata.annotations.get(mpshare_api::names::ALLOCATION);
    match claim(text.map(String::as_str)) {
        Claim::Of(allocation) => Some(allocation),
        Claim::Absent | Claim::Unreadable => None,
    }
}

impl Kubelet {
    pub(crate) fn new(name: &'static str, cards: &[u64]) -> Self {
        let card = |(index, units): (usize, &u64)| Card {
            uuid: format!("GPU-0{index}"),
            size: *units,
            units: *units,
            is_ready: true,
        };
        Self {
            name,
            cards: cards.iter().enumerate().map(card).collect(),
            held: BTreeMap::new(),
            seen: BTreeSet::new(),
            plans: Plans::new(),
            come: Come::default(),
        }
    }

    /// Tells the API of its cards.
    pub(crate) fn publish(&self, api: &mut Api) {
        let card = |card: &Card| (card.uuid.clone(), card.units, card.is_ready);
        let cards: Vec<_> = self.cards.iter().map(card).collect();
        api.publish(self.name, &cards);
    }

    /// What is held on a card.
    pub(crate) fn on_card(&self, card: usize) -> u64 {
        let all = self.held.values().flat_map(BTreeMap::values);
        all.filter(|(place, _)| *place == card).map(|(_, units)| units).sum()
    }

    fn room(&self, card: usize) -> u64 {
        let it = &self.cards[card];
        if it.is_ready { it.units.saturating_sub(self.on_card(card)) } else { 0 }
    }

    /// The pods that have yet to come to it.
    pub(crate) fn coming(&self, api: &Api) -> Vec<String> {
        let waiting = api.on(self.name).filter(|pod| {
            !self.seen.contains(&pod.metadata.uid) && pod.metadata.deletion_timestamp.is_none()
        });
        waiting.map(|pod| pod.metadata.uid.clone()).collect()
    }

    /// Takes note of deletions. A watch tells them in the order of the writes, so before a pod that
    /// was bound after them.
    pub(crate) fn forget_gone(&mut self, api: &Api) {
        self.held.retain(|uid, _| api.pods.contains_key(uid));
    }

    /// Admits a pod: one `Allocate` per container, each from one card.
    pub(crate) fn admit(&mut self, api: &mut Api, uid: &str, steering: Steering) -> Admission {
        self.forget_gone(api);
        self.seen.insert(uid.to_owned());
        let demand = api.pods.get(uid).map(|pod| pod.demand()).unwrap_or_default();
        for wish in demand.wishes() {
            let request = Request { uid, container: &wish.container, units: wish.units };
            let Some(card) = self.choose(api, &request, steering) else {
                self.held.remove(uid);
                api.change(uid, |pod| "Failed".clone_into(&mut pod.status.phase));
                return Admission::Failed;
            };
            let held = self.held.entry(uid.to_owned()).or_default();
            held.insert(wish.container.clone(), (card, wish.units));
        }
        api.change(uid, |pod| "Running".clone_into(&mut pod.status.phase));
        Admission::Admitted
    }

    fn choose(&mut self, api: &Api, request: &Request<'_>, steering: Steering) -> Option<usize> {
        let units = request.units;
        let mut fitting: Vec<usize> =
            (0..self.cards.len()).filter(|card| self.room(*card) >= units).collect();
        if let Steering::Blind(number) = steering {
            return fitting.get(number.checked_rem(fitting.len())?).copied();
        }
        if steering == Steering::Exact
            && let Some(card) = self.own_plan(api, request).filter(|card| fitting.contains(card))
        {
            return Some(card);
        }
        let slots = self.slots(api);
        let rank = |card: usize| {
            let here = |slot: &&Slot| slot.gpu.as_str() == self.cards[card].uuid;
            let same = slots.iter().position(|slot| slot.units == units && here(&slot));
            let others: u64 = slots.iter().filter(here).map(|slot| slot.units).sum();
            let takes_away = self.room(card).saturating_sub(others) < units;
            (same.unwrap_or(usize::MAX), takes_away, self.room(card), card)
        };
        fitting.sort_by_key(|card| rank(*card));
        fitting.first().copied()
    }

    fn own_plan(&self, api: &Api, request: &Request<'_>) -> Option<usize> {
        let plan = claimed(api.pods.get(request.uid)?)?;
        let (gpu, _) = plan.0.get(request.container)?.first_key_value()?;
        self.cards.iter().position(|card| card.uuid == gpu.as_str())
    }

    /// What the plugin is told of pods.
    fn bound(&self, api: &Api) -> BoundPods {
        let planned = |pod: NodePod| {
            let plan = self.plans.get(&pod.facts.uid).cloned();
            PodFacts { claim: plan.unwrap_or(pod.facts.claim.clone()), ..pod.facts }
        };
        BoundPods::of(&self.pods(api).into_iter().map(planned).collect::<Vec<_>>())
    }

    fn checkpoint(&self) -> Vec<Entry> {
        let entries = self.held.iter().flat_map(|(uid, held)| {
            held.iter().map(|(container, (card, units))| Entry {
                pod_uid: uid.clone(),
                container: container.clone(),
                resource: MEMORY_RESOURCE.to_owned(),
                device_ids: self.ids(*card, *units),
                reply: None,
            })
        });
        entries.collect()
    }

    /// What the plugin knows of plans that nobody has taken.
    fn slots(&mut self, api: &Api) -> Vec<Slot> {
        let (bound, checkpoint) = (self.bound(api), self.checkpoint());
        self.come.note(&bound, &checkpoint);
        let resource: Option<ResourceName> = MEMORY_RESOURCE.parse().ok();
        resource.map(|it| slots(&bound, &checkpoint, &self.come, &it)).unwrap_or_default()
    }

    fn ids(&self, card: usize, units: u64) -> BTreeSet<String> {
        (0..units).map(|unit| format!("{}::{unit}", self.cards[card].uuid)).collect()
    }

    fn pods(&self, api: &Api) -> Vec<NodePod> {
        let all = api.on(self.name);
        all.filter_map(|pod| NodePod::of(pod, pod.metadata.uid.clone())).collect()
    }

    fn holdings(&self) -> Holdings {
        let entries = self.held.iter().flat_map(|(uid, held)| {
            held.iter().map(|(container, (card, units))| Holding {
                pod: PodKey::Uid(uid.clone()),
                container: container.clone(),
                resource: MEMORY_RESOURCE.to_owned(),
                gpu: self.cards[*card].uuid.clone(),
                units: *units,
            })
        });
        Holdings::of(entries.collect())
    }

    /// What its config-manager knows by now.
    pub(crate) fn look(&mut self, api: &Api) {
        let gpus = api.gpus.get(self.name);
        self.plans = plans(&self.plans, &self.pods(api), Some(&self.holdings()), gpus);
        self.come.note(&self.bound(api), &self.checkpoint());
    }

    /// The container processes of a pod end: its units are free for others, before the API knows.
    pub(crate) fn end(&mut self, uid: &str) {
        self.held.remove(uid);
    }

    /// Corrects annotations as config-manager does, by its own rules. What was
    /// written.
    pub(crate) fn correct(&mut self, api: &mut Api) -> Vec<String> {
        self.look(api);
        let gpus = api.gpus.get(self.name);
        let all = corrections(&self.pods(api), &self.plans, &self.holdings(), gpus);
        for correction in &all {
            api.annotate(&correction.uid, correction.change.annotations());
        }
        all.iter().map(|it| format!("{}: {:?}", it.uid, it.change)).collect()
    }
}
