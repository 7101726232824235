//! All MPS daemons and servers of this host, whoever started them.
//!
//! They are told by their program, and by what they were started with. A process that can't be
//! looked into isn't counted: with the privileges of a supervisor that doesn't happen.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::pid::Pid;
use crate::procfs::Proc;

/// The control program, daemon and front-end in one.
pub const CONTROL: &str = "nvidia-cuda-mps-control";

/// The program that holds the card for a daemon's clients.
pub const SERVER: &str = "nvidia-cuda-mps-server";

/// Where a daemon is that was told no directory (facts/mps.md 1.1).
pub const DEFAULT_PIPE: &str = "/tmp/nvidia-mps";

/// A daemon or server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MpsProcess {
    /// Who.
    pub pid: Pid,
    /// What it is.
    pub part: Part,
    /// Its pipe directory.
    pub pipe: PathBuf,
    /// `CUDA_VISIBLE_DEVICES` as it was started with.
    pub devices: Option<String>,
}

/// What an MPS process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// A control daemon.
    Daemon,
    /// A server.
    Server,
}

impl MpsProcess {
    /// Whether its pipe directory is another one than what lies at that path here: it belongs to
    /// another mount namespace, and none of its files can be seen from here. A directory that
    /// was removed is nobody else's.
    pub fn is_elsewhere(&self, proc: &Proc) -> bool {
        let there = identity(&self.pipe_in_view_of(self.pid, proc));
        there.is_some() && there != identity(&self.pipe)
    }

    /// Whether only its own container can reach it: the host has another directory at that path, or
    /// none. `false` where that can't be seen.
    pub fn is_private(&self, proc: &Proc) -> bool {
        let can_look = |pid| root_of(pid, proc).metadata().is_ok();
        let host = Pid::HOST_INIT;
        let there = identity(&self.pipe_in_view_of(self.pid, proc));
        let is_hosts = there.is_some() && there == identity(&self.pipe_in_view_of(host, proc));
        can_look(self.pid) && can_look(host) && !is_hosts
    }

    fn pipe_in_view_of(&self, pid: Pid, proc: &Proc) -> PathBuf {
        root_of(pid, proc).join(self.pipe.strip_prefix("/").unwrap_or(&self.pipe))
    }
}

/// The root directory of a process.
fn root_of(pid: Pid, proc: &Proc) -> PathBuf {
    proc.root().join(pid.to_string()).join("root")
}

/// What tells a directory from all others; `None` where there is none.
fn identity(path: &Path) -> Option<(u64, u64)> {
    path.metadata().ok().map(|meta| (meta.dev(), meta.ino()))
}

/// Counts them, in the order of their ids.
pub fn mps_processes(proc: &Proc) -> io::Result<Vec<MpsProcess>> {
    let mut found: Vec<_> = proc.pids()?.into_iter().filter_map(|pid| look(proc, pid)).collect();
    found.sort();
    Ok(found)
}

fn look(proc: &Proc, pid: Pid) -> Option<MpsProcess> {
    let program = proc.program(pid).ok()??;
    let part = match program.to_str()? {
        SERVER => Part::Server,
        CONTROL if is_daemon(&proc.arguments(pid).ok()??) => Part::Daemon,
        _ => return None,
    };
    // A zombie has no environment, and nothing of it matters any more.
    proc.identify(pid).ok()??;
    let environment = proc.environment(pid).ok()??;
    let pipe = environment.get("CUDA_MPS_PIPE_DIRECTORY");
    let devices = environment.get("CUDA_VISIBLE_DEVICES");
    Some(MpsProcess {
        pid,
        part,
        pipe: pipe.map_or_else(|| PathBuf::from(DEFAULT_PIPE), PathBuf::from),
        devices: devices.and_then(|devices| devices.into_string().ok()),
    })
}

/// The same program with any other words is a front-end (facts/mps.md 1.3).
fn is_daemon(arguments: &[String]) -> bool {
    arguments.iter().skip(1).any(|word| word == "-d" || word == "-f")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    struct Machine(tempfile::TempDir);

    impl Machine {
        fn process(&self, pid: i32, program: &str, arguments: &str, environment: &str) {
            let dir = self.0.path().join(pid.to_string());
            fs::create_dir(&dir).unwrap();
            symlink(format!("/usr/bin/{program}"), dir.join("exe")).unwrap();
            fs::write(dir.join("cmdline"), arguments).unwrap();
            fs::write(dir.join("environ"), environment).unwrap();
            let rest = "S 1 1 1 0 -1 0 1 0 0 0 0 0 0 0 20 0 1 0 4711 0 0";
            fs::write(dir.join("stat"), format!("{pid} (x) {rest}")).unwrap();
        }
    }

    #[test]
    fn a_directory_that_is_another_one_in_the_process_s_view_is_elsewhere() {
        let machine = Machine(tempfile::tempdir().unwrap());
        let here = tempfile::tempdir().unwrap();
        let pipe = here.path().join("pipe");
        let environment = format!("CUDA_MPS_PIPE_DIRECTORY={}\0", pipe.display());
        machine.process(10, SERVER, "nvidia-cuda-mps-server\0", &environment);
        let proc = Proc::new(machine.0.path());
        let is_elsewhere = || mps_processes(&proc).unwrap()[0].is_elsewhere(&proc);
        assert!(!is_elsewhere(), "removed for both");
        let root = machine.0.path().join("10/root");
        fs::create_dir_all(root.join(pipe.strip_prefix("/").unwrap())).unwrap();
        assert!(is_elsewhere());
        fs::create_dir(&pipe).unwrap();
        assert!(is_elsewhere());
        fs::remove_dir_all(&root).unwrap();
        symlink("/", &root).unwrap();
        assert!(!is_elsewhere());
    }

    #[test]
    fn a_daemon_is_private_where_the_host_has_another_directory_at_its_path_or_none() {
        let machine = Machine(tempfile::tempdir().unwrap());
        machine.process(1, "init", "init\0", "");
        let environment = "CUDA_MPS_PIPE_DIRECTORY=/m/pipe\0";
        machine.process(10, CONTROL, "nvidia-cuda-mps-control\0-d\0", environment);
        let proc = Proc::new(machine.0.path());
        let is_private = || mps_processes(&proc).unwrap()[0].is_private(&proc);
        let root = |pid: &str| machine.0.path().join(pid).join("root");
        fs::create_dir_all(root("10").join("m/pipe")).unwrap();
        assert!(!is_private(), "the host can't be looked at");
        fs::create_dir(root("1")).unwrap();
        assert!(is_private(), "the host has none");
        fs::create_dir_all(root("1").join("m/pipe")).unwrap();
        assert!(is_private(), "the host has another one");
        fs::remove_dir_all(root("10")).unwrap();
        symlink(root("1"), root("10")).unwrap();
        assert!(!is_private(), "it is the host's");
        fs::remove_dir(root("1").join("m/pipe")).unwrap();
        assert!(is_private(), "nobody can reach it any more");
    }

    #[test]
    fn daemons_and_servers_are_counted_and_front_ends_are_not() {
        let machine = Machine(tempfile::tempdir().unwrap());
        machine.process(10, CONTROL, "nvidia-cuda-mps-control\0-d\0", "A=1\0");
        let ours = "CUDA_MPS_PIPE_DIRECTORY=/run/m/pipe\0CUDA_VISIBLE_DEVICES=GPU-ab\0";
        machine.process(11, SERVER, "nvidia-cuda-mps-server\0", ours);
        machine.process(12, CONTROL, "nvidia-cuda-mps-control\0", ours);
        machine.process(13, "sleep", "sleep\0-d\0", ours);
        let found = mps_processes(&Proc::new(machine.0.path())).unwrap();
        let told: Vec<_> = found
            .iter()
            .map(|it| (it.pid.get(), it.part, it.pipe.to_str().unwrap(), it.devices.as_deref()))
            .collect();
        assert_eq!(
            told,
            [
                (10, Part::Daemon, "/tmp/nvidia-mps", None),
                (11, Part::Server, "/run/m/pipe", Some("GPU-ab")),
            ]
        );
    }
}
