//! A node: its kubelet's device manager, which counts units per card, and our plugin beside it, which
//! names the card.

use std::collections::{BTreeMap, BTreeSet};

use mpshare_api::pod::Pod;
use mpshare_api::pod_allocation::{claim, text};
use mpshare_core::ledger::{Allocation, Claim};

use crate::api::Api;

/// How the plugin finds the card for a request of the kubelet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Steering {
    /// By the plan of the very container. A real one doesn't know for whom it is asked.
    Exact,
    /// By the plan of any container that waits for as much, the first to be created first.
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

/// A container that holds nothing yet.
struct Awaited<'a> {
    uid: &'a str,
    container: String,
    units: u64,
    /// The card of its plan.
    card: Option<usize>,
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

    fn choose(&self, api: &Api, request: &Request<'_>, steering: Steering) -> Option<usize> {
        let units = request.units;
        let mut fitting: Vec<usize> =
            (0..self.cards.len()).filter(|card| self.room(*card) >= units).collect();
        if let Steering::Blind(number) = steering {
            return fitting.get(number.checked_rem(fitting.len())?).copied();
        }
        let awaited = self.awaited(api);
        let is_own = |it: &&Awaited<'_>| it.uid == request.uid && it.container == request.container;
        let own = awaited.iter().find(is_own).and_then(|it| it.card);
        if steering == Steering::Exact
            && let Some(card) = own.filter(|card| fitting.contains(card))
        {
            return Some(card);
        }
        let rank = |card: usize| {
            let same = awaited.iter().position(|it| it.units == units && it.card == Some(card));
            let others: u64 =
                awaited.iter().filter(|it| it.card == Some(card)).map(|it| it.units).sum();
            let takes_away = self.room(card).saturating_sub(others) < units;
            (same.unwrap_or(usize::MAX), takes_away, self.room(card), card)
        };
        fitting.sort_by_key(|card| rank(*card));
        fitting.first().copied()
    }

    fn awaited<'a>(&self, api: &'a Api) -> Vec<Awaited<'a>> {
        let mut awaited = Vec::new();
        for pod in api.on(self.name) {
            let uid = pod.metadata.uid.as_str();
            let plan = claimed(pod);
            for wish in pod.demand().wishes() {
                if self.held.get(uid).is_some_and(|held| held.contains_key(&wish.container)) {
                    continue;
                }
                let card = plan.as_ref().and_then(|plan| {
                    let (gpu, _) = plan.0.get(&wish.container)?.first_key_value()?;
                    self.cards.iter().position(|card| card.uuid == gpu.as_str())
                });
                let (container, units) = (wish.container.clone(), wish.units);
                awaited.push(Awaited { uid, container, units, card });
            }
        }
        awaited
    }

    /// The container processes of a pod end: its units are free for others, before the API knows.
    pub(crate) fn end(&mut self, uid: &str) {
        self.held.remove(uid);
    }

    /// Where a pod of this node really is; `None` until all of it has come.
    pub(crate) fn truth(&self, pod: &Pod) -> Option<Allocation> {
        let held = self.held.get(&pod.metadata.uid)?;
        let mut allocation = Allocation::default();
        for wish in pod.demand().wishes() {
            let (card, units) = held.get(&wish.container)?;
            let uuid = self.cards[*card].uuid.parse().ok()?;
            allocation.0.insert(wish.container.clone(), [(uuid, *units)].into());
        }
        Some(allocation)
    }

    /// Corrects annotations as config-manager does: wrong claims go, all of them, before any is made
    /// anew, and none is while a pod is on its way to its units. Whether there was anything to write.
    pub(crate) fn correct(&self, api: &mut Api) -> bool {
        let (mut wrong, mut absent, mut all_have_come) = (Vec::new(), Vec::new(), true);
        for pod in api.on(self.name) {
            let uid = &pod.metadata.uid;
            let Some(truth) = self.truth(pod) else {
                // One that is over, and only hasn't told so yet, doesn't come again.
                all_have_come &= self.seen.contains(uid);
                continue;
            };
            match claimed(pod) {
                Some(claim) if claim == truth => {}
                Some(_) => wrong.push(uid.clone()),
                None => absent.push((uid.clone(), text(&truth))),
            }
        }
        if !wrong.is_empty() {
            for uid in wrong {
                api.annotate(&uid, None);
            }
            return true;
        }
        if !all_have_come || absent.is_empty() {
            return false;
        }
        for (uid, text) in absent {
            api.annotate(&uid, Some(text));
        }
        true
    }
}
