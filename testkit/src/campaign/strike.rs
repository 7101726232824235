//! Faults of a moment, done to the node.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use mpshare_sim_state as sim;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;

use super::Campaign;
use super::action::{Damage, File, Load, Strike, Xid};
use super::loads::CONTAINER;
use super::scene::{daemon_of, directory_of, server_of, signal};
use crate::fakekube::WatchEnd;
use crate::simnode::{Role, SimNode};

/// `CUDA_ERROR_ILLEGAL_ADDRESS`.
const ILLEGAL_ADDRESS: i32 = 700;

/// How long a tenant waits to be heard.
const SAID_WITHIN: Duration = Duration::from_secs(2);

/// How long a role may take to end when it is told to.
const ENDS_WITHIN: Duration = Duration::from_secs(20);

impl Campaign {
    /// Strikes; `false` where there was nothing to hit.
    pub(super) async fn strike(&mut self, strike: &Strike) -> Result<bool> {
        if let Some(card) = strike.hurts() {
            let uuid = self.card(card)?;
            self.harm.strike(uuid);
        }
        match strike {
            Strike::Kill(role) => {
                self.node.end_role(*role, Signal::KILL)?;
                self.node.start_role(*role)?;
            }
            Strike::Terminate { roles } => self.terminate(roles).await?,
            Strike::KillDaemon { card } => {
                return Ok(kill(daemon_of(&self.node, self.card(*card)?)));
            }
            Strike::KillServer { card } => {
                return Ok(kill(server_of(&self.node, self.card(*card)?)?));
            }
            Strike::FaultServer { card } => return self.fault_server(*card),
            Strike::FaultClient => return self.fault_client(),
            Strike::TenantSetsLimits { card } => {
                let commands = "set_default_device_pinned_mem_limit 0 900G\n\
                                set_default_active_thread_percentage 77\n";
                let Some(mut child) = self.tenant_says(*card, commands)? else { return Ok(false) };
                // Somebody else's session may be open, or the daemon stopped: then nothing is heard of it.
                let until = std::time::Instant::now() + SAID_WITHIN;
                while child.try_wait()?.is_none() && std::time::Instant::now() < until {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                child.kill()?;
                child.wait()?;
            }
            Strike::Raise { card, xid } => raise(&self.node, *card, *xid)?,
            Strike::Damage { file, how } => damage(&self.node, *file, *how)?,
            Strike::StaleFiles { card } => {
                let Some(directory) = directory_of(&self.node, self.card(*card)?) else {
                    return Ok(false);
                };
                std::fs::write(directory.join("pipe/nvidia-cuda-mps-control.pid"), "1")?;
                std::fs::write(directory.join("pipe/stale"), "left by somebody")?;
            }
            Strike::FailRequests { count, code } => {
                self.node.kube().faults().fail_next(*count, *code);
            }
            Strike::CloseWatches => self.node.kube().end_watches(WatchEnd::Closed),
            Strike::BreakWatches => self.node.kube().end_watches(WatchEnd::Broken),
            Strike::CompactHistory => self.node.kube().compact_history(),
            Strike::RestartKubelet => self.node.kubelet().restart().await?,
        }
        Ok(true)
    }

    /// Tells several at once to end, and starts them again.
    async fn terminate(&mut self, roles: &[Role]) -> Result<()> {
        for role in roles {
            let pid = self.node.role_pid(*role).context("a role doesn't run")?;
            let pid = i32::try_from(pid)?;
            signal(pid, Signal::TERM);
            // It may be stopped.
            signal(pid, Signal::CONT);
        }
        let until = std::time::Instant::now() + ENDS_WITHIN;
        while !roles.iter().all(|role| self.node.ended_roles().contains(role)) {
            let alive = std::time::Instant::now() < until;
            ensure!(alive, "of {roles:?} not all ended {ENDS_WITHIN:?} after SIGTERM");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for role in roles {
            self.node.end_role(*role, Signal::KILL)?;
            self.node.start_role(*role)?;
        }
        Ok(())
    }

    /// As a fatal fault of a client leaves its server.
    fn fault_server(&self, card: usize) -> Result<bool> {
        let uuid = self.card(card)?;
        let Some(server) = server_of(&self.node, uuid)? else { return Ok(false) };
        sim::mps::raise_fault(self.node.store(), server, uuid, ILLEGAL_ADDRESS)?;
        Ok(true)
    }

    /// Lets a pod make its fault, unless it is on the spared card.
    fn fault_client(&mut self) -> Result<bool> {
        let spared = self.card(self.spared)?;
        let ready = self.loads.pods.iter().position(|tracked| {
            let ids = tracked.pod.devices(CONTAINER, self.cut.resource());
            tracked.load == Load::Faulting
                && !tracked.pod.status().pids().is_empty()
                && ids.iter().all(|id| !id.starts_with(spared))
        });
        let Some(at) = ready else { return Ok(false) };
        let tracked = self.loads.pods.swap_remove(at);
        let ids = tracked.pod.devices(CONTAINER, self.cut.resource());
        let card = ids.first().and_then(|id| id.split("::").next());
        let Some((card, pid)) = card.zip(tracked.pod.status().pids().into_values().next()) else {
            return Ok(false);
        };
        self.harm.strike(card);
        let told = std::fs::write(format!("/proc/{pid}/cwd/go"), "");
        self.loads.pods.push(tracked);
        Ok(told.is_ok())
    }
}

fn kill(pid: Option<i32>) -> bool {
    pid.map(|pid| signal(pid, Signal::KILL)).is_some()
}

fn raise(node: &SimNode, card: usize, xid: Xid) -> Result<()> {
    let xid = if xid == Xid::Critical { 79 } else { 31 };
    node.store().update(|state| {
        state.sequence += 1;
        let sequence = state.sequence;
        if let Some(gpu) = state.gpus.get_mut(card) {
            gpu.xids.push(sim::Xid { sequence, xid });
        }
    })?;
    Ok(())
}

/// Puts something else in a file's place.
fn damage(node: &SimNode, file: File, how: Damage) -> Result<()> {
    let path = node.mps_root().path().join(file.name());
    // Renamed into its place, because the writer may be quick to repair it.
    let odd = node.mps_root().path().join("odd");
    clear(&odd)?;
    match how {
        Damage::Garbage => std::fs::write(&odd, "\u{0}{]\u{7}")?,
        Damage::Empty => std::fs::write(&odd, "")?,
        Damage::Huge => std::fs::write(&odd, vec![b' '; 2 << 20])?,
        Damage::Fifo => mknodat(CWD, &odd, FileType::Fifo, Mode::from_raw_mode(0o644), 0)?,
        Damage::Endless => std::os::unix::fs::symlink("/dev/zero", &odd)?,
        Damage::Nowhere => std::os::unix::fs::symlink("/nonexistent/file", &odd)?,
        Damage::Version => std::fs::write(&odd, "{\"version\": 77}")?,
        Damage::Gone => return clear(&path),
    }
    std::fs::rename(&odd, &path).with_context(|| format!("damaging `{}`", path.display()))
}

/// Removes whatever is at `path`.
pub(super) fn clear(path: &Path) -> Result<()> {
    let removed = match std::fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(_) => return Ok(()),
    };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}
