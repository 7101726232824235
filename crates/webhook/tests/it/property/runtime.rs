//! What a container's process finds, as the kubelet and containerd lay it out
//! (facts/kubernetes.md 2), and what the simulated MPS makes of it.

use std::collections::BTreeMap;

use mpshare_core::admission::Policy;
use mpshare_sim_state::mps::{Percent, PinnedLimit, effective_limits, visible_devices};
use serde_json::Value;

use super::fleet::Card;
use super::pods::VARIABLES;

const MEMORY_LIMIT: &str = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT";
const PERCENTAGE: &str = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";
const PIPE: &str = "CUDA_MPS_PIPE_DIRECTORY";
const CUDA_DEVICES: &str = "CUDA_VISIBLE_DEVICES";
const NVIDIA_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";

type Variables = BTreeMap<String, String>;

/// A container that asks for so much, on one of the cards that have it.
pub(super) struct Client<'a> {
    pub(super) container: &'a Value,
    pub(super) card: &'a Card,
    pub(super) units: u64,
    pub(super) policy: &'a Policy,
}

impl Client<'_> {
    /// What is wrong with what it gets.
    pub(super) fn problem(&self, rng: &mut fastrand::Rng) -> Option<String> {
        let env = self.environment(rng);
        let problem = self.devices(&env).or_else(|| {
            let is_shared = self.card.is_shared();
            is_shared.then(|| self.way(&env).or_else(|| self.limits(&env))).flatten()
        });
        problem.map(|problem| format!("{problem}, with {env:?}"))
    }

    /// NVIDIA's runtime shows no card but its own.
    fn devices(&self, env: &Variables) -> Option<String> {
        if self.is_known_hole() {
            return None;
        }
        let named = env.get(NVIDIA_DEVICES)?.as_str();
        let own = [self.card.uuid.as_str(), "", "void", "none"];
        let is_fine = own.contains(&named) || self.policy.visible_devices.as_deref() == Some(named);
        (!is_fine).then(|| format!("it is shown the cards `{named}`"))
    }

    /// Known, and why clusters should name cards by CDI or by mounts: where they are named by the
    /// variable itself, admission can't know the value that `envFrom` would take the place of. And of
    /// whole cards it doesn't know how their plugin names them.
    fn is_known_hole(&self) -> bool {
        let is_named = list(self.container, "env").iter().any(|it| it["name"] == NVIDIA_DEVICES);
        let has_env_from = !list(self.container, "envFrom").is_empty();
        let may_be_whole = !self.card.is_shared();
        (self.policy.visible_devices.is_none() || may_be_whole) && has_env_from && !is_named
    }

    /// It finds its own card's daemon.
    fn way(&self, env: &Variables) -> Option<String> {
        let pipe = self.pipe();
        if env.get(PIPE) != Some(&pipe) {
            return Some("it finds no daemon".to_owned());
        }
        let mounts = list(self.container, "volumeMounts");
        let hidden = mounts.iter().find_map(|mount| {
            let path = cleaned(mount["mountPath"].as_str()?);
            let is_over = |ours: &str| {
                let ours = cleaned(ours);
                ours.starts_with(&path) || path.starts_with(&ours)
            };
            let is_over_shm = cleaned("/dev/shm").starts_with(&path);
            (is_over(&pipe) || is_over_shm).then(|| mount["mountPath"].to_string())
        });
        hidden.map(|path| format!("what is mounted at {path} hides the daemon"))
    }

    /// Beside a neighbour who has all of the card, whose limit is the server's.
    fn limits(&self, env: &Variables) -> Option<String> {
        let default = PinnedLimit::from_bytes(self.card.memory(self.card.units).bytes());
        let all = [self.card.uuid.clone()];
        let seen = visible_devices(&all, env.get(CUDA_DEVICES).map(String::as_str));
        let served: Vec<_> = seen.into_iter().map(|uuid| (uuid, default)).collect();
        let limits = effective_limits(&served, env.get(MEMORY_LIMIT).map(String::as_str));
        let share = self.card.memory(self.units);
        if limits.iter().any(|limit| limit.is_none_or(|it| it.bytes() > share.bytes())) {
            return Some(format!("it may use {limits:?} of its {share:?}"));
        }
        let percent = env.get(PERCENTAGE).and_then(|text| Percent::parse(text));
        let percent = percent.unwrap_or(Percent::FULL);
        let share = self.card.percent(self.units);
        let is_more = percent.value() * 10.0 > f64::from(share.tenths());
        (self.policy.cap_percent && is_more)
            .then(|| format!("it may use {percent:?} of its {share:?}"))
    }

    fn pipe(&self) -> String {
        format!("/mps/{}/pipe", self.card.resource)
    }

    /// Image, device plugin, envFrom, spec: a later one takes an earlier one's place.
    fn environment(&self, rng: &mut fastrand::Rng) -> Variables {
        let mut env = anything(rng);
        env.insert(NVIDIA_DEVICES.to_owned(), "all".to_owned());
        env.extend(self.of_plugin());
        let mut own = Variables::new();
        if !list(self.container, "envFrom").is_empty() {
            own.extend(anything(rng));
        }
        for variable in list(self.container, "env") {
            let name = variable["name"].as_str().unwrap();
            if variable["valueFrom"].is_null() {
                let value = variable["value"].as_str().unwrap_or_default();
                own.insert(name.to_owned(), expanded(value, &own));
            } else if rng.bool() {
                // It is optional: where the key is missing, an earlier value stays.
                own.insert(name.to_owned(), any_value(rng, name));
            }
        }
        env.extend(own);
        env
    }

    /// As the device plugin answers (`response` of mpshare-device-plugin).
    fn of_plugin(&self) -> Variables {
        let uuid = &self.card.uuid;
        let devices = self.policy.visible_devices.as_ref().unwrap_or(uuid);
        let mut all = vec![(CUDA_DEVICES, uuid.clone()), (NVIDIA_DEVICES, devices.clone())];
        if self.card.is_shared() {
            all.extend([
                (PIPE, self.pipe()),
                (MEMORY_LIMIT, format!("0={}M", self.card.memory(self.units).mib())),
                (PERCENTAGE, self.card.percent(self.units).to_string()),
            ]);
        }
        all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// Every variable with some value.
fn anything(rng: &mut fastrand::Rng) -> Variables {
    VARIABLES.iter().map(|(name, _)| ((*name).to_owned(), any_value(rng, name))).collect()
}

fn any_value(rng: &mut fastrand::Rng, name: &str) -> String {
    let values = VARIABLES.iter().find(|(known, _)| *known == name).map(|(_, values)| *values);
    values.map_or_else(String::new, |values| values[rng.usize(0..values.len())].to_owned())
}

/// `$(NAME)` of what is said before.
fn expanded(value: &str, before: &Variables) -> String {
    let replace = |text: String, (name, value): (&String, &String)| {
        text.replace(&format!("$({name})"), value)
    };
    before.iter().fold(value.to_owned(), replace)
}

/// The parts of a path as the runtime resolves them.
fn cleaned(path: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts
}

pub(super) fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}
