//! The plain way: a child in a session of its own, here and now.
//!
//! For standalone use and the demo, and for a supervisor that runs right on the host. `-d` makes
//! the daemon leave its parent; it stays in the starter's cgroup and mount namespace.

use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File, Permissions, set_permissions};
use std::io::{self, Read as _, Seek as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid as RawPid, PidfdFlags, pidfd_open, setsid};

use super::obstacle::{Obstacle, SEARCHED, is_executable, missing_program};
use super::{DRIVER, DaemonSettings, LaunchError, Launcher, Programs, Users};
use crate::canary::{CANARY, Depth};
use crate::census::CONTROL;
use crate::session::wait;
use crate::site::{DaemonSite, PipeDirectory};

/// Launches daemons as processes of this place, in their own session.
#[derive(Debug, Clone, Default)]
pub struct OwnSession {
    programs: Programs,
}

impl OwnSession {
    /// A launcher of these programs.
    pub const fn new(programs: Programs) -> Self {
        Self { programs }
    }

    fn program(&self) -> PathBuf {
        match &self.programs.directory {
            Some(directory) => directory.join(CONTROL),
            None => PathBuf::from(CONTROL),
        }
    }

    /// The program's whole path: to look for a name in a changed `PATH` the standard library forks this
    /// process, and copies its page tables, for each question to a daemon.
    fn command(&self, site: &DaemonSite, settings: &DaemonSettings) -> Command {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let [(_, directories), _] = searches(&self.programs, &path);
        let mut found = directories.iter().map(|directory| directory.join(CONTROL));
        let program = found.find(|program| is_executable(program));
        let mut command = Command::new(program.unwrap_or_else(|| self.program()));
        command.arg0(self.program());
        command.env_clear().envs(environment(std::env::vars_os(), &self.programs, site, settings));
        command
    }
}

impl Launcher for OwnSession {
    fn launch(
        &self,
        site: &DaemonSite,
        settings: &DaemonSettings,
        deadline: Duration,
    ) -> Result<(), LaunchError> {
        start(self.command(site, settings), &self.program(), site, settings, deadline)
    }

    fn front_end(&self, site: &DaemonSite, settings: &DaemonSettings) -> Command {
        self.command(site, settings)
    }

    fn canary(
        &self,
        site: &DaemonSite,
        settings: &DaemonSettings,
        depth: Depth,
    ) -> Option<Command> {
        canary(&self.programs, site, settings, depth)
    }

    fn obstacle(&self, _deadline: Duration) -> Option<Obstacle> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        missing_program(searches(&self.programs, &path))
    }
}

/// Where the programs are looked for: the control program in its directory, and the server, which
/// the daemon looks for, in `PATH` too (facts/mps.md 1.1).
pub(super) fn searches(programs: &Programs, path: &OsStr) -> [(&'static str, Vec<PathBuf>); 2] {
    let in_path = || std::env::split_paths(path).filter(|dir| !dir.as_os_str().is_empty());
    let directory = programs.directory.iter().cloned();
    SEARCHED.map(|program| {
        let alone = program == CONTROL && programs.directory.is_some();
        let rest = in_path().filter(|_| !alone);
        (program, directory.clone().chain(rest).collect())
    })
}

/// Runs the control program with `-d` and waits until it says that the daemon listens.
pub(super) fn start(
    mut command: Command,
    program: &Path,
    site: &DaemonSite,
    settings: &DaemonSettings,
    deadline: Duration,
) -> Result<(), LaunchError> {
    // Checked when the site was made; but the daemon's own answer would be silence.
    PipeDirectory::new(site.pipe.path())?;
    let program = program.to_owned();
    let spawn = |source| LaunchError::Spawn { program: program.clone(), source };
    make_shm(site).map_err(spawn)?;
    command.arg("-d").current_dir("/");
    if settings.users == Users::All {
        command.arg("-multiuser-server");
    }
    match run(command, deadline).map_err(spawn)? {
        Ended::With(status, _) if status.success() => Ok(()),
        Ended::With(status, message) => Err(LaunchError::Failed { program, status, message }),
        Ended::Killed => Err(LaunchError::TimedOut { program, waited: deadline }),
    }
}

pub(super) enum Ended {
    With(ExitStatus, String),
    Killed,
}

pub(super) fn run(mut command: Command, patience: Duration) -> io::Result<Ended> {
    // A file and not a pipe: the daemon may keep it, and then a pipe would never end, or break.
    let mut said = File::from(memfd_create("mps-launch", MemfdFlags::CLOEXEC)?);
    command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said.try_clone()?);
    own_session(&mut command);
    let mut child = command.spawn()?;
    let Some(status) = wait_for(&mut child, Instant::now() + patience)? else {
        child.kill()?;
        let _status = child.wait()?;
        return Ok(Ended::Killed);
    };
    let mut message = Vec::new();
    said.rewind()?;
    said.take(4096).read_to_end(&mut message)?;
    let message = String::from_utf8_lossy(&message).trim().to_owned();
    Ok(Ended::With(status, message))
}

/// So that no terminal and no signal to the starter's process group reaches the daemon.
#[expect(unsafe_code, reason = "the standard library has no other way to make a child's session")]
fn own_session(command: &mut Command) {
    let leave = || {
        setsid()?;
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes one system call and allocates nothing.
    unsafe { command.pre_exec(leave) };
}

fn wait_for(child: &mut Child, deadline: Instant) -> io::Result<Option<ExitStatus>> {
    let pid = i32::try_from(child.id()).ok().and_then(RawPid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("no process id"))?;
    let fd = pidfd_open(pid, PidfdFlags::empty())?;
    if !wait(&mut [PollFd::new(&fd, PollFlags::IN)], deadline)? {
        return Ok(None);
    }
    child.wait().map(Some)
}

/// What containers see as `/dev/shm`: a plain directory that everybody may write to.
fn make_shm(site: &DaemonSite) -> io::Result<()> {
    match DirBuilder::new().mode(0o1777).create(&site.shm) {
        Ok(()) => set_permissions(&site.shm, Permissions::from_mode(0o1777)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// The daemon's whole environment.
///
/// Much of it is inherited: NVIDIA's own plugin starts the daemon with an empty one, and then
/// servers don't find their library (facts/mps.md 6.15). What would change the daemon's or its
/// servers' behaviour is not.
pub(super) fn environment(
    inherited: impl Iterator<Item = (OsString, OsString)>,
    programs: &Programs,
    site: &DaemonSite,
    settings: &DaemonSettings,
) -> Vec<(OsString, OsString)> {
    let (mut path, mut libraries) = (OsString::new(), OsString::new());
    let mut variables = Vec::new();
    for (name, value) in inherited {
        match name.to_str() {
            Some("PATH") => path = value,
            Some("LD_LIBRARY_PATH") => libraries = value,
            Some("CUDA_VISIBLE_DEVICES" | "NVML_MPS_DEVICE_ENUMERATION") => {}
            Some(text) if text.starts_with("CUDA_MPS_") => {}
            Some(_) | None => variables.push((name, value)),
        }
    }
    // The daemon finds its server through PATH (facts/mps.md 1.1).
    let directories = programs.directory.iter();
    let mut set = |name: &str, value: OsString| variables.push((name.into(), value));
    set("PATH", prepended(directories.map(|dir| dir.as_os_str()), &path));
    let extra = programs.libraries.iter().map(|dir| dir.as_os_str());
    let libraries = prepended(extra, &libraries);
    if !libraries.is_empty() {
        set("LD_LIBRARY_PATH", libraries);
    }
    set("CUDA_VISIBLE_DEVICES", site.gpu.as_str().into());
    set("CUDA_MPS_PIPE_DIRECTORY", site.pipe.path().into());
    set("CUDA_MPS_LOG_DIRECTORY", site.log.clone().into());
    if let Some(percent) = settings.percent {
        set("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", percent.to_string().into());
    }
    if let Some(driver) = &settings.driver {
        set(DRIVER, driver.into());
    }
    if let Some(protocol) = settings.protocol {
        set("CUDA_MPS_PROTOCOL_VERSION", protocol.to_string().into());
    }
    variables
}

/// A client of ours, here and now.
pub(super) fn canary(
    programs: &Programs,
    site: &DaemonSite,
    settings: &DaemonSettings,
    depth: Depth,
) -> Option<Command> {
    let canary = programs.canary.as_ref()?;
    let mut command = Command::new(&canary.program);
    command.arg0(CANARY).args(&canary.arguments).arg("--depth").arg(depth.word());
    let variables = client_environment(std::env::vars_os(), programs, site, settings);
    command.env_clear().envs(variables);
    Some(command)
}

/// The environment of a client of ours: what leads the daemon to its place leads a client there.
/// It stands back behind others where the driver knows priorities. The program says by itself where
/// the driver's library is: it starts where that directory may be a driver container's, with a C
/// library of another version than its loader's.
fn client_environment(
    inherited: impl Iterator<Item = (OsString, OsString)>,
    programs: &Programs,
    site: &DaemonSite,
    settings: &DaemonSettings,
) -> Vec<(OsString, OsString)> {
    let programs = Programs { libraries: Vec::new(), ..programs.clone() };
    let mut variables = environment(inherited, &programs, site, settings);
    variables.retain(|(name, _)| name != "CUDA_MPS_LOG_DIRECTORY");
    variables.push(("CUDA_MPS_CLIENT_PRIORITY".into(), "1".into()));
    // More than a context takes (facts/mps.md 2), and little beside any share.
    variables.push(("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT".into(), "0=1024M".into()));
    variables
}

/// A search path with more directories in front.
fn prepended<'a>(directories: impl Iterator<Item = &'a OsStr>, path: &'a OsStr) -> OsString {
    let all: Vec<&OsStr> = directories.chain([path]).filter(|dir| !dir.is_empty()).collect();
    all.join(OsStr::new(":"))
}

#[cfg(test)]
mod tests;
