//! Which cards of its node a pod's units are on.
//!
//! Three kinds of annotation may say so; the first that is there counts, but for Alibaba's two,
//! of which the older one helps where the newer one can't be true, as in other readers. How much a
//! container has is in its spec: annotations only say how that is split over several cards.

use std::collections::BTreeMap;

use mpshare_api::names::{ALLOCATION, MEMORY_RESOURCE, V1_INDEX, V2_ALLOCATION};
use mpshare_api::pod::Pod;
use mpshare_core::ledger::{Demand, Stage, Wish};

use crate::annotations::{self, Allocation};
use crate::report::Card;

/// Where a pod's units are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// Units by the index of the card.
    On(BTreeMap<u32, u64>),
    /// Nothing says where, or what says so can't be true.
    Pending {
        /// How many.
        units: u64,
        /// Why.
        reason: String,
    },
}

/// Units of one container by the index of the card.
type Shares = BTreeMap<u32, u64>;

/// Where a pod's units are; `None` for a pod that asks for none.
pub(crate) fn place(pod: &Pod, cards: &[Card]) -> Option<Place> {
    let demand = pod.demand();
    let wishes = wishes(&demand);
    if wishes.is_empty() {
        return None;
    }
    Some(match shares(pod, &wishes, cards) {
        Ok(shares) => Place::On(peaks(&wishes, &shares)),
        Err(reason) => {
            let units = peak(wishes.iter().map(|wish| (wish.stage, wish.units)));
            Place::Pending { units, reason }
        }
    })
}

/// What containers ask of our resource, in the order of their start.
fn wishes(demand: &Demand) -> Vec<&Wish> {
    let all = demand.wishes().iter();
    all.filter(|wish| wish.resource.as_str() == MEMORY_RESOURCE).collect()
}

/// The place of a container among the regular ones, by which Alibaba's annotations know it.
fn position(wish: &Wish) -> Option<usize> {
    (wish.stage == Stage::Main).then_some(wish.position)
}

/// The shares of each container that asks for units, in their order.
fn shares(pod: &Pod, wishes: &[&Wish], cards: &[Card]) -> Result<Vec<Shares>, String> {
    let annotation = |name: &str| pod.metadata.annotations.get(name).map(String::as_str);
    if let Some(text) = annotation(ALLOCATION) {
        let allocation = read(ALLOCATION, text)?;
        let uuids = |key: &str| cards.iter().find(|card| card.uuid.as_deref() == Some(key));
        return wishes
            .iter()
            .map(|wish| container_shares(wish, allocation.get(&wish.container), uuids))
            .collect();
    }
    let second = annotation(V2_ALLOCATION).map(|text| by_index(text, wishes, cards));
    match (second, annotation(V1_INDEX)) {
        (Some(Ok(shares)), _) => Ok(shares),
        (_, Some(index)) => on_one(index, wishes, cards),
        (Some(Err(reason)), None) => Err(reason),
        (None, None) => Err("no annotation says which GPU".to_owned()),
    }
}

fn read(name: &'static str, text: &str) -> Result<Allocation, String> {
    annotations::allocation(name, text).map_err(|error| error.to_string())
}

/// By the indices of containers and cards. It knows no init containers.
fn by_index(text: &str, wishes: &[&Wish], cards: &[Card]) -> Result<Vec<Shares>, String> {
    let allocation = read(V2_ALLOCATION, text)?;
    let indices = |key: &str| by_number(key, cards);
    let shares = wishes.iter().map(|wish| match position(wish) {
        Some(position) => container_shares(wish, allocation.get(&position.to_string()), indices),
        None => Ok(Shares::new()),
    });
    shares.collect()
}

/// All on the one card of this index.
fn on_one(index: &str, wishes: &[&Wish], cards: &[Card]) -> Result<Vec<Shares>, String> {
    let card = by_number(index, cards).ok_or_else(|| {
        format!("annotation `{V1_INDEX}` is `{index}`, a GPU that the node hasn't")
    })?;
    let shares = |wish: &&Wish| match position(wish) {
        Some(_) => Shares::from([(card.index, wish.units)]),
        None => Shares::new(),
    };
    Ok(wishes.iter().map(shares).collect())
}

fn by_number<'a>(key: &str, cards: &'a [Card]) -> Option<&'a Card> {
    let index: u32 = key.parse().ok()?;
    cards.iter().find(|card| card.index == index)
}

/// The shares of one container: what its spec asks for, where the annotation says.
fn container_shares<'a>(
    wish: &Wish,
    named: Option<&BTreeMap<String, u64>>,
    card: impl Fn(&str) -> Option<&'a Card>,
) -> Result<Shares, String> {
    let named = named.filter(|named| !named.is_empty());
    let named =
        named.ok_or_else(|| format!("no GPU is named for container `{}`", wish.container))?;
    let only = named.len() == 1;
    let mut shares = Shares::new();
    for (key, units) in named {
        let card = card(key).ok_or_else(|| {
            format!("`{key}`, named for container `{}`, is no GPU of the node", wish.container)
        })?;
        shares.insert(card.index, if only { wish.units } else { *units });
    }
    let sum = shares.values().fold(0_u64, |sum, units| sum.saturating_add(*units));
    if sum == wish.units && shares.len() == named.len() {
        return Ok(shares);
    }
    Err(format!(
        "{sum} units are named for container `{}`, which asks for {}",
        wish.container, wish.units
    ))
}

/// What the kubelet holds on each card for all containers together.
fn peaks(wishes: &[&Wish], shares: &[Shares]) -> Shares {
    let mut cards: BTreeMap<u32, Vec<(Stage, u64)>> = BTreeMap::new();
    for (wish, shares) in wishes.iter().zip(shares) {
        for (card, units) in shares {
            cards.entry(*card).or_default().push((wish.stage, *units));
        }
    }
    cards.into_iter().map(|(card, held)| (card, peak(held.into_iter()))).collect()
}

/// The most that is held at a time; the kubelet gives the units of an init container on to those
/// that start after it (facts/kubernetes.md 3).
fn peak(held: impl Iterator<Item = (Stage, u64)>) -> u64 {
    let (mut most, mut lasting) = (0_u64, 0_u64);
    for (stage, units) in held {
        let now = lasting.saturating_add(units);
        most = most.max(now);
        if stage != Stage::Init {
            lasting = now;
        }
    }
    most
}

#[cfg(test)]
mod tests;
