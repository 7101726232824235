//! Between Kubernetes objects and the fake kubelet's own: a manifest becomes a [`PodSpec`], a
//! [`PodStatus`] becomes the status that a kubelet would write.

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::pod::{ContainerKind, ContainerSpec, PodSpec, RestartPolicy, Volume, pod};
use super::status::{ContainerState, ContainerStatus, Phase, PodStatus};

/// A manifest that can't be run here.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// A field that has to be there isn't.
    #[error("the pod has no `{0}`")]
    Missing(&'static str),
    /// A limit isn't a whole number.
    #[error("limit `{resource}` of container `{container}` is `{value}`, not a whole number")]
    Limit {
        /// Name of the container.
        container: String,
        /// The resource.
        resource: String,
        /// The quantity.
        value: String,
    },
    /// An environment variable comes from something that isn't here.
    #[error("variable `{name}` of container `{container}` has a source that is not supported")]
    EnvSource {
        /// Name of the container.
        container: String,
        /// Name of the variable.
        name: String,
    },
    /// A volume that can't be made here is mounted.
    #[error("volume `{name}` of container `{container}` is neither emptyDir nor hostPath")]
    Volume {
        /// Name of the container.
        container: String,
        /// Name of the volume.
        name: String,
    },
}

impl PodSpec {
    /// The pod of a manifest. What doesn't matter to devices and processes is left out.
    pub fn from_manifest(manifest: &api::Pod) -> Result<Self, ManifestError> {
        let metadata = &manifest.metadata;
        let name = metadata.name.as_deref();
        let spec = manifest.spec.as_ref();
        let spec = spec.ok_or(ManifestError::Missing("spec"))?;
        let mut made = pod(name.ok_or(ManifestError::Missing("metadata.name"))?);
        if let Some(uid) = &metadata.uid {
            made.uid.clone_from(uid);
        }
        if let Some(namespace) = &metadata.namespace {
            made.namespace.clone_from(namespace);
        }
        made.host_ipc = spec.host_ipc.unwrap_or(false);
        made.restart = match spec.restart_policy.as_deref() {
            Some("Never") => RestartPolicy::Never,
            Some("OnFailure") => RestartPolicy::OnFailure,
            _ => RestartPolicy::Always,
        };
        if let Some(seconds) = spec.termination_grace_period_seconds {
            made.grace = std::time::Duration::from_secs(seconds.max(0).unsigned_abs());
        }
        for container in spec.init_containers.iter().flatten() {
            let kind = match container.restart_policy.as_deref() {
                Some("Always") => ContainerKind::Sidecar,
                _ => ContainerKind::Init,
            };
            let container = from_container(&made, spec, container, kind)?;
            made.containers.push(container);
        }
        for container in &spec.containers {
            let container = from_container(&made, spec, container, ContainerKind::App)?;
            made.containers.push(container);
        }
        Ok(made)
    }
}

fn from_container(
    pod: &PodSpec,
    spec: &api::PodSpec,
    container: &api::Container,
    kind: ContainerKind,
) -> Result<ContainerSpec, ManifestError> {
    let mut made = ContainerSpec::new(&container.name, kind);
    made.image = container.image.clone().unwrap_or_default();
    made.command = container.command.clone().unwrap_or_default();
    made.args = container.args.clone().unwrap_or_default();
    for variable in container.env.iter().flatten() {
        let value = env_value(pod, variable).ok_or_else(|| ManifestError::EnvSource {
            container: container.name.clone(),
            name: variable.name.clone(),
        })?;
        made.env.push((variable.name.clone(), value));
    }
    let limits = container.resources.as_ref().and_then(|r| r.limits.as_ref());
    for (resource, quantity) in limits.into_iter().flatten() {
        // Extended resources only; cpu, memory and the like are no business of plugins.
        if resource.contains('/') {
            let count = limit(&container.name, resource, quantity)?;
            made.limits.insert(resource.clone(), count);
        }
    }
    for mount in container.volume_mounts.iter().flatten() {
        if let Some(volume) = volume(spec, &container.name, mount)? {
            made.mounts.push((mount.mount_path.clone(), volume));
        }
    }
    Ok(made)
}

fn env_value(pod: &PodSpec, variable: &api::EnvVar) -> Option<String> {
    let Some(source) = &variable.value_from else {
        return Some(variable.value.clone().unwrap_or_default());
    };
    match source.field_ref.as_ref()?.field_path.as_str() {
        "metadata.name" => Some(pod.name.clone()),
        "metadata.namespace" => Some(pod.namespace.clone()),
        "metadata.uid" => Some(pod.uid.clone()),
        _ => None,
    }
}

fn limit(container: &str, resource: &str, quantity: &Quantity) -> Result<usize, ManifestError> {
    quantity.0.parse().map_err(|_| ManifestError::Limit {
        container: container.into(),
        resource: resource.into(),
        value: quantity.0.clone(),
    })
}

/// None for what the API server adds to every pod: the service account's token.
fn volume(
    spec: &api::PodSpec,
    container: &str,
    mount: &api::VolumeMount,
) -> Result<Option<Volume>, ManifestError> {
    let mut volumes = spec.volumes.iter().flatten();
    let found = volumes.find(|volume| volume.name == mount.name);
    match found {
        Some(volume) if volume.empty_dir.is_some() => {
            Ok(Some(Volume::EmptyDir(volume.name.clone())))
        }
        Some(volume) if volume.projected.is_some() => Ok(None),
        Some(api::Volume { host_path: Some(source), .. }) => {
            Ok(Some(Volume::HostPath(source.path.clone().into())))
        }
        _ => Err(ManifestError::Volume { container: container.into(), name: mount.name.clone() }),
    }
}

impl PodStatus {
    /// The status as a kubelet writes it to the API. Times aren't in it.
    pub fn to_kubernetes(&self) -> api::PodStatus {
        let of_kind = |app: bool| {
            let containers = self.containers.iter();
            let wanted = containers.filter(|(_, c)| (c.kind == ContainerKind::App) == app);
            let statuses: Vec<_> = wanted.map(|(name, c)| to_container(name, c)).collect();
            (!statuses.is_empty()).then_some(statuses)
        };
        let apps = of_kind(true);
        let ready = apps.iter().flatten().all(|status| status.ready);
        let condition = |type_: &str, holds: bool| api::PodCondition {
            type_: type_.into(),
            status: if holds { "True" } else { "False" }.into(),
            ..api::PodCondition::default()
        };
        api::PodStatus {
            phase: Some(phase_name(self.phase).into()),
            reason: self.reason.clone(),
            message: self.message.clone(),
            conditions: Some(vec![
                condition("PodScheduled", true),
                condition("ContainersReady", ready),
                condition("Ready", ready),
            ]),
            init_container_statuses: of_kind(false),
            container_statuses: apps,
            ..api::PodStatus::default()
        }
    }
}

fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Pending => "Pending",
        Phase::Running => "Running",
        Phase::Succeeded => "Succeeded",
        Phase::Failed => "Failed",
    }
}

fn to_container(name: &str, container: &ContainerStatus) -> api::ContainerStatus {
    let running = container.pid().is_some();
    let id = format!("containerd://{}", container.id);
    api::ContainerStatus {
        name: name.into(),
        image: container.image.clone(),
        ready: running,
        started: Some(running),
        restart_count: i32::try_from(container.restarts).unwrap_or(i32::MAX),
        container_id: container.was_started().then_some(id),
        state: Some(to_state(&container.state)),
        last_state: container.last_exit.filter(|_| container.exit_code().is_none()).map(terminated),
        ..api::ContainerStatus::default()
    }
}

fn to_state(state: &ContainerState) -> api::ContainerState {
    match state {
        ContainerState::Waiting { reason, message } => api::ContainerState {
            waiting: Some(api::ContainerStateWaiting {
                reason: Some(reason.clone()),
                message: (!message.is_empty()).then(|| message.clone()),
            }),
            ..api::ContainerState::default()
        },
        ContainerState::Running { .. } => api::ContainerState {
            running: Some(api::ContainerStateRunning::default()),
            ..api::ContainerState::default()
        },
        ContainerState::Terminated { exit_code } => terminated(*exit_code),
    }
}

fn terminated(exit_code: i32) -> api::ContainerState {
    let reason = if exit_code == 0 { "Completed" } else { "Error" };
    api::ContainerState {
        terminated: Some(api::ContainerStateTerminated {
            exit_code,
            reason: Some(reason.into()),
            ..api::ContainerStateTerminated::default()
        }),
        ..api::ContainerState::default()
    }
}
