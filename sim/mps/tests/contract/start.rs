//! Starting a daemon: files, flags, refusals (facts/mps.md 1.1, 1.3, 2, 3, 6).

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::process::Stdio;

use crate::node::{Node, run, wait_until};

fn mode(path: &std::path::Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

#[test]
fn fact_1_1_files_have_their_kinds_and_modes() {
    let Some(node) = Node::of("550.163.01") else {
        return;
    };
    node.start();
    let file = |name: &str| node.pipe().join(name);
    let mut names: Vec<_> = fs::read_dir(node.pipe())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let expected =
        ["control", "control_lock", "control_privileged", "log", "nvidia-cuda-mps-control.pid"];
    assert_eq!(names, expected);
    assert!(file("control").metadata().unwrap().file_type().is_socket());
    assert!(file("control_privileged").metadata().unwrap().file_type().is_socket());
    assert!(file("log").metadata().unwrap().file_type().is_fifo());
    let modes: Vec<u32> = expected.iter().map(|name| mode(&file(name))).collect();
    assert_eq!(modes, [0o666, 0o666, 0o755, 0o777, 0o666]);
    let pid = fs::read_to_string(file("nvidia-cuda-mps-control.pid")).unwrap();
    assert_eq!(pid, node.daemon().unwrap().to_string());
    assert_eq!(mode(&node.log()), 0o700);
    assert_eq!(mode(&node.log().join("control.log")), 0o644);
    assert_eq!(mode(&node.log().join("server.log")), 0o644);
}

#[test]
fn fact_1_1_driver_535_writes_no_pid_file() {
    let Some(node) = Node::of("535.261.03") else {
        return;
    };
    node.start();
    assert!(node.pipe().join("control").exists());
    assert!(!node.pipe().join("nvidia-cuda-mps-control.pid").exists());
}

#[test]
fn fact_1_1_the_daemon_holds_the_lock_for_life() {
    let node = Node::any();
    node.start();
    assert!(!node.lock_is_free());
    node.ask("quit\n");
    assert!(node.lock_is_free());
}

#[test]
fn fact_1_1_a_missing_parent_of_the_pipe_dir_is_refused() {
    let node = Node::any();
    let dir = node.dir().join("no/pipe");
    let said = run(node.control().arg("-d").env("CUDA_MPS_PIPE_DIRECTORY", &dir), "");
    assert_eq!(said.code, Some(1));
    let text = format!("{}{}", said.out, said.err);
    assert!(text.starts_with("Cannot access CUDA_MPS_PIPE_DIRECTORY="), "{text}");
}

#[test]
fn fact_1_1_an_unwritable_log_dir_is_a_warning_and_there_is_no_fifo() {
    let node = Node::any();
    let said = run(node.control().arg("-d").env("CUDA_MPS_LOG_DIRECTORY", "/proc/none"), "");
    assert_eq!(said.code, Some(0));
    let text = format!("{}{}", said.out, said.err);
    assert!(text.contains("Warning: Failed writing log files to directory [/proc/none]"), "{text}");
    assert!(!node.pipe().join("log").exists());
    assert_eq!(node.ask("get_default_active_thread_percentage\n"), "100.0\n");
}

#[test]
fn fact_1_1_f_logs_to_stdout_and_writes_no_log_files() {
    let node = Node::any();
    let mut control = node.control();
    let daemon = control.arg("-f").stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    wait_until("daemon", || node.daemon().is_some());
    node.ask("quit\n");
    let output = daemon.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("] Accepting connection...\n"), "{text}");
    assert!(text.ends_with("] Exit with status 0\n"), "{text}");
    assert!(!node.log().exists());
}

#[test]
fn fact_1_1_a_pipe_dir_of_88_bytes_fails_silently_and_87_is_fine() {
    let node = Node::any();
    let start = |length: usize| {
        let dir = node.dir().join("x".repeat(length - node.dir().as_os_str().len() - 1));
        assert_eq!(dir.as_os_str().len(), length);
        let said = run(node.control().arg("-d").env("CUDA_MPS_PIPE_DIRECTORY", &dir), "");
        (dir, said)
    };
    let (dir, said) = start(88);
    assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (Some(1), "", ""));
    assert!(dir.join("control_lock").exists() && dir.join("log").exists());
    assert!(!dir.join("control").exists());
    let (dir, said) = start(87);
    assert_eq!(said.code, Some(0));
    let mut quit = node.control();
    let said = run(quit.env("CUDA_MPS_PIPE_DIRECTORY", &dir), "quit\n");
    assert_eq!(said.code, Some(0));
}

#[test]
fn fact_1_3_up_to_550_an_unknown_flag_is_a_front_end() {
    for driver in ["535.261.03", "550.163.01"] {
        let Some(node) = Node::of(driver) else {
            continue;
        };
        for arguments in [vec!["-d", "-S"], vec!["-d", "-multiuser-server"], vec!["-v"]] {
            let said = run(node.control().args(&arguments), "");
            let expected = "Cannot find MPS control daemon process\n";
            assert_eq!((said.code, said.err.as_str()), (Some(1), expected), "{arguments:?}");
        }
        node.start();
        let asked = "get_default_active_thread_percentage\n";
        let said = run(node.control().args(["-d", "-M"]), asked);
        assert_eq!((said.code, said.out.as_str()), (Some(0), "100.0\n"));
    }
}

#[test]
fn fact_1_3_555_prints_its_usage_for_an_unknown_flag() {
    let Some(node) = Node::of("555.58.02") else {
        return;
    };
    for arguments in [vec!["-d", "-S"], vec!["-M"]] {
        let said = run(node.control().args(&arguments), "");
        assert_eq!(said.code, Some(1));
        assert!(format!("{}{}", said.out, said.err).to_lowercase().contains("usage"), "{said:?}");
    }
    assert_eq!(node.daemon(), None);
}

#[test]
fn fact_1_3_help_is_rc_0() {
    let node = Node::any();
    assert_eq!(run(node.control().arg("-h"), "").code, Some(0));
}

#[test]
fn fact_1_3_the_binary_version_shows_since_580_and_v_since_590() {
    let Some(node) = Node::simulated("590.44.01") else {
        return;
    };
    let said = run(node.control().arg("-v"), "");
    assert_eq!((said.code, said.out.contains("13010")), (Some(0), true));
    node.start();
    assert!(node.control_log().contains("] CUDA MPS Control binary version: 13010\n"));
}

#[test]
fn fact_3_a_second_daemon_on_a_pipe_dir_is_refused() {
    let node = Node::any();
    node.start();
    let other = node.dir().join("other-log");
    let said = run(node.control().arg("-d").env("CUDA_MPS_LOG_DIRECTORY", &other), "");
    assert_eq!(said.code, Some(1));
    let text = format!("{}{}", said.out, said.err);
    assert_eq!(text, "An instance of this daemon is already running\n");
}

#[test]
fn fact_6_3_the_pid_file_is_written_over_and_not_truncated() {
    let Some(node) = Node::of("550.163.01") else {
        return;
    };
    fs::create_dir(node.pipe()).unwrap();
    let file = node.pipe().join("nvidia-cuda-mps-control.pid");
    fs::write(&file, "123456789123").unwrap();
    node.start();
    let pid = node.daemon().unwrap().to_string();
    let expected = format!("{pid}{}", &"123456789123"[pid.len()..]);
    assert_eq!(fs::read_to_string(file).unwrap(), expected);
}

#[test]
fn fact_2_the_environment_gives_the_default_percentage_and_an_invalid_one_gives_100() {
    let asked = "get_default_active_thread_percentage\n";
    for (value, expected) in [("40", "40.0\n"), ("0", "100.0\n"), ("abc", "100.0\n")] {
        let node = Node::any();
        node.start_with(&["-d"], &[("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", value)]);
        assert_eq!(node.ask(asked), expected, "for `{value}`");
        let log = node.control_log();
        let complaint = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE should be between (0.0, 100.0]";
        assert_eq!(log.contains(complaint), value != "40", "for `{value}`");
    }
}

#[test]
fn fact_2_a_memory_limit_in_the_environment_is_not_visible_as_a_default() {
    let node = Node::any();
    node.start_with(&["-d"], &[("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=1G")]);
    let asked = "get_default_device_pinned_mem_limit 0\nget_default_active_thread_percentage\n";
    assert_eq!(node.ask(asked), "100.0\n");
}

#[test]
fn fact_7_log_lines_have_time_role_and_pid() {
    let node = Node::any();
    node.start();
    let log = node.control_log();
    let line = log.lines().next().unwrap();
    let digits: String =
        line.chars().map(|letter| if letter.is_ascii_digit() { '9' } else { letter }).collect();
    assert!(digits.starts_with("[9999-99-99 99:99:99.999 Control "), "{line}");
    let pid = format!(" Control {:>5}] ", node.daemon().unwrap());
    assert!(line.contains(&pid), "{line}");
}
