//! A client of our own, for a moment: whether a server still takes clients.
//!
//! A server may serve the clients that it has and leave each new one waiting for ever, while it
//! says that it is ACTIVE (facts/mps.md 4.1). Only who comes as a client sees that. The client is a
//! process ([`Launcher::canary`]) that connects, takes a little memory, says how it went
//! ([`Sign`]) and ends; one that waits in `cuInit` can only be killed.
//!
//! [`Launcher::canary`]: crate::Launcher::canary

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::pid::Pid;

/// What it is called in lists of processes.
pub const CANARY: &str = "mpshare-canary";

/// The longest word of a canary that is read.
const LONGEST: u64 = 4096;

/// The program, and its first arguments. It takes `--depth`, and where it has to become a process
/// of the host `--mount-namespace` and `--shm`; it says a [`Sign`] in a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CanaryProgram {
    /// The program.
    pub program: PathBuf,
    /// Its first arguments.
    pub arguments: Vec<OsString>,
}

/// How far a canary goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// It connects to the server and takes no memory of the card.
    Connect,
    /// It makes a context, too, and allocates a little.
    Allocate,
}

impl Depth {
    /// The word of the command line.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Allocate => "allocate",
        }
    }
}

/// What became of a canary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sign {
    /// The server took it.
    Served,
    /// The server, or who was to lead to it, answered with an error.
    Refused {
        /// The function of the driver API.
        call: String,
        /// Its result.
        code: i32,
    },
    /// No answer.
    Silent {
        /// For how long.
        waited: Duration,
    },
    /// Nothing was learned about the server: the canary itself didn't work.
    Unable(String),
}

impl Sign {
    /// From the line that a canary says.
    fn parse(line: &str, status: ExitStatus) -> Self {
        let mut words = line.split_whitespace();
        match (words.next(), words.next(), words.next()) {
            (Some("served"), None, None) => Self::Served,
            (Some("refused"), Some(call), Some(code)) if code.parse::<i32>().is_ok() => {
                Self::Refused { call: call.to_owned(), code: code.parse().unwrap_or_default() }
            }
            (None, ..) => Self::Unable(format!("it ended with {status}")),
            _ => Self::Unable(line.trim_start_matches("unable ").to_owned()),
        }
    }
}

impl fmt::Display for Sign {
    /// As a canary says it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Served => write!(f, "served"),
            Self::Refused { call, code } => write!(f, "refused {call} {code}"),
            Self::Silent { waited } => write!(f, "silent for {} s", waited.as_secs()),
            Self::Unable(why) => write!(f, "unable {}", why.replace('\n', " ")),
        }
    }
}

/// A canary that is on its way.
#[derive(Debug)]
pub struct Flight {
    child: Child,
    begin: Instant,
    deadline: Duration,
    /// It was killed, and isn't gone yet.
    is_given_up: bool,
}

impl Flight {
    /// Lets one go.
    pub fn start(mut command: Command, deadline: Duration) -> io::Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let child = command.spawn()?;
        Ok(Self { child, begin: Instant::now(), deadline, is_given_up: false })
    }

    /// Its process: no client of anybody else's.
    pub fn pid(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::new)
    }

    /// What became of it, once that is known; never waits. To be asked until it is.
    pub fn sign(&mut self, now: Instant) -> io::Result<Option<Sign>> {
        let waited = now.duration_since(self.begin);
        if let Some(status) = self.child.try_wait()? {
            if self.is_given_up {
                return Ok(Some(Sign::Silent { waited }));
            }
            let mut said = Vec::new();
            if let Some(stdout) = &mut self.child.stdout {
                // A few words, which a pipe holds; whoever wrote them has ended.
                stdout.take(LONGEST).read_to_end(&mut said)?;
            }
            return Ok(Some(Sign::parse(String::from_utf8_lossy(&said).trim(), status)));
        }
        if waited >= self.deadline && !self.is_given_up {
            // A client that waits has no work in flight, so this harms nobody.
            self.child.kill()?;
            self.is_given_up = true;
        }
        Ok(None)
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        // Both fail only when it is gone.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flown(script: &str, deadline: Duration) -> Sign {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        let mut flight = Flight::start(command, deadline).unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(sign) = flight.sign(Instant::now()).unwrap() {
                return sign;
            }
            assert!(Instant::now() < until, "it is never known");
            std::thread::yield_now();
        }
    }

    const LONG: Duration = Duration::from_secs(10);

    #[test]
    fn a_canary_says_how_it_went() {
        assert_eq!(flown("echo served", LONG), Sign::Served);
        let refused = Sign::Refused { call: "cuInit".to_owned(), code: 807 };
        assert_eq!(flown("echo refused cuInit 807", LONG), refused);
        assert_eq!(flown("echo unable no library", LONG), Sign::Unable("no library".to_owned()));
    }

    #[test]
    fn one_that_says_something_else_or_nothing_says_nothing_about_the_server() {
        for script in
            ["true", "exit 3", "kill -9 $$", "echo refused cuInit x", "echo; echo served 1"]
        {
            assert!(matches!(flown(script, LONG), Sign::Unable(_)), "{script}");
        }
    }

    #[test]
    fn one_that_waits_is_killed_at_the_deadline_and_was_silent() {
        let sign = flown("exec sleep 600", Duration::from_millis(50));
        assert!(matches!(sign, Sign::Silent { waited } if waited >= Duration::from_millis(50)));
    }

    #[test]
    fn what_a_sign_says_is_read_as_that_sign() {
        for sign in [
            Sign::Served,
            Sign::Refused { call: "cuCtxCreate_v2".to_owned(), code: -1 },
            Sign::Unable("`libcuda.so.1` can't be loaded".to_owned()),
        ] {
            assert_eq!(Sign::parse(&sign.to_string(), ExitStatus::default()), sign);
        }
    }
}
