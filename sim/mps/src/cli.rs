//! The command line of the control program, which differs by version (facts/mps.md 1.3).

use crate::profile::Profile;

/// Where a daemon runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Foreground {
    /// `-f`: in the foreground, with its log on standard output.
    Yes,
    /// `-d`: on its own.
    No,
}

/// Whose clients a server takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Users {
    /// One user at a time.
    One,
    /// Everybody, on one server of root.
    Many,
}

/// What the program is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Sends the commands on standard input to a daemon.
    FrontEnd,
    /// The daemon.
    Daemon(Foreground, Users),
    /// Prints the usage, for it was asked.
    Help,
    /// Prints the usage, for the arguments are wrong.
    Usage,
    /// `-v`: prints the version.
    Version,
}

pub(crate) const USAGE: &str = "\
Usage: nvidia-cuda-mps-control [-d | -f]
    -d  start the control daemon in the background
    -f  start the control daemon in the foreground
    -h  print this text
Without an option, commands are read from the standard input and sent to the daemon.
";

/// Reads the arguments. Up to 550 anything unknown silently makes a front-end.
pub(crate) fn role(profile: Profile, arguments: &[String]) -> Role {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => Role::FrontEnd,
        ["-d"] => Role::Daemon(Foreground::No, Users::One),
        ["-f"] => Role::Daemon(Foreground::Yes, Users::One),
        ["-h" | "--help"] => Role::Help,
        ["-v"] if profile >= Profile::R590 => Role::Version,
        _ if profile < Profile::R555 => Role::FrontEnd,
        words => flags(profile, words),
    }
}

fn flags(profile: Profile, words: &[&str]) -> Role {
    let mut place = None;
    let mut users = Users::One;
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        match *word {
            "-d" => place = Some(Foreground::No),
            "-f" => place = Some(Foreground::Yes),
            "-multiuser-server" => users = Users::Many,
            "-M" if profile >= Profile::R610 => users = Users::Many,
            // Accepted, but the simulator divides nothing: sm_partition says so.
            "-S" | "--static-partitioning" if profile >= Profile::R590 => {}
            "-p" | "--protocol" if profile >= Profile::R615 && rest.next() == Some(&"2") => {}
            _ => return Role::Usage,
        }
    }
    place.map_or(Role::FrontEnd, |place| Role::Daemon(place, users))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(driver: &str, line: &str, expected: Role) {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let profile = Profile::of_driver(driver).unwrap();
        assert_eq!(role(profile, &arguments), expected, "{driver}: `{line}`");
    }

    #[test]
    fn unknown_flags_make_a_front_end_up_to_550_and_print_usage_from_555_on() {
        for driver in ["535.1", "550.1"] {
            check(driver, "-d -S", Role::FrontEnd);
            check(driver, "-d -multiuser-server", Role::FrontEnd);
            check(driver, "-v", Role::FrontEnd);
        }
        check("555.1", "-d -S", Role::Usage);
        check("555.1", "-M", Role::Usage);
        check("555.1", "-multiuser-server -d", Role::Daemon(Foreground::No, Users::Many));
        check("590.1", "-d -S", Role::Daemon(Foreground::No, Users::One));
        check("610.1", "-M -f", Role::Daemon(Foreground::Yes, Users::Many));
        check("615.1", "-d -p 2", Role::Daemon(Foreground::No, Users::One));
    }
}
