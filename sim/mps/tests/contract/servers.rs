//! The life of a server (facts/mps.md 1.1, 1.2, 3, 4.2).

use std::fs;

use mpshare_sim_state::{ComputeMode, Health, ProcessKind};
use rustix::process::Signal;

use crate::node::{Node, T4, V100, kill, start_server, wait_until};

fn node() -> Option<Node> {
    Node::simulated("550.163.01")
}

#[test]
fn fact_1_2_start_server_returns_before_the_server_is_up() {
    let Some(node) = node() else {
        return;
    };
    node.inject(|faults| faults.server_hangs_at_start = true);
    node.start();
    assert_eq!(node.ask(&start_server()), "");
    let server = node.server();
    assert_eq!(node.status(server), "INITIALIZING\n");
}

#[test]
fn fact_1_2_a_server_that_initializes_answers_with_nothing() {
    let Some(node) = node() else {
        return;
    };
    node.inject(|faults| faults.server_hangs_at_start = true);
    node.start();
    node.ask_for_server();
    let server = node.server();
    for command in [
        format!("get_client_list {server}\n"),
        format!("get_active_thread_percentage {server}\n"),
        format!("get_device_pinned_mem_limit {server} 0\n"),
        format!("set_device_pinned_mem_limit {server} 0 1G\n"),
    ] {
        assert_eq!(node.ask(&command), "", "`{command}`");
    }
    assert_eq!(node.ask("ps\n"), "Server not found\n");
    let refusal = format!("Server {server} not found!\n1\n");
    assert_eq!(node.ask(&format!("terminate_client {server} 1\n")), refusal);
    assert!(node.control_log().contains(&format!("] Server {server} is <busy>\n")));
}

#[test]
fn fact_4_2_a_slow_server_is_initializing_and_then_active() {
    let Some(node) = node() else {
        return;
    };
    node.inject(|faults| faults.server_start_delay_ms = 200);
    node.start();
    node.ask_for_server();
    let server = node.server();
    assert_eq!(node.status(server), "INITIALIZING\n");
    wait_until("ACTIVE", || node.status(server) == "ACTIVE\n");
    assert!(node.control_log().contains(&format!("] NEW SERVER {server}: Ready\n")));
}

#[test]
fn fact_1_1_the_server_runs_with_its_name_only_and_shows_on_its_card() {
    let Some(node) = node() else {
        return;
    };
    node.start();
    node.ask_for_server();
    let server = node.active_server();
    let line = fs::read(format!("/proc/{server}/cmdline")).unwrap();
    assert_eq!(line, b"nvidia-cuda-mps-server\0");
    let state = node.store().read().unwrap();
    let [process] = state.processes.as_slice() else {
        panic!("{:?}", state.processes);
    };
    assert_eq!((process.id.pid, process.kind), (server, ProcessKind::MpsServer));
    assert_eq!((process.gpu.as_str(), process.used_mib), (T4, 30));
}

#[test]
fn fact_7_the_server_logs_its_settings_with_limits_in_exact_bytes() {
    let Some(node) = node() else {
        return;
    };
    node.start();
    node.ask(
        "set_default_device_pinned_mem_limit 0 1919M\nset_default_active_thread_percentage 12\n",
    );
    node.ask_for_server();
    let server = node.active_server();
    wait_until("server.log", || node.server_log().contains("] Server has started\n"));
    let log = node.server_log();
    for text in [
        format!("Server {server:>5}] Active Threads Percentage set to 12.0\n"),
        "] Device pinned memory limit for device 0 set to 0x77f00000 bytes\n".to_owned(),
        "] Creating server context on device 0 (Tesla T4)\n".to_owned(),
        "] Server Priority set to 0\n".to_owned(),
        format!("Other {server:>5}] Startup\n"),
    ] {
        assert!(log.contains(&text), "`{text}` in {log}");
    }
}

#[test]
fn fact_1_2_changes_of_a_running_server_are_for_it_and_defaults_for_the_next() {
    let Some(node) = node() else {
        return;
    };
    node.start();
    node.ask("set_default_device_pinned_mem_limit 0 2G\n");
    node.ask_for_server();
    let server = node.active_server();
    let asked = format!(
        "set_default_device_pinned_mem_limit 0 1G\nset_default_active_thread_percentage 10\n\
         get_device_pinned_mem_limit {server} 0\nget_active_thread_percentage {server}\n\
         set_device_pinned_mem_limit {server} 0 3G\nset_active_thread_percentage {server} 50\n\
         set_active_thread_percentage {server} 101\nget_device_pinned_mem_limit {server} 0\n\
         get_default_device_pinned_mem_limit 0\n"
    );
    assert_eq!(node.ask(&asked), "10.0\n2G\n100.0\n50.0\n50.0\n3G\n1G\n");
}

#[test]
fn fact_1_2_client_lists_and_ps_show_the_clients() {
    let Some(node) = node() else {
        return;
    };
    node.start();
    assert_eq!(node.ask("ps\n"), "Server not found\n");
    let session = node.attach().unwrap();
    let (server, me) = (session.server(), std::process::id());
    assert_eq!(node.ask(&format!("get_client_list {server}\n")), format!("{me}\n"));
    assert_eq!(node.ask("get_device_client_list\n"), format!("{T4}\n{me}\n"));
    let rows = node.ask("ps\n");
    let rows: Vec<Vec<&str>> = rows.lines().map(|row| row.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["PID", "ID", "SERVER", "DEVICE", "NAMESPACE", "COMMAND"]);
    assert_eq!(rows[1][..4], [&me.to_string(), "0", &server.to_string(), &T4[..22]]);
    assert_eq!(rows[1][5], "./nbody");
    drop(session);
    wait_until("no client", || node.ask(&format!("get_client_list {server}\n")).is_empty());
}

#[test]
fn fact_3_an_idle_server_stays() {
    let Some(node) = node() else {
        return;
    };
    node.start();
    drop(node.attach().unwrap());
    let server = node.active_server();
    wait_until("no client", || node.ask(&format!("get_client_list {server}\n")).is_empty());
    assert_eq!(node.attach().unwrap().server(), server);
}

#[test]
fn fact_1_2_shutdown_server_waits_for_clients_and_f_does_not() {
    let Some(node) = node() else {
        return;
    };
    node.start();
    let session = node.attach().unwrap();
    let server = session.server();
    assert_eq!(node.ask(&format!("shutdown_server {server}\n")), "");
    assert_eq!(node.status(server), "ACTIVE\n");
    drop(session);
    wait_until("end of the server", || node.ask("get_server_list\n").is_empty());
    let session = node.attach().unwrap();
    assert_eq!(node.ask(&format!("shutdown_server {} -f\n", session.server())), "");
    assert_eq!(node.ask("get_server_list\n"), "");
    wait_until("806", || session.error() == Some(806));
}

#[test]
fn fact_4_2_a_server_that_a_signal_killed_is_logged_as_status_0() {
    let Some(node) = node() else {
        return;
    };
    node.start();
    for signal in [Signal::KILL, Signal::TERM, Signal::SEGV] {
        node.ask_for_server();
        let server = node.active_server();
        kill(server, signal);
        let line = format!("] Server {server} exited with status 0\n");
        wait_until(&line, || node.control_log().contains(&line));
        assert_eq!(node.ask("get_server_list\n"), "");
    }
}

#[test]
fn fact_4_2_start_server_tries_once() {
    let Some(node) = node() else {
        return;
    };
    node.inject(|faults| faults.server_fails_at_start = true);
    node.start();
    node.ask_for_server();
    wait_until("failure", || node.control_log().contains("exited with status 1"));
    // A second one would be there by the time that a client has failed six times.
    assert_eq!(node.attach().unwrap_err().cuda_error(), Some(805));
    assert_eq!(node.control_log().matches("] Starting new server ").count(), 7);
}

#[test]
fn fact_4_2_a_waiting_client_costs_six_starts_and_gets_805() {
    let Some(node) = node() else {
        return;
    };
    node.inject(|faults| faults.server_fails_at_start = true);
    node.start();
    assert_eq!(node.attach().unwrap_err().cuda_error(), Some(805));
    let log = node.control_log();
    assert_eq!(log.matches("] Starting new server ").count(), 6);
    assert_eq!(log.matches("] Server encountered a fatal exception. Shutting down\n").count(), 6);
    wait_until("log", || node.server_log().matches("] Failed to start : ").count() == 6);
}

#[test]
fn fact_6_15_a_server_that_is_not_in_the_path_looks_like_one_that_failed() {
    let Some(node) = node() else {
        return;
    };
    node.start_with(&["-d"], &[("PATH", "/nowhere")]);
    assert_eq!(node.attach().unwrap_err().cuda_error(), Some(805));
    assert_eq!(node.control_log().matches(" exited with status 1\n").count(), 6);
    assert_eq!(node.server_log(), "");
}

#[test]
fn fact_3_an_exclusive_card_with_another_process_takes_no_server() {
    let Some(node) = node() else {
        return;
    };
    node.start();
    let mode = |mode| {
        node.store().update(|state| state.gpus[0].compute_mode = mode).unwrap();
    };
    mode(ComputeMode::Prohibited);
    assert_eq!(node.attach().unwrap_err().cuda_error(), Some(805));
    mode(ComputeMode::ExclusiveProcess);
    let session = node.attach().unwrap();
    let server = session.server();
    drop(session);
    kill(server, Signal::KILL);
    wait_until("end of the server", || node.ask("get_server_list\n").is_empty());
    node.register_plain(T4);
    assert_eq!(node.attach().unwrap_err().cuda_error(), Some(805));
    let busy = "] Failed to start : CUDA-capable device(s) is/are busy or unavailable\n";
    wait_until("log", || node.server_log().contains(busy));
}

#[test]
fn fact_8_a_lost_card_takes_no_server() {
    let Some(node) = node() else {
        return;
    };
    node.store().update(|state| state.gpus[0].health = Health::Lost).unwrap();
    node.start();
    assert_eq!(node.attach().unwrap_err().cuda_error(), Some(805));
}

#[test]
fn fact_2_visible_devices_of_the_daemon_restrict_and_renumber() {
    let Some(node) = Node::simulated_with("550.163.01", &["t4", "v100"]) else {
        return;
    };
    node.start_with(&["-d"], &[("CUDA_VISIBLE_DEVICES", V100)]);
    node.ask("set_default_device_pinned_mem_limit 0 2G\n");
    let session = node.attach().unwrap();
    assert_eq!(session.daemon_devices(), [V100]);
    assert_eq!(session.limit_mib(V100), Some(2048));
    let cards = node.store().read().unwrap().processes;
    assert_eq!(cards.iter().map(|process| process.gpu.as_str()).collect::<Vec<_>>(), [V100]);
}

#[test]
fn fact_6_11_a_limit_by_uuid_does_nothing_on_older_drivers() {
    for (driver, expected) in [("550.163.01", None), ("555.58.02", Some(1024))] {
        let Some(node) = Node::simulated(driver) else {
            return;
        };
        node.start();
        node.ask(&format!("set_default_device_pinned_mem_limit {T4} 1G\n"));
        assert_eq!(node.attach().unwrap().limit_mib(T4), expected, "driver {driver}");
    }
}

#[test]
fn fact_3_the_server_keeps_a_segment_in_shared_memory() {
    let Some(node) = node() else {
        return;
    };
    node.start();
    node.ask_for_server();
    let server = node.active_server();
    let uid = rustix::process::geteuid().as_raw();
    let segment = node.dir().join(format!("shm/cuda.shm.{uid}.{server}.1"));
    assert!(segment.exists(), "{}", segment.display());
    node.ask(&format!("shutdown_server {server}\n"));
    assert!(!segment.exists());
    fs::remove_dir_all(node.dir().join("shm")).unwrap();
    assert_eq!(node.attach().unwrap_err().cuda_error(), Some(805));
}

#[test]
fn fact_3_client_caps_follow_the_card_and_the_driver() {
    for (driver, model, cap) in
        [("550.163.01", "p4", 16), ("550.163.01", "t4", 48), ("590.44.01", "t4", 60)]
    {
        let Some(node) = Node::simulated_with(driver, &[model]) else {
            return;
        };
        node.start();
        let mut sessions: Vec<_> = (0..cap).map(|_| node.attach().unwrap()).collect();
        assert_eq!(node.attach().unwrap_err().cuda_error(), Some(808), "{model} with {driver}");
        sessions.pop();
        wait_until("room", || node.attach().is_ok());
    }
}
