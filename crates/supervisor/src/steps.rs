//! What to do next for one card: pure.
//!
//! A worker looks at its card, asks [`next_step`], does that one step, and looks again until the
//! answer is [`Step::Settled`] or [`Step::Wait`]. So it makes no difference after which step the
//! last supervisor was killed.

use std::path::PathBuf;

use mpshare_core::{GpuUuid, Hosting, Limits, Reason};

/// What a worker sees of its card before each step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The card.
    pub gpu: GpuUuid,
    /// Who holds the lock of the directory that the plan names, if it names one.
    pub daemon: Holder,
    /// Live daemons of ours for this card in other directories.
    pub strays: Vec<Stray>,
    /// Whether the compute mode is `EXCLUSIVE_PROCESS`.
    pub is_exclusive_process: bool,
    /// Whether a compute mode found earlier waits to be restored.
    pub has_mode_to_restore: bool,
    /// Limits verified on this very daemon.
    pub verified: Option<Limits>,
    /// The server of the daemon in the plan's directory.
    pub server: ServerSeen,
    /// How many clients the daemon in the plan's directory still has, if it was told to quit.
    pub quitting: Option<usize>,
    /// Whether it should be gone by now.
    pub is_stuck_quitting: bool,
    /// The daemon in the plan's directory, if it was started under another driver.
    pub outdated: Option<Outdated>,
    /// Why no daemon can be launched; only looked for where there is none.
    pub obstacle: Option<Reason>,
}

/// Where a daemon's server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerSeen {
    /// There is none.
    Absent,
    /// It doesn't serve yet.
    Starting,
    /// It runs, well or in trouble; that is watched, not stepped.
    Running,
    /// It runs, and won't come to itself.
    Hopeless,
}

/// Who holds a pipe directory's lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holder {
    /// Nobody.
    Nobody,
    /// A control daemon with this card and this directory in its environment.
    Ours(i32),
    /// Something else.
    Foreign(i32),
}

/// A daemon of ours that the plan doesn't name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stray {
    /// Its directory, the parent of `pipe`.
    pub dir: PathBuf,
    /// Its clients.
    pub clients: usize,
    /// Whether it has given no answer for long.
    pub is_mute: bool,
}

/// A daemon that was started under another driver than the one that is loaded now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outdated {
    /// The daemon.
    pub daemon: Stray,
    /// The version of that driver.
    pub was: String,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Journal the compute mode and set `EXCLUSIVE_PROCESS`.
    SetComputeMode,
    /// Restore the journalled compute mode.
    RestoreComputeMode,
    /// Start a daemon.
    Start(Limits),
    /// Tell the daemon these limits and read them back.
    Apply(Limits),
    /// Have the daemon start a server.
    StartServer,
    /// End a server that is beyond hope.
    EndServer,
    /// End a daemon that was told to quit, has no clients, and doesn't.
    EndDaemon,
    /// Look again in a moment: a server is starting.
    AwaitServer,
    /// End a daemon that the plan doesn't want; it has no clients.
    Quit(PathBuf),
    /// The same by its process, since it can't be told.
    EndStray(PathBuf),
    /// Nothing can be done before something else changes.
    Wait(Reason),
    /// The card can't be what the plan wants before something else on the node changes.
    Refuse(Reason),
    /// The card is as the plan wants it.
    Settled,
}

impl Step {
    /// Whether it takes something away that a container may have been promised.
    pub(crate) const fn disrupts(&self) -> bool {
        matches!(
            self,
            Self::SetComputeMode
                | Self::Start(_)
                | Self::EndServer
                | Self::EndDaemon
                | Self::Quit(_)
                | Self::EndStray(_)
        )
    }
}

/// The next step towards `wanted`.
///
/// A daemon with clients is never ended, whatever the plan says: the record of a share may be
/// missing, a client isn't (design: no restart, reload or crash of ours ends a client).
pub(crate) fn next_step(wanted: &Hosting, seen: &Seen) -> Step {
    if let Holder::Foreign(pid) = seen.daemon {
        return Step::Wait(Reason::ForeignDaemon { gpu: seen.gpu.clone(), pid });
    }
    if let Some(stray) = seen.strays.first() {
        return match stray.clients {
            0 if stray.is_mute => Step::EndStray(stray.dir.clone()),
            0 => Step::Quit(stray.dir.clone()),
            clients => Step::Wait(Reason::WaitingForClients { gpu: seen.gpu.clone(), clients }),
        };
    }
    match wanted {
        Hosting::Mps { limits, .. } => towards_mps(*limits, seen),
        Hosting::Exclusive | Hosting::Nothing if seen.has_mode_to_restore => {
            Step::RestoreComputeMode
        }
        Hosting::Exclusive | Hosting::Nothing => Step::Settled,
    }
}

/// The guard goes up before the daemon: a process that bypasses MPS then fails instead of running
/// without limits (facts/mps.md 3). It holds only while a server owns the card: without one, the
/// first process that comes gets the whole card, MPS or not. So a server is there before anybody.
fn towards_mps(limits: Limits, seen: &Seen) -> Step {
    if let Some(Outdated { daemon, was }) = &seen.outdated {
        return match daemon.clients {
            0 => Step::Quit(daemon.dir.clone()),
            clients => {
                let (gpu, was) = (seen.gpu.clone(), was.clone());
                Step::Wait(Reason::DriverChanged { gpu, was, clients })
            }
        };
    }
    if seen.is_stuck_quitting {
        return Step::EndDaemon;
    }
    if let Some(clients) = seen.quitting {
        return Step::Wait(Reason::DaemonQuitting { gpu: seen.gpu.clone(), clients });
    }
    if let (Holder::Nobody, Some(reason)) = (seen.daemon, &seen.obstacle) {
        return Step::Refuse(reason.clone());
    }
    if !seen.is_exclusive_process {
        return Step::SetComputeMode;
    }
    match seen.daemon {
        Holder::Nobody => Step::Start(limits),
        // Nothing can be told to a server that never finishes its start.
        Holder::Ours(_) if seen.server == ServerSeen::Hopeless => Step::EndServer,
        Holder::Ours(_) if seen.verified != Some(limits) => Step::Apply(limits),
        Holder::Ours(_) | Holder::Foreign(_) => match seen.server {
            ServerSeen::Absent => Step::StartServer,
            ServerSeen::Starting => Step::AwaitServer,
            ServerSeen::Running => Step::Settled,
            ServerSeen::Hopeless => Step::EndServer,
        },
    }
}

#[cfg(test)]
mod tests {
    use mpshare_core::{Memory, ThreadPercent};

    use super::*;

    fn limits(mib: u64) -> Limits {
        Limits { memory: Memory::from_mib(mib), percent: ThreadPercent::FULL }
    }

    fn mps(mib: u64) -> Hosting {
        Hosting::Mps { resource: "nvidia.com/gpu".parse().unwrap(), limits: limits(mib) }
    }

    fn untouched() -> Seen {
        Seen {
            gpu: "GPU-ab".parse().unwrap(),
            daemon: Holder::Nobody,
            strays: Vec::new(),
            is_exclusive_process: false,
            has_mode_to_restore: false,
            verified: None,
            server: ServerSeen::Absent,
            quitting: None,
            is_stuck_quitting: false,
            outdated: None,
            obstacle: None,
        }
    }

    fn running(mib: u64) -> Seen {
        Seen {
            daemon: Holder::Ours(7),
            is_exclusive_process: true,
            has_mode_to_restore: true,
            verified: Some(limits(mib)),
            server: ServerSeen::Running,
            ..untouched()
        }
    }

    #[test]
    fn the_compute_mode_is_set_before_the_daemon_and_limits_before_it_counts_as_settled() {
        let mut seen = untouched();
        assert_eq!(next_step(&mps(1), &seen), Step::SetComputeMode);
        seen.is_exclusive_process = true;
        assert_eq!(next_step(&mps(1), &seen), Step::Start(limits(1)));
        seen.daemon = Holder::Ours(7);
        assert_eq!(next_step(&mps(1), &seen), Step::Apply(limits(1)));
        seen.verified = Some(limits(1));
        assert_eq!(next_step(&mps(1), &seen), Step::StartServer);
    }

    #[test]
    fn a_card_is_settled_only_once_a_server_holds_it() {
        let mut seen = running(1);
        for (server, step) in [
            (ServerSeen::Absent, Step::StartServer),
            (ServerSeen::Starting, Step::AwaitServer),
            (ServerSeen::Running, Step::Settled),
            (ServerSeen::Hopeless, Step::EndServer),
        ] {
            seen.server = server;
            assert_eq!(next_step(&mps(1), &seen), step);
        }
    }

    #[test]
    fn a_server_that_hangs_is_ended_before_anybody_is_told_limits() {
        let seen = Seen { verified: None, server: ServerSeen::Hopeless, ..running(1) };
        assert_eq!(next_step(&mps(1), &seen), Step::EndServer);
    }

    #[test]
    fn an_adopted_daemon_is_verified_anew_and_not_restarted() {
        let seen = Seen { verified: None, ..running(1) };
        assert_eq!(next_step(&mps(1), &seen), Step::Apply(limits(1)));
    }

    #[test]
    fn changed_limits_are_applied_to_the_running_daemon() {
        assert_eq!(next_step(&mps(2), &running(1)), Step::Apply(limits(2)));
    }

    fn beside(clients: usize) -> Seen {
        let stray = Stray { dir: "/x".into(), clients, is_mute: false };
        Seen { strays: vec![stray], has_mode_to_restore: true, ..untouched() }
    }

    #[test]
    fn a_daemon_with_clients_is_never_ended() {
        for wanted in [Hosting::Exclusive, Hosting::Nothing, mps(1)] {
            assert!(matches!(
                next_step(&wanted, &beside(1)),
                Step::Wait(Reason::WaitingForClients { clients: 1, .. })
            ));
        }
    }

    #[test]
    fn an_idle_daemon_ends_and_then_the_compute_mode_comes_back() {
        assert_eq!(next_step(&Hosting::Exclusive, &beside(0)), Step::Quit("/x".into()));
        let mut seen = Seen { strays: Vec::new(), ..beside(0) };
        assert_eq!(next_step(&Hosting::Exclusive, &seen), Step::RestoreComputeMode);
        seen.has_mode_to_restore = false;
        assert_eq!(next_step(&Hosting::Exclusive, &seen), Step::Settled);
    }

    #[test]
    fn an_idle_daemon_that_gives_no_answer_ends_by_its_process() {
        let mut seen = beside(0);
        seen.strays[0].is_mute = true;
        assert_eq!(next_step(&mps(1), &seen), Step::EndStray("/x".into()));
        assert!(Step::EndStray("/x".into()).disrupts());
    }

    #[test]
    fn a_compute_mode_that_was_never_ours_is_left_alone() {
        let seen = Seen { is_exclusive_process: true, ..untouched() };
        assert_eq!(next_step(&Hosting::Exclusive, &seen), Step::Settled);
    }

    #[test]
    fn an_obstacle_keeps_a_card_untouched_and_is_none_for_a_whole_card_or_a_daemon_that_lives() {
        let reason = Reason::ProgramMissing { gpu: "GPU-ab".parse().unwrap(), problem: "x".into() };
        let obstacle = Some(reason.clone());
        let seen = Seen { obstacle: obstacle.clone(), ..untouched() };
        assert_eq!(next_step(&mps(1), &seen), Step::Refuse(reason));
        assert_eq!(next_step(&Hosting::Exclusive, &seen), Step::Settled);
        assert_eq!(next_step(&mps(1), &Seen { obstacle, ..running(1) }), Step::Settled);
    }

    #[test]
    fn a_daemon_that_was_told_to_quit_is_waited_for_and_told_nothing() {
        for verified in [None, Some(limits(2))] {
            let seen = Seen { quitting: Some(3), verified, ..running(1) };
            let step = next_step(&mps(1), &seen);
            assert!(matches!(step, Step::Wait(Reason::DaemonQuitting { clients: 3, .. })));
            let stuck = Seen { quitting: Some(0), is_stuck_quitting: true, ..running(1) };
            assert_eq!(next_step(&mps(1), &stuck), Step::EndDaemon);
        }
    }

    #[test]
    fn a_daemon_of_a_former_driver_ends_when_it_has_no_clients() {
        let beside = |clients| {
            let daemon = Stray { dir: "/x".into(), clients, is_mute: false };
            let outdated = Some(Outdated { daemon, was: "550.1".to_owned() });
            next_step(&mps(1), &Seen { outdated, ..running(1) })
        };
        assert!(matches!(beside(1), Step::Wait(Reason::DriverChanged { clients: 1, .. })));
        assert_eq!(beside(0), Step::Quit("/x".into()));
    }

    #[test]
    fn a_foreign_daemon_is_named_and_not_touched() {
        let seen = Seen { daemon: Holder::Foreign(9), ..untouched() };
        assert!(matches!(
            next_step(&mps(1), &seen),
            Step::Wait(Reason::ForeignDaemon { pid: 9, .. })
        ));
    }
}
