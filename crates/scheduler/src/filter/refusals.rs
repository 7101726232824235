//! Why nodes have no room, in few and short words when there are many nodes.
//!
//! kube-scheduler puts all texts into one Event, each with the number of nodes that it is about
//! (facts/kubernetes.md 6.5), and reads the whole answer for each pod that has to wait. So the more
//! there is to say the less is said of each node: what each of its GPUs has left; or what the best
//! GPU of all nodes has left; or that for one node, the best, and of the others only how many.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mpshare_api::extender::{FilterResult, Name};
use mpshare_core::ledger::{Lack, Unfit};
use mpshare_core::{Memory, Reason};

/// How many different texts about lack of room an answer has at most.
const MOST_TEXTS: usize = 4;

/// How many bytes of sentences an answer has at most before most nodes get a short one: with it and
/// the names of 1,000 nodes an answer stays below 64 KiB.
const MOST_BYTES: usize = 32 * 1024;

/// No sentence is shorter.
const SHORTEST: usize = 40;

/// A node without room for the pod.
struct Failure<'a> {
    unfit: &'a Unfit<'a>,
    lack: Option<Lack<'a>>,
}

/// Puts the failures into the answer.
pub(super) fn tell<'a>(failures: Vec<(Name<'a>, Unfit<'_>)>, result: &mut FilterResult<'a>) {
    let all: Vec<Failure<'_>> =
        failures.iter().map(|(_, unfit)| Failure { unfit, lack: unfit.lack() }).collect();
    let may_be_long = all.len() * SHORTEST <= MOST_BYTES;
    let long = may_be_long.then(|| each(&all).or_else(|| together(&all))).flatten();
    let texts = long.unwrap_or_else(|| briefly(&all));
    let may_pass: Vec<bool> = all.iter().map(|failure| failure.lack.is_some()).collect();
    for (((node, _), may_pass), text) in failures.into_iter().zip(may_pass).zip(texts) {
        let failed = if may_pass {
            &mut result.failed_nodes
        } else {
            &mut result.failed_and_unresolvable_nodes
        };
        failed.0.push((node, text));
    }
}

/// What each GPU has left, node by node.
fn each(failures: &[Failure<'_>]) -> Option<Vec<Arc<str>>> {
    let mut texts = Texts::default();
    let mut full = BTreeSet::new();
    for failure in failures {
        let text = texts.add(&failure.unfit.reason().to_string())?;
        if failure.lack.is_some() {
            full.insert(text);
        }
        if full.len() > MOST_TEXTS {
            return None;
        }
    }
    Some(texts.all)
}

/// What the best GPU of all nodes has left.
fn together(failures: &[Failure<'_>]) -> Option<Vec<Arc<str>>> {
    let best = best(failures);
    let mut texts = Texts::default();
    for failure in failures {
        let reason = match &failure.lack {
            Some(lack) => {
                let most = best.get(&kind(lack)).and_then(|at| failures.get(*at)?.lack.as_ref());
                let most = most.unwrap_or(lack).most_free;
                Reason::NoGpuFits {
                    resource: lack.resource.clone(),
                    asked: lack.asked.clone(),
                    cards: vec![format!("at most {most} free on one")],
                }
            }
            None => failure.unfit.reason(),
        };
        texts.add(&reason.to_string())?;
    }
    Some(texts.all)
}

/// All of it for one node of each kind, the one with most room, and few words for the others.
fn briefly(failures: &[Failure<'_>]) -> Vec<Arc<str>> {
    let best: BTreeSet<usize> = best(failures).into_values().collect();
    let (mut texts, mut told) = (Vec::new(), BTreeMap::new());
    let mut last: Option<(Kind<'_>, Arc<str>)> = None;
    for (at, failure) in failures.iter().enumerate() {
        let known = last.as_ref().filter(|(of, _)| failure.lack.as_ref().map(kind) == Some(*of));
        let (text, is_first) = match (known, &failure.lack) {
            (Some((_, text)), _) => (Arc::clone(text), false),
            (None, Some(lack)) => {
                let text = Arc::from(format!("no GPU has {} units free", sum(&lack.asked)));
                last = Some((kind(lack), Arc::clone(&text)));
                (text, false)
            }
            (None, None) => {
                let brief = in_brief(&failure.unfit.reason());
                let is_first = !told.contains_key(&brief);
                let text = told.entry(brief).or_insert_with_key(|it| Arc::from(it.as_str()));
                (Arc::clone(text), is_first)
            }
        };
        let whole = (is_first || best.contains(&at)).then(|| failure.unfit.reason().to_string());
        texts.push(whole.map_or(text, Arc::from));
    }
    texts
}

/// What a reason that isn't a lack of room is about.
fn in_brief(reason: &Reason) -> String {
    match reason {
        Reason::NoUnits { resource } => format!("no `{resource}`"),
        Reason::BadInventory { .. } => "GPUs aren't known".to_owned(),
        Reason::SeveralGpusAsked { .. } => "several GPUs asked".to_owned(),
        Reason::TwoResources { .. } => "two GPU resources asked".to_owned(),
        other => other.to_string(),
    }
}

/// The failures that are alike: the node doesn't matter.
type Kind<'a> = (&'a str, &'a [u64]);

fn kind<'a>(lack: &'a Lack<'_>) -> Kind<'a> {
    (lack.resource.as_str(), &lack.asked)
}

/// Of each kind the node with the most room, the first of several.
fn best<'a>(failures: &'a [Failure<'_>]) -> BTreeMap<Kind<'a>, usize> {
    let mut best: BTreeMap<Kind<'a>, (Reverse<Memory>, usize)> = BTreeMap::new();
    for (at, failure) in failures.iter().enumerate() {
        if let Some(lack) = &failure.lack {
            let mine = (Reverse(lack.most_free), at);
            let known = best.entry(kind(lack)).or_insert(mine);
            *known = mine.min(*known);
        }
    }
    best.into_iter().map(|(kind, (_, at))| (kind, at)).collect()
}

fn sum(asked: &[u64]) -> String {
    asked.iter().map(u64::to_string).collect::<Vec<_>>().join(" + ")
}

/// A text for each failure, each kept once.
#[derive(Default)]
struct Texts {
    all: Vec<Arc<str>>,
    known: BTreeSet<Arc<str>>,
    bytes: usize,
}

impl Texts {
    /// Takes a text in; `None` when they get too long.
    fn add(&mut self, text: &str) -> Option<Arc<str>> {
        let text = self.known.get(text).map_or_else(|| Arc::from(text), Arc::clone);
        self.bytes += text.len();
        self.known.insert(Arc::clone(&text));
        self.all.push(Arc::clone(&text));
        (self.bytes <= MOST_BYTES).then_some(text)
    }
}
