//! Two nodes' day: units, shares that hold, a new config with pods running, and our own death; then
//! the ACK document's story, in which the scheduler hands out memory.

#![expect(
    clippy::indexing_slicing,
    reason = "indexing a JSON value yields null, it does not panic"
)]

/// Plays a scene; what follows builds on it, so that the story ends where one wasn't seen.
macro_rules! scene {
    ($screen:expr, $title:expr, $scene:expr) => {
        let start = std::time::Instant::now();
        match $scene {
            Ok(details) => $screen.seen($title, details, start.elapsed()),
            Err(error) => {
                $screen.missed($title, &format!("{error:#}"), start.elapsed());
                return false;
            }
        }
    };
}

mod memory;
mod scenes;

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use mpshare_testkit::fakekubelet::{Phase, PodHandle};
use mpshare_testkit::simnode::{NODE, Role, Setup, SimNode};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::screen::{Form, Screen};

/// How the story is told.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Leave the node up afterwards, until Ctrl-C, with a kubeconfig for `kubectl`.
    #[arg(long)]
    keep: bool,
    /// Print one JSON document instead.
    #[arg(long)]
    json: bool,
}

/// How long anything may take before it counts as not seen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Tells the story.
pub(crate) async fn run(args: Args) -> Result<()> {
    let form = if args.json { Form::Json } else { Form::Text };
    let mut screen = Screen::new(form);
    let mut stories = Vec::new();
    let mut end = End::new()?;
    let told = tokio::select! {
        told = tell(&mut stories, &mut screen) => told?,
        signal = end.signal() => bail!("ended by {signal} in the middle of the story"),
    };
    let passed = screen.finish(told);
    if args.keep {
        keep(&stories);
        end.signal().await;
    } else if !passed && let Some(last) = stories.last() {
        show_logs(&last.node);
    }
    drop(stories);
    ensure!(passed, "not every step was seen");
    Ok(())
}

/// Tells one story after the other; whether both came to their end.
async fn tell(stories: &mut Vec<Story>, screen: &mut Screen) -> Result<bool> {
    let mut shares = Story::on(Setup::two_cards()).await?;
    let mut told = scenes::all(&mut shares, screen).await;
    stories.push(shares);
    if told {
        let mut amounts = Story::on(Setup::memory()).await?;
        told = memory::all(&mut amounts, screen).await;
        stories.push(amounts);
    }
    Ok(told)
}

/// The node and the pods on it.
pub(crate) struct Story {
    pub node: SimNode,
    pub pods: Vec<PodHandle>,
}

impl Story {
    async fn on(setup: Setup) -> Result<Self> {
        Ok(Self { node: SimNode::start(setup).await?, pods: Vec::new() })
    }

    /// The handle of a pod that the scheduler has given to the kubelet.
    pub(crate) async fn pod(&self, name: &str) -> Result<PodHandle> {
        let until = Instant::now() + PATIENCE;
        loop {
            let object = self.node.kube().get("pods", "default", name);
            let uid = object.as_ref().and_then(|pod| pod["metadata"]["uid"].as_str());
            if let Some(pod) = uid.and_then(|uid| self.node.kubelet().pod(uid)) {
                return Ok(pod);
            }
            ensure!(Instant::now() < until, "pod `{name}` didn't reach the kubelet");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until a pod runs and its program has written `text`.
    pub(crate) async fn running(&mut self, name: &str, text: &str) -> Result<PodHandle> {
        let pod = self.pod(name).await?;
        pod.wait_phase(Phase::Running, PATIENCE).await?;
        self.wait_for(&format!("`{text}` in the log of `{name}`"), || log(&pod).contains(text))
            .await?;
        self.pods.push(pod.clone());
        Ok(pod)
    }

    /// Waits for a fact.
    pub(crate) async fn wait_for(&self, what: &str, fact: impl Fn() -> bool) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        while !fact() {
            ensure!(Instant::now() < until, "{what}: not within {PATIENCE:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// What `kubectl describe node` shows: capacity and allocatable.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let node = self.node.kube().get("nodes", "", NODE).unwrap_or_default();
        let count = |part: &str| {
            let text = node["status"][part]["nvidia.com/gpu"].as_str();
            text.and_then(|text| text.parse().ok()).unwrap_or(0)
        };
        (count("capacity"), count("allocatable"))
    }

    /// Every CUDA client's PID, if all pods' containers still run without a restart.
    pub(crate) fn clients(&self) -> Result<Vec<u32>> {
        let mut pids = Vec::new();
        for pod in &self.pods {
            let status = pod.status();
            for (name, container) in &status.containers {
                ensure!(container.restarts == 0, "`{}/{name}` was restarted", pod.spec().name);
            }
            let running = status.pids();
            ensure!(!running.is_empty(), "`{}` has ended", pod.spec().name);
            pids.extend(running.into_values());
        }
        Ok(pids)
    }
}

/// The output of a pod's only container.
pub(crate) fn log(pod: &PodHandle) -> String {
    pod.spec().containers.first().map(|only| pod.log(&only.name)).unwrap_or_default()
}

/// What a program of the node prints.
pub(crate) fn tool(story: &Story, name: &str, arguments: &[&str]) -> Result<Vec<String>> {
    let mut command = story.node.program(name);
    let output = command.args(arguments).env("KUBECONFIG", story.node.kubeconfig()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name} ended with {}: {}", output.status, said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(ToOwned::to_owned).collect())
}

/// The ways in which a person or a terminal ends a program.
struct End {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl End {
    fn new() -> Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn signal(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "Ctrl-C",
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.hangup.recv() => "SIGHUP",
        }
    }
}

/// Talk, not data: it goes beside the story.
fn keep(stories: &[Story]) {
    eprintln!("\nWhat is up stays up until Ctrl-C. Look at it:");
    for story in stories {
        let (kubeconfig, path) = (story.node.kubeconfig().display(), story.node.path().display());
        eprintln!("\n  export KUBECONFIG={kubeconfig} PATH={path}/bin:$PATH");
        eprintln!("  kubectl get pods; kubectl describe node {NODE}; kubectl get events");
        if story.node.has_extender() {
            eprintln!("  kubectl inspect cgpu -d");
        } else {
            eprintln!(
                "  kubectl label node {NODE} nvidia.com/device-plugin.config=mps-2x --overwrite"
            );
        }
        eprintln!("  status and logs are in {path}");
    }
}

fn show_logs(node: &SimNode) {
    for role in Role::ALL.into_iter().chain([Role::SchedulerExtender]) {
        let Ok(log) = std::fs::read_to_string(node.log(role)) else { continue };
        let lines: Vec<&str> = log.lines().collect();
        eprintln!("\n--- last lines of {role}");
        for line in lines.iter().skip(lines.len().saturating_sub(20)) {
            eprintln!("{line}");
        }
    }
}
