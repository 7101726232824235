//! Faults that last: begun, and ended some beats later.

use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;
use std::{fs, io};

use anyhow::{Context as _, Result};
use mpshare_sim_state::{Faults, Health};
use rustix::process::Signal;

use super::Campaign;
use super::action::{File, Lasting};
use super::scene::{daemon_of, directory_of, server_of, signal};
use super::strike::clear;
use crate::fakekube::{Effect, Matching, Times};

/// A fault that is under way.
pub(super) struct Running {
    pub fault: Lasting,
    /// The beat before which it ends.
    pub ends: usize,
    undo: Undo,
}

/// How a fault ends.
enum Undo {
    /// By a switch of the simulated driver or API server.
    Switch,
    /// The stopped process goes on.
    Continue(i32),
    /// The process ends.
    End(Child),
    /// What is in the way goes.
    Remove(PathBuf),
    /// The log comes back.
    Restore { log: PathBuf, aside: PathBuf },
}

impl Campaign {
    /// Begins a fault; `false` where there is nothing to hit, or one of its kind is under way.
    pub(super) async fn begin(&mut self, fault: Lasting, ends: usize) -> Result<bool> {
        let is_api = |fault: Lasting| fault.kind().starts_with("API");
        let is_under_way = |running: &Running| {
            running.fault.kind() == fault.kind() || is_api(running.fault) && is_api(fault)
        };
        if self.lasting.iter().any(is_under_way) {
            return Ok(false);
        }
        if let Some(card) = fault.hurts() {
            let uuid = self.card(card)?;
            self.harm.begin(uuid);
        }
        let undo = match fault {
            Lasting::CardLost { card } => self.health(card, Health::Lost)?,
            Lasting::ServerWedged { card } => {
                let server = server_of(&self.node, self.card(card)?)?;
                if let Some(server) = server {
                    self.node.store().update(|it| it.faults.wedged_servers.push(server))?;
                }
                server.map(|_| Undo::Switch)
            }
            Lasting::TenantQuits { card } => self.tenant_says(card, "quit\n")?.map(Undo::End),
            Lasting::DaemonStopped { card } => {
                self.stop(daemon_of(&self.node, self.card(card)?)).await?
            }
            Lasting::ServerStopped { card } => {
                self.stop(server_of(&self.node, self.card(card)?)?).await?
            }
            Lasting::RoleStopped(role) => {
                let pid = self.node.role_pid(role).and_then(|pid| i32::try_from(pid).ok());
                self.stop(pid).await?
            }
            Lasting::SessionOpen { card } => self.session(card)?,
            Lasting::ForeignDaemon { card } => self.foreign_daemon(card)?,
            Lasting::DiskFull(file) => Some(self.obstacle(file)?),
            Lasting::LogDiskFull { card } => self.full_log(card)?,
            Lasting::ApiAway | Lasting::ApiSlow { .. } | Lasting::ApiStale => {
                Some(self.disturb_api(fault))
            }
            _ => {
                self.node.store().update(|state| switch(&mut state.faults, fault, Switch::On))?;
                Some(Undo::Switch)
            }
        };
        let Some(undo) = undo else {
            self.end_harm(fault)?;
            return Ok(false);
        };
        self.lasting.push(Running { fault, ends, undo });
        Ok(true)
    }

    /// Ends the faults that end by this beat.
    pub(super) fn end_until(&mut self, beat: usize) -> Result<()> {
        let all = std::mem::take(&mut self.lasting);
        let (over, rest) = all.into_iter().partition(|running| running.ends <= beat);
        self.lasting = rest;
        for running in over {
            self.note(&format!("end of {:?}", running.fault));
            self.end(running)?;
        }
        Ok(())
    }

    fn end(&mut self, running: Running) -> Result<()> {
        let Running { fault, undo, .. } = running;
        match undo {
            Undo::Switch => match fault {
                Lasting::CardLost { card } => drop(self.health(card, Health::Ok)?),
                Lasting::ApiAway | Lasting::ApiSlow { .. } | Lasting::ApiStale => {
                    self.node.kube().faults().clear();
                }
                Lasting::ServerWedged { .. } => {
                    self.node.store().update(|state| state.faults.wedged_servers.clear())?;
                }
                _ => {
                    let store = self.node.store();
                    store.update(|state| switch(&mut state.faults, fault, Switch::Off))?;
                }
            },
            Undo::Continue(pid) => {
                // It may have been killed, and its number be somebody else's.
                if self.node.processes().contains(&pid) {
                    signal(pid, Signal::CONT);
                }
            }
            Undo::End(mut child) => {
                child.kill()?;
                child.wait()?;
            }
            Undo::Remove(path) => clear(&path)?,
            Undo::Restore { log, aside } => {
                clear(&log)?;
                match fs::rename(&aside, &log) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(error.into());
                    }
                    _ => {}
                }
            }
        }
        self.end_harm(fault)
    }

    fn end_harm(&mut self, fault: Lasting) -> Result<()> {
        if let Some(card) = fault.hurts() {
            let uuid = self.card(card)?;
            let is_same = |running: &Running| running.fault.hurts() == Some(card);
            if !self.lasting.iter().any(is_same) {
                self.harm.end(uuid);
            }
        }
        Ok(())
    }

    fn health(&self, card: usize, health: Health) -> Result<Option<Undo>> {
        self.node.store().update(|state| {
            if let Some(gpu) = state.gpus.get_mut(card) {
                gpu.health = health;
            }
        })?;
        Ok(Some(Undo::Switch))
    }

    async fn stop(&self, pid: Option<i32>) -> Result<Option<Undo>> {
        let Some(pid) = pid else { return Ok(None) };
        self.node.stop_process(pid).await?;
        Ok(Some(Undo::Continue(pid)))
    }

    /// A control session that says nothing more; there is one at a time.
    fn session(&self, card: usize) -> Result<Option<Undo>> {
        let Some(directory) = directory_of(&self.node, self.card(card)?) else { return Ok(None) };
        let mut program = self.node.program("nvidia-cuda-mps-control");
        program.env("CUDA_MPS_PIPE_DIRECTORY", directory.join("pipe"));
        let child = program
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("a control session")?;
        Ok(Some(Undo::End(child)))
    }

    /// What a container that is root sends to its card's daemon.
    pub(super) fn tenant_says(&self, card: usize, commands: &str) -> Result<Option<Child>> {
        let Some(Undo::End(mut child)) = self.session(card)? else { return Ok(None) };
        if let Some(mut stdin) = child.stdin.take() {
            // A session that isn't let in ends without reading.
            drop(io::Write::write_all(&mut stdin, commands.as_bytes()));
        }
        Ok(Some(child))
    }

    /// A daemon for the card that the product knows nothing of.
    fn foreign_daemon(&self, card: usize) -> Result<Option<Undo>> {
        let directory = self.node.path().join("foreign");
        for part in ["pipe", "log"] {
            fs::create_dir_all(directory.join(part))?;
        }
        let mut program = self.node.program("nvidia-cuda-mps-control");
        program.env("CUDA_MPS_PIPE_DIRECTORY", directory.join("pipe"));
        program.env("CUDA_MPS_LOG_DIRECTORY", directory.join("log"));
        program.env("CUDA_VISIBLE_DEVICES", self.card(card)?).arg("-f");
        let child = program
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("a daemon of somebody else")?;
        Ok(Some(Undo::End(child)))
    }

    /// Something in the way of a writer's temporary file: making it fails, as on a full disk.
    fn obstacle(&self, file: File) -> Result<Undo> {
        let pid = self.node.role_pid(file.writer()).context("a role doesn't run")?;
        let path = self.node.mps_root().path().join(format!("{}.{pid}.next", file.name()));
        clear(&path)?;
        // The writer may be at it just now.
        drop(fs::create_dir_all(path.join("full")));
        Ok(Undo::Remove(path))
    }

    /// What is in the place of `server.log` takes no more, and has an endless text.
    fn full_log(&self, card: usize) -> Result<Option<Undo>> {
        let Some(directory) = directory_of(&self.node, self.card(card)?) else { return Ok(None) };
        let log = directory.join("log/server.log");
        let aside = directory.join("log/server.log.aside");
        if fs::rename(&log, &aside).is_err() {
            return Ok(None);
        }
        std::os::unix::fs::symlink("/dev/full", &log)?;
        Ok(Some(Undo::Restore { log, aside }))
    }

    fn disturb_api(&self, fault: Lasting) -> Undo {
        let kube = self.node.kube();
        match fault {
            Lasting::ApiSlow { ms } => kube.faults().delay_all(Duration::from_millis(ms)),
            Lasting::ApiStale => kube.freeze_lists(),
            _ => kube.faults().inject(Times::Always, Matching::any(), Effect::Fail(503)),
        }
        Undo::Switch
    }
}

/// Which way a switch is turned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Switch {
    On,
    Off,
}

fn switch(faults: &mut Faults, fault: Lasting, to: Switch) {
    let is_on = to == Switch::On;
    let time = |ms: u64| if is_on { ms } else { 0 };
    match fault {
        Lasting::ServersHang => faults.server_hangs_at_start = is_on,
        Lasting::ServersFail => faults.server_fails_at_start = is_on,
        Lasting::ServersDelay { ms } => faults.server_start_delay_ms = time(ms),
        Lasting::SlowUi { ms } => faults.ui_delay_ms = time(ms),
        Lasting::NoDriver => faults.driver_not_loaded = is_on,
        Lasting::ComputeModeDenied => faults.compute_mode_denied = is_on,
        Lasting::LimitsIgnored => faults.memory_limit_ignored = is_on,
        _ => {}
    }
}
