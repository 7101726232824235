use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use mpshare_api::allocations::AllocationMode;
use mpshare_api::{AllocationRecord, Allocations, write_document};

use super::*;
use crate::options::OverShare;

const POD: &str = "6b1f7c1e-0f5a-4d5c-9c5e-1d2e3f4a5b6c";

/// A card with one share of 1,000 MiB, and processes that this test says are there.
struct Machine {
    dir: PathBuf,
    gpu: GpuUuid,
    root: MpsRoot,
    rules: ContainmentRules,
    /// One that holds only what was written, or the real one for processes that are to be ended.
    host_proc: Proc,
    shares: KnownShares,
    ending: EndingPods,
    state: Containment,
    start: Instant,
}

impl Machine {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("mpshare-{name}-{}", std::process::id()));
        fs::create_dir_all(dir.join("root")).unwrap();
        let records = vec![record(POD)];
        let allocations = Allocations { records, ..Allocations::default() };
        let root = MpsRoot::new(dir.join("root"));
        write_document(&root.allocations(), &allocations).unwrap();
        Self {
            gpu: "GPU-ab".parse().unwrap(),
            host_proc: Proc::new(dir.join("proc")),
            shares: KnownShares::of(Some(&allocations)),
            rules: ContainmentRules::default(),
            ending: EndingPods::new(),
            state: Containment::default(),
            start: Instant::now(),
            root,
            dir,
        }
    }

    /// A process of the host that started at `start`.
    fn process(&self, pid: i32, start: u64) {
        let dir = self.cgroup(pid, "/user.slice");
        let rest = "S 1 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0";
        fs::write(dir.join("stat"), format!("{pid} (cuda) {rest} {start} 0 0")).unwrap();
        fs::write(dir.join("cmdline"), "cuda\0--alloc\0").unwrap();
        if !dir.join("exe").is_symlink() {
            std::os::unix::fs::symlink("/usr/bin/cuda", dir.join("exe")).unwrap();
        }
    }

    fn cgroup(&self, pid: i32, cgroup: &str) -> PathBuf {
        let dir = self.dir.join("proc").join(pid.to_string());
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("cgroup"), format!("0::{cgroup}\n")).unwrap();
        dir
    }

    /// A look so many milliseconds after the first; what is told then.
    fn look(&mut self, millis: u64, users: &[ClientStatus]) -> Vec<String> {
        let scene = Scene {
            gpu: &self.gpu,
            root: &self.root,
            host_proc: &self.host_proc,
            cgroup_proc: &Proc::new(self.dir.join("proc")),
            rules: &self.rules,
            shares: &self.shares,
            ending: &self.ending,
            server: None,
        };
        let now = self.start + Duration::from_millis(millis);
        self.state.look(&scene, users, now, || None);
        self.state.findings().into_iter().map(|finding| finding.message).collect()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.dir));
    }
}

fn record(pod: &str) -> AllocationRecord {
    AllocationRecord {
        ids: vec!["GPU-ab::0".to_owned()],
        gpu: "GPU-ab".to_owned(),
        resource: "nvidia.com/gpu".to_owned(),
        mode: AllocationMode::Mps,
        memory_mib: 1000,
        percent_tenths: 500,
        pod_uid: Some(pod.to_owned()),
        former_pods: Vec::new(),
    }
}

fn user(pid: i32, pod: Option<&str>, mib: u64) -> ClientStatus {
    let pod_uid = pod.map(ToOwned::to_owned);
    ClientStatus { pid, memory_mib: Some(mib), pod_uid, container_id: None }
}

/// A process of this machine, which ends with the test.
struct Real(Child);

impl Real {
    fn start() -> Self {
        Self(Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).unwrap()
    }

    fn lives(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn a_sum_above_the_share_is_told_once_the_grace_period_is_over_with_the_numbers_of_then() {
    let mut machine = Machine::new("grace");
    machine.process(7, 100);
    let over = |mib| [user(7, Some(POD), mib)];
    assert_eq!(machine.look(0, &over(1001)), [""; 0]);
    assert_eq!(machine.look(9_900, &over(1500)), [""; 0]);
    let told = machine.look(10_000, &over(1400));
    assert!(told[0].contains("uses 1400 MiB"), "{told:?}");
    assert_eq!(machine.state.findings()[0].pods, [POD]);
    assert_eq!(machine.look(11_000, &over(1900)), told, "it would be an Event each second");
    assert_eq!(machine.look(12_000, &over(1000)), [""; 0]);
    assert_eq!(machine.look(13_000, &over(1001)), [""; 0], "the period begins anew");
    assert_eq!(machine.look(23_000, &over(1001)).len(), 1);
}

#[test]
fn memory_of_a_process_that_is_gone_does_not_count() {
    let mut machine = Machine::new("gone");
    machine.process(7, 100);
    let users = [user(7, Some(POD), 900), user(8, Some(POD), 900)];
    for millis in [0, 10_000, 20_000] {
        assert_eq!(machine.look(millis, &users), [""; 0]);
    }
}

#[test]
fn another_process_with_the_id_of_an_outsider_has_a_grace_period_of_its_own() {
    let mut machine = Machine::new("reuse");
    let users = [user(7, None, 100)];
    machine.process(7, 100);
    assert_eq!(machine.look(0, &users), [""; 0]);
    machine.process(7, 101);
    assert_eq!(machine.look(2_000, &users), [""; 0]);
    let told = machine.look(4_000, &users);
    assert!(told[0].contains("process 7 (`cuda --alloc`, cgroup `/user.slice`)"), "{told:?}");
    assert_eq!(machine.state.findings()[0].pods, [""; 0]);
}

#[test]
fn an_outsider_in_a_pod_is_told_of_with_its_pod() {
    let mut machine = Machine::new("in-pod");
    let thief = "11111111-0f5a-4d5c-9c5e-1d2e3f4a5b6c";
    machine.process(7, 100);
    machine.cgroup(7, &format!("/kubepods/burstable/pod{thief}/{}", "ab".repeat(32)));
    let users = [user(7, Some(thief), 100)];
    machine.look(0, &users);
    machine.look(2_000, &users);
    assert_eq!(machine.state.findings()[0].pods, [thief]);
}

#[test]
fn nobody_is_an_outsider_whose_cgroup_cannot_be_seen_or_who_is_nvidias_mps() {
    let mut machine = Machine::new("hidden");
    machine.process(7, 100);
    machine.cgroup(7, "/../..");
    machine.process(8, 100);
    let exe = machine.dir.join("proc/8/exe");
    fs::remove_file(&exe).unwrap();
    std::os::unix::fs::symlink("/usr/bin/nvidia-cuda-mps-server", &exe).unwrap();
    let users = [user(7, None, 100), user(8, None, 100)];
    for millis in [0, 5_000, 10_000] {
        assert_eq!(machine.look(millis, &users), [""; 0]);
    }
}

/// Looks on until all that was to be ended has been.
fn look_until(machine: &mut Machine, users: &[ClientStatus], is_so: impl Fn(&[String]) -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !is_so(&machine.look(30_000, users)) {
        assert!(Instant::now() < until, "{:?}", machine.state.findings());
        std::thread::yield_now();
    }
}

#[test]
fn an_outsider_is_ended_by_kill_alone_and_after_the_grace_period() {
    for (outsiders, ends) in [(Outsiders::Warn, 0), (Outsiders::Kill, 1)] {
        let mut machine = Machine::new("kill");
        machine.host_proc = Proc::default();
        machine.rules.outsiders = outsiders;
        let mut program = Real::start();
        machine.cgroup(program.pid(), "/user.slice");
        let users = [user(program.pid(), None, 100)];
        machine.look(0, &users);
        machine.look(9_900, &users);
        assert!(machine.state.ending.is_none());
        machine.look(10_000, &users);
        assert_eq!(usize::from(machine.state.ending.is_some()), ends);
        if ends == 1 {
            look_until(&mut machine, &users, |told| told.iter().any(|it| it.contains("was ended")));
        }
        assert_eq!(usize::from(!program.lives()), ends);
    }
}

#[test]
fn the_newest_process_past_a_share_is_ended_and_its_older_sibling_is_not() {
    let mut machine = Machine::new("newest");
    machine.host_proc = Proc::default();
    machine.rules.over_share = OverShare::EvictProcess;
    let (mut older, mut newer) = (Real::start(), Real::start());
    let users = [user(older.pid(), Some(POD), 600), user(newer.pid(), Some(POD), 600)];
    machine.look(0, &users);
    machine.look(9_900, &users);
    assert!(machine.state.ending.is_none());
    look_until(&mut machine, &users, |told| told.iter().any(|it| it.contains("was ended")));
    assert!(older.lives() && !newer.lives());
    // What is left fits.
    assert_eq!(machine.look(31_000, &users).len(), 1);
    assert!(machine.state.ending.is_none() && older.lives());
}

#[test]
fn nobody_is_ended_while_the_records_on_the_disk_are_others_than_those_that_were_judged_by() {
    let mut machine = Machine::new("records");
    machine.host_proc = Proc::default();
    machine.rules.outsiders = Outsiders::Kill;
    let program = Real::start();
    machine.cgroup(program.pid(), "/user.slice");
    let allocations = Allocations { records: vec![record("other")], ..Allocations::default() };
    write_document(&machine.root.allocations(), &allocations).unwrap();
    let users = [user(program.pid(), None, 100)];
    for millis in [0, 10_000, 20_000] {
        machine.look(millis, &users);
        assert!(machine.state.ending.is_none());
    }
    fs::remove_file(machine.root.allocations()).unwrap();
    machine.look(30_000, &users);
    assert!(machine.state.ending.is_none());
}
