//! Taking mpshare off a node: daemons without clients, compute modes, directories, files.
//!
//! For after the product has been removed from a node; it refuses while one of its processes
//! there still works. A card with a living client stays as it is, daemon and all, and the next
//! cleanup goes on from there. Nothing is remembered between two steps: what there is to do is
//! found from locks, `/proc`, the driver and the journal, so it may be killed anywhere.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use mpshare_api::{MpsRoot, NodeStatus, read_versioned};
use mpshare_core::{GpuUuid, VersionProfile};
use mpshare_mps::{Pid, Proc, ProcessHandle, census};
use mpshare_watch::sole::{self, Attempt, try_lock};
use thiserror::Error;

use crate::card::CardError;
use crate::journal::ModeJournal;
use crate::options::Ports;

mod card;
mod decision;
mod places;
mod removal;
mod report;

use card::CardCleanup;
pub use report::{CardReport, Client, Deed, End, Report};

/// The longest wait between two looks at a card with clients.
const LOOK: Duration = Duration::from_secs(1);

/// For how long a lock may outlive its holder.
const LAST_MOMENTS: Duration = Duration::from_secs(5);

/// What to clean up, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// The directory below which everything lies.
    pub root: MpsRoot,
    /// Whether to do it.
    pub intent: Intent,
    /// For how long to wait for clients to end.
    pub wait: Duration,
}

/// Whether to change anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// Clean up.
    Do,
    /// Only say what would be done.
    Rehearse,
}

/// Why a cleanup can't begin, or go on.
#[derive(Debug, Error)]
pub enum CleanupError {
    /// A process of the product, or another cleanup, works here.
    #[error(
        "{} works on this node: it holds `{}`; hint: remove mpshare from the node first (`helm uninstall`, or delete its DaemonSets), or let another cleanup finish",
        .pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}")),
        .lock.display()
    )]
    InUse {
        /// The lock.
        lock: PathBuf,
        /// Who holds it, where that can be seen.
        pid: Option<Pid>,
    },
    /// A file or directory is in the way.
    #[error("`{}`", .path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// What there is to clean up can't be found out.
    #[error("{0}")]
    Places(String),
}

/// Cleans up, waits for clients if it should, and says what became of each card.
pub fn clean_up(options: &Options, ports: &Ports) -> Result<Report, CleanupError> {
    let locks = take_locks(options, &ports.host_proc)?;
    let deadline = Instant::now() + options.wait;
    let mut report = pass(options, ports)?;
    while report.clients().next().is_some() && Instant::now() < deadline {
        wait_for_one(ports, &report, deadline.min(Instant::now() + LOOK));
        report.follow(pass(options, ports)?);
    }
    if options.intent == Intent::Do && report.is_clean() {
        report.left = removal::remove_root(&options.root)?;
    }
    drop(locks);
    Ok(report)
}

/// All processes that act on the node are locked out, until the end. A rehearsal makes no files.
fn take_locks(options: &Options, proc: &Proc) -> Result<Vec<File>, CleanupError> {
    let root = &options.root;
    let mut locks = Vec::new();
    let paths = [root.supervisor_lock(), root.device_plugin_lock(), root.config_manager_lock()];
    for path in paths {
        if options.intent == Intent::Rehearse && !path.exists() {
            continue;
        }
        locks.push(take_lock(path, proc)?);
    }
    Ok(locks)
}

/// A process that was killed while it was starting another one leaves its lock with that one for a
/// moment, until it becomes another program.
fn take_lock(path: PathBuf, proc: &Proc) -> Result<File, CleanupError> {
    let deadline = Instant::now() + LAST_MOMENTS;
    loop {
        let file = match try_lock(&path) {
            Ok(Attempt::Locked(file)) => return Ok(file),
            Ok(Attempt::Held(file)) => file,
            Err(source) => return Err(CleanupError::File { path, source }),
        };
        let pid = sole::holder(&file).and_then(|pid| Pid::new(i32::try_from(pid).ok()?));
        let lives = pid.is_none_or(|pid| proc.identify(pid).is_ok_and(|found| found.is_some()));
        if lives || Instant::now() >= deadline {
            return Err(CleanupError::InUse { lock: path, pid });
        }
        std::thread::park_timeout(LOOK / 100);
    }
}

/// Every card as far as it goes now.
fn pass(options: &Options, ports: &Ports) -> Result<Report, CleanupError> {
    let root = &options.root;
    let mut processes = census::mps_processes(&ports.host_proc)
        .map_err(|source| CleanupError::File { path: ports.host_proc.root().to_owned(), source })?;
    processes.retain(|process| !process.is_elsewhere(&ports.host_proc));
    let journal = ModeJournal::open(root.compute_modes());
    // A report that can't be read counts as none.
    let last_report = read_versioned::<NodeStatus>(&root.status()).ok().flatten();
    let reported = last_report.as_ref().and_then(NodeStatus::inventory);
    let inventory = ports.inventory.inventory().ok();
    let driver = inventory.iter().chain(&reported).map(|inventory| &inventory.driver).next();
    let profile = driver.and_then(VersionProfile::of);
    let listed = inventory.iter().chain(&reported).flat_map(|inventory| &inventory.gpus);
    let listed: Vec<GpuUuid> = listed.map(|gpu| gpu.uuid.clone()).collect();
    let known = listed.into_iter().chain(journal.gpus());
    let places = places::places(root, known, &processes)
        .map_err(|error| CleanupError::Places(crate::card::chain(&error)))?;
    let cards = places.into_iter().map(|place| {
        let card = CardCleanup {
            place,
            root,
            ports,
            journal: &journal,
            // The commands that are needed here are in all of them.
            profile: profile.unwrap_or(VersionProfile::R535),
            intent: options.intent,
        };
        card.run()
    });
    Ok(Report { cards: cards.collect(), left: Vec::new() })
}

fn wait_for_one(ports: &Ports, report: &Report, deadline: Instant) {
    let client = report.clients().find_map(|client| Pid::new(client.pid));
    let handle = client.and_then(|pid| ProcessHandle::open(&ports.host_proc, pid).ok().flatten());
    let waited = handle.is_some_and(|handle| handle.wait(deadline).is_ok());
    if !waited {
        // It is gone already, and its daemon will notice.
        std::thread::park_timeout(LOOK / 10);
    }
}

fn problem(error: &CardError) -> String {
    crate::card::chain(error)
}
