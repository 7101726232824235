//! What every check works with: the card, the driver, a directory, and daemons that end with the
//! values that stand for them.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use mpshare_core::{Gpu, Memory, ThreadPercent, VersionProfile};
use mpshare_mps::{
    ControlDaemon as _, DaemonLimits, DaemonSettings, DaemonSite, Launcher as _, OwnSession, Pid,
    PinnedLimit, PipeDirectory, ProcessDaemon, ServerStatus,
};
use mpshare_nvml::{ComputeMode, GpuInventory as _, NvmlInventory};
use serde_json::{Map, Value};

use crate::cgroups::Cgroups;
use crate::clients::Client;

/// For how long a card may take until its server serves.
pub(crate) const SERVING: Duration = Duration::from_mins(1);

/// For how long anything else may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// See the module.
pub(crate) struct Rig {
    /// The directory of the run.
    pub(crate) root: PathBuf,
    /// The driver.
    pub(crate) nvml: NvmlInventory,
    /// The card that is tried.
    pub(crate) gpu: Gpu,
    /// Another card that nobody uses, where there is one.
    pub(crate) second: Option<Gpu>,
    /// What the driver's MPS can do.
    pub(crate) profile: VersionProfile,
    /// The compute mode that was found; `None` where cards have none.
    pub(crate) mode: Option<ComputeMode>,
    /// Pods, as far as a supervisor sees them.
    pub(crate) cgroups: Cgroups,
    /// The product's program.
    pub(crate) mpshare: PathBuf,
    /// Counts daemons, whose directories must differ.
    pub(crate) daemons: AtomicU32,
}

impl Rig {
    /// Memory for one client that is a part of any card and not a whole GiB of it.
    pub(crate) fn modest(&self) -> u64 {
        (self.gpu.memory.mib() / 4).min(4096)
    }

    /// A daemon of the card in a directory of its own; it isn't started.
    pub(crate) fn daemon(&self, gpu: &Gpu) -> Result<Daemon> {
        let number = self.daemons.fetch_add(1, Ordering::Relaxed);
        let directory = self.root.join(format!("d{number}"));
        fs::create_dir(&directory)?;
        let site = DaemonSite {
            gpu: gpu.uuid.clone(),
            pipe: PipeDirectory::new(directory.join("pipe"))?,
            log: directory.join("log"),
            shm: directory.join("shm"),
        };
        let launcher = Arc::new(OwnSession::default());
        let inner = ProcessDaemon::new(site, launcher, self.profile);
        Ok(Daemon { inner, profile: self.profile })
    }

    /// A daemon with a server that serves.
    pub(crate) fn serving(&self, limits: DaemonLimits) -> Result<Daemon> {
        self.serving_on(&self.gpu, limits)
    }

    /// The same on another card.
    pub(crate) fn serving_on(&self, gpu: &Gpu, limits: DaemonLimits) -> Result<Daemon> {
        let daemon = self.daemon(gpu)?;
        daemon.start(limits)?;
        daemon.start_server()?;
        daemon.server()?;
        Ok(daemon)
    }

    /// A client past MPS on the card.
    pub(crate) fn stray(&self) -> Result<Client> {
        let nowhere = self.root.join("nobody-listens-here").display().to_string();
        Client::start(&[
            ("CUDA_MPS_PIPE_DIRECTORY", &nowhere),
            ("CUDA_VISIBLE_DEVICES", self.gpu.uuid.as_str()),
        ])
    }

    /// The memory that the driver counts for an MPS client.
    pub(crate) fn charged(&self, client: Pid) -> Result<Option<u64>> {
        let found = self.nvml.mps_processes(&self.gpu.uuid)?;
        let mine = found.iter().find(|process| process.pid == client.get());
        Ok(mine.and_then(|process| process.memory).map(Memory::mib))
    }

    /// Sets the compute mode; it goes back to what it was when the value is dropped.
    pub(crate) fn with_mode(&self, mode: ComputeMode) -> Result<ModeGuard<'_>> {
        let guard = ModeGuard(self);
        self.nvml.set_compute_mode(&self.gpu.uuid, mode)?;
        Ok(guard)
    }

    /// Puts the compute mode back.
    pub(crate) fn restore_mode(&self) -> Result<()> {
        if let Some(mode) = self.mode {
            self.nvml.set_compute_mode(&self.gpu.uuid, mode)?;
        }
        Ok(())
    }
}

/// Puts the compute mode back when it is dropped.
pub(crate) struct ModeGuard<'a>(&'a Rig);

impl Drop for ModeGuard<'_> {
    fn drop(&mut self) {
        // The keeper tries once more, and says so when it can't.
        drop(self.0.restore_mode());
    }
}

/// A daemon that ends with the value.
pub(crate) struct Daemon {
    inner: ProcessDaemon,
    profile: VersionProfile,
}

impl std::ops::Deref for Daemon {
    type Target = ProcessDaemon;

    fn deref(&self) -> &ProcessDaemon {
        &self.inner
    }
}

impl Daemon {
    /// Its pipe directory.
    pub(crate) fn pipe(&self) -> &Path {
        self.site().pipe.path()
    }

    /// The control program with this daemon's environment: a front-end, or with arguments a daemon.
    pub(crate) fn program(&self) -> Command {
        let protocol = (self.profile >= VersionProfile::R615).then_some(2);
        let settings = DaemonSettings { protocol, ..DaemonSettings::default() };
        OwnSession::default().front_end(self.site(), &settings)
    }

    /// The one server, once it serves.
    pub(crate) fn server(&self) -> Result<Pid> {
        let serves = |status: Option<&ServerStatus>| {
            status.is_none_or(|status| *status == ServerStatus::Active)
        };
        until("a server that serves", SERVING, || {
            let found = self.servers()?.into_iter().find(|it| serves(it.status.as_ref()));
            Ok(found.map(|server| server.pid))
        })
    }

    /// A client that has no context yet.
    pub(crate) fn client(&self, variables: &[(&str, &str)]) -> Result<Client> {
        let pipe = self.pipe().display().to_string();
        let mut all = vec![("CUDA_MPS_PIPE_DIRECTORY", pipe.as_str())];
        all.extend_from_slice(variables);
        Client::start(&all)
    }

    /// A client with a context.
    pub(crate) fn open_client(&self, variables: &[(&str, &str)]) -> Result<Client> {
        let mut client = self.client(variables)?;
        client.ask(&crate::protocol::Request::Open)?;
        Ok(client)
    }

    /// Whether it has written this into its log, or its servers into theirs.
    pub(crate) fn logs(&self) -> String {
        let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
        read(self.site().control_log()) + &read(self.site().server_log())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.quit(Duration::from_secs(2)).is_err() {
            // What is still there then, the look after the check finds.
            drop(self.kill());
        }
    }
}

/// Limits of a client without limits of its own.
pub(crate) fn limits(mib: u64, tenths: u32) -> Result<DaemonLimits> {
    let memory = PinnedLimit::new(Memory::from_mib(mib))?;
    Ok(DaemonLimits { memory, percent: ThreadPercent::from_tenths(tenths)? })
}

/// Waits for what `look` finds.
pub(crate) fn until<T>(
    what: &str,
    patience: Duration,
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let end = Instant::now() + patience;
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if Instant::now() > end {
            bail!("not within {patience:?}: {what}");
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// A number out of what a client tells.
pub(crate) fn number(told: &Value, name: &str) -> Result<u64> {
    told.get(name).and_then(Value::as_u64).with_context(|| format!("no `{name}` in {told}"))
}

/// Milliseconds since then.
pub(crate) fn ms_since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// Fails unless both are equal.
pub(crate) fn same<T: PartialEq + fmt::Debug>(what: &str, found: &T, wanted: &T) -> Result<()> {
    ensure!(found == wanted, "{what}: {found:?}, not {wanted:?}");
    Ok(())
}

/// What a check measures; kept also when it fails.
#[derive(Debug, Clone, Default)]
pub(crate) struct Measured(Arc<Mutex<Map<String, Value>>>);

impl Measured {
    /// Notes a number or a word.
    pub(crate) fn note(&self, name: &str, value: impl Into<Value>) {
        let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        map.insert(name.to_owned(), value.into());
    }

    /// All that was noted.
    pub(crate) fn all(&self) -> Map<String, Value> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
