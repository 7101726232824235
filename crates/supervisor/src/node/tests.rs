//! The main thread with a driver that hangs.

use crate::testing::t4;
use mpshare_api::{ChosenConfig, MpsRoot, SharedMemory};
use mpshare_mps::Proc;
use mpshare_nvml::{ComputeMode, GpuInventory, GpuProcess, HealthEvent};
use std::thread;

use super::*;
use crate::run;

/// Never answers.
struct Hanging;

fn hang<T>() -> Result<T, NvmlError> {
    loop {
        thread::park();
    }
}

impl GpuInventory for Hanging {
    fn inventory(&self) -> Result<Inventory, NvmlError> {
        hang()
    }

    fn probe(&self, _gpu: &GpuUuid) -> Result<(), NvmlError> {
        hang()
    }

    fn compute_mode(&self, _gpu: &GpuUuid) -> Result<Option<ComputeMode>, NvmlError> {
        hang()
    }

    fn set_compute_mode(&self, _gpu: &GpuUuid, _mode: ComputeMode) -> Result<(), NvmlError> {
        hang()
    }

    fn mps_processes(&self, _gpu: &GpuUuid) -> Result<Vec<GpuProcess>, NvmlError> {
        hang()
    }

    fn compute_processes(&self, _gpu: &GpuUuid) -> Result<Vec<GpuProcess>, NvmlError> {
        hang()
    }

    fn wait_for_event(&self, _timeout: Duration) -> Result<Option<HealthEvent>, NvmlError> {
        hang()
    }
}

fn options(name: &str) -> Options {
    let root = std::env::temp_dir().join(format!("mpshare-{name}-{}", std::process::id()));
    Options {
        root: MpsRoot::new(root),
        busy_interval: Duration::from_secs(1),
        idle_interval: Duration::from_secs(10),
        recovery: Duration::ZERO,
        containment: crate::ContainmentRules::default(),
        canary: crate::options::CanaryRules::default(),
        fault_grace: Duration::from_secs(10),
        start_deadline: Duration::from_mins(1),
    }
}

fn ports() -> Ports {
    Ports {
        inventory: Arc::new(Hanging),
        daemons: Arc::new(|_, _, _| unreachable!("the driver hangs before")),
        obstacle: Arc::new(|| None),
        shared_memory: SharedMemory::Host,
        host_proc: Proc::default(),
        cgroup_proc: Proc::default(),
    }
}

fn one_card() -> Inventory {
    let gpu = t4("GPU-ab");
    Inventory { driver: "555.58.02".parse().unwrap(), gpus: vec![gpu] }
}

#[test]
fn a_driver_that_hangs_does_not_keep_the_supervisor_from_ending() {
    let options = options("hanging");
    let root = options.root.path().to_owned();
    let (events, received) = mpsc::channel();
    let (ended, has_ended) = mpsc::channel();
    events.send(Event::FilesChanged).unwrap();
    events.send(Event::Stop).unwrap();
    thread::spawn(move || {
        let result = run(options, ports(), XidPolicy::default(), (events, &received));
        ended.send(result.is_ok()).unwrap();
    });
    assert_eq!(has_ended.recv_timeout(Duration::from_secs(10)), Ok(true));
    std::fs::remove_dir_all(root).unwrap();
}

#[test]
fn the_cards_of_a_driver_that_has_begun_to_hang_are_reported_absent() {
    let options = options("silent");
    let root = options.root.clone();
    std::fs::create_dir_all(root.path()).unwrap();
    let chosen = ChosenConfig {
        version: ChosenConfig::VERSION,
        name: "mps-1x".to_owned(),
        why: "a test".to_owned(),
        text: "version: v1\n".to_owned(),
        drain: mpshare_api::DrainWish::default(),
    };
    write_document(&root.config(), &chosen).unwrap();
    let (events, _received) = mpsc::channel();
    let mut node = Node::new(options, ports(), XidPolicy::default(), events).unwrap();
    node.take(Event::FilesChanged).unwrap();
    node.take(Event::Cards(Ok(one_card()))).unwrap();
    node.assign().unwrap();
    let state = |node: &mut Node| {
        node.miss_the_driver();
        node.write_status();
        let status: NodeStatus = read_versioned(&root.status()).unwrap().unwrap();
        (status.gpus[0].state, status.reasons.len())
    };
    assert_eq!(state(&mut node), (GpuState::Starting, 0));
    node.answered = node.answered.checked_sub(SILENCE).unwrap();
    assert_eq!(state(&mut node), (GpuState::Absent, 1));
    std::fs::remove_dir_all(root.path()).unwrap();
}

#[test]
fn a_driver_that_hangs_from_the_start_leaves_the_predecessors_cards_in_the_report() {
    let options = options("successor-of-a-hang");
    let root = options.root.clone();
    std::fs::create_dir_all(root.path()).unwrap();
    let gpus = one_card().gpus.iter().map(GpuStatus::starting).collect();
    let (events, _received) = mpsc::channel();
    let report = NodeStatus {
        version: NodeStatus::VERSION,
        config: String::new(),
        driver: "555.58.02".to_owned(),
        shared_memory: SharedMemory::Host,
        former_pods: FormerPods::default(),
        gpus,
        reasons: Vec::new(),
    };
    write_document(&root.status(), &report).unwrap();
    let mut node = Node::new(options, ports(), XidPolicy::default(), events).unwrap();
    node.answered = node.answered.checked_sub(SILENCE).unwrap();
    node.miss_the_driver();
    node.write_status();
    let status: NodeStatus = read_versioned(&root.status()).unwrap().unwrap();
    assert_eq!((status.gpus.len(), status.reasons.len()), (1, 1));
    std::fs::remove_dir_all(root.path()).unwrap();
}
