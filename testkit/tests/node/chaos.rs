//! Kill -9 of the product's processes at random moments, with clients running and configs changing;
//! and a slice of a campaign of all kinds of faults (`cargo xtask chaos` goes on for longer).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use mpshare_api::{Allocations, read_document};
use mpshare_sim_state::{ProcessKind, SimProcess, SimState};
use mpshare_testkit::campaign::{self, Plan};
use mpshare_testkit::fakekubelet::{Phase, PodHandle};
use mpshare_testkit::simnode::{Role, Setup, SimNode};
use rustix::process::Signal;

use crate::scene::{GPU, PATIENCE, client, hold, label, logs, running};

const KILLS: usize = 200;

/// The least number of clients for which the test means something.
const CLIENTS: usize = 20;

struct Chaos {
    node: SimNode,
    random: fastrand::Rng,
    /// Pods and the PID of each one's client, once it holds its memory.
    pods: Vec<(PodHandle, Option<u32>)>,
    replicas: usize,
    killed: usize,
    refused: Vec<String>,
    started: usize,
    actions: Vec<String>,
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_kills_lose_no_client_and_never_over_commit() {
    let seed = std::env::var("MPSHARE_CHAOS_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(20_261_130);
    let mut chaos = Chaos {
        node: running(Setup { seed, ..Setup::two_cards() }, 2).await,
        random: fastrand::Rng::with_seed(seed),
        pods: Vec::new(),
        replicas: 2,
        killed: 0,
        refused: Vec::new(),
        started: 0,
        actions: Vec::new(),
    };
    // A busy machine starts fewer clients between kills, so that it takes more of these.
    while chaos.killed < KILLS || chaos.started < CLIENTS {
        assert!(chaos.killed < 10 * KILLS, "only {} clients started", chaos.started);
        chaos.act().await;
        chaos.pause().await;
        chaos.check();
    }
    chaos.settle().await;
    println!(
        "seed {seed}: {} kills, {} clients started, {} requests refused",
        chaos.killed,
        chaos.started,
        chaos.refused.len()
    );
    for message in &chaos.refused {
        println!("refused: {message}");
    }
}

/// The end of its last round comes on top.
const SLICE: Duration = Duration::from_mins(2);

#[tokio::test(flavor = "multi_thread")]
async fn a_campaign_of_all_faults_hurts_no_client_of_a_spared_card_and_leaves_nothing_behind() {
    let plan = Plan { seed: 7, first_round: 0, time: SLICE };
    match campaign::run(plan).await {
        Ok(report) => println!("{report:#?}"),
        Err(broken) => panic!("{broken}"),
    }
}

impl Chaos {
    async fn act(&mut self) {
        match self.random.u8(0..10) {
            0..5 => self.kill(),
            5 => {
                self.replicas = self.random.usize(1..=4);
                self.note(format!("label mps-{}x", self.replicas));
                label(&self.node, self.replicas).await;
            }
            6..9 => self.add(),
            _ => self.remove(),
        }
    }

    fn note(&mut self, action: String) {
        self.actions.push(action);
    }

    fn kill(&mut self) {
        let role = Role::ALL[self.random.usize(0..3)];
        self.note(format!("kill {role}"));
        self.node.end_role(role, Signal::KILL).unwrap();
        self.node.start_role(role).unwrap();
        self.killed += 1;
    }

    fn add(&mut self) {
        if self.pods.len() >= 8 {
            return;
        }
        let units = if self.random.u8(0..4) == 0 { 2 } else { 1 };
        // What a scheduler would look at; it may be out of date by the time of admission.
        let free = self.node.kubelet().allocatable(GPU).saturating_sub(self.wanted());
        if free < units {
            return;
        }
        let name = format!("client-{}", self.actions.len());
        self.note(format!("add {name} with {units}"));
        let pod = self.node.kubelet().admit(client(&name, units, "64Mi"));
        self.pods.push((pod, None));
    }

    /// Units that pods of this node ask for.
    fn wanted(&self) -> usize {
        let limits = |pod: &PodHandle| pod.spec().containers[0].limits[GPU];
        self.pods.iter().map(|(pod, _)| limits(pod)).sum()
    }

    fn remove(&mut self) {
        if self.pods.is_empty() {
            return;
        }
        let (pod, _) = self.pods.swap_remove(self.random.usize(0..self.pods.len()));
        if self.random.bool() {
            self.note(format!("delete {}", pod.spec().name));
            pod.delete_with_grace(Duration::from_secs(2));
        } else {
            self.note(format!("force-delete {}", pod.spec().name));
            pod.force_delete();
        }
    }

    /// Random, and short: a kill should hit everything at some time.
    async fn pause(&mut self) {
        tokio::time::sleep(Duration::from_millis(self.random.u64(0..120))).await;
    }

    fn check(&mut self) {
        let state = self.node.store().read().unwrap();
        self.check_cards(&state);
        self.check_ledger(&state);
        self.check_clients(&state);
        let violations = self.node.kubelet().violations();
        assert!(violations.is_empty(), "{violations:?} {}", self.story());
        assert_eq!(self.node.ended_roles(), [], "{}", self.story());
    }

    /// The simulator's own account: limits of clients against the card.
    fn check_cards(&self, state: &SimState) {
        for gpu in &state.gpus {
            let is_canary = |process: &SimProcess| process.name == "mpshare-canary";
            let mine = || state.processes.iter().filter(|it| it.gpu == gpu.uuid && !is_canary(it));
            let clients = mine().filter(|p| matches!(p.kind, ProcessKind::MpsClient { .. }));
            let limits: Vec<u64> = clients.map(|p| p.limit_mib.unwrap_or(u64::MAX)).collect();
            let sum: u64 = limits.iter().fold(0, |sum, limit| sum.saturating_add(*limit));
            assert!(sum <= gpu.total_mib, "{limits:?} MiB on {} {}", gpu.uuid, self.story());
            let plain = mine().filter(|p| p.kind == ProcessKind::Plain).count();
            let others = mine().count() - plain;
            assert!(plain == 0 || (plain == 1 && others == 0), "{plain}+{others} {}", self.story());
        }
    }

    /// The product's account.
    fn check_ledger(&self, state: &SimState) {
        let path = self.node.mps_root().allocations();
        let allocations = read_document::<Allocations>(&path).unwrap().unwrap_or_default();
        let mut sums = BTreeMap::new();
        for record in allocations.records {
            *sums.entry(record.gpu).or_insert(0) += record.memory_mib;
        }
        for gpu in &state.gpus {
            let sum = sums.get(&gpu.uuid).copied().unwrap_or(0);
            assert!(sum <= gpu.total_mib, "ledger {sum} MiB on {} {}", gpu.uuid, self.story());
        }
    }

    /// Whoever held memory still does.
    fn check_clients(&mut self, state: &SimState) {
        let mut kept = Vec::new();
        for (pod, pid) in std::mem::take(&mut self.pods) {
            let status = pod.status();
            if status.phase == Phase::Failed && pid.is_none() {
                let reason = status.reason.clone().unwrap_or_default();
                assert_eq!(reason, "UnexpectedAdmissionError", "{status:?} {}", self.story());
                self.refused.push(status.message.unwrap_or_default());
                continue;
            }
            let name = &pod.spec().name;
            let now = status.pids().into_values().next();
            if pid.is_some() {
                assert_eq!(now, pid, "client of {name} lost: {} {}", pod.log("c"), self.story());
                let process = state.processes.iter().find(|p| Some(p.id.pid.unsigned_abs()) == pid);
                let is_well = process.is_some_and(|process| process.sticky_error.is_none());
                assert!(is_well, "context of {name} lost: {process:?} {}", self.story());
            }
            let is_holding = pod.log("c").contains("holding");
            if pid.is_none() && is_holding {
                self.started += 1;
            }
            kept.push((pod, if is_holding { now } else { None }));
        }
        self.pods = kept;
    }

    /// Left alone, the node comes to rest and takes a pod.
    async fn settle(&mut self) {
        for (pod, _) in &self.pods {
            pod.force_delete();
        }
        for (pod, _) in std::mem::take(&mut self.pods) {
            pod.wait_gone(PATIENCE).await.unwrap();
        }
        label(&self.node, 2).await;
        let until = Instant::now() + PATIENCE;
        while self.node.kubelet().allocatable(GPU) != 4 {
            assert!(Instant::now() < until, "not settled {}", self.story());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        hold(&self.node, client("last", 1, "1Gi")).await;
        self.check();
    }

    fn story(&self) -> String {
        let last: Vec<&String> = self.actions.iter().rev().take(15).collect();
        format!(
            "\nlast actions, newest first: {last:?}\n{:#?}\n{}",
            self.node.status(),
            logs(&self.node)
        )
    }
}
