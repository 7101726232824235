//! The front-end: sends the lines of the standard input to the daemon, one command each, and
//! prints what comes back.
//!
//! Its exit code says only whether it talked to a daemon (facts/mps.md 1.2).

use std::io::{BufRead, Write};
use std::path::Path;
use std::process::ExitCode;

use mpshare_sim_state::mps::{Hello, UiReply};
use mpshare_sim_state::wire::Packets;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::daemonize::complain;

/// A longer line is taken as several commands.
const LONGEST_LINE: usize = 1023;

const NOT_FOUND: &str = "Cannot find MPS control daemon process";
const NOT_SENT: &str = "Cannot send command to MPS control daemon process";

/// Runs one session with the daemon that listens on `control`.
pub(crate) fn run(control: &Path) -> ExitCode {
    let Ok(connection) = Packets::connect(control) else {
        complain(NOT_FOUND);
        return ExitCode::FAILURE;
    };
    let welcome = connection.send(&Hello::Ui).and_then(|()| connection.receive());
    match welcome {
        Ok(Some(UiReply::Welcome)) => converse(&connection),
        Ok(Some(UiReply::Busy { message, code })) => {
            complain(&message.unwrap_or_default());
            ExitCode::from(code)
        }
        _ => {
            complain(NOT_SENT);
            ExitCode::FAILURE
        }
    }
}

fn converse(connection: &Packets) -> ExitCode {
    let mut input = std::io::stdin().lock();
    let mut line = Vec::new();
    loop {
        line.clear();
        match input.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return hang_up(connection),
            Ok(_) => {}
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        let text = String::from_utf8_lossy(&line);
        for command in pieces(&text) {
            if let Some(code) = send(connection, command) {
                return code;
            }
        }
    }
}

/// Sends one command; `Some` ends the session.
fn send(connection: &Packets, command: &str) -> Option<ExitCode> {
    let reply = connection.send(&command).and_then(|()| connection.receive());
    match reply {
        Ok(Some(UiReply::Text(text))) => {
            let mut out = std::io::stdout().lock();
            // Nobody reads: the commands still go through.
            drop(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
            None
        }
        Ok(Some(UiReply::Leaving { code })) => {
            wait_for_end(connection);
            Some(ExitCode::from(code))
        }
        _ => {
            complain(NOT_SENT);
            Some(ExitCode::FAILURE)
        }
    }
}

/// A line in as many commands as it takes.
fn pieces(line: &str) -> Vec<&str> {
    let mut rest = line;
    let mut pieces = Vec::new();
    while rest.len() > LONGEST_LINE {
        let (piece, tail) = rest.split_at(rest.floor_char_boundary(LONGEST_LINE));
        pieces.push(piece);
        rest = tail;
    }
    pieces.push(rest);
    pieces
}

/// Ends the session and waits until the daemon has seen it, so that the next front-end finds the
/// daemon free.
fn hang_up(connection: &Packets) -> ExitCode {
    let ended = rustix::net::shutdown(connection, rustix::net::Shutdown::Write);
    if ended.is_ok() {
        drop(connection.receive::<UiReply>());
    }
    ExitCode::SUCCESS
}

/// Waits for the end of the daemon's process.
fn wait_for_end(connection: &Packets) {
    let daemon = connection.peer().ok().and_then(|peer| Pid::from_raw(peer.pid));
    match daemon.map(|pid| pidfd_open(pid, PidfdFlags::empty())) {
        Some(Ok(process)) => {
            poll(&mut [PollFd::new(&process, PollFlags::IN)], None).ok();
        }
        // In another PID namespace: the end of the connection has to do.
        _ => drop(connection.receive::<UiReply>()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_too_long_is_several_commands() {
        assert_eq!(pieces(""), [""]);
        let long = "x".repeat(LONGEST_LINE + 1);
        assert_eq!(pieces(&long).iter().map(|piece| piece.len()).collect::<Vec<_>>(), [1023, 1]);
    }
}
