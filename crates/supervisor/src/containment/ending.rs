//! Ends processes: `terminate_client`, SIGTERM, SIGKILL.
//!
//! Killing a client with work in flight may wedge its neighbours (facts/mps.md 4.1), so the MPS
//! server is asked first. A thread does it, since each of these takes its time and a card's worker
//! has to go on. Should the supervisor die meanwhile, some of them stay: whoever was terminated has
//! lost its context by then and is on the card no more, and the others are found again.

use std::io;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use mpshare_core::Reason;
use mpshare_mps::{ControlDaemon, Pid, Proc, ProcessHandle, ProcessId};
use tracing::{debug, warn};

/// For so long all of them together are terminated by the server before signals have to do.
const TERMINATION: Duration = Duration::from_secs(20);

/// For so long a process may take to end by itself after SIGTERM.
const FAREWELL: Duration = Duration::from_secs(3);

/// For so long it may take after SIGKILL.
const DEATH: Duration = Duration::from_secs(5);

/// A process to be ended, and the sentence about it.
#[derive(Debug, Clone)]
pub(crate) struct Victim {
    pub id: ProcessId,
    /// UID of its pod, where it is in one.
    pub pod: Option<String>,
    pub reason: Reason,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It has ended.
    Ended,
    /// It had ended before.
    Gone,
    /// It doesn't.
    Stays,
}

/// The daemon and the server whose clients they are.
pub(crate) struct Session {
    pub daemon: Box<dyn ControlDaemon>,
    pub server: Pid,
}

/// The thread.
pub(crate) struct Ending(JoinHandle<Vec<(Victim, Fate)>>);

impl Ending {
    /// Begins.
    pub(crate) fn start(
        proc: Proc,
        victims: Vec<Victim>,
        session: Option<Session>,
    ) -> io::Result<Self> {
        let work = move || end_all(&proc, victims, session.as_ref());
        thread::Builder::new().name("ending".to_owned()).spawn(work).map(Self)
    }

    /// Whether it is done.
    pub(crate) fn is_finished(&self) -> bool {
        self.0.is_finished()
    }

    /// What became of each.
    pub(crate) fn fates(self) -> Vec<(Victim, Fate)> {
        self.0.join().unwrap_or_default()
    }
}

/// A thread that only terminates: the signals come from somebody else.
pub(crate) struct Termination(JoinHandle<()>);

impl Termination {
    /// Begins.
    pub(crate) fn start(proc: Proc, whom: Vec<ProcessId>, session: Session) -> io::Result<Self> {
        let work = move || {
            let open = |id: ProcessId| ProcessHandle::open_exact(&proc, id).ok().flatten();
            let held: Vec<ProcessHandle> = whom.into_iter().filter_map(open).collect();
            terminate(&session, &held.iter().collect::<Vec<_>>());
        };
        thread::Builder::new().name("terminating".to_owned()).spawn(work).map(Self)
    }

    /// Whether it is done.
    pub(crate) fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

fn end_all(proc: &Proc, victims: Vec<Victim>, session: Option<&Session>) -> Vec<(Victim, Fate)> {
    let held: Vec<(Victim, Option<ProcessHandle>)> = victims
        .into_iter()
        // Exactly this process: its id may be another's by now.
        .map(|victim| {
            let handle = ProcessHandle::open_exact(proc, victim.id).ok().flatten();
            (victim, handle)
        })
        .collect();
    let handles: Vec<&ProcessHandle> =
        held.iter().filter_map(|(_, handle)| handle.as_ref()).collect();
    if let Some(session) = session {
        terminate(session, &handles);
    }
    signal(&handles, ProcessHandle::ask_to_end, FAREWELL);
    let stubborn: Vec<&ProcessHandle> =
        handles.into_iter().filter(|handle| !has_ended(handle, Instant::now())).collect();
    signal(&stubborn, ProcessHandle::kill, DEATH);
    let fate = |handle: Option<&ProcessHandle>| match handle {
        None => Fate::Gone,
        Some(handle) if has_ended(handle, Instant::now()) => Fate::Ended,
        Some(_) => Fate::Stays,
    };
    held.into_iter().map(|(victim, handle)| (victim, fate(handle.as_ref()))).collect()
}

fn terminate(session: &Session, handles: &[&ProcessHandle]) {
    let until = Instant::now() + TERMINATION;
    for handle in handles {
        if Instant::now() > until {
            warn!(server = %session.server, "terminating MPS clients takes too long, signals have to do");
            return;
        }
        if has_ended(handle, Instant::now()) {
            continue;
        }
        match session.daemon.terminate_client(session.server, handle.id().pid) {
            Ok(()) => debug!(pid = %handle.id(), "MPS client terminated"),
            Err(error) => warn!(pid = %handle.id(), %error, "MPS client not terminated"),
        }
    }
}

fn signal(
    handles: &[&ProcessHandle],
    send: impl Fn(&ProcessHandle) -> io::Result<()>,
    patience: Duration,
) {
    let until = Instant::now() + patience;
    for handle in handles {
        if let Err(error) = send(handle) {
            warn!(pid = %handle.id(), %error, "no signal can be sent");
        }
    }
    for handle in handles {
        has_ended(handle, until);
    }
}

fn has_ended(handle: &ProcessHandle, until: Instant) -> bool {
    handle.wait(until).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A process that ends with the test.
    struct Real(Child);

    impl Drop for Real {
        fn drop(&mut self) {
            drop(self.0.kill());
            drop(self.0.wait());
        }
    }

    fn start(script: &str) -> (Real, ProcessId) {
        let child = Command::new("/bin/sh")
            .args(["-c", script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = child.unwrap();
        // It has said so once its traps are set.
        let mut said = [0; 1];
        io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
        let pid = Pid::new(i32::try_from(child.id()).unwrap()).unwrap();
        let id = Proc::default().identify(pid).unwrap().unwrap();
        (Real(child), id)
    }

    fn end(id: ProcessId) -> Fate {
        let gpu = "GPU-ab".parse().unwrap();
        let victim = Victim { id, pod: None, reason: Reason::NoServer { gpu } };
        end_all(&Proc::default(), vec![victim], None)[0].1
    }

    #[test]
    fn a_process_that_passes_over_sigterm_is_killed() {
        let (mut child, id) = start("trap '' TERM; echo; while :; do sleep 0.1; done");
        assert_eq!(end(id), Fate::Ended);
        let status = child.0.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
    }

    #[test]
    fn a_process_that_obeys_sigterm_is_not_killed() {
        let (mut child, id) = start("trap 'exit 7' TERM; echo; while :; do sleep 0.1; done");
        assert_eq!(end(id), Fate::Ended);
        assert_eq!(child.0.wait().unwrap().code(), Some(7));
    }

    #[test]
    fn another_process_that_has_the_id_by_now_is_not_touched() {
        let (mut child, id) = start("echo; exec sleep 600");
        assert_eq!(end(ProcessId { start: id.start - 1, ..id }), Fate::Gone);
        assert!(child.0.try_wait().unwrap().is_none());
        drop(child);
        assert_eq!(end(id), Fate::Gone);
    }
}
