//! Cleans up after a program that was killed with no chance to do so itself.
//!
//! A shell in a process group of its own holds the other end of a pipe. When this program is gone,
//! however it went, the pipe ends, and the shell kills what runs on the node and removes its files.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use mpshare_sim_state::SIM_DIR_ENV;

/// `$1` marks the processes of the node, `$2` is its directory. Twice, because one that is being
/// looked at may start another.
const SCRIPT: &str = r#"
trap '' INT TERM HUP
read -r _
for _ in 1 2; do
  for environ in $(grep -lszxF -e "$1" /proc/[0-9]*/environ 2>/dev/null); do
    pid=${environ#/proc/}
    kill -9 "${pid%/environ}" 2>/dev/null
  done
done
rm -rf "$2"
"#;

/// The shell; it does its work when this value is dropped, too.
#[derive(Debug)]
pub(super) struct Watchdog {
    shell: Child,
}

impl Watchdog {
    pub(super) fn start(sim_dir: &Path, directory: &Path) -> io::Result<Self> {
        let mark = format!("{SIM_DIR_ENV}={}", sim_dir.display());
        let shell = Command::new("sh")
            .args(["-c", SCRIPT, "watchdog", &mark])
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        Ok(Self { shell })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        if let Err(error) = self.shell.wait() {
            tracing::error!(%error, "the watchdog of a simulated node can't be waited for");
        }
    }
}
