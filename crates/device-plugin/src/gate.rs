//! Whether a container may start now: the last look before its processes can reach the card.
//!
//! A share was granted by plan and ledger; here the supervisor has to have verified that the
//! daemon which the container will meet enforces it, and nobody who had the units before may
//! still be running.

use std::path::{Path, PathBuf};

use mpshare_api::GpuStatus;
use mpshare_api::status::{DaemonStatus, FormerPods, LimitsStatus};
use mpshare_core::{LiveShare, Mode, Reason};

use crate::control_lock::DaemonLife;

/// Says what keeps a container with `share` from starting; `life` tells of a daemon in a pipe
/// directory.
pub(crate) fn check(
    share: &LiveShare,
    status: Option<&GpuStatus>,
    life: impl FnOnce(&Path) -> DaemonLife,
) -> Result<(), Reason> {
    let status = status.ok_or_else(|| not_ready(share, "unknown", "it isn't reported".into()))?;
    if !status.serves_holders() {
        let why = status.reason.as_ref().map(|reason| reason.message.clone());
        let state = status.state.to_string();
        return Err(not_ready(share, &state, why.unwrap_or_else(|| "no reason given".into())));
    }
    match (share.mode, &status.daemon) {
        (Mode::Mps, Some(daemon)) => check_daemon(share, daemon, life),
        (Mode::Mps, None) => Err(Reason::LimitsNotVerified {
            gpu: share.gpu.clone(),
            share: share.share.memory,
            verified: None,
        }),
        (Mode::Exclusive, Some(daemon)) => {
            let why = format!("its MPS daemon (PID {}) still runs", daemon.pid);
            Err(not_ready(share, "shared", why))
        }
        (Mode::Exclusive, None) => Ok(()),
    }
}

fn check_daemon(
    share: &LiveShare,
    daemon: &DaemonStatus,
    life: impl FnOnce(&Path) -> DaemonLife,
) -> Result<(), Reason> {
    let pipe = Path::new(&daemon.pipe_directory);
    let expected = pipe_directory(share);
    if !pipe.ends_with(&expected) {
        let why = format!("its daemon is in `{}`, not in `{}`", pipe.display(), expected.display());
        return Err(not_ready(share, "moving", why));
    }
    let limits = daemon.limits.and_then(LimitsStatus::limits);
    let allows = limits.is_some_and(|limits| {
        limits.memory >= share.share.memory && limits.percent >= share.share.percent
    });
    if !allows {
        return Err(Reason::LimitsNotVerified {
            gpu: share.gpu.clone(),
            share: share.share.memory,
            verified: limits.map(|limits| limits.memory),
        });
    }
    if life(pipe) == DaemonLife::Dead {
        return Err(daemon_is_dead(share, daemon));
    }
    Ok(())
}

/// The sentence for a daemon that the report doesn't know to be dead yet.
pub(crate) fn daemon_is_dead(share: &LiveShare, daemon: &DaemonStatus) -> Reason {
    let why = format!("its MPS control daemon (PID {}) has ended", daemon.pid);
    not_ready(share, "without its daemon", why)
}

/// Says which former owners keep a container with `share` from starting. The supervisor has to
/// have looked for their processes after the share was granted, at the given revision.
pub(crate) fn check_former_pods(
    share: &LiveShare,
    (revision, former): (u64, &[String]),
    status: Option<&GpuStatus>,
    looked: Option<&FormerPods>,
) -> Result<(), Reason> {
    if former.is_empty() {
        return Ok(());
    }
    let Some(looked) = looked.filter(|looked| looked.revision >= revision) else {
        let why = "processes of its units' former owner haven't been looked for yet".to_owned();
        return Err(not_ready(share, "changing hands", why));
    };
    let on_card = |uid: &String| -> Vec<i32> {
        let users = status.into_iter().flat_map(GpuStatus::users);
        users.filter(|user| user.pod_uid.as_ref() == Some(uid)).map(|user| user.pid).collect()
    };
    let is_alive = |uid: &&String| looked.alive.contains(*uid) || !on_card(uid).is_empty();
    let pods: Vec<String> = former.iter().filter(is_alive).cloned().collect();
    if pods.is_empty() {
        return Ok(());
    }
    let processes = pods.iter().flat_map(on_card).collect();
    Err(Reason::FormerOwnerAlive { gpu: share.gpu.clone(), pods, pids: processes })
}

/// The end of the path of the directory that the container's reply mounts.
fn pipe_directory(share: &LiveShare) -> PathBuf {
    Path::new(share.resource.as_str()).join(share.gpu.short()).join("pipe")
}

fn not_ready(share: &LiveShare, state: &str, why: String) -> Reason {
    Reason::GpuNotReady { gpu: share.gpu.clone(), state: state.to_owned(), why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ready, share, unit};
    use mpshare_api::GpuState;
    use mpshare_api::status::{ClientStatus, ReasonText};

    fn checked(share: &LiveShare, status: &GpuStatus) -> Result<(), Reason> {
        check(share, Some(status), |_| DaemonLife::Alive)
    }

    fn one_unit() -> LiveShare {
        share(&[unit(0, 0)], 7680, 500)
    }

    #[test]
    fn a_verified_share_on_a_ready_card_may_start_whatever_the_generation() {
        assert_eq!(checked(&one_unit(), &ready(0, "older")), Ok(()));
    }

    #[test]
    fn an_unreported_or_starting_card_is_waited_for_and_its_reason_is_passed_on() {
        let unknown = check(&one_unit(), None, |_| DaemonLife::Alive);
        assert!(matches!(unknown, Err(Reason::GpuNotReady { .. })));
        let status = GpuStatus {
            state: GpuState::Fault,
            reason: Some(ReasonText {
                code: "Xid".into(),
                message: "reported Xid 79".into(),
                pods: Vec::new(),
            }),
            ..ready(0, "x")
        };
        let error = checked(&one_unit(), &status).unwrap_err().to_string();
        assert!(error.contains("Fault") && error.contains("Xid 79"), "{error}");
    }

    #[test]
    fn a_share_on_a_card_that_is_drained_may_start_again_until_its_daemon_is_about_to_go() {
        let because = |code: &str| GpuStatus {
            state: GpuState::Draining,
            reason: Some(ReasonText { code: code.into(), message: "m".into(), pods: Vec::new() }),
            ..ready(0, "drained/x")
        };
        assert_eq!(checked(&one_unit(), &because("CardDraining")), Ok(()));
        for code in ["CardEmptied", "CardDrained", "WaitingForClients"] {
            assert!(checked(&one_unit(), &because(code)).is_err(), "{code}");
        }
    }

    #[test]
    fn a_share_larger_than_the_verified_limit_waits_in_memory_and_in_threads() {
        let larger = share(&[unit(0, 0)], 7681, 500);
        assert!(matches!(
            checked(&larger, &ready(0, "x")),
            Err(Reason::LimitsNotVerified { verified: Some(_), .. })
        ));
        let faster = share(&[unit(0, 0)], 7680, 501);
        assert!(checked(&faster, &ready(0, "x")).is_err());
        let mut unverified = ready(0, "x");
        unverified.daemon.as_mut().unwrap().limits = None;
        assert!(matches!(
            checked(&one_unit(), &unverified),
            Err(Reason::LimitsNotVerified { verified: None, .. })
        ));
    }

    #[test]
    fn a_dead_daemon_is_noticed_before_the_report_says_so() {
        let status = ready(0, "x");
        let dead = check(&one_unit(), Some(&status), |_| DaemonLife::Dead);
        assert!(dead.unwrap_err().to_string().contains("PID 100"));
        let unknown = check(&one_unit(), Some(&status), |_| DaemonLife::Unknown);
        assert_eq!(unknown, Ok(()));
    }

    #[test]
    fn a_daemon_in_another_directory_is_not_the_one_that_the_container_will_meet() {
        let mut status = ready(0, "x");
        let daemon = status.daemon.as_mut().unwrap();
        daemon.pipe_directory = daemon.pipe_directory.replace("nvidia.com/gpu", "nvidia.com/old");
        assert!(matches!(checked(&one_unit(), &status), Err(Reason::GpuNotReady { .. })));
    }

    fn after(revision: u64, looked: &FormerPods, users: &[ClientStatus]) -> Result<(), Reason> {
        let mut status = ready(0, "x");
        status.daemon.as_mut().unwrap().clients = users.to_vec();
        let former = ["pod-a".to_owned()];
        check_former_pods(&one_unit(), (revision, &former), Some(&status), Some(looked))
    }

    #[test]
    fn a_former_owner_is_waited_for_while_it_has_any_process_and_a_neighbour_is_not() {
        let client = |pid, pod: &str| ClientStatus {
            pid,
            memory_mib: None,
            pod_uid: Some(pod.into()),
            container_id: None,
        };
        let looked = |alive: &[&str]| FormerPods {
            revision: 5,
            alive: alive.iter().map(|uid| (*uid).to_owned()).collect(),
        };
        assert_eq!(after(5, &looked(&[]), &[client(7, "pod-b")]), Ok(()));
        for (alive, users, pids) in [
            (&["pod-a"][..], &[][..], &[][..]),
            (&[], &[client(7, "pod-b"), client(8, "pod-a")], &[8]),
        ] {
            let reason = after(5, &looked(alive), users).unwrap_err();
            let (gpu, pods) = (one_unit().gpu, vec!["pod-a".to_owned()]);
            assert_eq!(reason, Reason::FormerOwnerAlive { gpu, pods, pids: pids.to_vec() });
        }
    }

    #[test]
    fn a_look_from_before_the_grant_says_nothing() {
        let looked = FormerPods { revision: 4, alive: Vec::new() };
        assert!(matches!(after(5, &looked, &[]), Err(Reason::GpuNotReady { .. })));
        assert_eq!(after(4, &looked, &[]), Ok(()));
    }

    #[test]
    fn a_whole_card_waits_until_no_daemon_runs() {
        let whole = LiveShare { mode: Mode::Exclusive, ..one_unit() };
        assert!(checked(&whole, &ready(0, "x")).is_err());
        let status = GpuStatus { daemon: None, ..ready(0, "x") };
        assert_eq!(checked(&whole, &status), Ok(()));
        assert!(checked(&one_unit(), &status).is_err());
    }
}
