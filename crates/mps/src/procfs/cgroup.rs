//! Pod and container in the text of `/proc/PID/cgroup`.
//!
//! The kubelet and the runtime name the groups (facts/kubernetes.md 10); below its container's
//! group a tenant may make groups of any name, so only the first pod on the way down counts.

use std::fmt;

/// UID of a pod as the kubelet has it. For a static pod that is the hash of its file, not the UID
/// of its mirror in the API.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodUid(String);

/// Id of a container as its runtime has it: 64 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerId(String);

impl PodUid {
    /// The UID.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl ContainerId {
    /// The id.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PodUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whose process it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerOf {
    /// The pod.
    pub pod: PodUid,
    /// Its container; `None` for a process in the pod's own group.
    pub container: Option<ContainerId>,
}

/// Whose a process is, as far as its cgroups tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Home {
    /// A pod's.
    Pod(ContainerOf),
    /// Nobody's that the kubelet knows: its cgroup.
    Host(String),
    /// The reader has a cgroup namespace of its own, from which other groups can't be told apart
    /// (facts/kubernetes.md 10).
    Hidden,
}

/// Reads the text of `/proc/PID/cgroup`, of either cgroup version. `None` for a process that
/// belongs to no pod.
pub fn container_of(text: &str) -> Option<ContainerOf> {
    paths(text).into_iter().find_map(in_path)
}

/// As [`container_of`], and what there is to say of a process that belongs to no pod.
pub fn home_of(text: &str) -> Home {
    let paths = paths(text);
    if let Some(container) = paths.iter().find_map(|path| in_path(path)) {
        return Home::Pod(container);
    }
    if paths.iter().any(|path| path.split('/').any(|segment| segment == "..")) {
        return Home::Hidden;
    }
    let deepest = paths.iter().find(|path| **path != "/").or(paths.first());
    deepest.map_or(Home::Hidden, |path| Home::Host((*path).to_owned()))
}

/// Its cgroups, those that the kubelet manages first.
fn paths(text: &str) -> Vec<&str> {
    let mut lines: Vec<(&str, &str)> = text.lines().filter_map(controllers_and_path).collect();
    lines.sort_by_key(|(controllers, _)| rank(controllers));
    lines.into_iter().map(|(_, path)| path).collect()
}

fn controllers_and_path(line: &str) -> Option<(&str, &str)> {
    line.split_once(':')?.1.split_once(':')
}

/// On version 1 the kubelet places every container into the groups of these controllers; others
/// may be anywhere. Version 2 has the one line without controllers.
fn rank(controllers: &str) -> u8 {
    let has = |name| controllers.split(',').any(|controller| controller == name);
    if has("memory") || has("pids") || has("devices") {
        0
    } else if controllers.is_empty() {
        1
    } else {
        2
    }
}

fn in_path(path: &str) -> Option<ContainerOf> {
    let mut segments = path.split('/');
    let pod = segments.by_ref().find_map(pod)?;
    let container = segments.next().and_then(container);
    Some(ContainerOf { pod, container })
}

/// `pod<uid>`, with whatever slices it is in before it.
fn pod(segment: &str) -> Option<PodUid> {
    let segment = segment.strip_suffix(".slice").unwrap_or(segment);
    let ending = |length: usize| {
        let at = segment.len().checked_sub(length)?;
        let (before, uid) = segment.split_at_checked(at)?;
        (before == "pod" || before.ends_with("-pod")).then_some(uid)
    };
    let dashed = ending(36).map(|uid| uid.replace('_', "-"));
    let uid = match dashed.filter(|uid| is_uuid(uid)) {
        Some(uid) => uid,
        None => ending(32).filter(|uid| is_hex(uid))?.to_owned(),
    };
    Some(PodUid(uid))
}

/// `<id>`, or `cri-containerd-<id>.scope` and its like.
fn container(segment: &str) -> Option<ContainerId> {
    let segment = segment.strip_suffix(".scope").unwrap_or(segment);
    let id = segment.rsplit('-').next()?;
    (id.len() == 64 && is_hex(id)).then(|| ContainerId(id.to_owned()))
}

fn is_uuid(text: &str) -> bool {
    let lengths = text.split('-').map(str::len);
    lengths.eq([8, 4, 4, 4, 12]) && text.split('-').all(is_hex)
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests;
