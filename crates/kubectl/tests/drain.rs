//! `kubectl mpshare drain` and `undrain`, the real program against a fake API server.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use mpshare_core::{GpuUuid, Reason};
use mpshare_testkit::fakekube::{Effect, FakeKube, Matching, Times};
use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_kubectl-mpshare");
const PATIENCE: Duration = Duration::from_secs(30);

/// A cluster with one node of two cards, whose state a test plays.
struct Scene {
    kube: FakeKube,
    home: tempfile::TempDir,
}

fn uuid(index: usize) -> GpuUuid {
    format!("GPU-0{index}").parse().unwrap()
}

fn gpus(reasons: [Option<Reason>; 2]) -> String {
    let card = |(index, reason): (usize, Option<Reason>)| {
        json!({"uuid": uuid(index).to_string(), "index": index, "model": "Tesla T4",
            "memoryMiB": 15360, "unitMiB": 7680, "units": 2, "resource": "nvidia.com/gpu",
            "state": if reason.is_some() { "Draining" } else { "Ready" },
            "reason": reason.as_ref().map(ToString::to_string),
            "reasonCode": reason.as_ref().map(Reason::code)})
    };
    Value::from(reasons.into_iter().enumerate().map(card).collect::<Vec<_>>()).to_string()
}

fn draining(index: usize, shares: usize) -> Reason {
    Reason::CardDraining { gpu: uuid(index), shares }
}

fn drained(index: usize) -> Reason {
    Reason::CardDrained { gpu: uuid(index) }
}

impl Scene {
    async fn new() -> Self {
        let scene =
            Self { kube: FakeKube::start().await.unwrap(), home: tempfile::tempdir().unwrap() };
        scene.kube.kubeconfig(scene.home.path()).unwrap();
        let annotations = json!({"mpshare.io/gpus": gpus([None, None])});
        let node = json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "n1", "annotations": annotations}});
        scene.kube.create(node).await.unwrap();
        scene
    }

    /// What the node says of its cards from now on.
    async fn says(&self, reasons: [Option<Reason>; 2]) {
        let patch = json!({"metadata": {"annotations": {"mpshare.io/gpus": gpus(reasons)}}});
        self.kube.patch("nodes", "", "n1", patch).await.unwrap();
    }

    async fn pod(&self, name: &str, card: usize, owner: &str) {
        let allocation = json!({"c": {uuid(card).as_str(): 1}}).to_string();
        let owner = json!({"apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": "u"});
        let limits = json!({"nvidia.com/gpu": "1"});
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "ownerReferences": [owner],
                "annotations": {"mpshare.io/allocation": allocation}},
            "spec": {"nodeName": "n1", "terminationGracePeriodSeconds": 0, "containers": [
                {"name": "c", "image": "i", "resources": {"limits": limits, "requests": limits}}]}});
        self.kube.create(pod).await.unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).stdin(Stdio::null()).env_clear().env("HOME", self.home.path());
        command.env("KUBECONFIG", self.home.path().join("kubeconfig"));
        command
    }

    async fn run(&self, arguments: &[&str]) -> Answer {
        let mut command = self.command(arguments);
        let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap();
        Answer::of(&output.unwrap())
    }

    fn annotation(&self) -> Option<String> {
        let node = self.kube.get("nodes", "", "n1")?;
        Some(node.pointer("/metadata/annotations/mpshare.io~1drain")?.as_str()?.to_owned())
    }

    /// Whether it is there and nobody has asked for its end.
    fn lives(&self, pod: &str) -> bool {
        let pod = self.kube.get("pods", "default", pod);
        pod.is_some_and(|pod| pod.pointer("/metadata/deletionTimestamp").is_none())
    }

    async fn until(&self, what: &str, fact: impl Fn() -> bool) {
        let start = Instant::now();
        while !fact() {
            assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// What the program said.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    code: i32,
    out: String,
    err: String,
}

impl Answer {
    fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let code = output.status.code().unwrap();
        Self { code, out: text(&output.stdout), err: text(&output.stderr) }
    }
}

/// A program that waits, and what it says until then.
struct Waiting(Child, BufReader<std::process::ChildStdout>);

impl Waiting {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self(child, out)
    }

    fn line(self) -> (Self, String) {
        let Self(child, mut out) = self;
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        (Self(child, out), line)
    }

    /// The next line, read where it keeps nobody else from working.
    async fn next(self) -> (Self, String) {
        tokio::task::spawn_blocking(move || self.line()).await.unwrap()
    }

    async fn end(self) -> Answer {
        let Self(child, out) = self;
        let ended = move || {
            let rest = out.lines().map(Result::unwrap).collect::<Vec<_>>().join("\n");
            let mut answer = Answer::of(&child.wait_with_output().unwrap());
            answer.out = rest;
            answer
        };
        tokio::task::spawn_blocking(ended).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_card_is_drained_and_each_change_is_told_until_it_is_empty() {
    let scene = Scene::new().await;
    let waiting = Waiting::start(scene.command(&["drain", "n1/1"]));
    let (waiting, line) = waiting.next().await;
    assert_eq!(line, "node `n1`: draining GPU 1 (`GPU-01`)\n");
    assert_eq!(scene.annotation().as_deref(), Some(r#"{"gpus":["GPU-01"]}"#));
    let (waiting, line) = waiting.next().await;
    assert_eq!(line, "GPU 1: `GPU-01` is Ready\n");
    scene.says([None, Some(draining(1, 2))]).await;
    let (waiting, line) = waiting.next().await;
    let sentence = "GPU 1: `GPU-01` is being drained and takes no new pods, ";
    assert_eq!(line, format!("{sentence}2 shares of it are still held\n"));
    scene.says([None, Some(draining(1, 1))]).await;
    let (waiting, line) = waiting.next().await;
    assert_eq!(line, format!("{sentence}1 share of it is still held\n"));
    scene.says([None, Some(drained(1))]).await;
    let answer = waiting.end().await;
    assert_eq!(answer.code, 0, "{answer:?}");
    assert_eq!(
        answer.out,
        "GPU 1: `GPU-01` is drained: nobody uses it, it takes no pods, and it is as it was before \
         it was shared"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_card_of_a_drained_node_is_put_into_service_and_then_all() {
    let scene = Scene::new().await;
    let said = |out: &str| Answer { code: 0, out: out.to_owned(), err: String::new() };
    assert_eq!(
        scene.run(&["drain", "n1", "--no-wait"]).await,
        said("node `n1`: draining the whole node\n")
    );
    assert_eq!(
        scene.run(&["drain", "n1/GPU-00", "--no-wait"]).await,
        said("node `n1`: GPU 0 (`GPU-00`) is to be drained already\n")
    );
    assert_eq!(
        scene.run(&["undrain", "n1/0"]).await,
        said("node `n1`: GPU 0 (`GPU-00`) is no longer drained\n")
    );
    assert_eq!(scene.annotation().as_deref(), Some(r#"{"gpus":["GPU-01"]}"#));
    assert_eq!(
        scene.run(&["undrain", "n1"]).await,
        said("node `n1`: the whole node is no longer drained\n")
    );
    assert_eq!(scene.annotation(), None);
    assert_eq!(
        scene.run(&["undrain", "n1"]).await,
        said("node `n1`: the whole node wasn't to be drained\n")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_several_people_who_drain_at_once_nobody_is_lost() {
    let scene = Scene::new().await;
    // Each of the first writes is answered as if somebody had been faster.
    let patches = Matching::any().verb("patch").resource("nodes");
    scene.kube.faults().inject(Times::Next(2), patches, Effect::Fail(409));
    let (first, second) = tokio::join!(
        scene.run(&["drain", "n1/0", "--no-wait"]),
        scene.run(&["drain", "n1/1", "--no-wait"])
    );
    assert_eq!((first.code, second.code), (0, 0), "{first:?} {second:?}");
    assert_eq!(scene.annotation().as_deref(), Some(r#"{"gpus":["GPU-00","GPU-01"]}"#));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pods_of_a_card_are_evicted_as_far_as_that_makes_sense() {
    let scene = Scene::new().await;
    scene.pod("held-back", 1, "ReplicaSet").await;
    scene.pod("other-card", 0, "ReplicaSet").await;
    scene.pod("set", 1, "DaemonSet").await;
    let rehearsed = scene.run(&["drain", "n1/1", "--evict", "--dry-run"]).await;
    let left = "warning: pod `default/set` isn't evicted: it is a DaemonSet's, which would make it \
                anew; hint: exclude the node there\n";
    let out = "node `n1`: would drain GPU 1 (`GPU-01`)\npod `default/held-back` would be evicted\n";
    assert_eq!(rehearsed, Answer { code: 0, out: out.to_owned(), err: left.to_owned() });
    assert_eq!(scene.annotation(), None, "nothing was changed");

    let evictions = Matching::any().resource("pods").subresource("eviction");
    scene.kube.faults().inject(Times::Next(1), evictions, Effect::Fail(429));
    let waiting = Waiting::start(scene.command(&["drain", "n1/1", "--evict"]));
    scene.until("the second attempt", || !scene.lives("held-back")).await;
    scene.says([None, Some(drained(1))]).await;
    let answer = waiting.end().await;
    assert!(answer.out.contains("\npod `default/held-back` evicted\n"), "{answer:?}");
    assert!(answer.err.contains("pod `default/held-back` can't be evicted yet: "), "{answer:?}");
    assert!(answer.err.contains(left), "{answer:?}");
    assert_eq!(answer.code, 0);
    assert!(scene.lives("other-card") && scene.lives("set"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_stays_when_the_person_who_waits_gives_up() {
    let scene = Scene::new().await;
    scene.says([Some(draining(0, 1)), Some(drained(1))]).await;
    let late = scene.run(&["drain", "n1", "--timeout", "0s"]).await;
    assert_eq!(late.code, 4);
    assert_eq!(
        late.err,
        "error: not drained within 0 s: GPU 0: `GPU-00` is being drained and takes no new pods, 1 \
         share of it is still held; hint: the drain stays in place, run the same again to wait \
         on, or take it back with `kubectl mpshare undrain n1`\n"
    );
    let (waiting, _) = Waiting::start(scene.command(&["drain", "n1"])).next().await;
    let (waiting, _) = waiting.next().await;
    let pid = rustix::process::Pid::from_child(&waiting.0);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let answer = waiting.end().await;
    assert_eq!(answer.code, 130);
    assert_eq!(
        answer.err,
        "error: interrupted: the drain stays in place and goes on by itself; hint: `kubectl \
         mpshare undrain n1` takes it back\n"
    );
    assert_eq!(scene.annotation().as_deref(), Some(r#"{"gpus":["*"]}"#));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_there_is_told_with_what_there_is() {
    let scene = Scene::new().await;
    let answer = scene.run(&["drain", "n1/7"]).await;
    assert_eq!(answer.code, 1);
    assert_eq!(
        answer.err,
        "error: node `n1` has no GPU `7`; hint: it has 0 (`GPU-00`), 1 (`GPU-01`)\n"
    );
    let answer = scene.run(&["undrain", "n2"]).await;
    assert_eq!(answer.code, 3);
    assert!(answer.err.starts_with("error: no node `n2` in the cluster"), "{answer:?}");
    let patches = Matching::any().verb("patch").resource("nodes");
    scene.kube.faults().inject(Times::Always, patches, Effect::Fail(403));
    let answer = scene.run(&["drain", "n1", "--no-wait"]).await;
    assert!(
        answer.err.contains("hint: a ClusterRole with `patch` on `nodes` is needed for it"),
        "{answer:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shells_complete_commands_and_then_nodes() {
    let scene = Scene::new().await;
    let link = scene.home.path().join("kubectl_complete-mpshare");
    std::os::unix::fs::symlink(PROGRAM, &link).unwrap();
    let candidates = |words: &[&str]| {
        let mut command = Command::new(&link);
        command.args(words).env_clear().env("HOME", scene.home.path());
        command.env("KUBECONFIG", scene.home.path().join("kubeconfig"));
        let output = command.output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(tokio::task::block_in_place(|| candidates(&["un"])), "undrain\n:4\n");
    assert_eq!(tokio::task::block_in_place(|| candidates(&["drain", ""])), "n1\n:4\n");
    assert!(tokio::task::block_in_place(|| candidates(&["drain", "--e"])).contains("--evict\n"));
}
