//! The product's supervisor on the card, with files in the place of those that config-manager and
//! the device plugin write. When the value is dropped, nothing of it is left.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use mpshare_api::allocations::{AllocationMode, AllocationRecord};
use mpshare_api::{
    Allocations, ChosenConfig, GpuState, GpuStatus, MpsRoot, NodeStatus, read_document,
    write_document,
};
use rustix::process::{Pid, Signal, kill_process};

use crate::clients::Client;
use crate::restore;
use crate::rig::{Rig, SERVING};

const RESOURCE: &str = "nvidia.com/gpu";

/// How many lines of a log help who reads why a check failed.
const LOG_LINES: usize = 15;

/// See the module.
pub(crate) struct Supervised<'a> {
    rig: &'a Rig,
    files: MpsRoot,
    arguments: Vec<String>,
    log: PathBuf,
    revision: u64,
    process: Option<Child>,
}

/// A share as the device plugin records it.
pub(crate) struct Share<'a> {
    /// The unit of the card.
    pub(crate) unit: u32,
    /// How much of it.
    pub(crate) mib: u64,
    /// Its threads.
    pub(crate) percent_tenths: u32,
    /// Who holds it.
    pub(crate) pod: &'a str,
}

impl<'a> Supervised<'a> {
    /// A supervisor of the card alone, cut into `replicas`, and told this besides.
    pub(crate) fn start(rig: &'a Rig, replicas: u32, arguments: &[&str]) -> Result<Self> {
        let directory = rig.root.join("node");
        // That of an earlier check.
        drop(fs::remove_dir_all(&directory));
        fs::create_dir(&directory)?;
        let mut all = vec!["mps-control-daemon".to_owned(), "--mps-root".to_owned()];
        all.push(directory.display().to_string());
        if let crate::cgroups::Cgroups::Told(proc) = &rig.cgroups {
            all.extend(["--proc-root".to_owned(), proc.display().to_string()]);
        }
        all.extend(arguments.iter().map(|word| (*word).to_owned()));
        let mut supervised = Self {
            rig,
            files: MpsRoot::new(directory),
            arguments: all,
            log: rig.root.join("supervisor.log"),
            revision: 0,
            process: None,
        };
        drop(fs::remove_file(&supervised.log));
        supervised.hand_out(&[])?;
        supervised.cut(replicas)?;
        supervised.begin()?;
        Ok(supervised)
    }

    /// Starts the process.
    pub(crate) fn begin(&mut self) -> Result<()> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut command = Command::new(&self.rig.mpshare);
        command.args(&self.arguments).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn();
        let program = self.rig.mpshare.display();
        self.process = Some(child.with_context(|| format!("can't start `{program}`"))?);
        Ok(())
    }

    /// Ends the process by SIGKILL; a report of it doesn't stay.
    pub(crate) fn kill(&mut self) -> Result<()> {
        let mut child = self.process.take().context("no supervisor runs")?;
        child.kill()?;
        child.wait()?;
        Ok(fs::remove_file(self.files.status())?)
    }

    /// Writes the config in config-manager's place; one replica is the whole card without MPS.
    pub(crate) fn cut(&self, replicas: u32) -> Result<()> {
        let text = format!(
            "version: v1\nsharing:\n  mps:\n    resources:\n    - name: {RESOURCE}\n      \
             devices: [\"{}\"]\n      replicas: {replicas}\n",
            self.rig.gpu.uuid
        );
        let name = format!("mps-{replicas}x");
        let (version, why) = (ChosenConfig::VERSION, "the GPU suite".to_owned());
        let drain = mpshare_api::DrainWish::default();
        let chosen = ChosenConfig { version, name, why, text, drain };
        Ok(write_document(&self.files.config(), &chosen)?)
    }

    /// Writes the shares that are held in the device plugin's place.
    pub(crate) fn hand_out(&mut self, shares: &[Share<'_>]) -> Result<()> {
        let gpu = self.rig.gpu.uuid.to_string();
        let record = |share: &Share<'_>| AllocationRecord {
            ids: vec![format!("{gpu}::{}", share.unit)],
            gpu: gpu.clone(),
            resource: RESOURCE.to_owned(),
            mode: AllocationMode::Mps,
            memory_mib: share.mib,
            percent_tenths: share.percent_tenths,
            pod_uid: Some(share.pod.to_owned()),
            former_pods: Vec::new(),
        };
        self.revision += 1;
        let records = shares.iter().map(record).collect();
        let (version, revision) = (Allocations::VERSION, self.revision);
        let document = Allocations { version, revision, records };
        Ok(write_document(&self.files.allocations(), &document)?)
    }

    /// The report on the card, once it is so.
    pub(crate) fn card(&self, what: &str, is_so: impl Fn(&GpuStatus) -> bool) -> Result<GpuStatus> {
        let until = Instant::now() + SERVING;
        loop {
            let status: Option<NodeStatus> = read_document(&self.files.status()).ok().flatten();
            let card = status.and_then(|status| status.gpu(self.rig.gpu.uuid.as_str()).cloned());
            if let Some(card) = card.as_ref().filter(|card| is_so(card)) {
                return Ok(card.clone());
            }
            if Instant::now() > until {
                let state = card.map(|card| (card.state, card.reason, card.findings));
                bail!("the card isn't {what}: {state:?}\n{}", self.log_end());
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// The report on the card that is Ready with a daemon whose limits are verified.
    pub(crate) fn ready(&self) -> Result<GpuStatus> {
        let is_ready = |card: &GpuStatus| {
            let daemon = card.daemon.as_ref();
            card.state == GpuState::Ready
                && daemon.is_some_and(|it| it.limits.is_some() && it.server.is_some())
        };
        self.card("ready", is_ready)
    }

    /// A client with a context, as of a pod.
    pub(crate) fn client_of(&self, pod: &str, pipe: &str) -> Result<Client> {
        let mut client = Client::start(&[("CUDA_MPS_PIPE_DIRECTORY", pipe)])?;
        self.rig.cgroups.place(client.pid(), pod)?;
        client.ask(&crate::protocol::Request::Open)?;
        Ok(client)
    }

    fn log_end(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let end = lines.iter().skip(lines.len().saturating_sub(LOG_LINES));
        end.copied().collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Supervised<'_> {
    fn drop(&mut self) {
        if let Some(mut child) = self.process.take() {
            if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                // It may have ended by itself.
                kill_process(pid, Signal::TERM).ok();
            }
            let until = Instant::now() + Duration::from_secs(5);
            while child.try_wait().is_ok_and(|status| status.is_none()) && Instant::now() < until {
                thread::sleep(Duration::from_millis(5));
            }
            drop(child.kill());
            drop(child.wait());
        }
        // A supervisor leaves its daemons to its successor.
        restore::daemons(self.files.path());
        drop(self.rig.restore_mode());
    }
}
