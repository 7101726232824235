//! From a container and its run options to a command line and an environment: what the kubelet
//! and the container runtime put together (`facts/kubernetes.md` 2).
//!
//! There are no mount namespaces without root. Instead of mounting, paths are rewritten: an
//! environment value that is a mount's container path, or lies below it, becomes the host's
//! path, and what is at `/dev/shm` is told to the simulated driver in `MPSHARE_SIM_SHM`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use mpshare_sim_state::shm::SHM_ENV;

use super::options::Options;
use super::pod::{ContainerSpec, Image, PodSpec, Volume};
use super::status::RunOptions;

/// Marks the processes of a container, their children included.
pub(super) const CONTAINER_ENV: &str = "FAKEKUBELET_CONTAINER";
const SHM_PATH: &str = "/dev/shm";
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A bind mount that only happens in environment values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bind {
    pub(super) container_path: String,
    pub(super) host_path: PathBuf,
}

/// What is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Launch {
    pub(super) argv: Vec<String>,
    pub(super) env: BTreeMap<String, String>,
    /// Working directory of the pod.
    pub(super) directory: PathBuf,
    /// Standard output and error are appended here.
    pub(super) log: PathBuf,
    /// Content of `/proc/<pid>/cgroup`.
    pub(super) cgroup: String,
}

/// The mounts in the order in which the runtime makes them: a later one hides an earlier one.
pub(super) fn binds(
    options: &Options,
    pod: &PodSpec,
    container: &ContainerSpec,
    given: &RunOptions,
) -> Vec<Bind> {
    let plugin = given.mounts.iter().map(|mount| Bind {
        container_path: mount.container_path.clone(),
        host_path: match &options.host_shm {
            // The simulated host's own.
            Some(shm) if mount.host_path == SHM_PATH => shm.clone(),
            _ => PathBuf::from(&mount.host_path),
        },
    });
    let volumes = container.mounts.iter().map(|(path, volume)| Bind {
        container_path: path.clone(),
        host_path: match volume {
            Volume::EmptyDir(name) => pod_directory(options, pod).join("volumes").join(name),
            Volume::HostPath(path) => path.clone(),
        },
    });
    plugin.chain(volumes).collect()
}

/// What the container sees at `/dev/shm`: a mount, else the host's with `hostIPC`, else the
/// pod's own.
pub(super) fn shm(options: &Options, pod: &PodSpec, binds: &[Bind]) -> Option<PathBuf> {
    let is_shm = |bind: &&Bind| without_slash(&bind.container_path) == SHM_PATH;
    match binds.iter().rev().find(is_shm) {
        Some(bind) => Some(bind.host_path.clone()),
        None if pod.host_ipc => options.host_shm.clone(),
        None => Some(pod_directory(options, pod).join("shm")),
    }
}

/// Puts the launch together.
pub(super) fn launch(
    options: &Options,
    pod: &PodSpec,
    container: &ContainerSpec,
    given: &RunOptions,
    id: &str,
) -> Launch {
    let image = options.images.get(&container.image);
    let binds = binds(options, pod, container, given);
    let mut env = BTreeMap::from([("PATH".to_owned(), DEFAULT_PATH.to_owned())]);
    env.extend(options.env.clone());
    env.extend(image.map(|image| image.env.clone()).unwrap_or_default());
    env.extend(given.envs.clone());
    env.extend(container.env.iter().cloned());
    let words = words(image, container);
    let argv = words.iter().map(|word| expand(word, &env)).collect();
    for value in env.values_mut() {
        *value = on_host(value, &binds);
    }
    if let Some(shm) = shm(options, pod, &binds) {
        env.insert(SHM_ENV.into(), shm.display().to_string());
    }
    env.insert(CONTAINER_ENV.into(), id.into());
    let directory = pod_directory(options, pod);
    Launch {
        argv,
        env,
        log: directory.join(format!("{}.log", container.name)),
        directory,
        cgroup: format!("0::/kubepods/besteffort/pod{}/{id}", pod.uid),
    }
}

/// Directory of a pod's logs, volumes and private `/dev/shm`.
pub(super) fn pod_directory(options: &Options, pod: &PodSpec) -> PathBuf {
    options.pods.join(&pod.uid)
}

/// The command line, as far as the image lets the container choose it.
fn words(image: Option<&Image>, container: &ContainerSpec) -> Vec<String> {
    let none = Image::default();
    let image = image.unwrap_or(&none);
    if let Some(instead) = &image.instead {
        return instead.clone();
    }
    let command = if container.command.is_empty() { &image.entrypoint } else { &container.command };
    let all: Vec<String> = command.iter().chain(&container.args).cloned().collect();
    match all.split_first() {
        Some((program, rest)) => match image.programs.get(program) {
            Some(mapped) => mapped.iter().chain(rest).cloned().collect(),
            None => all,
        },
        None => all,
    }
}

/// Expands `$(NAME)`; an unknown name stays as it is, and `$$` is a dollar sign.
fn expand(word: &str, env: &BTreeMap<String, String>) -> String {
    let mut expanded = String::new();
    let mut rest = word;
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push_str(before);
        let name = after.strip_prefix('(').and_then(|inner| inner.split_once(')'));
        if let Some(tail) = after.strip_prefix('$') {
            expanded.push('$');
            rest = tail;
        } else if let Some((value, tail)) =
            name.and_then(|(name, tail)| Some((env.get(name)?, tail)))
        {
            expanded.push_str(value);
            rest = tail;
        } else {
            expanded.push('$');
            rest = after;
        }
    }
    expanded + rest
}

/// The host's path for a value that is a path in a mount; the deepest, latest mount counts.
fn on_host(value: &str, binds: &[Bind]) -> String {
    let mut best: Option<(&Bind, &Path)> = None;
    for bind in binds {
        let Ok(below) = Path::new(value).strip_prefix(&bind.container_path) else {
            continue;
        };
        let depth = |path: &Path| path.components().count();
        if best.is_none_or(|(_, shorter)| depth(below) <= depth(shorter)) {
            best = Some((bind, below));
        }
    }
    match best {
        Some((bind, below)) if below.as_os_str().is_empty() => bind.host_path.display().to_string(),
        Some((bind, below)) => bind.host_path.join(below).display().to_string(),
        None => value.to_owned(),
    }
}

fn without_slash(path: &str) -> &str {
    path.trim_end_matches('/')
}

#[cfg(test)]
mod tests;
