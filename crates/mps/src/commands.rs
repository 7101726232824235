//! The commands that change something, as we write them, and as others may.
//!
//! Whoever reaches a daemon's socket and is root on the node, or in a container without a user
//! namespace, may send it any of them (facts/mps.md 1.2). The daemon writes each into `control.log`;
//! what isn't one of ours was somebody else's.

use crate::limits::DaemonLimits;
use crate::pid::Pid;

/// Both defaults, then the one that can be read back in parts only.
pub(crate) fn set_defaults(limits: DaemonLimits) -> [String; 3] {
    [
        format!("set_default_active_thread_percentage {}", limits.percent),
        format!("set_default_device_pinned_mem_limit 0 {}", limits.memory),
        "get_default_device_pinned_mem_limit 0".to_owned(),
    ]
}

/// Both limits of a server, for clients that come later.
pub(crate) fn set_of_server(server: Pid, limits: DaemonLimits) -> [String; 4] {
    [
        format!("set_active_thread_percentage {server} {}", limits.percent),
        format!("set_device_pinned_mem_limit {server} 0 {}", limits.memory),
        format!("get_active_thread_percentage {server}"),
        format!("get_device_pinned_mem_limit {server} 0"),
    ]
}

/// What a command of somebody else does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// It sets limits other than those that should be.
    SetsLimits,
    /// It has the daemon end once its clients have.
    Quits,
    /// It ends a server, with its clients.
    ShutsDown(Option<Pid>),
}

/// What `command` changes of a daemon that should have `limits`; `None` for what asks only, and for
/// what sets the very same limits, whoever sent it. Without limits none are other ones.
pub fn deed(command: &str, limits: Option<DaemonLimits>) -> Option<Deed> {
    let words: Vec<&str> = command.split_whitespace().collect();
    let (name, rest) = words.split_first()?;
    let percent = limits.map(|limits| limits.percent.to_string()).unwrap_or_default();
    let memory = limits.map(|limits| limits.memory.to_string()).unwrap_or_default();
    let sets = |is_same: bool| (limits.is_some() && !is_same).then_some(Deed::SetsLimits);
    match *name {
        "set_default_active_thread_percentage" => sets(rest == [percent.as_str()]),
        "set_default_device_pinned_mem_limit" => sets(rest == ["0", memory.as_str()]),
        "set_active_thread_percentage" => sets(matches!(rest, [_, to] if *to == percent.as_str())),
        "set_device_pinned_mem_limit" => {
            sets(matches!(rest, [_, "0", to] if *to == memory.as_str()))
        }
        "quit" => Some(Deed::Quits),
        "shutdown_server" => {
            let server = rest.first().and_then(|pid| pid.parse().ok()).and_then(Pid::new);
            Some(Deed::ShutsDown(server))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use mpshare_core::{Memory, ThreadPercent};

    use super::*;
    use crate::limits::PinnedLimit;

    fn limits() -> DaemonLimits {
        let percent = ThreadPercent::from_tenths(500).unwrap();
        DaemonLimits { memory: PinnedLimit::new(Memory::from_mib(7680)).unwrap(), percent }
    }

    #[test]
    fn what_we_say_ourselves_is_no_deed() {
        let server = Pid::new(7).unwrap();
        let all = set_defaults(limits()).into_iter().chain(set_of_server(server, limits()));
        for command in all {
            assert_eq!(deed(&command, Some(limits())), None, "{command}");
        }
        assert_eq!(deed(crate::session::SENTINEL, Some(limits())), None);
    }

    #[test]
    fn other_limits_are_one_in_any_spelling() {
        for command in [
            "set_default_device_pinned_mem_limit 0 100G",
            "  set_default_device_pinned_mem_limit\t0 7681M",
            "set_default_device_pinned_mem_limit 0",
            "set_default_active_thread_percentage 100",
            "set_device_pinned_mem_limit 7 0 9G more",
            "set_active_thread_percentage 7 1",
        ] {
            assert_eq!(deed(command, Some(limits())), Some(Deed::SetsLimits), "{command}");
        }
    }

    #[test]
    fn ends_are_deeds_and_questions_are_not() {
        assert_eq!(deed("quit -t 0", Some(limits())), Some(Deed::Quits));
        assert_eq!(deed("quit", None), Some(Deed::Quits));
        assert_eq!(deed("set_default_active_thread_percentage 1", None), None);
        let server = Pid::new(812);
        assert_eq!(deed("shutdown_server 812 -f", Some(limits())), Some(Deed::ShutsDown(server)));
        assert_eq!(deed("shutdown_server", Some(limits())), Some(Deed::ShutsDown(None)));
        for command in ["", "get_server_list", "ps", "SET_DEFAULT_ACTIVE_THREAD_PERCENTAGE 1"] {
            assert_eq!(deed(command, Some(limits())), None, "{command}");
        }
    }
}
