//! The ledger itself: facts in, what is held out, and the reservations of binds in flight.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::time::Duration;

use super::deadline::Deadline;
use super::departed::AllDeparted;
use super::fit::{Opening, Plan, Unfit};
use super::usage::{NodeUse, UNKNOWN, UNKNOWN_USE, is_memory};
use super::{Allocation, Claim, Demand, NodeFacts, NodeName, Outside, PodFacts, PodUid, Wish};
use crate::{Memory, Reason, ResourceName};

/// How long a bind may still take effect of which nobody knows how it ended; the API server gives
/// up on a request after a minute.
const UNCERTAIN: Duration = Duration::from_secs(90);

/// All nodes and pods, and what follows from them.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    nodes: BTreeMap<NodeName, NodeFacts>,
    /// The resources of all cards that there ever were: a handful.
    resources: BTreeSet<ResourceName>,
    pods: BTreeMap<PodUid, PodFacts>,
    /// The pods whose claims have been changed by who knows whom.
    doubts: BTreeMap<PodUid, Doubt>,
    /// The pods that weren't confirmed when they were first listed, and until when they aren't
    /// believed to be where they claim to be.
    unsure: BTreeMap<PodUid, Deadline>,
    /// The places of pods that are gone, of each node that has such.
    departed: BTreeMap<NodeName, AllDeparted>,
    /// The pods of each node.
    bound: BTreeMap<NodeName, BTreeSet<PodUid>>,
    /// Binds in flight. A pod may have one on each of several nodes: an attempt whose end nobody
    /// knows, and the next.
    reserved: BTreeMap<NodeName, BTreeMap<PodUid, Reservation>>,
    /// Looked up for each node of each question. Its order is the same everywhere, and never told.
    usage: HashMap<NodeName, NodeUse, BuildHasherDefault<DefaultHasher>>,
    /// [`NodeUse::opening`] of each node that has one. It says nothing that `usage` doesn't, in so little
    /// memory that the answers about thousands of nodes fit into a processor's cache.
    openings: HashMap<NodeName, Opening, BuildHasherDefault<DefaultHasher>>,
    outside: Outside,
}

/// A claim that has become another one.
#[derive(Debug, Clone)]
struct Doubt {
    /// What was claimed before.
    before: Allocation,
    /// What is claimed now.
    now: Allocation,
    /// From then on it's believed.
    until: Deadline,
}

#[derive(Debug, Clone)]
struct Reservation {
    demand: Demand,
    allocation: Option<Allocation>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    InFlight,
    /// The API server has said yes; the watch will show it.
    Done,
    /// Nobody knows; counts until then.
    UncertainUntil(Duration),
}

/// What came of the wish to reserve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reserved {
    /// The caller binds the pod, with this allocation where the place is ours to say.
    Go(Option<Allocation>),
    /// The pod already is on the node.
    AlreadyThere,
    /// It is on another one.
    Elsewhere(NodeName),
    /// Another bind of the pod to the node is in flight.
    Busy,
}

impl Ledger {
    /// An empty one.
    pub fn new(outside: Outside) -> Self {
        Self { outside, ..Self::default() }
    }

    /// Takes in what a node says.
    pub fn set_node(&mut self, name: &NodeName, mut facts: NodeFacts) {
        for card in facts.cards.iter_mut().flatten() {
            self.share_name(&mut card.resource);
            card.withheld = match self.outside {
                Outside::Ignored => Memory::ZERO,
                Outside::Subtracted => in_units(card.outside, card.unit),
            };
        }
        if self.nodes.get(name) != Some(&facts) {
            self.nodes.insert(name.clone(), facts);
            self.count(name);
        }
    }

    /// Makes all cards have the text of their resource's name in one place: it is compared for each
    /// node of each question, and of thousands of places few are in a cache.
    fn share_name(&mut self, name: &mut ResourceName) {
        match self.resources.get(name) {
            Some(known) => known.clone_into(name),
            None => drop(self.resources.insert(name.clone())),
        }
    }

    /// Forgets a node.
    pub fn remove_node(&mut self, name: &NodeName) {
        self.nodes.remove(name);
        self.count(name);
    }

    /// Forgets all nodes but these.
    pub fn keep_nodes(&mut self, known: &BTreeSet<NodeName>) {
        let gone: Vec<NodeName> =
            self.nodes.keys().filter(|name| !known.contains(*name)).cloned().collect();
        for name in &gone {
            self.remove_node(name);
        }
    }

    /// Takes in what is known of a pod that hasn't ended.
    pub fn set_pod(&mut self, facts: PodFacts) {
        let facts = self.doubted(facts);
        if self.pods.get(&facts.uid) == Some(&facts) {
            return;
        }
        let before = self.pods.get(&facts.uid).and_then(|pod| pod.node.clone());
        if let Some(node) = before.filter(|node| Some(node) != facts.node.as_ref()) {
            self.leave(&node, &facts.uid);
        }
        let (uid, node) = (facts.uid.clone(), facts.node.clone());
        self.pods.insert(uid.clone(), facts);
        if let Some(node) = node {
            self.bound.entry(node.clone()).or_default().insert(uid.clone());
            self.settle(&uid);
            if self.pods.get(&uid).is_some_and(|pod| pod.is_confirmed) {
                self.unsure.remove(&uid);
                if let Some(departed) = self.departed.get_mut(&node) {
                    departed.clear(&uid);
                }
            }
            self.count(&node);
        }
    }

    /// Has pods that their nodes haven't confirmed yet count on every card: of those that were gone
    /// before the first list, and may have left them their places, nothing is known.
    pub fn doubt_unconfirmed(&mut self) {
        let unconfirmed = self.pods.values().filter(|pod| pod.node.is_some() && !pod.is_confirmed);
        self.unsure.extend(unconfirmed.map(|pod| (pod.uid.clone(), Deadline::default())));
        let nodes: BTreeSet<NodeName> =
            self.unsure.keys().filter_map(|uid| self.pods.get(uid)?.node.clone()).collect();
        for node in &nodes {
            self.count(node);
        }
    }

    /// The facts without a claim where that has become another one. A node that corrects a claim
    /// withdraws it first, so that whoever changes it isn't the node, and may want to free a card
    /// that its pod is on. Believed again is what was claimed before, what is claimed after a
    /// withdrawal, and what the node lets stand: a new list of all pods may have hidden from us
    /// that it did withdraw.
    fn doubted(&mut self, mut facts: PodFacts) -> PodFacts {
        let Claim::Of(claimed) = &facts.claim else {
            self.doubts.remove(&facts.uid);
            return facts;
        };
        if let Some(pod) = self.pods.get(&facts.uid)
            && pod.node.is_some()
            && let Claim::Of(known) = &pod.claim
            && known != claimed
        {
            let doubt =
                Doubt { before: known.clone(), now: claimed.clone(), until: Deadline::default() };
            self.doubts.insert(facts.uid.clone(), doubt);
        }
        match self.doubts.get_mut(&facts.uid) {
            Some(doubt) if doubt.before == *claimed => drop(self.doubts.remove(&facts.uid)),
            Some(doubt) => {
                if doubt.now != *claimed {
                    *doubt =
                        Doubt { now: claimed.clone(), until: Deadline::default(), ..doubt.clone() };
                }
                facts.claim = Claim::Unreadable;
            }
            None => {}
        }
        facts
    }

    /// Forgets a pod that has ended, or is gone.
    pub fn remove_pod(&mut self, uid: &PodUid) {
        let claim = self.pods.get(uid).map(|pod| self.believed(pod));
        self.doubts.remove(uid);
        self.unsure.remove(uid);
        let pod = self.pods.remove(uid);
        self.settle(uid);
        let Some((pod, claim)) = pod.zip(claim) else { return };
        let Some(node) = &pod.node else { return };
        let others = self.bound.get(node).into_iter().flatten();
        let others: Vec<&PodFacts> = others.filter_map(|uid| self.pods.get(uid)).collect();
        let mut departed = self.departed.remove(node).unwrap_or_default();
        departed.leave(&pod, claim, &others);
        if !departed.is_empty() {
            self.departed.insert(node.clone(), departed);
        }
        self.leave(node, uid);
    }

    /// Forgets all pods but these, and the binds in `older` of pods that aren't among them: those
    /// binds had ended before the list was begun. One that has ended since counts for a while: the
    /// watch will show its pod, or the pod was gone again before the API server made the list, and
    /// nothing will ever show it.
    pub fn keep_pods(&mut self, known: &BTreeSet<PodUid>, older: &BTreeSet<PodUid>, now: Duration) {
        let gone = self.pods.keys().chain(older).filter(|uid| !known.contains(uid));
        let gone: Vec<PodUid> = gone.cloned().collect();
        for uid in &gone {
            self.remove_pod(uid);
        }
        let unseen = self.reserved.values_mut().flatten().filter(|(uid, _)| !known.contains(*uid));
        for (_, it) in unseen.filter(|(_, it)| it.state == State::Done) {
            it.state = State::UncertainUntil(now.saturating_add(UNCERTAIN));
        }
    }

    /// The pods whose binding was answered with success, but not seen yet.
    pub fn unseen(&self) -> BTreeSet<PodUid> {
        let all = self.reserved.values().flatten();
        all.filter(|(_, it)| it.state == State::Done).map(|(uid, _)| uid.clone()).collect()
    }

    /// Takes room for a pod that is about to be bound. Exactly one of [`Ledger::bound`],
    /// [`Ledger::release`] and [`Ledger::leave_open`] has to follow a [`Reserved::Go`].
    pub fn reserve(
        &mut self,
        uid: &PodUid,
        demand: &Demand,
        node: &NodeName,
        now: Duration,
    ) -> Result<Reserved, Reason> {
        self.expire(now);
        match self.pods.get(uid).and_then(|pod| pod.node.clone()) {
            Some(other) if other != *node => return Ok(Reserved::Elsewhere(other)),
            Some(_) => return Ok(Reserved::AlreadyThere),
            None => {}
        }
        let done = |all: &BTreeMap<PodUid, Reservation>| {
            all.get(uid).is_some_and(|it| it.state == State::Done)
        };
        let other = self.reserved.iter().find(|(name, all)| *name != node && done(all));
        if let Some((other, _)) = other {
            return Ok(Reserved::Elsewhere(other.clone()));
        }
        match self.reserved.get(node).and_then(|all| all.get(uid)).cloned() {
            Some(it) if it.state == State::Done => return Ok(Reserved::AlreadyThere),
            Some(it) if it.state == State::InFlight => return Ok(Reserved::Busy),
            // The same place again, since the attempt before may still succeed.
            Some(it) if self.is_left(node, it.allocation.as_ref()) => {
                self.mark(uid, node, State::InFlight);
                return Ok(Reserved::Go(it.allocation));
            }
            // Another extender, which didn't know of it, has given its place to others since; and yet
            // it counts there while the attempt before may succeed.
            Some(_) => return Ok(Reserved::Busy),
            None => {}
        }
        let allocation = match self.plan(node, demand)? {
            Plan::On { allocation, .. } => Some(allocation),
            Plan::Anywhere => None,
        };
        let reservation = Reservation {
            demand: demand.clone(),
            allocation: allocation.clone(),
            state: State::InFlight,
        };
        self.reserved.entry(node.clone()).or_default().insert(uid.clone(), reservation);
        self.count(node);
        Ok(Reserved::Go(allocation))
    }

    /// The bind has succeeded: its room stays taken until the watch shows the pod.
    pub fn bound(&mut self, uid: &PodUid, node: &NodeName) {
        // The watch may have been faster; then there is nothing left to mark.
        self.mark(uid, node, State::Done);
    }

    /// The bind has failed for certain.
    pub fn release(&mut self, uid: &PodUid, node: &NodeName) {
        if let Some(all) = self.reserved.get_mut(node) {
            all.remove(uid);
            if all.is_empty() {
                self.reserved.remove(node);
            }
        }
        self.count(node);
    }

    /// Nobody knows how the bind ended: its room stays taken while it may still take effect.
    pub fn leave_open(&mut self, uid: &PodUid, node: &NodeName, now: Duration) {
        self.mark(uid, node, State::UncertainUntil(now.saturating_add(UNCERTAIN)));
    }

    /// Gives back what uncertain binds hold that can't take effect any more, and what pods hold beside
    /// their place of which their node has said nothing for long.
    pub fn expire(&mut self, now: Duration) {
        self.believe(now);
        self.forget_departed(now);
        let is_over =
            |it: &Reservation| matches!(it.state, State::UncertainUntil(end) if end <= now);
        let over: Vec<(NodeName, PodUid)> = self
            .reserved
            .iter()
            .flat_map(|(node, all)| all.iter().map(move |(uid, it)| (node, uid, it)))
            .filter(|(_, _, it)| is_over(it))
            .map(|(node, uid, _)| (node.clone(), uid.clone()))
            .collect();
        for (node, uid) in &over {
            self.release(uid, node);
        }
    }

    fn forget_departed(&mut self, now: Duration) {
        let mut freed = Vec::new();
        for (node, departed) in &mut self.departed {
            if departed.expire(now) {
                freed.push(node.clone());
            }
        }
        self.departed.retain(|_, departed| !departed.is_empty());
        for node in &freed {
            self.count(node);
        }
    }

    fn believe(&mut self, now: Duration) {
        for (uid, _) in
            self.unsure.extract_if(.., |_, until| until.is_over(now)).collect::<Vec<_>>()
        {
            if let Some(node) = self.pods.get(&uid).and_then(|pod| pod.node.clone()) {
                self.count(&node);
            }
        }
        for (uid, doubt) in
            self.doubts.extract_if(.., |_, it| it.until.is_over(now)).collect::<Vec<_>>()
        {
            let Some(pod) = self.pods.get_mut(&uid) else { continue };
            pod.claim = Claim::Of(doubt.now);
            if let Some(node) = pod.node.clone() {
                self.count(&node);
            }
        }
    }

    /// Where a pod fits on a node, or the reason why nowhere.
    pub fn plan(&self, node: &NodeName, demand: &Demand) -> Result<Plan, Reason> {
        self.usage.get(node).unwrap_or(&UNKNOWN_USE).plan(demand)
    }

    /// Whether a pod fits on a node; cheaper than [`Ledger::plan`], since nothing is put into words.
    pub fn room_for<'a>(&'a self, node: &str, demand: &'a Demand) -> Result<(), Unfit<'a>> {
        if self.opening_for(node, demand).is_some() {
            return Ok(());
        }
        self.usage.get(node).unwrap_or(&UNKNOWN_USE).room_for(demand)
    }

    /// How well a node suits a pod, 0 to 10.
    pub fn score(&self, node: &str, demand: &Demand) -> u8 {
        match self.opening_for(node, demand) {
            Some((opening, wish)) if is_memory(&wish.resource) => opening.score(wish.units),
            _ => self.usage.get(node).map_or(0, |usage| usage.score(demand)),
        }
    }

    /// The opening into which the one container fits that asks for something.
    fn opening_for<'a>(
        &'a self,
        node: &str,
        demand: &'a Demand,
    ) -> Option<(&'a Opening, &'a Wish)> {
        let ([wish], None) = (demand.wishes(), demand.several_gpus()) else { return None };
        let opening = self.openings.get(node)?;
        (wish.resource == opening.resource && wish.units <= opening.most).then_some((opening, wish))
    }

    /// What is known of a pod.
    pub fn pod(&self, uid: &PodUid) -> Option<&PodFacts> {
        self.pods.get(uid)
    }

    /// What is held on a node.
    pub fn node(&self, node: &NodeName) -> Option<&NodeUse> {
        self.usage.get(node)
    }

    /// All nodes that are known, or have pods, by name.
    pub fn nodes(&self) -> impl Iterator<Item = (&NodeName, &NodeUse)> {
        let mut all: Vec<_> = self.usage.iter().collect();
        all.sort_unstable_by_key(|(name, _)| *name);
        all.into_iter()
    }

    /// How many binds are reserved.
    pub fn reservations(&self) -> usize {
        self.reserved.values().map(BTreeMap::len).sum()
    }

    /// Where a pod counts.
    fn believed(&self, pod: &PodFacts) -> Claim {
        if self.unsure.contains_key(&pod.uid) { Claim::Unreadable } else { pod.claim.clone() }
    }

    /// Whether the cards of an allocation that is reserved can hold all that is counted on them.
    fn is_left(&self, node: &NodeName, allocation: Option<&Allocation>) -> bool {
        let Some(allocation) = allocation else { return true };
        let cards = self.usage.get(node).and_then(|usage| usage.cards.as_ref().ok());
        let mut named = cards.into_iter().flatten().filter(|it| allocation.names(&it.card.uuid));
        named.all(|it| it.held() <= it.card.capacity())
    }

    fn mark(&mut self, uid: &PodUid, node: &NodeName, state: State) {
        if let Some(it) = self.reserved.get_mut(node).and_then(|all| all.get_mut(uid)) {
            it.state = state;
        }
    }

    /// Ends all reservations of a pod: where it is, or that it's gone, is known.
    fn settle(&mut self, uid: &PodUid) {
        let holding = self.reserved.iter().filter(|(_, all)| all.contains_key(uid));
        let nodes: Vec<NodeName> = holding.map(|(node, _)| node.clone()).collect();
        for node in &nodes {
            self.release(uid, node);
        }
    }

    fn leave(&mut self, node: &NodeName, uid: &PodUid) {
        if let Some(pods) = self.bound.get_mut(node) {
            pods.remove(uid);
            if pods.is_empty() {
                self.bound.remove(node);
            }
        }
        self.count(node);
    }

    /// Counts a node anew.
    fn count(&mut self, name: &NodeName) {
        let facts = self.nodes.get(name);
        let (bound, reserved) = (self.bound.get(name), self.reserved.get(name));
        if facts.is_none() && bound.is_none() && reserved.is_none() {
            self.usage.remove(name);
            self.openings.remove(name);
            return;
        }
        let bound = bound.into_iter().flatten().filter_map(|uid| self.pods.get_key_value(uid));
        let bound = bound.map(|(uid, pod)| (uid, &pod.demand, self.believed(pod)));
        let reserved = reserved.into_iter().flatten();
        let reserved = reserved.map(|(uid, it)| {
            (uid, &it.demand, it.allocation.clone().map_or(Claim::Absent, Claim::Of))
        });
        let departed = self.departed.get(name).into_iter().flat_map(AllDeparted::iter);
        let departed = departed.map(|(uid, it)| (uid, &it.demand, it.claim.clone()));
        let pods: Vec<(&PodUid, &Demand, Claim)> = bound.chain(reserved).chain(departed).collect();
        let pods = pods.iter().map(|(uid, demand, claim)| (*uid, *demand, claim));
        let usage = NodeUse::of(facts.unwrap_or(&UNKNOWN), pods);
        match usage.opening() {
            Some(opening) => drop(self.openings.insert(name.clone(), opening)),
            None => drop(self.openings.remove(name)),
        }
        self.usage.insert(name.clone(), usage);
    }
}

/// The least whole number of units that has so much.
fn in_units(memory: Memory, unit: Memory) -> Memory {
    let whole = unit.times(memory.pieces_of(unit));
    if whole < memory { whole.saturating_add(unit) } else { whole }
}
