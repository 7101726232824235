//! What the control program does and says, which the product's sessions build on (facts/mps.md 1.1,
//! 1.2, 6). The long list of such facts, with the odd ones, is the simulator's contract test, which
//! takes a real control program too; these are the ones that a release of the driver must not change.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use mpshare_core::VersionProfile;
use mpshare_mps::ControlDaemon as _;

use super::{Check, Verdict};
use crate::frontend::{self, Open, Said};
use crate::rig::{Daemon, Measured, Rig, limits, same};

mod memory_values;
mod versions;

const SENTINEL: &str = "get_default_active_thread_percentage\n";

pub(super) fn checks() -> Vec<Check> {
    let check = |name, guesses, work| Check { name, limit: Duration::from_mins(1), guesses, work };
    vec![
        // The first to use the card, which a driver may have to start.
        Check {
            limit: Duration::from_secs(150),
            ..check("contract.versions", &[], versions::versions)
        },
        check("contract.nobody-listens", &[], nobody_listens),
        check("contract.replies", &[], replies),
        check("contract.unknown-servers", &[], unknown_servers),
        check("contract.memory-values", &memory_values::GUESSES, memory_values::memory_values),
        check("contract.one-session-at-a-time", &[], one_session_at_a_time),
        check("contract.files-and-lock", &[], files_and_lock),
        check("contract.second-daemon", &[], second_daemon),
    ]
}

/// A daemon without a server.
fn started(rig: &Rig) -> Result<Daemon> {
    let daemon = rig.daemon(&rig.gpu)?;
    daemon.start(limits(rig.modest(), 1000)?)?;
    Ok(daemon)
}

fn session(daemon: &Daemon, input: &str) -> Result<Said> {
    frontend::run(daemon.program(), input)
}

/// Fails unless the program says this, and nothing on stderr, and ends with 0.
fn says(daemon: &Daemon, input: &str, wanted: &str) -> Result<()> {
    let said = session(daemon, input)?;
    let wanted = Said { code: Some(0), out: wanted.to_owned(), err: String::new() };
    same(&format!("`{}`", input.escape_debug()), &said, &wanted)
}

fn nobody_listens(rig: &Rig, _measured: &Measured) -> Result<Verdict> {
    let daemon = rig.daemon(&rig.gpu)?;
    let said = session(&daemon, SENTINEL)?;
    same("exit code", &said.code, &Some(1))?;
    same("stdout", &said.out.as_str(), &"")?;
    same("stderr", &said.err.as_str(), &"Cannot find MPS control daemon process\n")?;
    Ok(Verdict::Passed)
}

fn replies(rig: &Rig, _measured: &Measured) -> Result<Verdict> {
    let daemon = started(rig)?;
    for (asked, answer) in [
        (SENTINEL, "100.0\n"),
        ("foo\n", "Unknown command \"foo\"\n"),
        ("set_default_client_priority 7\n", "Invalid priority value - must be 0 or 1!\n"),
        ("get_server_list\n", ""),
        ("set_default_active_thread_percentage 25\n", "25.0\n"),
        // The reason is in the log only.
        ("set_default_active_thread_percentage 150\n", "25.0\n"),
        ("set_default_active_thread_percentage 12.34567\n", "12.3\n"),
        ("get_default_client_priority\r\n\tget_default_active_thread_percentage", "0\n12.3\n"),
        ("foo;bar\n", "Unknown command \"foo;bar\"\n"),
    ] {
        says(&daemon, asked, answer)?;
    }
    let log = daemon.logs();
    let reason = "Invalid percentage, expected between (0.0, 100.0]";
    ensure!(log.contains(reason), "no `{reason}` in control.log");
    Ok(Verdict::Passed)
}

fn unknown_servers(rig: &Rig, measured: &Measured) -> Result<Verdict> {
    let daemon = started(rig)?;
    let missing = "Server 999999 not found";
    let mut commands = vec!["get_client_list 999999", "shutdown_server 999999"];
    if rig.profile.has_server_status() {
        commands.push("get_server_status 999999");
    }
    for command in commands {
        says(&daemon, &format!("{command}\n"), &format!("{missing}\n"))?;
    }
    let said = session(&daemon, "terminate_client 999999 1\n")?;
    measured.note("terminate_client", said.out.trim());
    ensure!(said.out.contains(missing), "terminate_client of no server: {said:?}");
    Ok(Verdict::Passed)
}

fn one_session_at_a_time(rig: &Rig, measured: &Measured) -> Result<Verdict> {
    let daemon = started(rig)?;
    let open = Open::start(daemon.program())?;
    let (mut errors, mut silent) = (0, 0);
    for _ in 0..40 {
        let said = session(&daemon, SENTINEL)?;
        ensure!(said.out.is_empty(), "answered beside an open session: {said:?}");
        if said.err.is_empty() {
            silent += 1;
        } else {
            same(
                "stderr",
                &said.err.as_str(),
                &"Cannot send command to MPS control daemon process\n",
            )?;
            errors += 1;
        }
    }
    measured.note("errors_of_40", errors);
    measured.note("silent_of_40", silent);
    drop(open);
    // The product's own session waits for its turn and is never misled.
    daemon.defaults()?;
    for _ in 0..20 {
        says(&daemon, SENTINEL, "100.0\n")?;
    }
    Ok(Verdict::Passed)
}

fn files_and_lock(rig: &Rig, measured: &Measured) -> Result<Verdict> {
    let daemon = started(rig)?;
    let file = |name: &str| daemon.pipe().join(name);
    for name in ["control", "control_privileged"] {
        let kind = file(name).metadata().with_context(|| name.to_owned())?.file_type();
        ensure!(kind.is_socket(), "`{name}` is no socket");
    }
    ensure!(file("log").metadata()?.file_type().is_fifo(), "`log` is no FIFO");
    let mode = daemon.site().log.metadata()?.permissions().mode() & 0o777;
    measured.note("log_directory_mode", format!("{mode:o}"));
    let holder = daemon.holder()?.context("nobody holds the lock of a live daemon")?;
    let pid_file = fs::read_to_string(file("nvidia-cuda-mps-control.pid")).ok();
    measured.note("pid_file", pid_file.clone());
    let wanted = (rig.profile != VersionProfile::R535).then(|| holder.pid.to_string());
    same("the pid file", &pid_file, &wanted)?;
    ensure!(daemon.adopt()?.is_some(), "the product doesn't take the daemon for its own");
    daemon.quit(Duration::from_secs(2))?;
    same("the holder of the lock after quit", &daemon.holder()?, &None)?;
    let control = file("control").exists();
    measured.note("control_stays_after_quit", control);
    // As the product does: over what a daemon left behind.
    daemon.start(limits(rig.modest(), 1000)?)?;
    Ok(Verdict::Passed)
}

fn second_daemon(rig: &Rig, _measured: &Measured) -> Result<Verdict> {
    let daemon = started(rig)?;
    let first = daemon.holder()?;
    let mut program = daemon.program();
    program.arg("-d");
    let said = frontend::run(program, "")?;
    same("exit code", &said.code, &Some(1))?;
    let text = said.out + &said.err;
    let wanted = "An instance of this daemon is already running\n";
    same("what it says", &text.as_str(), &wanted)?;
    same("the holder of the lock", &daemon.holder()?, &first)?;
    Ok(Verdict::Passed)
}
