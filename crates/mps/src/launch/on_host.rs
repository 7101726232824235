//! Onto the host, from inside a container: so that a daemon outlives the pod that started it.
//!
//! A container's mount namespace and cgroup end with it, and with the cgroup every process in it.
//! So NVIDIA's programs are started through a program of ours ([`HostEntry`]) that first moves
//! itself to the host: into its mount namespace, where the driver is, and into a cgroup outside of
//! any pod. A daemon also gets the card's own directory at `/dev/shm`, in a mount namespace of its
//! own, which is what its clients get too.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::obstacle::Obstacle;
use super::own_session::{Ended, canary, environment, run, searches, start};
use super::{DaemonSettings, LaunchError, Launcher, Programs};
use crate::canary::Depth;
use crate::census::CONTROL;
use crate::site::DaemonSite;

/// Where programs are on a host whose `PATH` isn't known here.
const HOST_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The program that moves to the host and becomes another one there.
#[derive(Debug, Clone)]
pub struct HostEntry {
    /// The program; it takes `--mount-namespace`, `--cgroup`, `--shm`, `--` and a command line.
    pub program: PathBuf,
    /// Its first arguments.
    pub arguments: Vec<OsString>,
    /// The first arguments with which it only looks: it takes `--mount-namespace` and, for each
    /// program, `--search NAME=DIRECTORY:...`. It says which isn't there in a line, or fails.
    pub look: Vec<OsString>,
    /// The host's mount namespace, usually `/proc/1/ns/mnt`.
    pub mount_namespace: PathBuf,
    /// The cgroup below which each card's daemon has its own.
    pub cgroup: PathBuf,
}

/// Launches daemons as processes of the host.
#[derive(Debug, Clone)]
pub struct OnHost {
    programs: Programs,
    entry: HostEntry,
}

/// What the program that is started needs of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stay {
    /// A daemon's: a cgroup and shared memory of the card.
    Long,
    /// A front-end's: the programs.
    Short,
}

impl OnHost {
    /// A launcher of these programs; their paths are the host's.
    pub const fn new(programs: Programs, entry: HostEntry) -> Self {
        Self { programs, entry }
    }

    fn program(&self) -> PathBuf {
        let directory = self.programs.directory.as_deref();
        directory.map_or_else(|| PathBuf::from(CONTROL), |directory| directory.join(CONTROL))
    }

    fn command(&self, site: &DaemonSite, settings: &DaemonSettings, stay: Stay) -> Command {
        let mut command = Command::new(&self.entry.program);
        command.args(&self.entry.arguments);
        command.arg("--mount-namespace").arg(&self.entry.mount_namespace);
        if stay == Stay::Long {
            command.arg("--cgroup").arg(self.cgroup(site)).arg("--shm").arg(&site.shm);
        }
        command.arg("--").arg(self.program());
        let inherited = std::env::vars_os().map(on_host_path);
        command.env_clear().envs(environment(inherited, &self.programs, site, settings));
        command
    }

    fn cgroup(&self, site: &DaemonSite) -> PathBuf {
        self.entry.cgroup.join(Path::new(site.gpu.short()))
    }
}

/// The container's `PATH` says nothing about the host.
fn on_host_path((name, value): (OsString, OsString)) -> (OsString, OsString) {
    let value = if name == "PATH" { joined(&value) } else { value };
    (name, value)
}

fn joined(path: &OsString) -> OsString {
    let mut joined = path.clone();
    joined.push(":");
    joined.push(HOST_PATH);
    joined
}

impl Launcher for OnHost {
    fn launch(
        &self,
        site: &DaemonSite,
        settings: &DaemonSettings,
        deadline: Duration,
    ) -> Result<(), LaunchError> {
        start(self.command(site, settings, Stay::Long), &self.program(), site, settings, deadline)
    }

    fn front_end(&self, site: &DaemonSite, settings: &DaemonSettings) -> Command {
        self.command(site, settings, Stay::Short)
    }

    fn canary(
        &self,
        site: &DaemonSite,
        settings: &DaemonSettings,
        depth: Depth,
    ) -> Option<Command> {
        let mut command = canary(&self.programs, site, settings, depth)?;
        command.arg("--mount-namespace").arg(&self.entry.mount_namespace);
        command.arg("--shm").arg(&site.shm);
        Some(command)
    }

    fn obstacle(&self, deadline: Duration) -> Option<Obstacle> {
        let path = joined(&std::env::var_os("PATH").unwrap_or_default());
        let searches = searches(&self.programs, &path);
        let mut command = Command::new(&self.entry.program);
        command.args(&self.entry.look).arg("--mount-namespace").arg(&self.entry.mount_namespace);
        for (program, directories) in &searches {
            let mut search = OsString::from(format!("{program}="));
            search.push(
                directories
                    .iter()
                    .map(|it| it.as_os_str())
                    .collect::<Vec<_>>()
                    .join(OsStr::new(":")),
            );
            command.arg("--search").arg(search);
        }
        match run(command, deadline) {
            Ok(Ended::With(status, said)) if status.success() => {
                let missing = searches
                    .into_iter()
                    .find(|(program, _)| said.lines().any(|line| line == *program));
                missing.map(|(program, tried)| Obstacle::NoProgram {
                    program: program.to_owned(),
                    tried,
                })
            }
            Ok(Ended::With(status, said)) if said.is_empty() => {
                Some(Obstacle::Place(format!("looking at the host ended with {status}")))
            }
            Ok(Ended::With(_, said)) => Some(Obstacle::Place(said)),
            Ok(Ended::Killed) => {
                Some(Obstacle::Place(format!("looking at the host took more than {deadline:?}")))
            }
            Err(error) => Some(Obstacle::Place(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canary::CanaryProgram;
    use crate::site::PipeDirectory;

    fn launcher() -> OnHost {
        let entry = HostEntry {
            program: "/bin/entry".into(),
            arguments: vec!["host-exec".into()],
            look: vec!["host-look".into()],
            mount_namespace: "/proc/1/ns/mnt".into(),
            cgroup: "mpshare".into(),
        };
        let programs = Programs {
            directory: Some("/run/nvidia/driver/usr/bin".into()),
            libraries: vec!["/run/nvidia/driver/usr/lib64".into()],
            canary: Some(CanaryProgram {
                program: "/bin/entry".into(),
                arguments: vec!["mps-canary".into()],
            }),
        };
        OnHost::new(programs, entry)
    }

    fn site() -> DaemonSite {
        DaemonSite {
            gpu: "GPU-cb1213a3-d6a4".parse().unwrap(),
            pipe: PipeDirectory::new("/run/m/pipe").unwrap(),
            log: "/run/m/log".into(),
            shm: "/run/m/shm".into(),
        }
    }

    fn line(command: &Command) -> String {
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }

    #[test]
    fn a_daemon_gets_a_cgroup_and_shared_memory_and_a_front_end_only_the_namespace() {
        let settings = DaemonSettings::default();
        assert_eq!(
            line(&launcher().command(&site(), &settings, Stay::Long)),
            "host-exec --mount-namespace /proc/1/ns/mnt --cgroup mpshare/GPU-cb1213a3 \
             --shm /run/m/shm -- /run/nvidia/driver/usr/bin/nvidia-cuda-mps-control"
        );
        assert_eq!(
            line(&launcher().front_end(&site(), &settings)),
            "host-exec --mount-namespace /proc/1/ns/mnt -- \
             /run/nvidia/driver/usr/bin/nvidia-cuda-mps-control"
        );
    }

    #[test]
    fn a_canary_meets_the_shared_memory_and_the_daemon_of_its_card_in_no_other_cgroup() {
        let command =
            launcher().canary(&site(), &DaemonSettings::default(), Depth::Connect).unwrap();
        assert_eq!(
            line(&command),
            "mps-canary --depth connect --mount-namespace /proc/1/ns/mnt --shm /run/m/shm"
        );
        let variables: Vec<_> = command.get_envs().map(|(name, _)| name.to_owned()).collect();
        for variable in ["CUDA_MPS_PIPE_DIRECTORY", "CUDA_VISIBLE_DEVICES"] {
            assert!(variables.iter().any(|name| name == variable), "{variable}: {variables:?}");
        }
        let all = command.get_envs().filter_map(|(_, value)| value).map(|it| it.to_string_lossy());
        assert!(all.into_iter().all(|value| !value.contains("/run/nvidia/driver/usr/lib64")));
    }

    #[test]
    fn the_daemon_finds_its_server_and_libraries_below_the_driver_root() {
        let command = launcher().command(&site(), &DaemonSettings::default(), Stay::Long);
        let variable = |name: &str| {
            let mut all = command.get_envs();
            let found = all.find(|(key, _)| *key == name).and_then(|(_, value)| value);
            found.map(|value| value.to_string_lossy().into_owned()).unwrap_or_default()
        };
        assert!(variable("PATH").starts_with("/run/nvidia/driver/usr/bin:"));
        assert!(variable("PATH").ends_with(HOST_PATH));
        assert!(variable("LD_LIBRARY_PATH").starts_with("/run/nvidia/driver/usr/lib64"));
    }
}
