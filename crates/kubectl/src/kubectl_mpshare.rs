//! `kubectl mpshare`, by the name that kubectl looks for.

use std::process::ExitCode;

fn main() -> ExitCode {
    mpshare_kubectl::mpshare::main()
}
