//! The supervisor's part, played by the test: it follows `config.yaml` and `allocations.json` and
//! writes `status.json`. No daemon runs; its lock is held for it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mpshare_api::status::{ClientStatus, DaemonStatus, FormerPods, LimitsStatus, ReasonText};
use mpshare_api::{
    Allocations, ChosenConfig, GpuState, GpuStatus, MpsRoot, NodeStatus, read_document,
    write_document,
};
use mpshare_core::{
    ComputeCapability, Gpu, GpuPlan, GpuUuid, Hosting, Inventory, Memory, MigMode, plan,
};

use crate::lock::HeldLock;
use crate::setup::wait_until;

pub(crate) const T4: &str = "GPU-00000000-0000-0000-0000-000000000000";
pub(crate) const V100: &str = "GPU-11111111-1111-1111-1111-111111111111";

/// What the test wants of it.
#[derive(Clone, Default)]
pub(crate) struct Behaviour {
    /// It writes nothing.
    pub(crate) is_away: bool,
    /// Cards that are broken.
    pub(crate) broken: Vec<String>,
    /// Daemons whose limits aren't verified.
    pub(crate) unverified: Vec<String>,
    /// Daemons die, without a word.
    pub(crate) kills_daemons: bool,
    /// Clients by card: PID and pod.
    pub(crate) clients: BTreeMap<String, Vec<(i32, String)>>,
}

/// The stand-in; it ends when it is dropped.
pub(crate) struct Supervisor {
    behaviour: Arc<Mutex<Behaviour>>,
    /// How often it has looked.
    looks: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

struct State {
    root: MpsRoot,
    cards: Inventory,
    locks: BTreeMap<PathBuf, HeldLock>,
    written: Option<NodeStatus>,
}

impl Supervisor {
    pub(crate) fn start(root: MpsRoot) -> Self {
        let behaviour = Arc::new(Mutex::new(Behaviour::default()));
        let wishes = Arc::clone(&behaviour);
        let looks = Arc::new(AtomicU64::new(0));
        let looked = Arc::clone(&looks);
        let task = tokio::spawn(async move {
            let cards = inventory();
            let locks = BTreeMap::new();
            let written = None;
            let mut state = State { root, cards, locks, written };
            loop {
                let wishes = {
                    let mut wishes = wishes.lock().unwrap();
                    if std::mem::take(&mut wishes.kills_daemons) {
                        state.locks.clear();
                    }
                    wishes.clone()
                };
                if !wishes.is_away {
                    state.follow(&wishes);
                }
                looked.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        Self { behaviour, looks, task }
    }

    /// Ends all daemons.
    pub(crate) async fn kill_daemons(&self) {
        self.set(|wishes| wishes.kills_daemons = true).await;
    }

    /// Changes what it does, and waits until it has done so.
    pub(crate) async fn set(&self, change: impl FnOnce(&mut Behaviour)) {
        change(&mut self.behaviour.lock().unwrap());
        // The look that is under way may have begun before.
        let enough = self.looks.load(Ordering::SeqCst) + 2;
        wait_until("the supervisor has looked", || self.looks.load(Ordering::SeqCst) >= enough)
            .await;
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl State {
    fn follow(&mut self, wishes: &Behaviour) {
        let Ok(Some(chosen)) = read_document::<ChosenConfig>(&self.root.config()) else {
            return;
        };
        let config = mpshare_api::config::parse(&chosen.name, &chosen.text).unwrap();
        let records = read_document::<Allocations>(&self.root.allocations());
        let records = records.ok().flatten().unwrap_or_default();
        let live = records.live();
        let plan = plan(&config.node, &self.cards, &live);
        let cards = self.cards.clone();
        let gpus = cards
            .gpus
            .iter()
            .map(|gpu| self.card(gpu, plan.gpu(&gpu.uuid).unwrap(), wishes))
            .collect();
        let status = NodeStatus {
            version: NodeStatus::VERSION,
            config: chosen.name,
            driver: "555.58.02".into(),
            shared_memory: mpshare_api::SharedMemory::PerCard,
            // No process is left of anybody but those that the test lists as clients.
            former_pods: FormerPods { revision: records.revision, alive: Vec::new() },
            gpus,
            reasons: Vec::new(),
        };
        if self.written.as_ref() != Some(&status) {
            write_document(&self.root.status(), &status).unwrap();
            self.written = Some(status);
        }
    }

    fn card(&mut self, gpu: &Gpu, plan: &GpuPlan, wishes: &Behaviour) -> GpuStatus {
        let uuid = gpu.uuid.to_string();
        let is_broken = wishes.broken.contains(&uuid);
        GpuStatus {
            state: if is_broken { GpuState::Fault } else { GpuState::Ready },
            reason: is_broken.then(|| ReasonText {
                code: "Xid".into(),
                message: format!("`{uuid}` reported Xid 79"),
                pods: Vec::new(),
            }),
            generation: plan.generation.to_string(),
            daemon: self.daemon(gpu, plan, wishes),
            ..GpuStatus::starting(gpu)
        }
    }

    fn daemon(&mut self, gpu: &Gpu, plan: &GpuPlan, wishes: &Behaviour) -> Option<DaemonStatus> {
        let Hosting::Mps { resource, limits } = &plan.hosting else {
            return None;
        };
        let paths = self.root.gpu(resource, &gpu.uuid);
        let lock = paths.pipe().join("control_lock");
        if !self.locks.contains_key(&lock) {
            std::fs::create_dir_all(paths.pipe()).unwrap();
            std::fs::create_dir_all(paths.shm()).unwrap();
            self.locks.insert(lock.clone(), HeldLock::on(&lock));
        }
        let uuid = gpu.uuid.to_string();
        let clients = wishes.clients.get(&uuid).into_iter().flatten();
        Some(DaemonStatus {
            pid: 1000 + i32::try_from(gpu.index).unwrap(),
            pipe_directory: paths.pipe().display().to_string(),
            server: None,
            limits: (!wishes.unverified.contains(&uuid)).then(|| LimitsStatus::from(*limits)),
            clients: clients
                .map(|(pid, pod)| ClientStatus {
                    pid: *pid,
                    memory_mib: None,
                    pod_uid: Some(pod.clone()),
                    container_id: None,
                })
                .collect(),
        })
    }
}

/// A T4 and a V100.
pub(crate) fn inventory() -> Inventory {
    let card = |index, uuid: &str, model: &str, mib, capability| Gpu {
        uuid: uuid.parse::<GpuUuid>().unwrap(),
        index,
        minor: index,
        model: model.into(),
        memory: Memory::from_mib(mib),
        compute_capability: capability,
        mig: MigMode::Unsupported,
        numa_node: None,
    };
    Inventory {
        driver: "555.58.02".parse().unwrap(),
        gpus: vec![
            card(0, T4, "Tesla T4", 15360, ComputeCapability { major: 7, minor: 5 }),
            card(1, V100, "Tesla V100", 32768, ComputeCapability { major: 7, minor: 0 }),
        ],
    }
}
