//! The product's processes on a simulated node: started, killed and started again, each with a log
//! file that goes on over its restarts.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// A process of the product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// `mpshare mps-control-daemon`.
    Supervisor,
    /// `mpshare device-plugin`.
    DevicePlugin,
    /// `mpshare config-manager`.
    ConfigManager,
    /// `mpshare-scheduler-extender`, which isn't part of a node.
    SchedulerExtender,
}

impl Role {
    /// The three of a node.
    pub const ALL: [Self; 3] = [Self::ConfigManager, Self::Supervisor, Self::DevicePlugin];

    /// The subcommand or its like, which also names the log file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Supervisor => "mps-control-daemon",
            Self::DevicePlugin => "device-plugin",
            Self::ConfigManager => "config-manager",
            Self::SchedulerExtender => "scheduler-extender",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A running process of a role; killed when it is dropped.
#[derive(Debug)]
pub(super) struct RoleProcess {
    child: Child,
}

impl RoleProcess {
    pub(super) fn start(mut command: Command, log: &Path) -> io::Result<Self> {
        let log = File::options().create(true).append(true).open(log)?;
        let child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
        Ok(Self { child })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal and reaps the process.
    pub(super) fn end(mut self, signal: Signal) -> io::Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid
            && let Err(error) = kill_process(pid, signal)
        {
            tracing::debug!(%error, "process has ended already");
        }
        self.child.wait().map(drop)
    }

    /// Whether it has ended by itself.
    pub(super) fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }
}

impl Drop for RoleProcess {
    fn drop(&mut self) {
        // Both fail only when it is gone already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
