//! What keeps a card from getting a daemon at all, found before anything of it is changed: programs
//! that aren't there, a host that can't be entered, somebody else's MPS.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use mpshare_api::MpsRoot;
use mpshare_core::{Gpu, GpuUuid, Reason};
use mpshare_mps::census::{DEFAULT_PIPE, MpsProcess, Part, mps_processes};
use mpshare_mps::{Obstacle, Pid, Proc};

use crate::options::Ports;

/// For how long a look at the place of launch counts: it is a process on the host.
const FRESH: Duration = Duration::from_secs(2);

/// Where NVIDIA's plugin has its daemons, as the pod sees it that has them
/// (facts/nvidia-device-plugin.md 3.1).
const PLUGIN_ROOT: &str = "/mps";

/// The obstacles of a node; shared by the workers of its cards.
#[derive(Debug, Default)]
pub(crate) struct Obstacles {
    place: Mutex<Option<(Instant, Option<Obstacle>)>>,
}

impl Obstacles {
    /// Why no daemon can be launched for this card.
    pub(crate) fn of_card(&self, ports: &Ports, root: &MpsRoot, gpu: &Gpu) -> Option<Reason> {
        if let Some(obstacle) = self.of_place(ports) {
            let problem = obstacle.to_string();
            let gpu = gpu.uuid.clone();
            return Some(match obstacle {
                Obstacle::NoProgram { .. } => Reason::ProgramMissing { gpu, problem },
                Obstacle::Place(_) => Reason::HostUnreachable { gpu, problem },
            });
        }
        // Where processes can't be listed, none is in the way.
        let processes = mps_processes(&ports.host_proc).unwrap_or_default();
        let is_in_the_way = |process: &&MpsProcess| {
            // A pod may run a daemon for itself alone, in directories of the same names.
            is_foreign_on(process, root, gpu) && !process.is_private(&ports.host_proc)
        };
        Some(foreign_mps(gpu, processes.iter().find(is_in_the_way)?))
    }

    fn of_place(&self, ports: &Ports) -> Option<Obstacle> {
        // A panic while it was held can't leave a look half-changed.
        let mut place = self.place.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some((_, obstacle)) = place.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return obstacle.clone();
        }
        let obstacle = (ports.obstacle)();
        *place = Some((Instant::now(), obstacle.clone()));
        obstacle
    }
}

/// Daemons of somebody else that could serve cards of this node, wherever they are. No reason to
/// refuse a card: its own server keeps it.
pub(crate) fn nearby(ports: &Ports, root: &MpsRoot, gpus: &[Gpu]) -> Vec<Reason> {
    let processes = mps_processes(&ports.host_proc).unwrap_or_default();
    let is_near = |it: &&MpsProcess| {
        it.part == Part::Daemon
            && !root.is_pipe_of_card(&it.pipe)
            && !is_of_another_root(it)
            && !is_for_one_pod(it, &ports.host_proc)
            && gpus.iter().any(|gpu| covers(it.devices.as_deref(), gpu))
    };
    let reason = |it: &MpsProcess| Reason::ForeignDaemonNearby {
        pid: it.pid.get(),
        pipe: it.pipe.display().to_string(),
    };
    processes.iter().filter(is_near).map(reason).collect()
}

/// Whether a daemon is in a directory named after its card, as those of every supervisor are.
fn is_of_another_root(process: &MpsProcess) -> bool {
    let gpu: Option<GpuUuid> = process.devices.as_ref().and_then(|devices| devices.parse().ok());
    let card = gpu.as_ref().map(GpuUuid::short);
    let directory = process.pipe.parent().and_then(Path::file_name).and_then(OsStr::to_str);
    process.pipe.ends_with("pipe") && card.is_some() && card == directory
}

/// Whether a pod has this daemon for its own processes. That of NVIDIA's plugin is in a pod too, but
/// for others, who find its directory elsewhere.
fn is_for_one_pod(process: &MpsProcess, proc: &Proc) -> bool {
    process.is_private(proc) && !process.pipe.starts_with(PLUGIN_ROOT)
}

/// Whose server holds a card, if one of these processes is somebody else's MPS server.
pub(crate) fn foreign_server(ports: &Ports, gpu: &Gpu, holders: &[i32]) -> Option<Reason> {
    let processes = mps_processes(&ports.host_proc).ok()?;
    let is_holder = |it: &&MpsProcess| it.part == Part::Server && holders.contains(&it.pid.get());
    let server = processes.iter().find(is_holder)?;
    let parent = ports.host_proc.stat(server.pid).ok().flatten().and_then(|stat| stat.parent);
    let daemon = |parent: Pid| processes.iter().find(|it| it.pid == parent);
    Some(foreign_mps(gpu, parent.and_then(daemon).unwrap_or(server)))
}

fn foreign_mps(gpu: &Gpu, process: &MpsProcess) -> Reason {
    Reason::ForeignMps {
        gpu: gpu.uuid.clone(),
        pid: process.pid.get(),
        pipe: process.pipe.display().to_string(),
    }
}

/// A daemon that would serve the card to others: in NVIDIA's default directory, which its runtime
/// mounts into every GPU container (facts/mps.md 3), or below our root in a directory that isn't a
/// card's, as NVIDIA's plugin has it. One elsewhere is in the way once its server holds the card.
fn is_foreign_on(process: &MpsProcess, root: &MpsRoot, gpu: &Gpu) -> bool {
    let is_claimed = process.pipe == Path::new(DEFAULT_PIPE)
        || (process.pipe.starts_with(root.path()) && !root.is_pipe_of_card(&process.pipe));
    process.part == Part::Daemon && is_claimed && covers(process.devices.as_deref(), gpu)
}

/// Whether `CUDA_VISIBLE_DEVICES` names the card. A number may mean any: CUDA counts in an order of
/// its own.
fn covers(devices: Option<&str>, gpu: &Gpu) -> bool {
    let Some(devices) = devices else { return true };
    devices.split(',').map(str::trim).any(|device| {
        let by_uuid = device.len() > "GPU-".len() && gpu.uuid.as_str().starts_with(device);
        by_uuid || device.parse::<u32>().is_ok()
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::t4;

    use super::*;

    fn gpu() -> Gpu {
        t4("GPU-cb1213a3-d6a4")
    }

    fn is_foreign(pipe: &str, devices: Option<&str>) -> bool {
        let process = MpsProcess {
            pid: Pid::new(7).unwrap(),
            part: Part::Daemon,
            pipe: pipe.into(),
            devices: devices.map(str::to_owned),
        };
        is_foreign_on(&process, &MpsRoot::new("/run/nvidia/mps"), &gpu())
    }

    #[test]
    fn a_daemon_in_nvidias_directories_is_in_the_way_of_the_cards_that_it_is_there_for() {
        for pipe in ["/tmp/nvidia-mps", "/run/nvidia/mps/nvidia.com/gpu/pipe"] {
            for devices in [None, Some("0"), Some("GPU-ff,GPU-cb12"), Some("GPU-cb1213a3-d6a4")] {
                assert!(is_foreign(pipe, devices), "{pipe} {devices:?}");
            }
            for devices in [Some(""), Some("GPU-ff"), Some("GPU-")] {
                assert!(!is_foreign(pipe, devices), "{pipe} {devices:?}");
            }
        }
    }

    #[test]
    fn a_daemon_of_another_supervisor_is_told_by_its_directory() {
        let is_of_another_root = |pipe: &str, devices: Option<&str>| {
            is_of_another_root(&MpsProcess {
                pid: Pid::new(7).unwrap(),
                part: Part::Daemon,
                pipe: pipe.into(),
                devices: devices.map(str::to_owned),
            })
        };
        let card = Some("GPU-cb1213a3-d6a4");
        assert!(is_of_another_root("/other/nvidia.com/gpu/GPU-cb1213a3/pipe", card));
        assert!(!is_of_another_root("/other/nvidia.com/gpu/GPU-cb1213a3/pipe", None));
        assert!(!is_of_another_root("/run/foreign-mps", card));
    }

    #[test]
    fn a_daemon_of_a_pod_is_for_that_pod_alone_unless_it_is_that_of_nvidias_plugin() {
        let dir = std::env::temp_dir().join(format!("mpshare-one-pod-{}", std::process::id()));
        let is_for_one_pod = |pipe: &str| {
            std::fs::create_dir_all(dir.join("1/root")).unwrap();
            std::fs::create_dir_all(dir.join("7/root").join(pipe.trim_start_matches('/'))).unwrap();
            let process = MpsProcess {
                pid: Pid::new(7).unwrap(),
                part: Part::Daemon,
                pipe: pipe.into(),
                devices: None,
            };
            is_for_one_pod(&process, &Proc::new(&dir))
        };
        assert!(is_for_one_pod("/tmp/nvidia-mps"));
        assert!(!is_for_one_pod("/mps/nvidia.com/gpu/pipe"));
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn our_daemons_and_those_elsewhere_are_not() {
        assert!(!is_foreign("/run/nvidia/mps/nvidia.com/gpu/GPU-cb1213a3/pipe", None));
        assert!(!is_foreign("/home/me/mps", None));
    }
}
