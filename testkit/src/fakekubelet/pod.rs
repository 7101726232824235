//! Pods as the fake kubelet runs them, with a builder:
//! `pod("a").container("main").gpus("nvidia.com/gpu", 1).command(["sleep", "60"])`.
//!
//! Not a Kubernetes object: `kubernetes.rs` makes one of these from a manifest.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// When a container that exited is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartPolicy {
    /// Whatever its exit code.
    Always,
    /// After an exit code other than 0.
    OnFailure,
    /// Never.
    Never,
}

/// Which of a pod's lists a container is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerKind {
    /// Runs to its end before the next one starts.
    Init,
    /// A restartable init container: started in order, runs until the app containers are done.
    Sidecar,
    /// An app container.
    App,
}

/// A volume mount of the pod itself. It comes after the plugin's mounts and hides them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Volume {
    /// A fresh directory, shared by the pod's containers under this name.
    EmptyDir(String),
    /// A path of the host.
    HostPath(PathBuf),
}

/// What runs for an image name: there are no images here, only programs of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Image {
    /// The image's own environment, below the plugin's and the pod's.
    pub env: BTreeMap<String, String>,
    /// What runs when the container has no `command`.
    pub entrypoint: Vec<String>,
    /// What runs for a program name of the container's `command`; the other words follow.
    pub programs: BTreeMap<String, Vec<String>>,
    /// What runs whatever the container's command says.
    pub instead: Option<Vec<String>>,
}

/// One container.
#[derive(Debug, Clone)]
pub struct ContainerSpec {
    /// Name, unique in the pod.
    pub name: String,
    /// Which list of the pod it is in.
    pub kind: ContainerKind,
    /// Image name, looked up in [`Options::images`](super::Options::images).
    pub image: String,
    /// Program and arguments; empty: the image's.
    pub command: Vec<String>,
    /// Arguments after the command.
    pub args: Vec<String>,
    /// Environment of the pod spec, in order.
    pub env: Vec<(String, String)>,
    /// Extended resources and counts.
    pub limits: BTreeMap<String, usize>,
    /// Volume mounts: path in the container and what is there.
    pub mounts: Vec<(String, Volume)>,
}

/// A pod that was bound to the node.
#[derive(Debug, Clone)]
pub struct PodSpec {
    /// UID, unique in all tests of the machine.
    pub uid: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Containers of all kinds; the order within a kind counts.
    pub containers: Vec<ContainerSpec>,
    /// Restart policy of app and init containers.
    pub restart: RestartPolicy,
    /// The pod shares the host's IPC namespace.
    pub host_ipc: bool,
    /// Time between SIGTERM and SIGKILL at a deletion that doesn't say otherwise.
    pub grace: Duration,
    /// Reason with which the predicates reject the pod, after its devices were allocated.
    pub rejected_by_predicates: Option<String>,
}

/// A pod in the namespace `default` that has no container yet.
pub fn pod(name: &str) -> PodSpec {
    PodSpec {
        uid: fresh_uid(),
        namespace: "default".into(),
        name: name.into(),
        containers: Vec::new(),
        restart: RestartPolicy::Always,
        host_ipc: false,
        grace: Duration::from_secs(30),
        rejected_by_predicates: None,
    }
}

/// Settings of containers apply to the container that was added last.
impl PodSpec {
    /// Sets the namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Sets the UID, which has to be unique.
    #[must_use]
    pub fn uid(mut self, uid: &str) -> Self {
        self.uid = uid.into();
        self
    }

    /// Adds an app container.
    #[must_use]
    pub fn container(self, name: &str) -> Self {
        self.add(name, ContainerKind::App)
    }

    /// Adds an init container.
    #[must_use]
    pub fn init_container(self, name: &str) -> Self {
        self.add(name, ContainerKind::Init)
    }

    /// Adds a sidecar (a restartable init container).
    #[must_use]
    pub fn sidecar(self, name: &str) -> Self {
        self.add(name, ContainerKind::Sidecar)
    }

    /// Sets the restart policy.
    #[must_use]
    pub fn restart(mut self, policy: RestartPolicy) -> Self {
        self.restart = policy;
        self
    }

    /// Shares the host's IPC namespace.
    #[must_use]
    pub fn host_ipc(mut self) -> Self {
        self.host_ipc = true;
        self
    }

    /// Sets the termination grace period.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Lets the predicates, which run after the allocation, reject the pod with this reason,
    /// such as `OutOfcpu`.
    #[must_use]
    pub fn rejected_by_predicates(mut self, reason: &str) -> Self {
        self.rejected_by_predicates = Some(reason.into());
        self
    }

    /// Asks for `count` devices of `resource`.
    #[must_use]
    pub fn gpus(self, resource: &str, count: usize) -> Self {
        self.last(|container| {
            container.limits.insert(resource.into(), count);
        })
    }

    /// Sets program and arguments.
    #[must_use]
    pub fn command<W: Into<String>>(self, words: impl IntoIterator<Item = W>) -> Self {
        let words = words.into_iter().map(Into::into).collect();
        self.last(|container| container.command = words)
    }

    /// Runs `script` with the shell.
    #[must_use]
    pub fn shell(self, script: &str) -> Self {
        self.command(["/bin/sh", "-c", script])
    }

    /// Sets an environment variable of the pod spec.
    #[must_use]
    pub fn env(self, name: &str, value: &str) -> Self {
        self.last(|container| container.env.push((name.into(), value.into())))
    }

    /// Sets the image.
    #[must_use]
    pub fn image(self, image: &str) -> Self {
        self.last(|container| container.image = image.into())
    }

    /// Mounts a volume of the pod.
    #[must_use]
    pub fn mount(self, container_path: &str, volume: Volume) -> Self {
        self.last(|container| container.mounts.push((container_path.into(), volume)))
    }

    fn add(mut self, name: &str, kind: ContainerKind) -> Self {
        self.containers.push(ContainerSpec::new(name, kind));
        self
    }

    fn last(mut self, change: impl FnOnce(&mut ContainerSpec)) -> Self {
        if self.containers.is_empty() {
            self = self.container("main");
        }
        if let Some(container) = self.containers.last_mut() {
            change(container);
        }
        self
    }

    pub(super) fn init_containers(&self) -> impl Iterator<Item = &ContainerSpec> {
        self.containers.iter().filter(|container| container.kind != ContainerKind::App)
    }

    pub(super) fn app_containers(&self) -> impl Iterator<Item = &ContainerSpec> {
        self.containers.iter().filter(|container| container.kind == ContainerKind::App)
    }
}

impl ContainerSpec {
    pub(super) fn new(name: &str, kind: ContainerKind) -> Self {
        Self {
            name: name.into(),
            kind,
            image: String::new(),
            command: Vec::new(),
            args: Vec::new(),
            env: Vec::new(),
            limits: BTreeMap::new(),
            mounts: Vec::new(),
        }
    }
}

/// A UID that no other test of this machine has: processes are told apart by it.
fn fresh_uid() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed) & 0xffff;
    let nanos =
        SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos() & 0xffff_ffff_ffff_ffff);
    let high = nanos >> 32;
    let low = nanos & 0xffff_ffff;
    let process = std::process::id();
    format!("{high:08x}-{count:04x}-4000-8000-{low:08x}{:04x}", process & 0xffff)
}
