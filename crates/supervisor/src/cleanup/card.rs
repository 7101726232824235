//! One card: looking at it, and doing one step.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mpshare_api::{GpuPaths, MpsRoot};
use mpshare_core::VersionProfile;
use mpshare_mps::{ControlDaemon, DaemonFault, DaemonSite, Pid, PipeDirectory};
use mpshare_nvml::{ComputeMode, NvmlError};
use tracing::info;

use super::decision::{DirectorySeen, Holder, Seen, Step, next_step};
use super::places::Place;
use super::report::{CardReport, Client, Deed, End};
use super::{Intent, problem, removal};
use crate::card::CardError;
use crate::journal::ModeJournal;
use crate::options::Ports;

/// For how long `quit` may wait for clients that came in since they were counted.
const QUIT_DRAIN: Duration = Duration::from_secs(5);

/// For how long a server may be coming or going while it is asked.
const PATIENCE: Duration = Duration::from_secs(20);

/// Between two questions to a daemon whose server is coming or going.
const PAUSE: Duration = Duration::from_millis(200);

/// More steps than any card takes: past it something undoes what is done.
const MAX_STEPS: u32 = 40;

/// A card that is being cleaned up.
pub(super) struct CardCleanup<'a> {
    pub place: Place,
    pub root: &'a MpsRoot,
    pub ports: &'a Ports,
    pub journal: &'a ModeJournal,
    pub profile: VersionProfile,
    pub intent: Intent,
}

impl CardCleanup<'_> {
    /// Goes as far as it can, and says how far that was.
    pub(super) fn run(self) -> CardReport {
        let mut deeds = Vec::new();
        let end = self.steps(&mut deeds);
        let end = end.unwrap_or_else(|error| End::Failed(problem(&error)));
        CardReport { gpu: self.place.gpu, intent: self.intent, deeds, end }
    }

    fn steps(&self, deeds: &mut Vec<Deed>) -> Result<End, CardError> {
        let mut seen = self.look_patiently()?;
        for _ in 0..MAX_STEPS {
            let step = next_step(&seen);
            match &step {
                Step::Done => return Ok(End::Clean),
                Step::LeaveForeign(pid) => return Ok(End::Foreign(*pid)),
                Step::Leave(pids) => return Ok(self.left(&seen, pids)),
                Step::Quit(_)
                | Step::EndUnreachable(_)
                | Step::RestoreComputeMode
                | Step::RemoveDirectories(_) => {}
            }
            if let Some(deed) = self.deed(&step, &seen) {
                deeds.push(deed);
            }
            seen = match self.intent {
                Intent::Do => {
                    self.perform(&step)?;
                    self.look_patiently()?
                }
                Intent::Rehearse => as_if_done(seen, &step),
            };
        }
        Err(CardError::Unsteady)
    }

    fn left(&self, seen: &Seen, pids: &[i32]) -> End {
        let daemon = seen.directories.iter().find_map(|directory| match directory.holder {
            Holder::Ours { pid, .. } => Some(pid),
            Holder::Nobody | Holder::Foreign(_) => None,
        });
        let client = |pid: &i32| Client { pid: *pid, pod_uid: self.pod_of(*pid) };
        End::ClientsLive { daemon, clients: pids.iter().map(client).collect() }
    }

    fn pod_of(&self, pid: i32) -> Option<String> {
        let container = self.ports.cgroup_proc.container(Pid::new(pid)?).ok()??;
        Some(container.pod.to_string())
    }

    fn deed(&self, step: &Step, seen: &Seen) -> Option<Deed> {
        match step {
            Step::Quit(path) => {
                seen.directories.iter().find_map(|directory| match directory.holder {
                    Holder::Ours { pid, .. } if directory.path == *path => {
                        Some(Deed::EndedDaemon(pid))
                    }
                    _ => None,
                })
            }
            Step::EndUnreachable(_) => Some(Deed::EndedUnreachable),
            Step::RestoreComputeMode => {
                self.journal.former(&self.place.gpu).map(Deed::RestoredComputeMode)
            }
            Step::RemoveDirectories(_) => Some(Deed::RemovedDirectories),
            Step::LeaveForeign(_) | Step::Leave(_) | Step::Done => None,
        }
    }

    fn look_patiently(&self) -> Result<Seen, CardError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.look() {
                Err(error)
                    if (error.is_passing() || has_ended(&error)) && Instant::now() < deadline =>
                {
                    std::thread::park_timeout(PAUSE);
                }
                result => return result,
            }
        }
    }

    fn look(&self) -> Result<Seen, CardError> {
        let directories = self.place.directories.iter();
        let seen: Vec<_> =
            directories.map(|path| self.look_at(path)).collect::<Result<_, CardError>>()?;
        let has_unreachable = seen.iter().any(|directory| directory.unreachable > 0);
        let clients_of_card = if has_unreachable {
            let listed = self.ports.inventory.mps_processes(&self.place.gpu)?;
            listed.iter().map(|process| process.pid).collect()
        } else {
            Vec::new()
        };
        self.assume_mode(&seen)?;
        Ok(Seen {
            directories: seen,
            clients_of_card,
            has_mode_to_restore: self.journal.former(&self.place.gpu).is_some(),
        })
    }

    /// What was there before is unknown where the journal is damaged: see
    /// [`ModeJournal::assume_default`].
    fn assume_mode(&self, seen: &[DirectorySeen]) -> Result<(), CardError> {
        let gpu = &self.place.gpu;
        let has_daemon = seen.iter().any(|it| matches!(it.holder, Holder::Ours { .. }));
        if self.intent == Intent::Do
            && has_daemon
            && self.journal.former(gpu).is_none()
            && let Ok(Some(ComputeMode::ExclusiveProcess)) = self.ports.inventory.compute_mode(gpu)
        {
            self.journal.assume_default(gpu)?;
        }
        Ok(())
    }

    fn look_at(&self, path: &Path) -> Result<DirectorySeen, CardError> {
        let daemon = self.daemon(path)?;
        Ok(DirectorySeen {
            path: path.to_owned(),
            exists: path.exists(),
            holder: holder(daemon.as_ref())?,
            unreachable: daemon.lost()?.len() + daemon.orphans()?.len(),
        })
    }

    fn perform(&self, step: &Step) -> Result<(), CardError> {
        let gpu = &self.place.gpu;
        match step {
            Step::Quit(path) => {
                info!(%gpu, dir = %path.display(), "ending an MPS daemon without clients");
                match self.daemon(path)?.quit(QUIT_DRAIN).map_err(CardError::from) {
                    Err(error) if has_ended(&error) => Ok(()),
                    ended => ended,
                }
            }
            Step::EndUnreachable(path) => {
                info!(%gpu, dir = %path.display(), "ending what can't be reached any more");
                Ok(self.daemon(path)?.kill_lost()?)
            }
            Step::RestoreComputeMode => self.restore_compute_mode(),
            Step::RemoveDirectories(paths) => {
                paths.iter().try_for_each(|path| removal::remove_card(self.root, path))
            }
            Step::LeaveForeign(_) | Step::Leave(_) | Step::Done => Ok(()),
        }
    }

    fn restore_compute_mode(&self) -> Result<(), CardError> {
        let gpu = &self.place.gpu;
        let Some(former) = self.journal.former(gpu) else { return Ok(()) };
        match self.ports.inventory.set_compute_mode(gpu, former) {
            Ok(()) => info!(%gpu, mode = %former, "compute mode restored"),
            // A mode lasts only as long as the driver is loaded and the card is there.
            Err(error @ (NvmlError::DriverNotLoaded | NvmlError::NoSuchGpu(_))) => {
                info!(%gpu, %error, "no compute mode to restore");
            }
            Err(error) => return Err(CardError::ComputeMode(error)),
        }
        Ok(self.journal.forget(gpu)?)
    }

    fn daemon(&self, path: &Path) -> Result<Box<dyn ControlDaemon>, CardError> {
        let paths = GpuPaths::at(path);
        let site = DaemonSite {
            gpu: self.place.gpu.clone(),
            pipe: PipeDirectory::new(paths.pipe())?,
            log: paths.log(),
            shm: self.ports.shared_memory.directory(&paths),
        };
        Ok((self.ports.daemons)(site, self.profile, None))
    }
}

/// A daemon that was there a moment ago may have been killed: the next look finds it gone.
fn has_ended(error: &CardError) -> bool {
    matches!(error, CardError::Daemon(error) if matches!(*error.fault, DaemonFault::NotRunning))
}

fn holder(daemon: &dyn ControlDaemon) -> Result<Holder, CardError> {
    let adopted = match daemon.adopt() {
        Ok(Some(adopted)) => adopted,
        Ok(None) => return Ok(Holder::Nobody),
        Err(error) => {
            let DaemonFault::Foreign { pid, .. } = *error.fault else {
                return Err(error.into());
            };
            return Ok(Holder::Foreign(pid.get()));
        }
    };
    let mut clients = Vec::new();
    for server in daemon.servers()? {
        clients.extend(daemon.clients(server.pid)?.iter().map(|pid| pid.get()));
    }
    Ok(Holder::Ours { pid: adopted.process.pid.get(), clients })
}

/// What a rehearsal takes for the outcome of a step.
fn as_if_done(seen: Seen, step: &Step) -> Seen {
    let without = |path: &PathBuf| {
        let directories = seen.directories.clone().into_iter().map(|directory| {
            if directory.path == *path {
                DirectorySeen { holder: Holder::Nobody, unreachable: 0, ..directory }
            } else {
                directory
            }
        });
        directories.collect()
    };
    match step {
        Step::Quit(path) | Step::EndUnreachable(path) => {
            Seen { directories: without(path), ..seen }
        }
        Step::RestoreComputeMode => Seen { has_mode_to_restore: false, ..seen },
        Step::RemoveDirectories(_) => Seen { directories: Vec::new(), ..seen },
        Step::LeaveForeign(_) | Step::Leave(_) | Step::Done => seen,
    }
}
