//! One supervisor at a time.
//!
//! A successor waits for the end of its predecessor (an upgrade may overlap), and can be told to
//! stop while it waits.

use std::fs::File;
use std::io;
use std::sync::mpsc::{Receiver, Sender};
use std::thread;

use mpshare_watch::sole::{Attempt, held, is_at, try_lock};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tracing::info;

use crate::event::Event;
use crate::node::SupervisorError;
use crate::options::Options;

/// Takes the node's lock. `None` when [`Event::Stop`] came first, or everybody who could send it
/// is gone.
pub(crate) fn lock(
    options: &Options,
    events: &Sender<Event>,
    received: &Receiver<Event>,
) -> Result<Option<File>, SupervisorError> {
    let path = options.root.supervisor_lock();
    let root = |source| SupervisorError::Root { path: path.clone(), source };
    loop {
        let file = match try_lock(&path).map_err(root)? {
            Attempt::Locked(file) => return Ok(Some(file)),
            Attempt::Held(file) => file,
        };
        let problem = held(&path, &file);
        info!(problem, "another supervisor runs, waiting for its end");
        match wait_elsewhere(file, events.clone(), received)? {
            Some(Ok(file)) => {
                if is_at(&file, &path).map_err(root)? {
                    return Ok(Some(file));
                }
                // A cleanup has removed the file that was waited for.
            }
            Some(Err(error)) => return Err(root(error)),
            None => return Ok(None),
        }
    }
}

fn wait_elsewhere(
    file: File,
    events: Sender<Event>,
    received: &Receiver<Event>,
) -> Result<Option<io::Result<File>>, SupervisorError> {
    thread::Builder::new()
        .name("lock".to_owned())
        .spawn(move || {
            let locked = wait(&file).map(|()| file);
            // Nobody listens any more when the process was told to stop meanwhile.
            drop(events.send(Event::Locked(locked)));
        })
        .map_err(SupervisorError::Thread)?;
    loop {
        match received.recv() {
            Ok(Event::Locked(locked)) => return Ok(Some(locked)),
            Ok(Event::Stop) | Err(_) => return Ok(None),
            // Nothing else is watched yet.
            Ok(_) => {}
        }
    }
}

fn wait(file: &File) -> io::Result<()> {
    loop {
        match flock(file, FlockOperation::LockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use mpshare_api::MpsRoot;

    use super::*;

    fn options(name: &str) -> Options {
        let root = std::env::temp_dir().join(format!("mpshare-{name}-{}", std::process::id()));
        Options {
            root: MpsRoot::new(root),
            busy_interval: Duration::ZERO,
            idle_interval: Duration::ZERO,
            recovery: Duration::ZERO,
            containment: crate::ContainmentRules::default(),
            canary: crate::options::CanaryRules::default(),
            fault_grace: Duration::from_secs(10),
            start_deadline: Duration::from_mins(1),
        }
    }

    #[test]
    fn a_successor_gets_the_lock_when_its_predecessor_ends() {
        let options = options("successor");
        let (tell, told) = mpsc::channel();
        let first = lock(&options, &tell, &told).unwrap().unwrap();
        let second = thread::spawn({
            let options = options.clone();
            move || lock(&options, &tell, &told).unwrap().is_some()
        });
        drop(first);
        assert!(second.join().unwrap());
        std::fs::remove_dir_all(options.root.path()).unwrap();
    }

    #[test]
    fn a_lock_whose_file_was_removed_while_it_was_waited_for_is_taken_anew() {
        let options = options("removed");
        let (tell, told) = mpsc::channel();
        let path = options.root.supervisor_lock();
        let first = lock(&options, &tell, &told).unwrap().unwrap();
        let second = thread::spawn({
            let options = options.clone();
            move || lock(&options, &tell, &told).unwrap().unwrap()
        });
        std::fs::remove_file(&path).unwrap();
        drop(first);
        let second = second.join().unwrap();
        assert!(is_at(&second, &path).unwrap());
        assert!(matches!(try_lock(&path).unwrap(), Attempt::Held(_)));
        std::fs::remove_dir_all(options.root.path()).unwrap();
    }

    #[test]
    fn one_that_waits_for_its_predecessor_can_be_stopped() {
        let options = options("stopped");
        let (tell, told) = mpsc::channel();
        let _first = lock(&options, &tell, &told).unwrap().unwrap();
        tell.send(Event::Stop).unwrap();
        assert!(lock(&options, &tell, &told).unwrap().is_none());
        std::fs::remove_dir_all(options.root.path()).unwrap();
    }
}
