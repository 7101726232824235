//! One schedule: what can happen happens in an order that a seed decides, and after each step what
//! must be true is looked at.

mod binding;
mod pods;
mod rest;
mod truth;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::api::Api;
use crate::extender::{Extender, Post};
use crate::kubelet::Kubelet;
use fastrand::Rng;

const STEPS: usize = 80;

/// Nodes with the units of their cards, and what containers ask for: few sizes, so that many are equal.
struct Layout {
    nodes: &'static [(&'static str, &'static [u64])],
    sizes: &'static [u64],
}

const LAYOUTS: [Layout; 2] = [
    Layout { nodes: &[("n1", &[10, 10, 7]), ("n2", &[15])], sizes: &[1, 2, 3, 5, 7, 10] },
    // A place that is free on another card than is thought is soon noticed here.
    Layout { nodes: &[("n1", &[10, 10])], sizes: &[3, 10] },
];

/// The API server gives up on a request after a minute.
const POST_LIFE: Duration = Duration::from_mins(1);

/// What can go wrong beside restarts, lost answers, late watches and pods that come and go.
///
/// Where none of it does, or only swaps, nothing may be planned that the kubelet can't give. Each of
/// the others makes plan and truth differ for a while, which nobody can prevent; then no card may be
/// over-committed, and in the end everything has to be as it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// A Binding of an extender that has died or lost its lead takes effect after its successor has
    /// listed the pods, or a successor's watch lags behind.
    LateBindings,
    /// The kubelet asks for pods in any order, and the plugin can't tell equal ones apart.
    Swaps,
    /// The plugin doesn't know yet that a pod is bound.
    Blindness,
    /// Cards are lost and come back, with more or fewer units.
    Cards,
    /// Users write annotations.
    Users,
    /// Somebody binds pods without asking.
    Strangers,
}

const TROUBLES: [Trouble; 6] = [
    Trouble::LateBindings,
    Trouble::Swaps,
    Trouble::Blindness,
    Trouble::Cards,
    Trouble::Users,
    Trouble::Strangers,
];

/// What users write.
const GARBAGE: [&str; 7] = [
    "",
    "{",
    "null",
    r#"{"c0":{"GPU-00":1}}"#,
    r#"{"c0":{"GPU-99":7}}"#,
    r#"{"c0":{"GPU-01":18446744073709551615}}"#,
    r#"{"c0":{"GPU-00":4},"c1":{"GPU-01":4}}"#,
];

/// How much has happened, to see that a run means something.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) schedules: usize,
    pub(crate) calm: usize,
    pub(crate) steps: usize,
    pub(crate) bound: usize,
    pub(crate) refused: usize,
    pub(crate) admitted: usize,
    pub(crate) failed: usize,
    pub(crate) corrected: usize,
    pub(crate) restarts: usize,
    pub(crate) waiting: usize,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Self) {
        self.schedules += other.schedules;
        self.calm += other.calm;
        self.steps += other.steps;
        self.bound += other.bound;
        self.refused += other.refused;
        self.admitted += other.admitted;
        self.failed += other.failed;
        self.corrected += other.corrected;
        self.restarts += other.restarts;
        self.waiting += other.waiting;
    }
}

/// A Binding in flight, and whose.
struct Flying {
    owner: usize,
    post: Post,
}

/// The whole cluster.
pub(crate) struct World {
    layout: &'static Layout,
    random: Rng,
    troubles: Vec<Trouble>,
    api: Api,
    kubelets: Vec<Kubelet>,
    /// By number; the leader is asked, the other only listens.
    extenders: BTreeMap<usize, Extender>,
    leader: usize,
    flying: Vec<Flying>,
    now: Duration,
    numbers: usize,
    /// All pods that ever were.
    known: Vec<String>,
    is_settling: bool,
    pub(crate) tally: Tally,
    /// What has happened, when somebody wants to know.
    pub(crate) story: Option<Vec<String>>,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let troubles: Vec<Trouble> = match seed / 2 % 3 {
            0 => Vec::new(),
            1 => vec![Trouble::Swaps],
            _ => TROUBLES.into_iter().filter(|_| random.u8(0..3) == 0).collect(),
        };
        let layout = &LAYOUTS[usize::from(seed % 2 == 1)];
        let mut api = Api::default();
        let kubelets: Vec<Kubelet> =
            layout.nodes.iter().map(|(name, cards)| Kubelet::new(name, cards)).collect();
        for kubelet in &kubelets {
            kubelet.publish(&mut api);
        }
        api.changes.clear();
        let leader = Extender::started(&api);
        let tally =
            Tally { schedules: 1, calm: usize::from(troubles.is_empty()), ..Tally::default() };
        Self {
            layout,
            random,
            troubles,
            api,
            kubelets,
            extenders: [(0, leader)].into(),
            leader: 0,
            flying: Vec::new(),
            now: Duration::ZERO,
            numbers: 0,
            known: Vec::new(),
            is_settling: false,
            tally,
            story: None,
        }
    }

    /// The whole schedule; what was wrong, if anything was.
    pub(crate) fn run(&mut self) -> Result<(), String> {
        for _ in 0..STEPS {
            self.step()?;
            self.publish();
            self.check()?;
            self.tally.steps += 1;
        }
        self.settle()
    }

    pub(crate) fn troubles(&self) -> &[Trouble] {
        &self.troubles
    }

    fn is(&self, trouble: Trouble) -> bool {
        self.troubles.contains(&trouble)
    }

    /// Whether what is planned and what the node gives can't differ.
    fn is_exact(&self) -> bool {
        self.troubles.is_empty()
    }

    /// Whether the node does what was planned, be it with equal pods in each other's place.
    fn is_steered(&self) -> bool {
        self.is_exact() || self.troubles == [Trouble::Swaps]
    }

    fn note(&mut self, what: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            story.push(what());
        }
    }

    fn any_node(&mut self) -> &'static str {
        self.layout.nodes[self.random.usize(0..self.layout.nodes.len())].0
    }

    fn step(&mut self) -> Result<(), String> {
        self.now += Duration::from_millis(self.random.u64(0..400));
        match self.random.u8(0..100) {
            0..12 => self.create(),
            12..27 => self.schedule()?,
            27..42 => self.network()?,
            42..48 => drop(self.look()),
            48..63 => self.deliver(),
            63..68 => self.relist(),
            68..70 => self.restart()?,
            70..72 => self.change_leader()?,
            72..77 => self.delete(),
            77..82 => self.end_pod(),
            82..91 => self.admit()?,
            91..95 => self.correct(),
            95 => self.pause(),
            _ => self.trouble(),
        }
        Ok(())
    }

    /// Some time, in which watches catch up.
    fn pause(&mut self) {
        for extender in self.extenders.values_mut().filter(|extender| !extender.is_listing()) {
            while extender.deliver(&mut self.random) {}
        }
        self.now += Duration::from_secs(self.random.u64(0..40));
    }

    fn ask(&mut self) -> Result<&mut Extender, String> {
        self.extenders.get_mut(&self.leader).ok_or_else(|| "no leader".to_owned())
    }

    /// What was written reaches the queues of the watches.
    fn publish(&mut self) {
        for change in self.api.changes.drain(..) {
            self.extenders.values_mut().for_each(|extender| extender.hear(&change));
        }
        self.kubelets.iter_mut().for_each(|kubelet| kubelet.look(&self.api));
    }
}
