use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

fn me() -> Pid {
    Pid::new(i32::try_from(std::process::id()).unwrap()).unwrap()
}

#[test]
fn this_process_is_found_with_program_environment_and_parent() {
    let proc = Proc::default();
    let stat = proc.stat(me()).unwrap().unwrap();
    assert!(stat.lives() && stat.parent.is_some() && stat.start > 0);
    assert!(proc.pids().unwrap().contains(&me()));
    let program = proc.program(me()).unwrap().unwrap();
    let exe = std::env::current_exe().unwrap();
    assert_eq!(Some(program.as_os_str()), exe.file_name());
    let environment = proc.environment(me()).unwrap().unwrap();
    assert_eq!(environment.get("PATH"), std::env::var_os("PATH"));
}

#[test]
fn a_process_that_is_gone_is_none_and_a_zombie_lives_no_more() {
    let proc = Proc::default();
    let mut child = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
    let pid = Pid::new(i32::try_from(child.id()).unwrap()).unwrap();
    let handle = ProcessHandle::open(&proc, pid).unwrap().unwrap();
    assert!(!handle.wait(Instant::now()).unwrap());
    handle.kill().unwrap();
    assert!(handle.wait(Instant::now() + Duration::from_secs(10)).unwrap());
    assert_eq!(proc.identify(pid).unwrap(), None);
    child.wait().unwrap();
    assert_eq!(proc.stat(pid).unwrap(), None);
    assert_eq!(proc.environment(pid).unwrap(), None);
    assert_eq!(proc.container(pid).unwrap(), None);
    assert!(ProcessHandle::open(&proc, pid).unwrap().is_none());
    handle.kill().unwrap();
}

#[test]
fn another_process_with_the_same_id_is_not_taken_for_it() {
    let proc = Proc::default();
    let id = proc.identify(me()).unwrap().unwrap();
    let earlier = ProcessId { start: id.start - 1, ..id };
    assert!(ProcessHandle::open_exact(&proc, earlier).unwrap().is_none());
    assert!(ProcessHandle::open_exact(&proc, id).unwrap().is_some());
}

#[test]
fn a_name_with_parentheses_does_not_shift_the_fields() {
    let rest = "S 7 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 0 0";
    for name in ["sh", "a) S 9", "((", ") Z 1 (", "a\nb"] {
        let stat = parse_stat(&format!("12 ({name}) {rest}")).unwrap();
        assert_eq!((stat.state, stat.parent, stat.start), ('S', Pid::new(7), 4711));
    }
    assert_eq!(parse_stat("12 (sh) S 7"), None);
}

#[test]
fn of_a_repeated_variable_the_first_counts_and_a_longer_name_is_another() {
    let environment = Environment::from_bytes(b"AB=0\0A=1\0A=2\0=x\0\0B".to_vec());
    assert_eq!(environment.get("A"), Some("1".into()));
    assert_eq!(environment.get("B"), None);
}

proptest! {
    #[test]
    fn any_stat_text_is_read(text in "(?s).*") {
        let _stat = parse_stat(&text);
    }
}

#[test]
fn the_user_is_the_effective_one() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("7")).unwrap();
    let status = "Name:\tx\nUid:\t0\t1000\t0\t1000\nGid:\t5\t5\t5\t5\n";
    fs::write(dir.path().join("7/status"), status).unwrap();
    let proc = Proc::new(dir.path());
    assert_eq!(proc.uid(Pid::new(7).unwrap()).unwrap(), Some(1000));
    assert_eq!(proc.uid(Pid::new(8).unwrap()).unwrap(), None);
}
