//! The front-end's protocol (facts/mps.md 1.2).

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::node::{Node, OpenUi, run};

const SENTINEL: &str = "get_default_active_thread_percentage\n";

#[test]
fn fact_1_2_refusals_go_to_stdout_with_rc_0() {
    let node = Node::any();
    node.start();
    let said = node.ui("foo\nset_default_client_priority 7\n");
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    let expected = "Unknown command \"foo\"\nInvalid priority value - must be 0 or 1!\n";
    assert_eq!(said.out, expected);
}

#[test]
fn fact_1_2_nobody_listening_is_rc_1_with_a_message() {
    let node = Node::any();
    let said = node.ui(SENTINEL);
    assert_eq!((said.code, said.out.as_str()), (Some(1), ""));
    assert_eq!(said.err, "Cannot find MPS control daemon process\n");
}

#[test]
fn fact_1_2_a_pipe_dir_without_permission_looks_like_no_daemon() {
    if !crate::node::is_root() {
        return;
    }
    let node = Node::any();
    node.start();
    fs::set_permissions(node.pipe(), fs::Permissions::from_mode(0o700)).unwrap();
    let mut control = node.control();
    std::os::unix::process::CommandExt::uid(&mut control, crate::node::SOMEBODY);
    let said = run(&mut control, SENTINEL);
    assert_eq!(said.code, Some(1));
    assert_eq!(said.err, "Cannot find MPS control daemon process\n");
}

#[test]
fn fact_1_2_busy_ui_gives_error_or_empty_with_rc_0() {
    let node = Node::any();
    node.start();
    let open = OpenUi::of(&node);
    let mut errors = 0;
    let mut silent = 0;
    for _ in 0..60 {
        let said = node.ui(SENTINEL);
        assert_eq!(said.out, "");
        match (said.code, said.err.as_str()) {
            (Some(1), "Cannot send command to MPS control daemon process\n") => errors += 1,
            (Some(0), "") => silent += 1,
            (Some(1), "") => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(errors > 0 && silent > 0, "{errors} errors, {silent} silent");
    drop(open);
    assert_eq!(node.ask(SENTINEL), "100.0\n");
}

#[test]
fn fact_1_2_one_after_the_other_is_never_busy() {
    let node = Node::any();
    node.start();
    for _ in 0..100 {
        assert_eq!(node.ask(SENTINEL), "100.0\n");
    }
}

#[test]
fn fact_1_2_clients_are_not_blocked_by_an_open_ui() {
    let Some(node) = Node::simulated("550.163.01") else {
        return;
    };
    node.start();
    let open = OpenUi::of(&node);
    assert!(node.attach().is_ok());
    drop(open);
}

#[test]
fn fact_1_2_replies_of_several_commands_follow_each_other() {
    let node = Node::any();
    node.start();
    let asked = "get_default_client_priority\r\n\tget_default_active_thread_percentage\n\
                 get_server_list\nset_default_active_thread_percentage\t 12.34567 x";
    assert_eq!(node.ask(asked), "0\n100.0\n12.3\n");
}

#[test]
fn fact_1_2_a_semicolon_is_no_separator() {
    let node = Node::any();
    node.start();
    assert_eq!(node.ask("foo;bar\n"), "Unknown command \"foo;bar\"\n");
}

#[test]
fn fact_1_2_a_line_longer_than_the_buffer_is_several_commands() {
    let node = Node::any();
    node.start();
    let replies = node.ask(&format!("{}\n", "x".repeat(5000)));
    assert!(replies.matches("Unknown command").count() > 1, "{replies}");
}

#[test]
fn fact_1_2_memory_values_are_read_and_shown_the_real_way() {
    let Some(node) = Node::of("550.163.01") else {
        return;
    };
    node.start();
    for (value, shown) in [
        ("4G", "4G\n"),
        ("1024M", "1G\n"),
        ("3000M", "2G\n"),
        ("1025M", "1G\n"),
        ("512M", "512M\n"),
        ("4096", "4G\n"),
        ("100K", "100M\n"),
        ("1.5G", "1M\n"),
        ("4 G", "4M\n"),
        ("4g", "4G\n"),
        ("4GB", "4G\n"),
        ("4G5", "4G\n"),
        ("-1G", "17179869183G\n"),
        ("18446744073709551616", "17179869183G\n"),
        ("0G", ""),
        ("G", ""),
        ("M", ""),
        ("", ""),
        ("0x10M", ""),
    ] {
        let asked = format!(
            "set_default_device_pinned_mem_limit 0 1G\n\
             set_default_device_pinned_mem_limit 0 {value}\n\
             get_default_device_pinned_mem_limit 0\n"
        );
        assert_eq!(node.ask(&asked), shown, "for `{value}`");
    }
    let log = node.control_log();
    assert!(log.contains("] No default pinned memory limit set for the device!\n"));
}

#[test]
fn fact_1_2_an_invalid_percentage_echoes_the_old_one_and_the_reason_is_in_the_log_only() {
    let node = Node::any();
    node.start();
    let asked = "set_default_active_thread_percentage 25\nset_default_active_thread_percentage 150\n\
                 set_default_active_thread_percentage 0.04\n";
    assert_eq!(node.ask(asked), "25.0\n25.0\n0.0\n");
    let log = node.control_log();
    assert!(log.contains("] Invalid percentage, expected between (0.0, 100.0]\n"));
}

#[test]
fn fact_1_2_commands_of_590_are_unknown_before_and_known_then() {
    let Some(node) = Node::simulated("590.44.01") else {
        return;
    };
    node.start();
    assert_eq!(node.ask("lspart\n"), "");
    assert!(node.ask("device_query\n").contains(crate::node::T4));
}

#[test]
fn fact_7_a_session_is_logged_from_new_ui_to_ui_closed() {
    let node = Node::any();
    node.start();
    node.ask("get_default_client_priority\n");
    let log = node.control_log();
    let texts: Vec<&str> =
        log.lines().filter_map(|line| line.split_once("] ")).map(|(_, text)| text).collect();
    let start = texts.iter().position(|text| *text == "NEW UI").unwrap();
    assert_eq!(
        texts[start - 1..start + 4],
        ["Accepting connection...", "NEW UI", "Cmd:get_default_client_priority", "0", "UI closed"]
    );
}
