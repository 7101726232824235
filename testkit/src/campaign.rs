//! Chaos: a simulated node with the product's real processes, on which a seeded generator mixes
//! loads, changes of the config and faults, while the invariants are checked after each of them.
//!
//! A campaign is made of rounds. What is done in a round is a function of the seed and the round's
//! number alone (`schedule.rs`), so a round that fails is repeated by these two. At its end all
//! faults end; then every card has to offer all its units, a pod has to run on each, and nothing
//! may be left over: processes, mounts, files, open descriptors, threads, memory.
//!
//! In each round one card is *spared*: nothing is done to it that may hurt clients, and so none of
//! its clients may be hurt, whatever is done to the other cards, to the product, to the kubelet
//! and to the API server. Clients of other cards are excused for what was done to their very card.
//!
//! What isn't a function of the seed: how far the processes are when the next action comes, and
//! so which pods there are (an action names the n-th of them, modulo their number), on which card
//! the kubelet put them, and what a fault finds to hit. A fault that finds nothing isn't counted.
//! A repeated round therefore does the same, but the race that it lost may be won then: repeat it
//! some times.

mod action;
mod check;
mod harm;
mod lasting;
mod loads;
mod rest;
mod scene;
mod schedule;
mod strike;
mod usage;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

pub use usage::{Resting, Usage};

use crate::simnode::{Role, SimNode};
use action::{Action, Cut};
use harm::Harm;
use lasting::Running;
use loads::Loads;
use scene::{Policy, add_configs, label, setup};

/// How many actions are told when something is wrong.
const TOLD: usize = 40;

/// No action takes longer, unless something hangs.
const ACTED_WITHIN: Duration = Duration::from_mins(1);

/// Which campaign.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Decides everything.
    pub seed: u64,
    /// The number of the first round; what failed is repeated by it.
    pub first_round: usize,
    /// No further action comes after this time.
    pub time: Duration,
}

/// What was done, and seen to be well.
#[derive(Debug)]
pub struct Report {
    /// Rounds.
    pub rounds: usize,
    /// Faults by kind; those that found something to hit.
    pub faults: BTreeMap<&'static str, usize>,
    /// Actions that aren't faults.
    pub other_actions: usize,
    /// Clients that were seen to hold memory.
    pub clients: usize,
    /// Refusals of pods by sentence.
    pub refused: BTreeMap<String, usize>,
    /// The node at rest after the first round, and after the last.
    pub rest: Option<(Resting, Resting)>,
}

/// Something that must never be.
#[derive(Debug, thiserror::Error)]
#[error("seed {seed}, round {round}: {what}\n{story}")]
pub struct Broken {
    /// The campaign's seed.
    pub seed: u64,
    /// The round in which it was.
    pub round: usize,
    /// What is wrong.
    pub what: String,
    /// What led to it, for a person.
    pub story: String,
}

/// A campaign that is under way.
struct Campaign {
    node: SimNode,
    policy: Policy,
    cut: Cut,
    /// The card that is spared in this round.
    spared: usize,
    loads: Loads,
    lasting: Vec<Running>,
    harm: Harm,
    actions: Vec<String>,
    begun: Instant,
    faults: BTreeMap<&'static str, usize>,
    other_actions: usize,
    clients: usize,
    refused: BTreeMap<String, usize>,
}

/// Runs a campaign; the first violation ends it. Has to be called inside a tokio runtime of
/// several threads.
pub async fn run(plan: Plan) -> Result<Report, Box<Broken>> {
    let broken = |round: usize, story: String, error: &anyhow::Error| {
        Box::new(Broken { seed: plan.seed, round, what: format!("{error:#}"), story })
    };
    let started = Campaign::start(plan.seed).await;
    let mut campaign = started.map_err(|error| broken(plan.first_round, String::new(), &error))?;
    let until = campaign.begun + plan.time;
    let (mut round, mut rest) = (plan.first_round, None);
    while Instant::now() < until {
        match campaign.round(plan.seed, round, until).await {
            Ok(resting) => rest = Some(rested(rest, resting)),
            Err(error) => return Err(broken(round, campaign.story(), &error)),
        }
        if let Some((first, last)) = &rest
            && let Err(error) = last.check_against(first)
        {
            return Err(broken(round, campaign.story(), &error));
        }
        round += 1;
    }
    Ok(Report {
        rounds: round - plan.first_round,
        faults: campaign.faults,
        other_actions: campaign.other_actions,
        clients: campaign.clients,
        refused: campaign.refused,
        rest,
    })
}

/// The first rest is what later ones are compared with.
fn rested(before: Option<(Resting, Resting)>, now: Resting) -> (Resting, Resting) {
    (before.map_or_else(|| now.clone(), |(first, _)| first), now)
}

impl Campaign {
    async fn start(seed: u64) -> Result<Self> {
        let policy = Policy::of(seed);
        let mut node = SimNode::start(setup(seed, policy)).await?;
        add_configs(&node).await?;
        let cut = Cut::Replicas(2);
        label(&node, cut).await?;
        node.start_product()?;
        let mut campaign = Self {
            node,
            policy,
            cut,
            spared: 0,
            loads: Loads::default(),
            lasting: Vec::new(),
            harm: Harm::default(),
            actions: Vec::new(),
            begun: Instant::now(),
            faults: BTreeMap::new(),
            other_actions: 0,
            clients: 0,
            refused: BTreeMap::new(),
        };
        // Each round begins so.
        campaign.all_units_are_offered().await?;
        Ok(campaign)
    }

    async fn round(&mut self, seed: u64, number: usize, until: Instant) -> Result<Resting> {
        let round = schedule::round(seed, number, self.node.cards().len());
        self.spared = round.spared_card;
        self.note(&format!(
            "round {number}, sparing card {} and {}",
            self.spared, round.spared_role
        ));
        // Who was hurt in former rounds is gone.
        self.harm = Harm::default();
        for (at, beat) in round.beats.iter().enumerate() {
            if Instant::now() > until {
                break;
            }
            self.end_until(at)?;
            let acted = tokio::time::timeout(ACTED_WITHIN, self.act(&beat.action, at)).await;
            acted
                .with_context(|| format!("not done within {ACTED_WITHIN:?}"))
                .flatten()
                .with_context(|| format!("{:?}", beat.action))?;
            tokio::time::sleep(Duration::from_millis(beat.pause_ms)).await;
            self.check()?;
        }
        self.come_to_rest().await
    }

    async fn act(&mut self, action: &Action, beat: usize) -> Result<()> {
        // Before, since it may be what a wait is about.
        self.note(&format!("{action:?}"));
        let is_done = match action {
            Action::Add(load) => self.loads.add(&self.node, self.cut, *load)?,
            Action::Remove { pod, way } => self.loads.remove(*pod, *way),
            Action::Switch(cut) => {
                label(&self.node, *cut).await?;
                if *cut != Cut::Unknown {
                    self.cut = *cut;
                }
                true
            }
            Action::Strike(strike) => self.strike(strike).await?,
            Action::Begin { fault, beats } => self.begin(*fault, beat + beats).await?,
        };
        match action.fault() {
            _ if !is_done => self.note("(nothing there to do it to)"),
            Some(kind) => *self.faults.entry(kind).or_default() += 1,
            None => self.other_actions += 1,
        }
        Ok(())
    }

    fn note(&mut self, action: &str) {
        self.actions.push(format!("{:>8.3} s {action}", self.begun.elapsed().as_secs_f64()));
    }

    /// The UUID of a card.
    fn card(&self, index: usize) -> Result<&'static str> {
        self.node.cards().get(index).copied().context("no such card")
    }

    /// What led to a violation.
    fn story(&self) -> String {
        let from = self.actions.len().saturating_sub(TOLD);
        let last: Vec<&str> = self.actions.iter().skip(from).map(String::as_str).collect();
        let pods: Vec<String> = self
            .loads
            .pods
            .iter()
            .map(|it| {
                let status = it.pod.status();
                let name = &it.pod.spec().name;
                format!(
                    "{name} {} {:?}: {:?} {:?}",
                    it.pod.uid(),
                    it.load,
                    status.phase,
                    status.pids()
                )
            })
            .collect();
        let pods = pods.join("\n");
        format!(
            "policy: {:?}\nlast actions:\n{}\npods:\n{pods}\nreport: {:#?}\n{}",
            self.policy,
            last.join("\n"),
            self.node.status(),
            Role::ALL.map(|role| self.end_of_log(role)).concat()
        )
    }

    fn end_of_log(&self, role: Role) -> String {
        let text = std::fs::read_to_string(self.node.log(role)).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let end: Vec<&str> = lines.iter().skip(lines.len().saturating_sub(TOLD)).copied().collect();
        format!("--- {role}\n{}\n", end.join("\n"))
    }
}
