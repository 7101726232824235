//! Locks on behalf of daemons that aren't there. A process never sees its own lock, so another
//! one has to hold it: this test program, started once more.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::fs::{FlockOperation, fcntl_lock};

const VARIABLE: &str = "MPSHARE_TEST_HELD_LOCK";
const HELD: &str = "lock is held";

/// A process that holds a lock until it is dropped.
pub(crate) struct HeldLock(Child);

impl HeldLock {
    /// Locks the file `path`, which is made.
    pub(crate) fn on(path: &Path) -> Self {
        File::create(path).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "--nocapture",
                "lock::the_holder_of_a_lock_lives_until_its_input_ends",
            ])
            .env(VARIABLE, path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let said = lines.map(Result::unwrap).find(|line| line.contains(HELD));
        assert!(said.is_some(), "the holder ended early");
        Self(child)
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        // Its input ends with the pipe.
        drop(self.0.stdin.take());
        drop(self.0.wait());
    }
}

#[test]
fn the_holder_of_a_lock_lives_until_its_input_ends() {
    if let Some(path) = std::env::var_os(VARIABLE) {
        let file = File::options().write(true).open(path).unwrap();
        fcntl_lock(&file, FlockOperation::LockExclusive).unwrap();
        let mut out = std::io::stdout().lock();
        writeln!(out, "\n{HELD}").unwrap();
        out.flush().unwrap();
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut lock = HeldLock::on(&dir.path().join("lock"));
    assert_eq!(lock.0.try_wait().unwrap(), None, "it lives");
    drop(lock.0.stdin.take());
    assert!(lock.0.wait().unwrap().success());
}
