//! `filter` and `prioritize`: which nodes have a GPU with room, and how well it suits.
//!
//! Nothing is reserved here: kube-scheduler may ask and then choose another node. `bind` decides
//! once more.

mod refusals;

use std::cmp::Reverse;

use mpshare_api::extender::{FilterArgs, FilterResult, HostPriority, Name, NodeList};
use mpshare_api::pod::Pod;
use mpshare_core::ledger::{Demand, Ledger, Unfit};
use serde_json::Value;

use crate::extender::Extender;

/// The most nodes in an answer: of more, those that suit best. kube-scheduler, which would score
/// each, itself looks at a part of many, but never at fewer (`minFeasibleNodesToFind`).
const MOST_NODES: usize = 100;

/// Leaves the nodes that have room.
pub(crate) fn filter<'a>(extender: &Extender, args: FilterArgs<'a>) -> FilterResult<'a> {
    match try_filter(extender, args) {
        Ok(result) => result,
        Err(error) => FilterResult { error, ..FilterResult::default() },
    }
}

/// Scores nodes; those that aren't named get 0 (facts/kubernetes.md 6.6), which in a large cluster
/// are most.
pub(crate) fn prioritize<'a>(extender: &Extender, args: FilterArgs<'a>) -> Vec<HostPriority<'a>> {
    let demand = args.pod.as_ref().map(Pod::demand).unwrap_or_default();
    let ledger = extender.ledger();
    let score = |host: Name<'a>| {
        let score = ledger.score(&host.0, &demand);
        (score > 0).then_some(HostPriority { host, score })
    };
    Asked::of(args).map(Asked::names).unwrap_or_default().into_iter().filter_map(score).collect()
}

/// The nodes of a call, in the form in which they have to be given back.
enum Asked<'a> {
    Names(Vec<Name<'a>>),
    Whole(NodeList),
}

impl<'a> Asked<'a> {
    fn of(args: FilterArgs<'a>) -> Option<Self> {
        match (args.node_names, args.nodes) {
            (Some(names), None) => Some(Self::Names(names)),
            (Some(names), Some(_)) if !names.is_empty() => Some(Self::Names(names)),
            (_, Some(nodes)) => Some(Self::Whole(nodes)),
            (None, None) => None,
        }
    }

    fn names(self) -> Vec<Name<'a>> {
        match self {
            Self::Names(names) => names,
            Self::Whole(nodes) => nodes.items.iter().map(name).collect(),
        }
    }
}

fn name(node: &Value) -> Name<'static> {
    Name(NodeList::name(node).to_owned().into())
}

fn try_filter<'a>(
    extender: &Extender,
    mut args: FilterArgs<'a>,
) -> Result<FilterResult<'a>, String> {
    if !extender.is_ready() {
        return Err("the extender hasn't listed all nodes and pods yet; hint: it is retried".into());
    }
    let pod = args.pod.take().ok_or("the call has no pod")?;
    let asked = Asked::of(args).ok_or("the call has neither nodes nor node names")?;
    let demand = pod.demand();
    if !demand.is_empty() {
        extender.asked.note(&pod.metadata.uid, &demand);
    }
    let ledger = extender.ledger();
    let mut judge = Judge { ledger: &ledger, demand: &demand, failures: Vec::new() };
    let mut result = FilterResult::default();
    match asked {
        Asked::Names(names) => {
            let mut names: Vec<Name<'a>> =
                names.into_iter().filter_map(|it| judge.pass(it)).collect();
            keep_best(&mut names, |name| ledger.score(&name.0, &demand), &demand);
            result.node_names = Some(names);
        }
        Asked::Whole(mut nodes) => {
            nodes.items.retain(|node| judge.pass(name(node)).is_some());
            keep_best(
                &mut nodes.items,
                |node| ledger.score(NodeList::name(node), &demand),
                &demand,
            );
            result.nodes = Some(nodes);
        }
    }
    refusals::tell(judge.failures, &mut result);
    Ok(result)
}

/// Leaves the nodes with the highest scores, in their order. For pods that ask for units of memory
/// alone: of other GPUs kube-scheduler knows as much.
fn keep_best<T>(nodes: &mut Vec<T>, score: impl Fn(&T) -> u8, demand: &Demand) {
    if nodes.len() <= MOST_NODES || !demand.wishes().iter().all(|it| it.resource.is_memory()) {
        return;
    }
    let ranks: Vec<(Reverse<u8>, usize)> =
        nodes.iter().enumerate().map(|(at, node)| (Reverse(score(node)), at)).collect();
    let last = *ranks.clone().select_nth_unstable(MOST_NODES - 1).1;
    let mut ranks = ranks.into_iter();
    nodes.retain(|_| ranks.next().is_some_and(|rank| rank <= last));
}

struct Judge<'a, 'b> {
    ledger: &'b Ledger,
    demand: &'b Demand,
    failures: Vec<(Name<'a>, Unfit<'b>)>,
}

impl<'a> Judge<'a, '_> {
    /// Gives the name back if the node has room.
    fn pass(&mut self, name: Name<'a>) -> Option<Name<'a>> {
        if self.demand.is_empty() {
            return Some(name);
        }
        match self.ledger.room_for(&name.0, self.demand) {
            Ok(()) => Some(name),
            Err(unfit) => {
                self.failures.push((name, unfit));
                None
            }
        }
    }
}
