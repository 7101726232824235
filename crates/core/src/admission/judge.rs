//! What is wrong with a pod, as far as its spec shows it.

use std::collections::BTreeMap;

use super::environment::{
    CUDA_DEVICES, MEMORY_LIMIT, NVIDIA_DEVICES, PIPE_DIRECTORY, THREAD_PERCENTAGE, is_closed,
    is_drivers_form, memory_limit, pipe_directory, read_memory_limit, read_percent,
};
use super::fleet::Candidates;
use super::subject::{Amount, Container, Subject, Value, Volume};
use super::{Fleet, Policy, Privileged};
use crate::{Reason, ThreadPercent};

/// So many units of anything are no number that somebody counted; nor is one that can't be read.
const ABSURD: u64 = 1_000_000;

/// Where NVIDIA's container runtime looks for cards that are named by mounts.
const DEVICE_MOUNTS: [&str; 2] =
    ["/var/run/nvidia-container-devices", "/run/nvidia-container-devices"];

/// What a container shows no GPU by.
const NO_DEVICES: [&str; 3] = ["", "void", "none"];

/// What is wrong with a pod, in the order of its containers.
pub fn judge(subject: &Subject, fleet: &Fleet, policy: &Policy) -> Vec<Reason> {
    let mut found = Vec::new();
    for container in &subject.containers {
        let cards = container.asked.first().map(|asked| fleet.candidates(subject, &asked.resource));
        let look = Look { subject, policy, container, cards };
        look.amounts(fleet, &mut found);
        look.variables(&mut found);
        look.limits(&mut found);
        look.mounts(&mut found);
        if look.is_too_privileged() {
            found.push(Reason::PrivilegedContainer { container: container.name.clone() });
        }
    }
    found.extend(several_gpus(subject));
    found.extend(host_paths(subject, policy));
    found.extend(users(subject, fleet));
    found
}

/// One container.
struct Look<'a> {
    subject: &'a Subject,
    policy: &'a Policy,
    container: &'a Container,
    /// Of what it asks for.
    cards: Option<Candidates<'a>>,
}

impl Look<'_> {
    fn name(&self) -> String {
        self.container.name.clone()
    }

    /// What it asks for where that may be a share, and the cards.
    fn share(&self) -> Option<(&Amount, &Candidates<'_>)> {
        let (asked, cards) = self.container.asked.first().zip(self.cards.as_ref())?;
        cards.may_share(asked.units).then_some((asked, cards))
    }

    fn amounts(&self, fleet: &Fleet, found: &mut Vec<Reason>) {
        for Amount { resource, units, text } in &self.container.asked {
            let (container, resource, units) = (self.name(), resource.clone(), *units);
            let most = fleet.candidates(self.subject, &resource).most_units();
            // The API server itself writes a plain 1000 as `1k`.
            let has_suffix = text.ends_with(|c: char| c.is_ascii_alphabetic());
            if units == 0 {
                found.push(Reason::ZeroUnits { container, resource });
            } else if units >= ABSURD || (has_suffix && text.contains('i')) {
                found.push(Reason::UnitsNotPlain {
                    container,
                    resource,
                    text: text.clone(),
                    units,
                });
            } else if let Some(most) = most.filter(|most| units > *most) {
                found.push(Reason::AboveEveryGpu { container, resource, units, most });
            }
        }
        if let [first, second, ..] = &*self.container.asked {
            found.push(Reason::TwoResourcesInContainer {
                container: self.name(),
                first: first.resource.clone(),
                second: second.resource.clone(),
            });
        }
    }

    fn variables(&self, found: &mut Vec<Reason>) {
        let container = self.container;
        if let Some((_, value)) = container.variable(NVIDIA_DEVICES) {
            let is_harmless = matches!(value, Value::Text(text)
                if NO_DEVICES.contains(&text.as_str()) || self.policy.visible_devices.as_ref() == Some(text));
            if !is_harmless {
                found.push(Reason::DevicesNamed { container: self.name(), value: shown(value) });
            }
        }
        let mut closed: Vec<&str> = container.env.iter().map(|it| it.name.as_str()).collect();
        closed.retain(|name| is_closed(name) && !self.is_settled(name));
        closed.dedup();
        found.extend(closed.into_iter().map(|variable| Reason::MpsVariable {
            container: self.name(),
            variable: variable.to_owned(),
        }));
        let cuda = container.variable(CUDA_DEVICES).filter(|_| self.share().is_some());
        if let Some((_, value)) = cuda
            && !matches!(value, Value::Text(text) if ["", "0", "-1"].contains(&text.as_str()))
        {
            found.push(Reason::CudaDevicesNamed { container: self.name(), value: shown(value) });
        }
    }

    /// Whether a variable says what `change` writes.
    fn is_settled(&self, name: &str) -> bool {
        let written = self.container.asked.first().map(|asked| pipe_directory(&asked.resource));
        let said = self.container.variable(name).map(|(_, value)| value);
        name == PIPE_DIRECTORY && written.is_some_and(|written| said == Some(&Value::Text(written)))
    }

    /// What `change` would have put right: it wasn't asked, or somebody came after it.
    fn limits(&self, found: &mut Vec<Reason>) {
        let Some((asked, cards)) = self.container.asked.first().zip(self.cards.as_ref()) else {
            return;
        };
        for variable in [MEMORY_LIMIT, THREAD_PERCENTAGE] {
            if let Some((_, Value::Elsewhere)) = self.container.variable(variable) {
                let variable = variable.to_owned();
                found.push(Reason::HiddenVariable { container: self.name(), variable });
            }
        }
        if let Some((_, Value::Text(text))) = self.container.variable(MEMORY_LIMIT) {
            let (container, text) = (self.name(), text.clone());
            let share = cards.least_memory(asked.units);
            found.extend(match (read_memory_limit(&text), share) {
                (None, _) => Some(Reason::MemoryLimitUnreadable { container, text }),
                (Some(asked), Some(share)) if asked > share => {
                    Some(Reason::MemoryLimitAboveShare { container, asked, share })
                }
                (Some(_), _) if is_drivers_form(&text) => None,
                (Some(asked), _) => {
                    let form = memory_limit(asked);
                    Some(Reason::MemoryLimitForm { container, text, form })
                }
            });
        }
        if let Some((_, Value::Text(text))) = self.container.variable(THREAD_PERCENTAGE) {
            let container = self.name();
            let share = cards.least_percent(asked.units).filter(|_| self.policy.cap_percent);
            found.extend(match (read_percent(text), share) {
                (None, _) => Some(Reason::PercentUnreadable { container, text: text.clone() }),
                (Some(asked), Some(share)) if asked > share.tenths() => {
                    let asked = ThreadPercent::from_tenths(asked).unwrap_or(ThreadPercent::FULL);
                    Some(Reason::PercentAboveShare { container, asked, share })
                }
                (Some(_), _) => None,
            });
        }
    }

    /// What is mounted over the way to the daemon: the pod's own mount is the later one and hides the
    /// device plugin's (facts/kubernetes.md 2). And what NVIDIA's container runtime takes for the name
    /// of a card, where it looks for mounts.
    fn mounts(&self, found: &mut Vec<Reason>) {
        let names_card = |path: &str| {
            DEVICE_MOUNTS.iter().any(|it| Path::of(it).is_at_or_above(&Path::of(path)))
        };
        let naming = self.container.mounts.iter().filter(|path| names_card(path));
        found.extend(
            naming
                .map(|path| Reason::DevicesMounted { container: self.name(), path: path.clone() }),
        );
        if self.share().is_none() {
            return;
        }
        let hides = |path: &str| {
            let (path, shm, mps) = (Path::of(path), Path::of("/dev/shm"), Path::of("/mps"));
            path.is_at_or_above(&shm) || path.is_at_or_above(&mps) || mps.is_at_or_above(&path)
        };
        let over = self.container.mounts.iter().filter(|path| hides(path));
        found.extend(
            over.map(|path| Reason::MountOverShare { container: self.name(), path: path.clone() }),
        );
    }

    fn is_too_privileged(&self) -> bool {
        self.container.is_privileged
            && match self.policy.privileged {
                Privileged::Allowed => false,
                Privileged::WithUnits => self.subject.asks(),
                Privileged::All => true,
            }
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        Value::Elsewhere => "valueFrom".to_owned(),
    }
}

fn several_gpus(subject: &Subject) -> Option<Reason> {
    let label = subject.gpu_count.as_ref().filter(|label| label.as_str() != "1")?;
    let mut asked = subject.containers.iter().flat_map(|container| &container.asked);
    let is_ours = asked.any(|it| it.resource.is_memory());
    is_ours.then(|| Reason::SeveralGpusAsked { label: label.clone() })
}

/// Directories of the node by which a pod reaches the cards or their daemons itself. Where a pod asks
/// for units, what they are in counts too; others, such as exporters, mount `/` for good reasons.
fn host_paths(subject: &Subject, policy: &Policy) -> Vec<Reason> {
    let own = policy.own_paths.iter().map(String::as_str);
    let roots: Vec<Path<'_>> =
        ["/run/nvidia", "/var/run/nvidia"].into_iter().chain(own).map(Path::of).collect();
    let reaches = |path: &str| {
        let path = Path::of(path).past_processes();
        let is_card = matches!(&*path.0, ["dev", name, ..] if name.starts_with("nvidia"));
        let is_within = roots.iter().any(|ours| ours.is_at_or_above(&path));
        let is_around = subject.asks()
            && (roots.iter().any(|ours| path.is_at_or_above(ours))
                || matches!(&*path.0, ["dev"] | ["proc", ..]));
        is_card || is_within || is_around
    };
    let volumes = subject.volumes.iter().filter_map(|(name, volume)| match volume {
        Volume::HostPath(path) if reaches(path) => Some((name, path)),
        Volume::HostPath(_) | Volume::Other => None,
    });
    let found = volumes.map(|(volume, path)| Reason::HostPathOfGpus {
        volume: volume.clone(),
        path: path.clone(),
    });
    found.collect()
}

/// Users that an old driver's MPS would let wait for ever (facts/mps.md 3).
fn users(subject: &Subject, fleet: &Fleet) -> Option<Reason> {
    let sharing = subject.containers.iter().filter(|container| container.runs_on());
    let mut users: BTreeMap<i64, &Container> = BTreeMap::new();
    let mut driver = None;
    for container in sharing {
        let Some(asked) = container.asked.first() else { continue };
        let cards = fleet.candidates(subject, &asked.resource);
        let Some(old) = cards.single_user_driver() else { continue };
        driver = Some(old.clone());
        if let Some(user) = container.user.or(subject.user) {
            users.entry(user).or_insert(container);
        }
    }
    let driver = driver?;
    if subject.has_own_users {
        return Some(Reason::OwnUsers { driver });
    }
    let mut users = users.into_iter();
    let ((first_user, first), (second_user, second)) = users.next().zip(users.next())?;
    Some(Reason::UsersDiffer {
        first: first.name.clone(),
        first_user,
        second: second.name.clone(),
        second_user,
        driver,
    })
}

/// The parts of an absolute path: a trailing or doubled slash makes no other one, and `..` leads back,
/// as it does where a container's mounts are made.
struct Path<'a>(Vec<&'a str>);

impl<'a> Path<'a> {
    fn of(path: &'a str) -> Self {
        let mut parts = Vec::new();
        for part in path.split('/') {
            match part {
                "" | "." => {}
                ".." => drop(parts.pop()),
                part => parts.push(part),
            }
        }
        Self(parts)
    }

    /// Without a way through a process: `/proc/1/root/x` is `/x` of the node.
    fn past_processes(mut self) -> Self {
        while self.0.first() == Some(&"proc") {
            let way = self.0.iter().position(|part| matches!(*part, "root" | "cwd"));
            let Some(way) = way else { break };
            self.0.drain(..=way);
        }
        self
    }

    fn is_at_or_above(&self, other: &Path<'_>) -> bool {
        other.0.starts_with(&self.0)
    }
}
