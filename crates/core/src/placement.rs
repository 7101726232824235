//! Which card of a node containers go to, and how good a node is for them.
//!
//! One trait, two policies. Both are deterministic: among equals the lowest index wins.

use crate::{Memory, ResourceName};

/// How often another card is tried for an earlier container before a pod with many containers
/// counts as not fitting.
const MOST_TRIES: u32 = 10_000;

/// The best score of a node (facts/kubernetes.md 6.6).
const BEST: u64 = 10;

/// The policy of a node, from its label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// Fill cards one after the other.
    #[default]
    Binpack,
    /// Keep cards equally filled.
    Spread,
}

impl Policy {
    /// The policy of a label's value; what isn't known is the default, as on ACK.
    pub fn of_label(value: Option<&str>) -> Self {
        if value == Some("spread") { Self::Spread } else { Self::Binpack }
    }

    /// What the policy does.
    pub fn placement(self) -> &'static dyn Placement {
        match self {
            Self::Binpack => &Binpack,
            Self::Spread => &Spread,
        }
    }
}

/// A preference among cards, and among nodes.
pub trait Placement {
    /// The rank of a card with so much free, among those where the container fits; the lowest wins.
    fn rank(&self, free: Memory) -> u64;

    /// The score of a node of which, with the pod on it, `held` of `capacity` would be held.
    fn score(&self, held: Memory, capacity: Memory) -> u8;
}

/// The card with the least left that still fits, and the fullest node.
struct Binpack;

/// The card with the most left, and the emptiest node.
struct Spread;

impl Placement for Binpack {
    fn rank(&self, free: Memory) -> u64 {
        free.mib()
    }

    fn score(&self, held: Memory, capacity: Memory) -> u8 {
        tenths(held, capacity)
    }
}

impl Placement for Spread {
    fn rank(&self, free: Memory) -> u64 {
        u64::MAX - free.mib()
    }

    fn score(&self, held: Memory, capacity: Memory) -> u8 {
        tenths(capacity.saturating_sub(held), capacity)
    }
}

fn tenths(part: Memory, whole: Memory) -> u8 {
    let tenths = part.mib().saturating_mul(BEST).checked_div(whole.mib()).unwrap_or(0);
    u8::try_from(tenths.min(BEST)).unwrap_or(0)
}

/// What has to be on one card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need<'a> {
    /// The resource.
    pub resource: &'a ResourceName,
    /// How many units.
    pub units: u64,
    /// How many clients at least.
    pub clients: u64,
}

/// What a card has left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Room<'a> {
    /// The resource of its units.
    pub resource: &'a ResourceName,
    /// The memory of a unit.
    pub unit: Memory,
    /// All its units.
    pub capacity: Memory,
    /// What is left of them.
    pub free: Memory,
    /// How many more clients it takes.
    pub clients_left: u64,
    /// Whether another pod may come at all.
    pub is_open: bool,
}

impl Room<'_> {
    /// Whether a need fits.
    pub(crate) fn fits(&self, need: &Need<'_>) -> bool {
        self.is_open
            && self.unit.times(need.units) <= self.free
            && need.clients <= self.clients_left
            && self.resource == need.resource
    }

    /// Takes what a need needs away.
    pub(crate) fn take(&mut self, need: &Need<'_>) {
        self.free = self.free.saturating_sub(self.unit.times(need.units));
        self.clients_left = self.clients_left.saturating_sub(need.clients);
    }
}

/// The card of each need, or `None` when they don't fit together.
///
/// The largest is placed first, each on the card that the policy likes best; only where that
/// leads nowhere others are tried.
pub fn place(
    needs: &[Need<'_>],
    rooms: &[Room<'_>],
    placement: &dyn Placement,
) -> Option<Vec<usize>> {
    if let [need] = needs {
        // Nearly all pods: no other need can make the best card a bad one.
        return best(need, rooms, placement).map(|place| vec![place]);
    }
    let mut order: Vec<usize> = (0..needs.len()).collect();
    order.sort_by_key(|&at| std::cmp::Reverse(needs.get(at).map(|need| need.units)));
    let sorted: Vec<&Need<'_>> = order.iter().filter_map(|&at| needs.get(at)).collect();
    let mut search = Search { placement, tries: 0, chosen: Vec::new() };
    if !search.place(&sorted, rooms) {
        return None;
    }
    let mut places: Vec<(usize, usize)> = order.into_iter().zip(search.chosen).collect();
    places.sort_unstable();
    Some(places.into_iter().map(|(_, place)| place).collect())
}

/// The card that the policy likes best among those where a need fits.
fn best(need: &Need<'_>, rooms: &[Room<'_>], placement: &dyn Placement) -> Option<usize> {
    let fitting = rooms.iter().enumerate().filter(|(_, room)| room.fits(need));
    fitting.map(|(at, room)| (placement.rank(room.free), at)).min().map(|(_, at)| at)
}

/// The score of a node, 0 to 10, whose cards have so much left of so much.
pub fn score(free: Memory, capacity: Memory, placement: &dyn Placement) -> u8 {
    placement.score(capacity.saturating_sub(free), capacity)
}

struct Search<'a> {
    placement: &'a dyn Placement,
    tries: u32,
    chosen: Vec<usize>,
}

impl Search<'_> {
    fn place(&mut self, needs: &[&Need<'_>], rooms: &[Room<'_>]) -> bool {
        let Some((need, others)) = needs.split_first() else { return true };
        let fitting = rooms.iter().enumerate().filter(|(_, room)| room.fits(need));
        let mut ranked: Vec<(u64, usize)> =
            fitting.map(|(at, room)| (self.placement.rank(room.free), at)).collect();
        ranked.sort_unstable();
        for (_, at) in ranked {
            self.tries += 1;
            if self.tries > MOST_TRIES {
                return false;
            }
            self.chosen.push(at);
            if others.is_empty() {
                return true;
            }
            let mut left = rooms.to_vec();
            if let Some(room) = left.get_mut(at) {
                room.take(need);
            }
            if self.place(others, &left) {
                return true;
            }
            self.chosen.pop();
        }
        false
    }
}
