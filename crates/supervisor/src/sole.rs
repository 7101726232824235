//! One supervisor at a time.
//!
//! A successor waits for the end of its predecessor (an upgrade may overlap), and can be told to
//! stop while it waits.

use std::fs::File;
use std::io;
use std::sync::mpsc::{Receiver, Sender};
use std::thread;

use rustix::fs::{FlockOperation, flock};
use tracing::info;

use crate::event::Event;
use crate::node::SupervisorError;
use crate::options::Options;

/// Takes the node's lock. `None` when [`Event::Stop`] came first, or everybody who could send it
/// is gone.
pub(crate) fn lock(
    options: &Options,
    events: Sender<Event>,
    received: &Receiver<Event>,
) -> Result<Option<File>, SupervisorError> {
    let path = options.root.supervisor_lock();
    let root = |source| SupervisorError::Root { path: path.clone(), source };
    std::fs::create_dir_all(options.root.path()).map_err(root)?;
    let file = File::options().read(true).append(true).create(true).open(&path).map_err(root)?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
        return Ok(Some(file));
    }
    info!(lock = %path.display(), "another supervisor runs, waiting for its end");
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
            Ok(Event::Locked(locked)) => return locked.map(Some).map_err(root),
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
            Err(rustix::io::Errno::INTR) => {}
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
        }
    }

    #[test]
    fn a_successor_gets_the_lock_when_its_predecessor_ends() {
        let options = options("successor");
        let (tell, told) = mpsc::channel();
        let first = lock(&options, tell.clone(), &told).unwrap().unwrap();
        let second = thread::spawn({
            let options = options.clone();
            move || lock(&options, tell, &told).unwrap().is_some()
        });
        drop(first);
        assert!(second.join().unwrap());
        std::fs::remove_dir_all(options.root.path()).unwrap();
    }

    #[test]
    fn one_that_waits_for_its_predecessor_can_be_stopped() {
        let options = options("stopped");
        let (tell, told) = mpsc::channel();
        let _first = lock(&options, tell.clone(), &told).unwrap().unwrap();
        tell.send(Event::Stop).unwrap();
        assert!(lock(&options, tell, &told).unwrap().is_none());
        std::fs::remove_dir_all(options.root.path()).unwrap();
    }
}
