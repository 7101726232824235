//! What a report has to say of the software before its numbers mean anything.

use anyhow::Result;

use crate::checks::Verdict;
use crate::protocol::Request;
use crate::rig::{Measured, Rig, limits, number};

/// Asserts nothing but that a client works at all.
pub(super) fn versions(rig: &Rig, measured: &Measured) -> Result<Verdict> {
    let daemon = rig.serving(limits(rig.modest(), 1000)?)?;
    let mut client = daemon.client(&[])?;
    measured.note("cuda", number(&client.ask(&Request::Version)?, "cuda")?);
    let seen = client.ask(&Request::Open)?;
    for name in ["name", "uuid", "cards", "is_mps_client", "multiprocessors"] {
        measured.note(name, seen.get(name).cloned().unwrap_or_default());
    }
    let log = daemon.logs();
    // Control programs write theirs since 580, servers before that (facts/mps.md 7).
    let control = after(&log, "CUDA MPS Control binary version: ");
    let server = after(&log, "CUDA MPS Server for Linux/Unix. Binary version: ");
    measured.note("mps_control", control);
    measured.note("mps_server", server);
    Ok(Verdict::Passed)
}

/// The rest of the first line that has these words in it.
fn after(log: &str, words: &str) -> Option<String> {
    log.lines().find_map(|line| line.split_once(words)).map(|(_, rest)| rest.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_the_rest_of_its_line() {
        let log = "[x Server 1] Startup\n[x Server 1] Binary version: 13000\n";
        assert_eq!(after(log, "Binary version: ").as_deref(), Some("13000"));
        assert_eq!(after(log, "Control binary"), None);
    }
}
