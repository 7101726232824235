//! `filter` and `prioritize`: which nodes have a GPU with room, and how well it suits.
//!
//! Nothing is reserved here: kube-scheduler may ask and then choose another node. `bind` decides
//! once more.

use std::collections::{BTreeMap, BTreeSet};

use mpshare_api::extender::{FilterArgs, FilterResult, HostPriority, NodeList};
use mpshare_api::pod::Pod;
use mpshare_core::ledger::{CardUse, Demand, Ledger, NodeName, Plan};
use mpshare_core::{Memory, Reason, ResourceName};

use crate::extender::Extender;

/// How many different texts a reply has at most: kube-scheduler puts all of them into one Event,
/// together with how many nodes each is about.
const MOST_TEXTS: usize = 4;

/// Leaves the nodes that have room.
pub(crate) fn filter(extender: &Extender, args: FilterArgs) -> FilterResult {
    match try_filter(extender, args) {
        Ok(result) => result,
        Err(error) => FilterResult { error, ..FilterResult::default() },
    }
}

/// Scores nodes.
pub(crate) fn prioritize(extender: &Extender, args: FilterArgs) -> Vec<HostPriority> {
    let demand = args.pod.as_ref().map(Pod::demand).unwrap_or_default();
    let ledger = extender.ledger();
    let score = |host: String| {
        let plan = ledger.plan(&NodeName(host.clone()), &demand);
        let score = match plan {
            Ok(Plan::On { score, .. }) => score,
            Ok(Plan::Anywhere) | Err(_) => 0,
        };
        HostPriority { host, score }
    };
    Asked::of(args).map(Asked::names).unwrap_or_default().into_iter().map(score).collect()
}

/// The nodes of a call, in the form in which they have to be given back.
enum Asked {
    Names(Vec<String>),
    Whole(NodeList),
}

impl Asked {
    fn of(args: FilterArgs) -> Option<Self> {
        match (args.node_names, args.nodes) {
            (Some(names), None) => Some(Self::Names(names)),
            (Some(names), Some(_)) if !names.is_empty() => Some(Self::Names(names)),
            (_, Some(nodes)) => Some(Self::Whole(nodes)),
            (None, None) => None,
        }
    }

    fn names(self) -> Vec<String> {
        match self {
            Self::Names(names) => names,
            Self::Whole(nodes) => {
                nodes.items.iter().map(|node| NodeList::name(node).to_owned()).collect()
            }
        }
    }
}

fn try_filter(extender: &Extender, mut args: FilterArgs) -> Result<FilterResult, String> {
    if !extender.is_ready() {
        return Err("the extender hasn't listed all nodes and pods yet; hint: it is retried".into());
    }
    let pod = args.pod.take().ok_or("the call has no pod")?;
    let asked = Asked::of(args).ok_or("the call has neither nodes nor node names")?;
    let demand = pod.demand();
    let mut judge = Judge { ledger: &extender.ledger(), demand: &demand, failures: Vec::new() };
    let mut result = FilterResult::default();
    match asked {
        Asked::Names(mut names) => {
            names.retain(|name| judge.has_room(name));
            result.node_names = Some(names);
        }
        Asked::Whole(mut nodes) => {
            nodes.items.retain(|node| judge.has_room(NodeList::name(node)));
            result.nodes = Some(nodes);
        }
    }
    let Judge { ledger, failures, .. } = judge;
    for (node, reason) in few_texts(ledger, failures) {
        let is_for_good = !matches!(reason, Reason::NoGpuFits { .. });
        let failed = if is_for_good {
            &mut result.failed_and_unresolvable_nodes
        } else {
            &mut result.failed_nodes
        };
        failed.insert(node, reason.to_string());
    }
    Ok(result)
}

struct Judge<'a> {
    ledger: &'a Ledger,
    demand: &'a Demand,
    failures: Vec<(String, Reason)>,
}

impl Judge<'_> {
    fn has_room(&mut self, name: &str) -> bool {
        if self.demand.is_empty() {
            return true;
        }
        match self.ledger.plan(&NodeName(name.to_owned()), self.demand) {
            Ok(_) => true,
            Err(reason) => {
                self.failures.push((name.to_owned(), reason));
                false
            }
        }
    }
}

/// Where nodes have too many different things to say, those without room say together how much the
/// best of them has.
fn few_texts(ledger: &Ledger, failures: Vec<(String, Reason)>) -> Vec<(String, Reason)> {
    let texts: BTreeSet<&Vec<String>> = failures
        .iter()
        .filter_map(|(_, reason)| match reason {
            Reason::NoGpuFits { cards, .. } => Some(cards),
            _ => None,
        })
        .collect();
    if texts.len() <= MOST_TEXTS {
        return failures;
    }
    let mut most: BTreeMap<ResourceName, Memory> = BTreeMap::new();
    for (node, reason) in &failures {
        if let Reason::NoGpuFits { resource, .. } = reason {
            let free = largest_free(ledger, node, resource);
            let best = most.entry(resource.clone()).or_default();
            *best = free.max(*best);
        }
    }
    let together = |(node, reason)| match reason {
        Reason::NoGpuFits { resource, asked, .. } => {
            let free = most.get(&resource).copied().unwrap_or_default();
            let cards = vec![format!("at most {free} free on one")];
            (node, Reason::NoGpuFits { resource, asked, cards })
        }
        other => (node, other),
    };
    failures.into_iter().map(together).collect()
}

fn largest_free(ledger: &Ledger, node: &str, resource: &ResourceName) -> Memory {
    let usage = ledger.node(&NodeName(node.to_owned()));
    let cards = usage.and_then(|usage| usage.cards.as_ref().ok()).into_iter().flatten();
    let open =
        cards.filter(|card| card.card.not_ready.is_none() && card.card.resource == *resource);
    open.map(CardUse::free).max().unwrap_or_default()
}
