//! How the daemon reads an amount of memory (facts/mps.md 1.2): the product depends on whole MiB with
//! `M`; of the rest the report says what is different.

use anyhow::{Result, ensure};
use mpshare_core::VersionProfile;

use super::{session, started};
use crate::checks::Verdict;
use crate::rig::{Measured, Rig, same};

pub(super) const GUESSES: [&str; 1] =
    ["drivers from 590 on read amounts in whole MiB with `M` as 535 to 555 do"];

/// What the product writes.
const OURS: [(&str, &str); 4] =
    [("1024M", "1G\n"), ("3000M", "2G\n"), ("1025M", "1G\n"), ("512M", "512M\n")];

/// What others may write; a limit that isn't shown isn't there.
const OTHERS: [(&str, &str); 15] = [
    ("4G", "4G\n"),
    ("4096", "4G\n"),
    ("100K", "100M\n"),
    ("1.5G", "1M\n"),
    ("4 G", "4M\n"),
    ("4g", "4G\n"),
    ("4GB", "4G\n"),
    ("4G5", "4G\n"),
    ("-1G", "17179869183G\n"),
    ("18446744073709551616", "17179869183G\n"),
    ("0G", ""),
    ("G", ""),
    ("M", ""),
    ("", ""),
    ("0x10M", ""),
];

pub(super) fn memory_values(rig: &Rig, measured: &Measured) -> Result<Verdict> {
    let daemon = started(rig)?;
    let shown = |value: &str| {
        let asked = format!(
            "set_default_device_pinned_mem_limit 0 1G\n\
             set_default_device_pinned_mem_limit 0 {value}\n\
             get_default_device_pinned_mem_limit 0\n"
        );
        session(&daemon, &asked).map(|said| said.out)
    };
    for (value, wanted) in OURS {
        same(&format!("`{value}`"), &shown(value)?.as_str(), &wanted)?;
    }
    let mut different = Vec::new();
    for (value, wanted) in OTHERS {
        let shown = shown(value)?;
        if shown != wanted {
            different.push(format!("`{value}` is `{}`", shown.trim()));
        }
    }
    measured.note("values", OURS.len() + OTHERS.len());
    measured.note("different", different.join(", "));
    let is_known = rig.profile <= VersionProfile::R555;
    ensure!(different.is_empty() || !is_known, "read otherwise than by 550: {different:?}");
    Ok(Verdict::Passed)
}
