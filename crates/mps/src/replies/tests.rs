use mpshare_core::Memory;
use proptest::prelude::*;

use super::*;
use crate::limits::{DaemonLimits, PinnedLimit};

fn lines(text: &[&str]) -> Vec<String> {
    text.iter().map(|line| (*line).to_owned()).collect()
}

fn tenths(tenths: u32) -> ThreadPercent {
    ThreadPercent::from_tenths(tenths).unwrap()
}

fn shown(value: u32) -> PercentDisplay {
    PercentDisplay::Tenths(tenths(value))
}

fn server() -> Pid {
    Pid::new(7).unwrap()
}

fn refused_text() -> &'static str {
    "Insufficient privileges for UID 1234. Control deamon settings can only be modified by the \
     user started it or by the root user."
}

#[test]
fn a_percentage_has_exactly_one_decimal() {
    assert_eq!(percent("33.5"), Some(shown(335)));
    assert_eq!(percent("0.0"), Some(PercentDisplay::BelowATenth));
    for line in ["33", "33.55", "0.00", "-0.0", "33.", "7G", "", "100.1", "25.0 "] {
        assert_eq!(percent(line), None, "{line}");
    }
}

#[test]
fn a_memory_limit_is_a_number_of_mib_or_gib() {
    assert_eq!(memory("512M"), Some(MemoryDisplay::Mib(512)));
    assert_eq!(memory("0G"), Some(MemoryDisplay::Gib(0)));
    for line in ["", "G", "-1G", "+1G", "1.5G", "7", "7K", "é"] {
        assert_eq!(memory(line), None, "{line}");
    }
}

#[test]
fn applied_limits_are_an_echo_and_a_display() {
    let found = applied(&lines(&["50.0", "7G"]), shown(500)).unwrap();
    let limits = DaemonLimits {
        memory: PinnedLimit::new(Memory::from_mib(7680)).unwrap(),
        percent: tenths(500),
    };
    assert!(found.shows(limits));
}

#[test]
fn a_missing_or_zero_display_is_never_the_limit() {
    let limits = DaemonLimits {
        memory: PinnedLimit::new(Memory::from_mib(512)).unwrap(),
        percent: tenths(500),
    };
    for reply in [&["50.0"][..], &["50.0", "0G"]] {
        let found = applied(&lines(reply), shown(500)).unwrap();
        assert!(!found.shows(limits), "{reply:?}");
    }
}

#[test]
fn an_old_percentage_in_the_echo_is_seen_in_the_defaults() {
    let found = applied(&lines(&["25.0", "7G"]), shown(250)).unwrap();
    assert_eq!(found.percent, shown(250));
}

#[test]
fn a_reply_that_was_cut_off_is_unknown_and_not_fine() {
    // The echo taken for the sentinel: nothing is left.
    assert!(matches!(applied(&[], shown(500)), Err(ReplyError::Unknown(_))));
    for reply in [&["7G"][..], &["50.0", "7G", "7G"], &["50.0", "x"]] {
        let answer = applied(&lines(reply), shown(500));
        assert!(matches!(answer, Err(ReplyError::Unknown(_))), "{reply:?}");
    }
}

#[test]
fn refusals_are_refusals_in_every_reply() {
    for text in [
        refused_text(),
        "Not enough privilege to execute quit command",
        "Unknown command \"get_server_status\"",
    ] {
        let lines = lines(&[text, "50.0", "7G"]);
        let refused = ReplyError::Refused(text.to_owned());
        assert_eq!(applied(&lines, shown(500)), Err(refused.clone()));
        assert_eq!(defaults(&lines, shown(500)), Err(refused.clone()));
        assert_eq!(server_list(&lines), Err(refused.clone()));
        assert_eq!(server_status(server(), &lines), Err(refused.clone()));
        assert_eq!(client_list(server(), &lines), Err(refused.clone()));
        assert_eq!(server_limits(server(), &lines), Err(refused.clone()));
        assert_eq!(terminated(server(), &lines), Err(refused.clone()));
        assert_eq!(shut_down(server(), &lines), Err(refused));
    }
}

#[test]
fn lists_are_pids_and_nothing_else() {
    assert_eq!(server_list(&[]), Ok(Vec::new()));
    assert_eq!(server_list(&lines(&["7"])), Ok(vec![server()]));
    for reply in ["", "-7", "7 8", "x", "99999999999"] {
        assert!(server_list(&lines(&[reply])).is_err(), "{reply}");
    }
}

#[test]
fn a_server_that_is_gone_is_told_from_one_without_clients() {
    let gone = Err(ReplyError::NoSuchServer(server()));
    assert_eq!(client_list(server(), &lines(&["Server 7 not found"])), gone);
    assert_eq!(client_list(server(), &[]), Ok(Vec::new()));
    let twice = lines(&["Server 7 not found", "Server 7 not found"]);
    assert_eq!(client_list_and_status(server(), &twice), gone);
}

#[test]
fn the_empty_list_of_an_initializing_server_is_no_answer() {
    let reply = lines(&["INITIALIZING"]);
    let initializing = Err(ReplyError::Initializing(server()));
    assert_eq!(client_list_and_status(server(), &reply), initializing);
    let reply = lines(&["11", "12", "ACTIVE"]);
    let clients = vec![Pid::new(11).unwrap(), Pid::new(12).unwrap()];
    assert_eq!(client_list_and_status(server(), &reply), Ok(clients));
    assert_eq!(client_list_and_status(server(), &lines(&["FAULT"])), Ok(Vec::new()));
}

#[test]
fn a_client_with_pid_zero_is_in_another_pid_namespace() {
    let reply = lines(&["11", "0"]);
    assert_eq!(client_list(server(), &reply), Err(ReplyError::OtherPidNamespace));
}

#[test]
fn a_status_is_one_word() {
    let status = |word| server_status(server(), &lines(&[word]));
    assert_eq!(status("ACTIVE"), Ok(ServerStatus::Active));
    assert_eq!(status("FAULT"), Ok(ServerStatus::Fault));
    assert_eq!(status("DRAINING"), Ok(ServerStatus::Other("DRAINING".to_owned())));
    assert!(status("").is_err());
    assert!(status("active").is_err());
    assert!(server_status(server(), &[]).is_err());
}

#[test]
fn limits_of_a_server_are_the_last_lines_whether_setting_echoes_or_not() {
    let expected = Ok(Defaults { percent: shown(500), memory: Some(MemoryDisplay::Gib(7)) });
    for reply in [&["50.0", "7G"][..], &["50.0", "50.0", "7G"]] {
        assert_eq!(server_limits(server(), &lines(reply)), expected);
    }
    let initializing = Err(ReplyError::Initializing(server()));
    assert_eq!(server_limits(server(), &[]), initializing);
    assert!(server_limits(server(), &lines(&["7G"])).is_err());
}

#[test]
fn a_client_is_terminated_only_by_a_zero() {
    assert_eq!(terminated(server(), &lines(&["0"])), Ok(Ok(())));
    assert_eq!(terminated(server(), &lines(&["1"])), Ok(Err("1".to_owned())));
    assert!(matches!(terminated(server(), &[]), Ok(Err(_))));
    let gone = lines(&["Server 7 not found", "Server 7 not found!", "1"]);
    assert_eq!(terminated(server(), &gone), Err(ReplyError::NoSuchServer(server())));
}

proptest! {
    #[test]
    fn any_reply_is_read(reply in proptest::collection::vec("(Server 7 not found|[0-9]{0,3}\\.?[0-9MG]?|.*)", 0..5)) {
        let full = shown(1000);
        drop(applied(&reply, full));
        drop(defaults(&reply, full));
        drop(server_list(&reply));
        drop(server_status(server(), &reply));
        drop(client_list_and_status(server(), &reply));
        drop(server_limits(server(), &reply));
        drop(terminated(server(), &reply));
        drop(shut_down(server(), &reply));
    }
}
