//! `mpshare node preflight`: what this node lacks for sharing its cards under MPS.

use std::io::{self, Write};
use std::process::ExitCode;

use mpshare_core::Reason;
use mpshare_supervisor::preflight::look;

use crate::driver::DriverOptions;
use crate::mps_root::RootOptions;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    root: RootOptions,
    #[command(flatten)]
    driver: DriverOptions,
}

/// Runs the command; exit codes as in its help.
pub(crate) fn run(args: &Args) -> ExitCode {
    let lacking = look(&args.driver.ports(), &args.root.root());
    match write(&mut io::stdout().lock(), &lacking) {
        Ok(()) if lacking.is_empty() => ExitCode::SUCCESS,
        Ok(()) | Err(_) => ExitCode::FAILURE,
    }
}

fn write(out: &mut impl Write, lacking: &[Reason]) -> io::Result<()> {
    for reason in lacking {
        writeln!(out, "{}: {reason}", reason.code())?;
    }
    if lacking.is_empty() {
        writeln!(out, "nothing that MPS needs is missing here")?;
    }
    Ok(())
}
