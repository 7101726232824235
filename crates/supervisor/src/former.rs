//! Former owners of units whose processes are still there.

use std::collections::BTreeSet;

use mpshare_api::status::FormerPods;
use mpshare_mps::Proc;

use crate::inputs::Inputs;

/// Looks for processes of the former owners that the records name.
pub(crate) fn look(proc: &Proc, inputs: &Inputs) -> FormerPods {
    FormerPods { revision: inputs.revision, alive: alive(proc, &inputs.former) }
}

/// Those of `pods` that have a process, the sandbox's included: it is there before the first
/// container and after the last one. Where processes can't be listed, all count as alive.
fn alive(proc: &Proc, pods: &BTreeSet<String>) -> Vec<String> {
    if pods.is_empty() {
        return Vec::new();
    }
    let Ok(processes) = proc.pids() else { return pods.iter().cloned().collect() };
    let present: BTreeSet<String> = processes
        .into_iter()
        // A process that is gone by now has no cgroup.
        .filter_map(|pid| proc.container(pid).ok().flatten())
        .map(|container| container.pod.to_string())
        .collect();
    pods.intersection(&present).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_alive_as_long_as_any_process_is_in_its_cgroup() {
        let dir = std::env::temp_dir().join(format!("mpshare-former-{}", std::process::id()));
        let uid = "6b1f7c1e-0f5a-4d5c-9c5e-1d2e3f4a5b6c";
        let process = dir.join("4711");
        std::fs::create_dir_all(&process).unwrap();
        let id = "a".repeat(64);
        std::fs::write(process.join("cgroup"), format!("0::/kubepods/pod{uid}/{id}\n")).unwrap();
        let proc = Proc::new(&dir);
        let pods: BTreeSet<String> = [uid.to_owned(), "gone".to_owned()].into();
        assert_eq!(alive(&proc, &pods), [uid]);
        std::fs::remove_dir_all(&process).unwrap();
        assert!(alive(&proc, &pods).is_empty());
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!(alive(&proc, &pods).len(), 2, "nothing can be seen, so nothing is gone");
    }
}
