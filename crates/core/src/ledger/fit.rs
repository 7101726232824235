//! Where a pod fits on a node, and in words why nowhere.
//!
//! Schedulers ask this of each node for each pod, so that it is told apart from the words: of a
//! thousand full nodes few are described.

use super::Allocation;
use super::demand::{Demand, Wish, clients, peak};
use super::usage::{CardUse, NodeUse, is_memory};
use crate::placement::{self, Need, Policy, Room};
use crate::{Memory, Reason, ResourceName};

/// Where a pod goes on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// Here, and the node scores so much, 0 to 10.
    On {
        /// The place of each container.
        allocation: Allocation,
        /// The node's score.
        score: u8,
    },
    /// It isn't ours to say: whole cards, or another plugin's node.
    Anywhere,
}

/// Why a pod fits nowhere on a node, before it is put into words.
#[derive(Debug, Clone)]
pub struct Unfit<'a>(Why<'a>);

#[derive(Debug, Clone)]
enum Why<'a> {
    /// No card has so much left.
    Full { node: &'a NodeUse, needs: Vec<Need<'a>> },
    /// More of it wouldn't help.
    Never(Reason),
}

/// A lack of room on a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lack<'a> {
    /// The resource that lacks.
    pub resource: &'a ResourceName,
    /// The units of each container, or of those that have to be together.
    pub asked: Vec<u64>,
    /// The most that one of the node's cards has left.
    pub most_free: Memory,
}

/// The card of each group of containers.
struct Choice<'a> {
    places: Vec<(Vec<&'a Wish>, usize)>,
    score: u8,
}

impl From<Reason> for Why<'_> {
    fn from(reason: Reason) -> Self {
        Self::Never(reason)
    }
}

impl Unfit<'_> {
    /// In words, with what each card has left.
    pub fn reason(&self) -> Reason {
        match &self.0 {
            Why::Full { node, needs } => node.refusal(needs),
            Why::Never(reason) => reason.clone(),
        }
    }

    /// What is asked and what there is, where all that is missing is room.
    pub fn lack(&self) -> Option<Lack<'_>> {
        let Why::Full { node, needs } = &self.0 else { return None };
        let resource = largest(needs)?.resource;
        let cards = node.cards.as_ref().ok().into_iter().flatten();
        let open =
            cards.filter(|card| card.card.not_ready.is_none() && card.card.resource == *resource);
        let most_free = open.map(CardUse::free).max().unwrap_or_default();
        Some(Lack { resource, asked: asked(needs), most_free })
    }
}

/// What a node has for one more container.
#[derive(Debug, Clone)]
pub(super) struct Opening {
    pub(super) resource: ResourceName,
    /// The most units that one card has for one more client.
    pub(super) most: u64,
    free: Memory,
    capacity: Memory,
    unit: Memory,
    policy: Policy,
}

impl Opening {
    /// [`NodeUse::score`] for a container that fits.
    pub(super) fn score(&self, units: u64) -> u8 {
        let left = self.free.saturating_sub(self.unit.times(units));
        placement::score(left, self.capacity, self.policy.placement())
    }
}

impl NodeUse {
    /// Whether a pod fits.
    pub fn room_for<'a>(&'a self, demand: &'a Demand) -> Result<(), Unfit<'a>> {
        let Some((wish, cards)) = self.only_one(demand) else {
            return self.choose(demand).map(drop).map_err(Unfit);
        };
        let Some(need) = need(&[wish], cards).map_err(|why| Unfit(why.into()))? else {
            return Ok(());
        };
        if cards.iter().any(|card| self.room(card).fits(&need)) {
            return Ok(());
        }
        Err(Unfit(Why::Full { node: self, needs: vec![need] }))
    }

    /// What the node has for one more container, where its cards have one resource.
    pub(super) fn opening(&self) -> Option<Opening> {
        let cards = self.cards.as_ref().ok()?;
        let resource = &cards.first()?.card.resource;
        if cards.iter().any(|card| card.card.resource != *resource) {
            return None;
        }
        let rooms = || cards.iter().map(|card| self.room(card));
        let open = rooms().filter(|room| room.is_open && room.clients_left > 0);
        let most = open.map(|room| room.free.pieces_of(room.unit)).max().unwrap_or(0);
        Some(Opening {
            resource: resource.clone(),
            most,
            free: rooms().map(|room| room.free).sum(),
            capacity: rooms().map(|room| room.capacity).sum(),
            unit: cards.first()?.card.unit,
            policy: self.policy,
        })
    }

    /// How well the node suits a pod, 0 to 10: 0 as well where it doesn't fit, or isn't ours to say.
    pub fn score(&self, demand: &Demand) -> u8 {
        let Some((wish, cards)) = self.only_one(demand) else {
            let choice = self.choose(demand).ok().flatten();
            return choice.map_or(0, |choice| choice.score);
        };
        let Ok(Some(need)) = need(&[wish], cards) else { return 0 };
        let placement = self.policy.placement();
        let (mut free, mut capacity, mut best) = (Memory::ZERO, Memory::ZERO, None);
        for card in cards {
            let room = self.room(card);
            free = free.saturating_add(room.free);
            capacity = capacity.saturating_add(room.capacity);
            let rank = room.fits(&need).then(|| placement.rank(room.free));
            if rank.is_some_and(|rank| best.is_none_or(|(known, _)| rank < known)) {
                best = rank.zip(Some(room.unit));
            }
        }
        let Some((_, unit)) = best else { return 0 };
        placement::score(free.saturating_sub(unit.times(need.units)), capacity, placement)
    }

    /// The wish and the cards where that is all there is to decide on, as nearly always. It is asked
    /// of each node for each pod, so that it is worth to do without a list of anything.
    fn only_one<'a>(&'a self, demand: &'a Demand) -> Option<(&'a Wish, &'a [CardUse])> {
        match (demand.wishes(), &self.cards, demand.several_gpus()) {
            ([wish], Ok(cards), None) => Some((wish, cards)),
            _ => None,
        }
    }

    /// Where a pod fits, or the reason why nowhere.
    pub fn plan(&self, demand: &Demand) -> Result<Plan, Reason> {
        let choice = self.choose(demand).map_err(|why| Unfit(why).reason())?;
        let Some(choice) = choice else { return Ok(Plan::Anywhere) };
        let cards = self.cards.as_ref().map(Vec::as_slice).unwrap_or_default();
        let mut allocation = Allocation::default();
        for (group, place) in choice.places {
            let Some(card) = cards.get(place) else { continue };
            for wish in group {
                let gpus = [(card.card.uuid.clone(), wish.units)];
                allocation.0.insert(wish.container.clone(), gpus.into());
            }
        }
        Ok(Plan::On { allocation, score: choice.score })
    }

    /// The cards for a pod; `None` where that isn't ours to say.
    fn choose<'a>(&'a self, demand: &'a Demand) -> Result<Option<Choice<'a>>, Why<'a>> {
        if let Some(label) = demand.several_gpus() {
            return Err(Reason::SeveralGpusAsked { label: label.to_owned() }.into());
        }
        let cards = match &self.cards {
            Ok(cards) => cards,
            Err(_) if !demand.wishes().iter().any(|wish| is_memory(&wish.resource)) => {
                return Ok(None);
            }
            Err(problem) => {
                return Err(Reason::BadInventory { problem: problem.clone() }.into());
            }
        };
        let (mut groups, mut needs) = (Vec::new(), Vec::new());
        for group in demand.groups() {
            // None: whole cards, or units of somebody else, which the kubelet counts.
            if let Some(need) = need(&group, cards)? {
                groups.push(group);
                needs.push(need);
            }
        }
        if needs.is_empty() {
            return Ok(None);
        }
        let mut rooms: Vec<Room<'_>> = cards.iter().map(|card| self.room(card)).collect();
        let Some(places) = placement::place(&needs, &rooms, self.policy.placement()) else {
            return Err(Why::Full { node: self, needs });
        };
        for (need, place) in needs.iter().zip(&places) {
            if let Some(room) = rooms.get_mut(*place) {
                room.take(need);
            }
        }
        let free = rooms.iter().map(|room| room.free).sum();
        let capacity = rooms.iter().map(|room| room.capacity).sum();
        let score = placement::score(free, capacity, self.policy.placement());
        Ok(Some(Choice { places: groups.into_iter().zip(places).collect(), score }))
    }

    fn room<'a>(&self, usage: &'a CardUse) -> Room<'a> {
        let card = &usage.card;
        // Device ids are per card, so the kubelet can't over-commit one. Of pods without a place
        // the units of the memory mode count everywhere; in replicas mode many have none, and
        // counting them everywhere would leave free cards unused.
        let held = if is_memory(&card.resource) { usage.held() } else { usage.placed };
        let pods_left =
            self.max_pods.map_or(u64::MAX, |most| u64::from(most).saturating_sub(usage.pod_count));
        Room {
            resource: &card.resource,
            unit: card.unit,
            capacity: card.capacity(),
            free: card.capacity().saturating_sub(card.withheld).saturating_sub(held),
            clients_left: u64::from(card.client_cap).saturating_sub(usage.clients),
            is_open: card.not_ready.is_none() && pods_left > 0,
        }
    }

    fn refusal(&self, needs: &[Need<'_>]) -> Reason {
        let Some(largest) = largest(needs) else { return Reason::EmptyRequest };
        let cards = self.cards.as_ref().ok().into_iter().flatten();
        let mine = cards.filter(|card| card.card.resource == *largest.resource);
        Reason::NoGpuFits {
            resource: largest.resource.clone(),
            asked: asked(needs),
            cards: mine.map(|card| self.describe(card)).collect(),
        }
    }

    fn describe(&self, usage: &CardUse) -> String {
        let card = &usage.card;
        let name = format!("GPU{}", card.index);
        if let Some(state) = &card.not_ready {
            return format!("{name} is {state}");
        }
        let held = usage.held();
        let mut text = format!("{} allocated on {name}", of(held, card.capacity()));
        if usage.unplaced > Memory::ZERO {
            text.extend([" (", &usage.unplaced.to_string(), " of it by pods without a place)"]);
        }
        if card.withheld > Memory::ZERO {
            text.extend([", ", &card.withheld.to_string(), " used by processes without a share"]);
        }
        if self.max_pods.is_some_and(|most| usage.pod_count >= u64::from(most)) {
            text.extend([" to ", &usage.pod_count.to_string(), " pods, the node's most"]);
        } else if usage.clients >= u64::from(card.client_cap) {
            text.extend([" to ", &usage.clients.to_string(), " clients, the most that MPS takes"]);
        }
        text
    }
}

fn largest<'a, 'b>(needs: &'b [Need<'a>]) -> Option<&'b Need<'a>> {
    needs.iter().max_by_key(|need| need.units)
}

fn asked(needs: &[Need<'_>]) -> Vec<u64> {
    needs.iter().map(|need| need.units).collect()
}

/// What a group needs of one card; `None` where that isn't ours to say.
fn need<'a>(group: &[&'a Wish], cards: &[CardUse]) -> Result<Option<Need<'a>>, Reason> {
    let Some(first) = group.first() else { return Ok(None) };
    let resource = &first.resource;
    if let Some(other) = group.iter().find(|wish| wish.resource != *resource) {
        return Err(Reason::TwoResources {
            first: resource.clone(),
            second: other.resource.clone(),
        });
    }
    let mut offered = cards.iter().filter(|card| card.card.resource == *resource).peekable();
    if offered.peek().is_none() {
        let nothing = is_memory(resource).then(|| Reason::NoUnits { resource: resource.clone() });
        return nothing.map_or(Ok(None), Err);
    }
    if offered.all(|card| card.card.is_whole()) && !is_memory(resource) {
        return Ok(None);
    }
    Ok(Some(Need {
        resource,
        units: peak(group.iter().copied()),
        clients: clients(group.iter().copied()),
    }))
}

/// `14 of 15 GiB`.
fn of(part: Memory, whole: Memory) -> String {
    let is_gib = |memory: Memory| memory.mib().is_multiple_of(1024);
    if is_gib(part) && is_gib(whole) {
        format!("{} of {} GiB", part.mib() / 1024, whole.mib() / 1024)
    } else {
        format!("{} of {} MiB", part.mib(), whole.mib())
    }
}
