//! What uses the cards: pods, and processes of the node that Kubernetes knows nothing of.

use std::collections::BTreeMap;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::action::{Cut, Load, Removal};
use super::scene::{Policy, directory_of};
use crate::fakekubelet::{Phase, PodHandle, PodSpec, RestartPolicy, pod};
use crate::simnode::SimNode;

/// Most pods at a time.
const PODS: usize = 10;

/// Most processes of the node at a time.
const OUTSIDERS: usize = 2;

/// The only container of each pod.
pub(super) const CONTAINER: &str = "c";

/// A pod, and what is known of its clients.
pub(super) struct Tracked {
    pub pod: PodHandle,
    pub load: Load,
    /// Its processes that hold what they asked for.
    pub held: BTreeMap<i32, Held>,
    /// Its refusal has been looked at.
    pub is_refused: bool,
}

/// A client that is well.
#[derive(Debug, Clone)]
pub(super) struct Held {
    /// On which card.
    pub card: String,
    /// Since when that is known.
    pub since: Instant,
}

impl Tracked {
    /// Whether its processes are to go on, whatever the product is told to do about others.
    pub(super) fn goes_on(&self, policy: Policy) -> bool {
        match self.load {
            Load::Small { .. } | Load::Full => true,
            Load::Several | Load::Unlimited => !policy.evicts(),
            _ => false,
        }
    }
}

/// A process of the node; ended when this is dropped.
pub(super) struct Outsider(Child);

impl Drop for Outsider {
    fn drop(&mut self) {
        // Both fail only when it is gone already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// All that uses the cards.
#[derive(Default)]
pub(super) struct Loads {
    pub pods: Vec<Tracked>,
    pub outsiders: Vec<Outsider>,
    /// Pods whose memory nothing limits, also after their deletion.
    pub escaped: Vec<String>,
    count: usize,
}

impl Loads {
    /// Adds one; `false` where there are enough.
    pub(super) fn add(&mut self, node: &SimNode, cut: Cut, load: Load) -> Result<bool> {
        if let Load::PlainOutsider | Load::MpsOutsider { .. } = load {
            return self.add_outsider(node, load);
        }
        if self.pods.len() >= PODS {
            return Ok(false);
        }
        self.count += 1;
        let spec = spec(&format!("pod-{}", self.count), cut, load);
        if let Load::Unlimited | Load::Bypassing = load {
            self.escaped.push(spec.uid.clone());
        }
        let pod = node.kubelet().admit(spec);
        self.pods.push(Tracked { pod, load, held: BTreeMap::new(), is_refused: false });
        Ok(true)
    }

    /// Deletes a pod.
    pub(super) fn remove(&mut self, at: usize, way: Removal) -> bool {
        // The oldest process of the node goes with it.
        if !self.outsiders.is_empty() {
            drop(self.outsiders.remove(0));
        }
        if self.pods.is_empty() {
            return false;
        }
        let tracked = self.pods.swap_remove(at % self.pods.len());
        match way {
            Removal::Graceful => tracked.pod.delete_with_grace(Duration::from_secs(2)),
            Removal::Forced => tracked.pod.force_delete(),
        }
        true
    }

    /// Deletes all and waits until their processes are gone.
    pub(super) async fn clear(&mut self, patience: Duration) -> Result<()> {
        self.outsiders.clear();
        let pods = std::mem::take(&mut self.pods);
        for tracked in &pods {
            tracked.pod.force_delete();
        }
        for tracked in pods {
            if tracked.pod.status().phase != Phase::Failed {
                tracked.pod.wait_stopped(patience).await?;
            }
        }
        Ok(())
    }

    fn add_outsider(&mut self, node: &SimNode, load: Load) -> Result<bool> {
        if self.outsiders.len() >= OUTSIDERS {
            return Ok(false);
        }
        let mut command = node.program("cuda-sample");
        if let Load::MpsOutsider { card } = load {
            let uuid = node.cards().get(card).copied().context("no such card")?;
            let Some(directory) = directory_of(node, uuid) else { return Ok(false) };
            command.env("CUDA_MPS_PIPE_DIRECTORY", directory.join("pipe"));
            command.env("CUDA_VISIBLE_DEVICES", uuid);
        }
        command.args(["--alloc", "256Mi", "--hold", "forever"]).stdin(Stdio::null());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let directory = node.path().join("proc").join(child.id().to_string());
        let outsider = Outsider(child);
        std::fs::create_dir_all(&directory)?;
        std::fs::write(directory.join("cgroup"), "0::/user.slice/session-1.scope\n")?;
        self.outsiders.push(outsider);
        Ok(true)
    }
}

/// The pod of a load.
fn spec(name: &str, cut: Cut, load: Load) -> PodSpec {
    let asked = if let Load::Small { units } = load { units } else { 1 };
    // A unit of memory is a GiB, and a context takes a part of it.
    let units = if cut == Cut::Memory { 3 * asked } else { asked };
    let pod = pod(name).container(CONTAINER).gpus(cut.resource(), units);
    let sample = |words: &str| {
        let words = words.split(' ').map(ToOwned::to_owned);
        std::iter::once("cuda-sample".to_owned()).chain(words).collect::<Vec<_>>()
    };
    match load {
        Load::Full => pod.command(sample("--until-oom 128Mi --hold forever")),
        Load::Several => pod.command(sample("--alloc 1800Mi --processes 3 --hold forever")),
        Load::Unlimited => pod
            .command(sample("--alloc 5Gi --hold forever"))
            .env("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=2G,1=4G"),
        Load::Faulting => pod
            .restart(RestartPolicy::Never)
            .shell("while [ ! -e go ]; do sleep 0.1; done; exec cuda-sample --alloc 64Mi --fault"),
        Load::Crashing => pod.shell("cuda-sample --alloc 64Mi --hold 300ms; exit 1"),
        Load::Bypassing => pod.command(sample("--no-mps-env --alloc 64Mi --hold forever")),
        _ => pod.command(sample("--alloc 64Mi --hold forever")),
    }
}
