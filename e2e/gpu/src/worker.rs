//! `work`: tries one check after the other and tells the keeper what came of each, line by line.
//!
//! Each check has a thread of its own and a deadline. When that is over, the processes of the run are
//! killed, which ends whatever the check waits for; one that goes on all the same ends the run. When
//! the keeper is gone, everything is put back here.

use std::io::{self, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::checks::{self, Check, Verdict};
use crate::itself;
use crate::machine::{self, Look};
use crate::report::{CheckReport, News, Outcome};
use crate::restore::{self, Found};
use crate::rig::{Measured, Rig, ms_since};

/// For how long a check whose time is over may go on once its processes are gone.
const LEAVING: Duration = Duration::from_secs(10);

/// For how long it may take until everything is being put back.
const PUT_BACK: Duration = Duration::from_secs(10);

/// After this no check is begun.
const LAST_BEGIN: Duration = Duration::from_secs(400);

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The directory of the run.
    #[arg(long)]
    pub(crate) root: PathBuf,
    /// The product's program.
    #[arg(long)]
    pub(crate) mpshare: PathBuf,
    /// The card: the beginning of its UUID.
    #[arg(long)]
    pub(crate) gpu: Option<String>,
    /// Where cgroups are read, in place of `/proc`.
    #[arg(long)]
    pub(crate) proc_root: Option<PathBuf>,
    /// Only say whether there is a card to try.
    #[arg(long)]
    look: bool,
    /// A shorter time for each check.
    #[arg(long)]
    check_limit_ms: Option<u64>,
    /// Words of which one is in a check's name.
    words: Vec<String>,
}

/// Tries the checks.
pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(machine::is_root(&options.root), "no directory `{}`", options.root.display());
    let chosen = chosen(options);
    ensure!(!chosen.is_empty(), "no check has one of {:?} in its name", options.words);
    let (rig, machine) = match machine::look(options)? {
        Look::Ready(rig, machine) => (Arc::new(*rig), machine),
        Look::Nothing(why) => return tell(&News::Skipped(why)),
        Look::Refused(why) if options.look => return tell(&News::Skipped(why)),
        Look::Refused(why) => return tell(&News::Refused(why)),
    };
    if options.look {
        let gpu = &machine.gpu;
        let why = format!("this machine has a `{gpu}`; hint: `sudo cargo xtask gpu` tries it");
        return tell(&News::Skipped(why));
    }
    let (gpu, mode) = (rig.gpu.uuid.to_string(), machine.compute_mode.clone());
    Found { gpu, mode }.write(&rig.root)?;
    put_back_without_keeper(rig.root.clone());
    tell(&News::Machine(machine))?;
    let start = Instant::now();
    for check in chosen {
        tell(&News::Begun(check.name.to_owned()))?;
        let (report, left) = if start.elapsed() > LAST_BEGIN {
            let why = "no time was left for it".to_owned();
            (report(&check, Outcome::Failed, Some(why), &Measured::default(), 0), Thread::Ended)
        } else {
            attempt(&rig, &check)
        };
        tell(&News::Check(report))?;
        ensure!(left == Thread::Ended, "`{}` can't be ended; nothing else is tried", check.name);
    }
    tell(&News::Finished)
}

fn chosen(options: &Options) -> Vec<Check> {
    let shorter = options.check_limit_ms.map(Duration::from_millis);
    let all = checks::all().into_iter().filter(|check| is_chosen(check, &options.words));
    all.map(|check| Check { limit: shorter.unwrap_or(check.limit), ..check }).collect()
}

fn is_chosen(check: &Check, words: &[String]) -> bool {
    words.is_empty() || words.iter().any(|word| check.name.contains(word.as_str()))
}

fn tell(news: &News) -> Result<()> {
    let line = serde_json::to_string(news)?;
    let mut stdout = io::stdout().lock();
    let told = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
    if told.is_err() {
        // The keeper is gone; who puts everything back ends this process.
        thread::sleep(PUT_BACK);
    }
    Ok(told?)
}

/// The keeper holds the other end of stdin for as long as it lives. Without it another process puts
/// everything back, and ends this one first, so that nothing new is started meanwhile.
fn put_back_without_keeper(root: PathBuf) {
    thread::spawn(move || {
        let mut nothing = [0_u8; 1];
        while io::stdin().read(&mut nothing).is_ok_and(|read| read > 0) {}
        let mut command = itself::part("restore");
        command.args(["--remove", "--root"]).arg(root);
        command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
        // Nobody is left to be told of a failure.
        drop(command.spawn());
    });
}

/// Whether a check's thread has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Thread {
    Ended,
    Hangs,
}

fn attempt(rig: &Arc<Rig>, check: &Check) -> (CheckReport, Thread) {
    let start = Instant::now();
    let measured = Measured::default();
    let (sender, receiver) = mpsc::channel();
    let (its_rig, its_measured, work) = (Arc::clone(rig), measured.clone(), check.work);
    thread::spawn(move || {
        // Nobody listens any more when its time is over.
        drop(sender.send(work(&its_rig, &its_measured)));
    });
    let result = receiver.recv_timeout(check.limit);
    let is_late = matches!(result, Err(RecvTimeoutError::Timeout));
    // What a passed check leaves behind is a failure too.
    let left = restore::processes(&rig.root);
    let hangs = || matches!(receiver.recv_timeout(LEAVING), Err(RecvTimeoutError::Timeout));
    let thread = if is_late && hangs() { Thread::Hangs } else { Thread::Ended };
    let (outcome, why) = match result {
        Ok(Ok(Verdict::Passed)) if !left.is_empty() => {
            (Outcome::Failed, Some(format!("it left processes behind: {}", left.join(", "))))
        }
        Ok(Ok(Verdict::Passed)) => (Outcome::Passed, None),
        Ok(Ok(Verdict::Skipped(why))) => (Outcome::Skipped, Some(why)),
        Ok(Err(error)) => (Outcome::Failed, Some(format!("{error:#}"))),
        Err(RecvTimeoutError::Timeout) => {
            (Outcome::Failed, Some(format!("not done within {:?}", check.limit)))
        }
        Err(RecvTimeoutError::Disconnected) => {
            (Outcome::Failed, Some("it panicked; see stderr".to_owned()))
        }
    };
    let (outcome, why) = match rig.restore_mode().context("the compute mode can't be restored") {
        Ok(()) => (outcome, why),
        Err(error) => (Outcome::Failed, Some(why.unwrap_or_default() + &format!(" {error:#}"))),
    };
    (report(check, outcome, why, &measured, ms_since(start)), thread)
}

fn report(
    check: &Check,
    outcome: Outcome,
    why: Option<String>,
    measured: &Measured,
    milliseconds: u64,
) -> CheckReport {
    CheckReport {
        name: check.name.to_owned(),
        outcome,
        milliseconds,
        why,
        measured: measured.all(),
        guesses: check.guesses.iter().map(|guess| (*guess).to_owned()).collect(),
    }
}
