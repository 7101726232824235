use std::io::Write as _;

use proptest::prelude::*;

use super::*;

const SERVER_LOG: &str = "\
[2026-11-30 05:33:04.867 Other  9001] Startup
[2026-11-30 05:33:04.900 Server  9001] Active Threads Percentage set to 12.0
[2026-11-30 05:33:04.901 Server  9001] Device pinned memory limit for device 0 set to 0x77f00000 bytes
[2026-11-30 05:33:04.902 Server  9001] Server has started
[2026-11-30 05:33:05.000 Server   902] Device pinned memory limit for device 0 set to 0x1 bytes
";

fn pid(pid: i32) -> Pid {
    Pid::new(pid).unwrap()
}

#[test]
fn a_line_has_a_time_a_role_a_pid_and_a_text() {
    let line = parse_line("[2026-11-30 05:33:04.867 Control  7412] NEW UI").unwrap();
    assert_eq!(line.time, "2026-11-30 05:33:04.867");
    assert_eq!((line.role, line.pid, line.text), (Role::Control, pid(7412), "NEW UI"));
    let line = parse_line("[2026-11-30 05:33:04.867 Legacy Server 123456] x").unwrap();
    assert_eq!((line.role, line.pid), (Role::Server, pid(123_456)));
    for line in
        ["", "NEW UI", "[x] y", "[2026-11-30 05:33:04.867 Control] x", "[é2026-11-30 05:33:04.86"]
    {
        assert_eq!(parse_line(line), None, "{line}");
    }
}

#[test]
fn limits_are_those_of_the_server_in_question_exact_to_the_byte() {
    let limits = server_limits(SERVER_LOG, pid(9001));
    assert_eq!(limits.memory_bytes, Some(0x77f0_0000));
    assert_eq!(limits.percent, ThreadPercent::from_tenths(120).ok());
    assert_eq!(server_limits(SERVER_LOG, pid(1)), LoggedLimits::default());
}

#[test]
fn the_latest_limit_counts() {
    let log = format!(
        "{SERVER_LOG}[2026-11-30 06:00:00.000 Server  9001] \
         Device pinned memory limit for device 0 set to 0x200000 bytes\n"
    );
    assert_eq!(server_limits(&log, pid(9001)).memory_bytes, Some(2 << 20));
}

#[test]
fn what_an_earlier_server_with_the_same_id_wrote_does_not_count() {
    let log = format!("{SERVER_LOG}[2026-11-30 06:00:00.000 Other  9001] Startup\n");
    assert_eq!(server_limits(&log, pid(9001)), LoggedLimits::default());
}

#[test]
fn the_latest_failure_is_told_in_the_servers_words() {
    assert_eq!(server_failure(SERVER_LOG), None);
    let log = format!(
        "{SERVER_LOG}[2026-11-30 06:00:00.000 Other  9100] \
         Driver initialization failed with: no CUDA-capable device is detected\n"
    );
    let failure = "Driver initialization failed with: no CUDA-capable device is detected";
    assert_eq!(server_failure(&log), Some(failure));
}

#[test]
fn the_tail_of_a_long_log_is_bounded_and_starts_with_a_whole_line() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    for n in 0..20_000 {
        writeln!(file, "line {n}").unwrap();
    }
    let text = tail(file.path()).unwrap();
    assert!(text.len() <= usize::try_from(TAIL).unwrap());
    assert!(text.starts_with("line ") && text.ends_with("line 19999\n"));
}

#[test]
fn a_log_that_is_not_there_is_empty() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(tail(&dir.path().join("server.log")).unwrap(), "");
}

proptest! {
    #[test]
    fn any_text_is_read(text in "(?s).*") {
        let _line = parse_line(&text);
        let _limits = server_limits(&text, pid(1));
        let _failure = server_failure(&text);
    }
}

#[test]
fn clients_that_were_put_off_are_those_of_the_pending_list() {
    let log = "\
[2026-11-30 05:33:04.867 Control  7412] NEW CLIENT 11 from user 0: Server already exists
[2026-11-30 05:33:04.868 Control  7412] NEW CLIENT 12 from user 1000: Server is not ready, push client to pending list
[2026-11-30 05:33:04.869 Server   7500] NEW CLIENT 13 from user 7: Server is not ready, push client to pending list
[2026-11-30 05:33:04.870 Control  7412] NEW CLIENT x from user 7: Server is not ready, push client to pending list
[2026-11-30 05:33:04.871 Control  7412] NEW CLIENT 14 from user 1001: Server is not ready, push client to pending list
";
    let found: Vec<(i32, u32)> =
        pending_clients(log).map(|client| (client.pid.get(), client.uid)).collect();
    assert_eq!(found, [(12, 1000), (14, 1001)]);
}

#[test]
fn commands_and_clients_of_this_daemon_are_told_and_refused_commands_are_not() {
    let log = "\
[2026-11-30 05:33:04.867 Control  7412] NEW UI
[2026-11-30 05:33:04.868 Control  7412] Cmd:set_default_active_thread_percentage 1
[2026-11-30 05:33:04.868 Control  7412] Insufficient privileges for UID 1000. Control deamon settings
[2026-11-30 05:33:04.869 Control  7412] Cmd:quit -t 0
[2026-11-30 05:33:04.869 Control  7412] UI closed
[2026-11-30 05:33:04.870 Control  7412] NEW CLIENT 11538 from user 0: Server already exists
[2026-11-30 05:33:04.871 Control    99] Cmd:quit
[2026-11-30 05:33:04.872 Server   7412] Cmd:quit
";
    let client = ControlLine::Client(pid(11538));
    assert_eq!(control_lines(log, pid(7412)), [ControlLine::Command("quit -t 0"), client]);
}
