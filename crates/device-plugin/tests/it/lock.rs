//! Locks on behalf of daemons that aren't there. A process never sees its own lock, so another
//! one has to hold it: this test program, started once more.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::fs::{FlockOperation, fcntl_lock};

const VARIABLE: &str = "MPSHARE_TEST_HELD_LOCK";
const HELD: &str = "lock is held";

/// A process that holds a lock until it is dropped.
pub(crate) struct HeldLock {
    process: Child,
    /// It writes its test report in the end.
    _output: BufReader<ChildStdout>,
}

impl HeldLock {
    /// Locks the file `path`, which is made.
    pub(crate) fn on(path: &Path) -> Self {
        File::create(path).unwrap();
        let mut process = Command::new(std::env::current_exe().unwrap())
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
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut said = String::new();
        while !said.contains(HELD) {
            assert_ne!(output.read_line(&mut said).unwrap(), 0, "the holder ended early");
        }
        Self { process, _output: output }
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        // Its input ends with the pipe.
        drop(self.process.stdin.take());
        drop(self.process.wait());
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
    assert_eq!(lock.process.try_wait().unwrap(), None, "it lives");
    drop(lock.process.stdin.take());
    assert!(lock.process.wait().unwrap().success());
}
