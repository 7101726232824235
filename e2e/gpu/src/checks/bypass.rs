//! A process with a wrong pipe directory runs past MPS and its limits, without a word, unless the
//! card is in `EXCLUSIVE_PROCESS` mode (facts/mps.md 1.1, 3).

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use mpshare_nvml::ComputeMode;

use super::{Check, Verdict};
use crate::protocol::Request;
use crate::rig::{Measured, Rig, limits, number, same};

/// `CUDA_ERROR_DEVICE_UNAVAILABLE`.
const UNAVAILABLE: i32 = 46;

pub(super) fn checks() -> Vec<Check> {
    let limit = Duration::from_mins(1);
    vec![
        Check { name: "bypass.quiet", limit, guesses: &[], work: quiet },
        Check {
            name: "bypass.exclusive-process",
            limit,
            guesses: &["the error is 46, CUDA_ERROR_DEVICE_UNAVAILABLE"],
            work: exclusive_process,
        },
    ]
}

fn quiet(rig: &Rig, measured: &Measured) -> Result<Verdict> {
    if rig.mode.is_none() {
        return Ok(Verdict::Skipped("the card has no compute modes".to_owned()));
    }
    let _mode = rig.with_mode(ComputeMode::Default)?;
    let limit = rig.modest() / 2;
    let _daemon = rig.serving(limits(limit, 1000)?)?;
    let mut stray = rig.stray()?;
    stray.ask(&Request::Open)?;
    let request = Request::TakeAll { steps: vec![64], at_most: limit + 1024 };
    let taken = number(&stray.ask(&request)?, "mib")?;
    measured.note("limit_mib", limit);
    measured.note("allocatable_mib", taken);
    ensure!(taken > limit, "a process past MPS had {taken} MiB under a limit of {limit} MiB");
    same("as an MPS client", &rig.charged(stray.pid())?, &None)?;
    Ok(Verdict::Passed)
}

fn exclusive_process(rig: &Rig, measured: &Measured) -> Result<Verdict> {
    if rig.mode.is_none() {
        return Ok(Verdict::Skipped("the card has no compute modes".to_owned()));
    }
    let _mode = rig.with_mode(ComputeMode::ExclusiveProcess)?;
    let daemon = rig.serving(limits(rig.modest(), 1000)?)?;
    let Err(refusal) = rig.stray()?.attempt(&Request::Open)? else {
        bail!("a process past MPS got a context on a card whose server holds it");
    };
    measured.note("refused_by", refusal.call);
    measured.note("code", refusal.code);
    same("the error", &refusal.code, &UNAVAILABLE)?;
    // Clients come under the server's name: more than one.
    let _first = daemon.open_client(&[])?;
    let _second = daemon.open_client(&[])?;
    Ok(Verdict::Passed)
}
