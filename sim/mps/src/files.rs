//! The files of a running control daemon: what is made in which order, with which mode, and which
//! of them go at the end (facts/mps.md 1.1, 4.3).

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use mpshare_sim_state::mps::DEFAULT_PIPE_DIR;
use mpshare_sim_state::wire;
use rustix::fs::{CWD, FileType, FlockOperation, Mode, OFlags};
use thiserror::Error;

use crate::cli::Foreground;
use crate::log::Sink;
use crate::profile::Profile;

/// `$DIR/control_privileged` must fit an address (facts/mps.md 1.1).
const LONGEST_PIPE_DIR: usize = 87;

/// Why a daemon didn't start. The texts are the real program's.
#[derive(Debug, Error)]
pub(crate) enum StartError {
    /// The parent of the pipe directory is missing, or the directory isn't writable.
    #[error("Cannot access CUDA_MPS_PIPE_DIRECTORY={}", .0.display())]
    PipeDir(PathBuf),
    /// Somebody holds `control_lock`.
    #[error("An instance of this daemon is already running")]
    AlreadyRunning,
    /// The sockets couldn't be made. The real program says nothing.
    #[error("")]
    Sockets,
}

/// The directories that the environment names.
#[derive(Debug, Clone)]
pub(crate) struct Dirs {
    pub(crate) pipe: PathBuf,
    pub(crate) log: PathBuf,
}

impl Dirs {
    pub(crate) fn from_env() -> Self {
        let variable = |name, default: &str| {
            let value = std::env::var_os(name).filter(|value| !value.is_empty());
            value.map_or_else(|| default.into(), PathBuf::from)
        };
        Self {
            pipe: variable("CUDA_MPS_PIPE_DIRECTORY", DEFAULT_PIPE_DIR),
            log: variable("CUDA_MPS_LOG_DIRECTORY", "/var/log/nvidia-mps"),
        }
    }

    fn in_pipe(&self, name: &str) -> PathBuf {
        self.pipe.join(name)
    }

    /// Written since 550.
    pub(crate) fn pid_file(&self) -> PathBuf {
        self.in_pipe("nvidia-cuda-mps-control.pid")
    }

    /// Servers write their lines here.
    pub(crate) fn log_fifo(&self) -> PathBuf {
        self.in_pipe("log")
    }

    /// Clients, servers and the front-end connect here.
    pub(crate) fn control(&self) -> PathBuf {
        self.in_pipe("control")
    }
}

/// Everything that a daemon holds open. Dropping it removes nothing: `control`,
/// `control_privileged` and `control_lock` stay for ever.
#[derive(Debug)]
pub(crate) struct OpenFiles {
    /// Holds the write lock until the process ends; opened before the sockets, so that the lock is
    /// free when a front-end sees its connection end.
    _lock: File,
    pub(crate) control: OwnedFd,
    pub(crate) privileged: OwnedFd,
    /// Open for reading and writing, so that it never ends when a server goes.
    pub(crate) fifo: Option<File>,
    pub(crate) control_log: Sink,
    pub(crate) server_log: Sink,
    /// What the starter says about the logs.
    pub(crate) warning: Option<String>,
}

/// Makes the files and begins to listen.
pub(crate) fn open(
    dirs: &Dirs,
    profile: Profile,
    foreground: Foreground,
) -> Result<OpenFiles, StartError> {
    let no_pipe_dir = |_| StartError::PipeDir(dirs.pipe.clone());
    if !dirs.pipe.is_dir() {
        fs::create_dir(&dirs.pipe).map_err(no_pipe_dir)?;
    }
    let (control_log, server_log, warning) = open_logs(dirs, foreground);
    let lock = open_shared(&dirs.in_pipe("control_lock")).map_err(no_pipe_dir)?;
    rustix::fs::fcntl_lock(&lock, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| StartError::AlreadyRunning)?;
    let fifo = if warning.is_some() {
        None
    } else {
        Some(open_fifo(&dirs.log_fifo()).map_err(no_pipe_dir)?)
    };
    if dirs.pipe.as_os_str().as_bytes().len() > LONGEST_PIPE_DIR {
        return Err(StartError::Sockets);
    }
    let listener = |path: &Path, mode| listen(path, mode).map_err(|_| StartError::Sockets);
    let control = listener(&dirs.control(), 0o666)?;
    let privileged = listener(&dirs.in_pipe("control_privileged"), 0o755)?;
    if profile.writes_pid_file() {
        // Not truncated: a stale longer number keeps its tail (facts/mps.md 6.3).
        open_shared(&dirs.pid_file())
            .and_then(|mut file| file.write_all(std::process::id().to_string().as_bytes()))
            .map_err(no_pipe_dir)?;
    }
    Ok(OpenFiles { _lock: lock, control, privileged, fifo, control_log, server_log, warning })
}

/// The two log files, or standard output, or nothing with a warning.
fn open_logs(dirs: &Dirs, foreground: Foreground) -> (Sink, Sink, Option<String>) {
    if foreground == Foreground::Yes {
        return (Sink::Stdout, Sink::Stdout, None);
    }
    let open = |name| append(&dirs.log.join(name)).map(|file| Sink::File(Mutex::new(file)));
    let both =
        make_log_dir(&dirs.log).and_then(|()| Ok((open("control.log")?, open("server.log")?)));
    if let Ok((control, server)) = both {
        return (control, server, None);
    }
    let dir = dirs.log.display();
    let warning = format!(
        "Warning: Failed writing log files to directory [{dir}]. No logs will be available."
    );
    (Sink::Nowhere, Sink::Nowhere, Some(warning))
}

fn make_log_dir(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    fs::DirBuilder::new().mode(0o700).create(dir)
}

fn append(path: &Path) -> io::Result<File> {
    File::options().create(true).append(true).mode(0o644).open(path)
}

/// Opens a file that everybody may write, as it is.
fn open_shared(path: &Path) -> io::Result<File> {
    let file = File::options().create(true).read(true).write(true).truncate(false).open(path)?;
    file.set_permissions(fs::Permissions::from_mode(0o666))?;
    Ok(file)
}

fn open_fifo(path: &Path) -> io::Result<File> {
    if !path.exists() {
        rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o777), 0)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o777))?;
    }
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

fn listen(path: &Path, mode: u32) -> io::Result<OwnedFd> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let socket = wire::unbound()?;
    rustix::net::bind(&socket, &rustix::net::SocketAddrUnix::new(path)?)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    rustix::net::listen(&socket, 128)?;
    Ok(socket)
}
