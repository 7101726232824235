//! PID 1 of a machine.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};
use rustix::process::{WaitOptions, wait};

use super::host::READY;

/// Mounts what the machine needs, says so, and reaps whatever ends, for ever. Called in new
/// namespaces, as [`Host::boot`](super::Host::boot) makes them.
pub fn run(binds: &[(String, String)]) -> Result<()> {
    // Mounts of pods with `mountPropagation: Bidirectional` have to arrive here.
    let shared = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
    mount_change("/", shared).context("can't share the mounts")?;
    mount("tmpfs", "/run", "tmpfs", MountFlags::empty(), None).context("can't empty `/run`")?;
    fs::create_dir_all("/run/netns")?;
    for (from, to) in binds {
        fs::create_dir_all(to).with_context(|| format!("can't make `{to}`"))?;
        mount_bind(Path::new(from), Path::new(to))
            .with_context(|| format!("can't mount `{from}` at `{to}`"))?;
    }
    let mut output = std::io::stdout();
    writeln!(output, "{READY}")?;
    output.flush()?;
    loop {
        // Without a child it fails at once.
        if wait(WaitOptions::empty()).is_err() {
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }
}
