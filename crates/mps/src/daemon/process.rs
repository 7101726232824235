//! The real control daemon: a process, its directory, and its front-end.

use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use mpshare_core::{DriverVersion, VersionProfile};

use super::{Adopted, ControlDaemon, Patience, Server};
use crate::canary::Depth;
use crate::commands;
use crate::error::{DaemonError, DaemonFault};
use crate::launch::{DRIVER, DaemonSettings, Launcher, Users};
use crate::limits::{DaemonLimits, Defaults};
use crate::lock::{Holder, holder};
use crate::pid::{Pid, ProcessId};
use crate::procfs::{Proc, ProcessHandle};
use crate::replies;
use crate::site::DaemonSite;

mod ask;
mod orphans;
mod quit;
mod start;

/// [`ControlDaemon`] as processes of this machine.
#[derive(Clone)]
pub struct ProcessDaemon {
    site: DaemonSite,
    launcher: Arc<dyn Launcher>,
    profile: VersionProfile,
    driver: Option<DriverVersion>,
    proc: Proc,
    patience: Patience,
}

impl ProcessDaemon {
    /// The daemon of `site`, whether it runs or not, of a driver with `profile`.
    pub fn new(site: DaemonSite, launcher: Arc<dyn Launcher>, profile: VersionProfile) -> Self {
        let (proc, patience) = (Proc::default(), Patience::default());
        Self { site, launcher, profile, driver: None, proc, patience }
    }

    /// What it starts carries the version of the driver, see [`Adopted::driver`].
    #[must_use]
    pub fn under_driver(self, driver: Option<&DriverVersion>) -> Self {
        Self { driver: driver.cloned(), ..self }
    }

    /// With other deadlines.
    #[must_use]
    pub fn with_patience(self, patience: Patience) -> Self {
        Self { patience, ..self }
    }

    fn settings(&self) -> DaemonSettings {
        let root = rustix::process::geteuid().is_root();
        DaemonSettings {
            percent: None,
            driver: self.driver.as_ref().map(ToString::to_string),
            users: if root && self.profile.has_multiuser_server() {
                Users::All
            } else {
                Users::One
            },
            // The programs know protocol 3 too, and an inherited variable would choose.
            protocol: (self.profile >= VersionProfile::R615).then_some(2),
        }
    }

    fn error(&self, fault: DaemonFault) -> DaemonError {
        DaemonError::new(&self.site, fault)
    }

    fn file_error(&self, action: &'static str, path: &Path, source: io::Error) -> DaemonError {
        let path = path.to_owned();
        self.error(DaemonFault::File { action, path, source })
    }

    fn process_error(&self, action: &'static str, pid: Pid) -> impl Fn(io::Error) -> DaemonError {
        move |source| self.error(DaemonFault::Process { action, pid, source })
    }

    /// The live daemon, if it is ours; somebody else's is an error.
    fn ours(&self) -> Result<Option<ProcessHandle>, DaemonError> {
        let Some(id) = self.holder()? else {
            return Ok(None);
        };
        let failed = self.process_error("looking at", id.pid);
        let Some(handle) = ProcessHandle::open_exact(&self.proc, id).map_err(&failed)? else {
            return Ok(None);
        };
        let Some(environment) = self.proc.environment(id.pid).map_err(&failed)? else {
            return Ok(None);
        };
        for (variable, wanted) in [
            ("CUDA_VISIBLE_DEVICES", self.site.gpu.as_str().as_ref()),
            ("CUDA_MPS_PIPE_DIRECTORY", self.site.pipe.path().as_os_str()),
        ] {
            let found = environment.get(variable);
            if found.as_deref() != Some(wanted) {
                return Err(self.error(DaemonFault::Foreign {
                    pid: id.pid,
                    variable,
                    found: found
                        .map_or("not set".to_owned(), |value| format!("`{}`", value.display())),
                    wanted: wanted.display().to_string(),
                }));
            }
        }
        Ok(Some(handle))
    }
}

impl ControlDaemon for ProcessDaemon {
    fn site(&self) -> &DaemonSite {
        &self.site
    }

    fn holder(&self) -> Result<Option<ProcessId>, DaemonError> {
        let path = self.site.pipe.lock_file();
        match holder(&path).map_err(|error| self.file_error("reading", &path, error))? {
            Holder::Nobody => Ok(None),
            Holder::OtherPidNamespace => Err(self
                .error(DaemonFault::OtherPidNamespace { what: "the process that holds the lock" })),
            Holder::Process(pid) => {
                self.proc.identify(pid).map_err(self.process_error("looking at", pid))
            }
        }
    }

    fn adopt(&self) -> Result<Option<Adopted>, DaemonError> {
        let Some(handle) = self.ours()? else {
            return Ok(None);
        };
        let process = handle.id();
        let failed = self.process_error("looking at", process.pid);
        let environment = self.proc.environment(process.pid).map_err(failed)?;
        let driver = environment.and_then(|it| it.get(DRIVER)?.into_string().ok());
        Ok(Some(Adopted { process, defaults: self.defaults()?, driver }))
    }

    fn start(&self, limits: DaemonLimits) -> Result<ProcessId, DaemonError> {
        self.start_afresh(limits)
    }

    fn apply(&self, limits: DaemonLimits) -> Result<(), DaemonError> {
        let found = self.ask(&commands::set_defaults(limits), replies::applied)?;
        self.check(limits, found)
    }

    fn defaults(&self) -> Result<Defaults, DaemonError> {
        let command = "get_default_device_pinned_mem_limit 0".to_owned();
        self.ask(&[command], replies::defaults)
    }

    fn servers(&self) -> Result<Vec<Server>, DaemonError> {
        let list =
            self.ask(&["get_server_list".to_owned()], |lines, _| replies::server_list(lines))?;
        let mut servers = Vec::new();
        for pid in list {
            match self.status(pid) {
                Ok(status) => servers.push(Server { pid, status }),
                Err(error) if matches!(*error.fault, DaemonFault::NoSuchServer(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(servers)
    }

    fn apply_to_server(&self, server: Pid, limits: DaemonLimits) -> Result<(), DaemonError> {
        let commands = commands::set_of_server(server, limits);
        let found = self.ask(&commands, |lines, _| replies::server_limits(server, lines))?;
        self.check(limits, found)
    }

    fn clients(&self, server: Pid) -> Result<Vec<Pid>, DaemonError> {
        let list = format!("get_client_list {server}");
        if self.profile.has_server_status() {
            let status = format!("get_server_status {server}");
            self.ask(&[list, status], |lines, _| replies::client_list_and_status(server, lines))
        } else {
            self.ask(&[list], |lines, _| replies::client_list(server, lines))
        }
    }

    fn terminate_client(&self, server: Pid, client: Pid) -> Result<(), DaemonError> {
        let command = format!("terminate_client {server} {client}");
        let done = self.ask_within(self.patience.end, &[command], |lines, _| {
            replies::terminated(server, lines)
        })?;
        done.map_err(|reply| self.error(DaemonFault::NotTerminated { server, client, reply }))
    }

    fn start_server(&self) -> Result<(), DaemonError> {
        let uid = rustix::process::geteuid().as_raw();
        self.ask(&[format!("start_server -uid {uid}")], |lines, _| replies::silent(lines))
    }

    fn canary(&self, depth: Depth) -> Option<Command> {
        self.launcher.canary(&self.site, &self.settings(), depth)
    }

    fn kill_server(&self, server: Pid) -> Result<(), DaemonError> {
        let command = format!("shutdown_server {server} -f");
        self.ask(&[command], |lines, _| replies::shut_down(server, lines))
    }

    fn quit(&self, drain: Duration) -> Result<(), DaemonError> {
        self.quit_or_wait(drain)
    }

    fn kill(&self) -> Result<(), DaemonError> {
        if let Some(handle) = self.ours()? {
            self.kill_and_wait(&handle)?;
        }
        self.remove_orphans()?;
        Ok(())
    }

    fn remove_orphans(&self) -> Result<Vec<Pid>, DaemonError> {
        self.kill_orphans()
    }

    fn orphans(&self) -> Result<Vec<Pid>, DaemonError> {
        Ok(self.orphaned_servers()?.iter().map(|handle| handle.id().pid).collect())
    }

    fn lost(&self) -> Result<Vec<Pid>, DaemonError> {
        Ok(self.lost_daemons()?.iter().map(|handle| handle.id().pid).collect())
    }

    fn kill_lost(&self) -> Result<(), DaemonError> {
        for handle in self.lost_daemons()? {
            self.kill_and_wait(&handle)?;
        }
        self.kill_orphans().map(drop)
    }
}
