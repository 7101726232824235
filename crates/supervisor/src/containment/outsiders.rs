//! Processes on a card that belong to no share of it.

use mpshare_api::status::ClientStatus;
use mpshare_core::{Memory, Reason};
use mpshare_mps::procfs::Home;
use mpshare_mps::{Pid, ProcessId, census};

use super::Scene;
use super::ending::Victim;
use super::shares::Standing;
use crate::printable;

/// The longest command or cgroup in a sentence.
const LONGEST: usize = 120;

/// A process without a share.
pub(crate) struct Outsider {
    pub id: ProcessId,
    /// UID of its pod, where it is in one.
    pub pod: Option<String>,
    pub reason: Reason,
    /// What it uses, where the driver tells.
    pub memory: Option<Memory>,
    ended: Reason,
}

impl Outsider {
    /// It, to be ended.
    pub(crate) fn victim(&self) -> Victim {
        Victim { id: self.id, pod: self.pod.clone(), reason: self.ended.clone() }
    }
}

/// `user` as an outsider, if it certainly is one. MPS daemons and servers are none: who else's
/// they are is told by [`crate::obstacles`].
pub(crate) fn outsider(scene: &Scene<'_>, user: &ClientStatus) -> Option<Outsider> {
    if let Some(pod) = &user.pod_uid
        && scene.shares.standing(pod) != Standing::Outside
    {
        return None;
    }
    let proc = scene.host_proc;
    let pid = Pid::new(user.pid)?;
    let id = proc.identify(pid).ok()??;
    let (pod, cgroup) = match scene.cgroup_proc.home(pid).ok()?? {
        Home::Hidden => return None,
        Home::Host(path) => (None, path),
        Home::Pod(container) => {
            let pod = container.pod.as_str();
            if scene.shares.standing(pod) != Standing::Outside {
                return None;
            }
            let id = container.container.as_ref().map_or("", |id| id.as_str());
            (Some(pod.to_owned()), format!("pod {pod} {id}").trim_end().to_owned())
        }
    };
    if is_mps(proc.program(pid).ok()??.to_str()) {
        return None;
    }
    let command = proc.arguments(pid).ok()??.join(" ");
    // All of the above was the same process's.
    if proc.identify(pid).ok()?? != id {
        return None;
    }
    let (gpu, pid) = (scene.gpu.clone(), user.pid);
    let (command, cgroup) = (printable(&command), printable(&cgroup));
    let memory = user.memory_mib.map(Memory::from_mib);
    let ended = Reason::OutsiderEnded {
        gpu: gpu.clone(),
        pid,
        command: command.clone(),
        cgroup: cgroup.clone(),
    };
    Some(Outsider {
        id,
        pod,
        memory,
        reason: Reason::OutsideShares { gpu, pid, command, cgroup, memory },
        ended,
    })
}

fn is_mps(program: Option<&str>) -> bool {
    matches!(program, Some(census::CONTROL | census::SERVER))
}

/// A command or cgroup of somebody else; one that is cut says so.
fn printable(text: &str) -> String {
    let mut shown = printable::printable(text, LONGEST);
    if text.chars().nth(LONGEST).is_some() {
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_in_one_line_and_not_at_any_length() {
        assert_eq!(printable("sh -c \u{1b}[31m`x`\n"), "sh -c  [31m x  ");
        assert_eq!(printable(&"ü".repeat(500)).chars().count(), LONGEST + 3);
    }
}
