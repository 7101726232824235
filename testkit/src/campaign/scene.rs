//! The node of a campaign: three cards, the configs, and a grip on what runs for each card.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::json;

use super::action::Cut;
use mpshare_api::names::MEMORY_RESOURCE;
use mpshare_sim_state::ProcessKind;

use crate::simnode::{NODE, Setup, SimNode};

pub(super) use crate::simnode::signal;

/// The resource of equal shares.
pub(super) const GPU: &str = "nvidia.com/gpu";

/// What the supervisor does about processes past their share, and about those without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Policy {
    pub over_share: &'static str,
    pub outsiders: &'static str,
}

impl Policy {
    /// One of each, by the seed.
    pub(super) fn of(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let over = ["warn", "evict-process", "evict-container"];
        Self {
            over_share: over.get(random.usize(0..3)).copied().unwrap_or("warn"),
            outsiders: if random.bool() { "warn" } else { "kill" },
        }
    }

    /// Whether it ends processes of pods.
    pub(super) fn evicts(self) -> bool {
        self.over_share != "warn"
    }
}

/// Three cards of different sizes.
pub(super) fn setup(seed: u64, policy: Policy) -> Setup {
    let mut setup = Setup::two_cards();
    setup.cards.push(("a100", "GPU-77aa01fe-0b3c-4d5e-8f90-a1b2c3d4e5f6"));
    setup.seed = seed;
    setup.supervisor = vec![
        "--recovery-seconds",
        "1",
        "--server-start-deadline",
        "10",
        "--fault-grace",
        "3",
        "--canary-period",
        "30",
        "--canary-deadline",
        "10",
        "--over-share-grace",
        "1",
        "--over-share",
        policy.over_share,
        "--outsiders",
        policy.outsiders,
    ];
    setup
}

/// Puts the configs into the cluster.
pub(super) async fn add_configs(node: &SimNode) -> Result<()> {
    let equal = (1..=4).map(|n| {
        let text = format!(
            "version: v1\nsharing: {{mps: {{resources: [{{name: {GPU}, replicas: {n}}}]}}}}\n"
        );
        (Cut::Replicas(n).name(), json!(text))
    });
    let memory =
        format!("sharing: {{mps: {{resources: [{{name: {MEMORY_RESOURCE}, memoryUnit: 1Gi}}]}}}}");
    let configs: serde_json::Map<_, _> =
        equal.chain([(Cut::Memory.name(), json!(memory))]).collect();
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": configs,
        "metadata": {"name": "nvidia-device-plugin-configs", "namespace": "kube-system"},
    });
    node.kube().create(map).await?;
    Ok(())
}

/// Chooses a config.
pub(super) async fn label(node: &SimNode, cut: Cut) -> Result<()> {
    let key = "nvidia.com/device-plugin.config";
    node.kube().patch_node_label(NODE, key, &cut.name()).await?;
    Ok(())
}

impl Cut {
    fn name(self) -> String {
        match self {
            Self::Replicas(n) => format!("mps-{n}x"),
            Self::Memory => "gpu-mem".to_owned(),
            Self::Unknown => "not-there".to_owned(),
        }
    }

    /// The resource by which its units are asked for.
    pub(super) fn resource(self) -> &'static str {
        match self {
            Self::Replicas(_) | Self::Unknown => GPU,
            Self::Memory => MEMORY_RESOURCE,
        }
    }
}

/// The control daemon that the product runs for a card. It is found by what it is, since reports
/// may be damaged.
pub(super) fn daemon_of(node: &SimNode, uuid: &str) -> Option<i32> {
    let card = format!("CUDA_VISIBLE_DEVICES={uuid}");
    let pipe = format!("CUDA_MPS_PIPE_DIRECTORY={}/", node.mps_root().path().display());
    node.processes().into_iter().find(|pid| {
        let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = arguments.split(|byte| *byte == 0);
        let is_daemon = words.next().is_some_and(|name| name.ends_with(b"nvidia-cuda-mps-control"))
            && words.next() == Some(b"-d");
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let mut entries = environment.split(|byte| *byte == 0);
        is_daemon
            && entries.clone().any(|entry| entry == card.as_bytes())
            && entries.any(|entry| entry.starts_with(pipe.as_bytes()))
    })
}

/// The MPS server on a card.
pub(super) fn server_of(node: &SimNode, uuid: &str) -> Result<Option<i32>> {
    let state = node.store().read()?;
    let mut servers = state.processes.iter().filter(|it| it.kind == ProcessKind::MpsServer);
    Ok(servers.find(|it| it.gpu == uuid).map(|it| it.id.pid))
}

/// The directory with a card's `pipe` and `log`, once there is one.
pub(super) fn directory_of(node: &SimNode, uuid: &str) -> Option<PathBuf> {
    let short = uuid.get(..12)?;
    let below = |path: PathBuf| {
        let entries = std::fs::read_dir(path).into_iter().flatten();
        entries.filter_map(Result::ok).map(|entry| entry.path())
    };
    // `<vendor>/<resource>/<gpu>`.
    let resources = below(node.mps_root().path().to_path_buf()).flat_map(below);
    resources.map(|resource| resource.join(short)).find(|path| path.join("pipe").is_dir())
}

/// Waits for a fact; what isn't so in time is a violation.
pub(super) async fn wait(
    what: &str,
    patience: Duration,
    mut fact: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let until = Instant::now() + patience;
    while !fact()? {
        anyhow::ensure!(Instant::now() < until, "not within {patience:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
