//! What `nvml-wrapper` gets from the library.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Stdio};

use mpshare_sim_state::{ComputeMode, Health, ProcessKind};
use serde_json::{Value, json};

use crate::node::{A100, Node, T4, V100};

const PROBE: &str = env!("CARGO_BIN_EXE_nvml-probe");
const MIB: u64 = 1 << 20;

fn describe(node: &Node) -> Value {
    let outcome = node.run(PROBE, &[]);
    assert_eq!(outcome.code, Some(0), "{}{}", outcome.stdout, outcome.stderr);
    outcome.json()
}

#[test]
fn cards_are_described_as_the_state_has_them() {
    let node = Node::new();
    let seen = describe(&node);
    assert_eq!(seen["driver"], "555.58.02");
    assert_eq!(seen["nvml"], "12.555.58.02");
    assert_eq!(seen["cuda"], 12050);
    let t4 = &seen["cards"][0];
    assert_eq!(t4["uuid"], T4);
    assert_eq!(t4["name"], "Tesla T4");
    assert_eq!(t4["minor"], 0);
    assert_eq!(t4["bus_id"], "00000000:00:07.0");
    assert_eq!(t4["compute_capability"], json!([7, 5]));
    assert_eq!(t4["architecture"], "Turing");
    assert_eq!(t4["compute_mode"], "Default");
    assert_eq!(t4["persistence"], true);
    let by_uuid_and_bus_id = |card: usize| seen["cards"][card]["found_by"].clone();
    assert_eq!(by_uuid_and_bus_id(1), json!([1, 1]));
    assert_eq!(by_uuid_and_bus_id(2), json!([2, 2]));
}

#[test]
fn memory_is_total_reserved_used_and_free() {
    let node = Node::new();
    node.occupy(T4, ProcessKind::Plain, "python", 1000);
    let memory = describe(&node)["cards"][0]["memory"].clone();
    assert_eq!(memory["total"], 15360 * MIB);
    assert_eq!(memory["reserved"], 448 * MIB);
    assert_eq!(memory["used"], 1000 * MIB);
    assert_eq!(memory["free"], (15360 - 448 - 1000) * MIB);
}

#[test]
fn mig_is_unsupported_or_off_and_has_no_devices() {
    let node = Node::new();
    let seen = describe(&node);
    assert_eq!(seen["cards"][0]["mig"], json!({ "error": "NotSupported" }));
    assert_eq!(seen["cards"][2]["uuid"], A100);
    assert_eq!(seen["cards"][2]["mig"], false);
    assert_eq!(seen["cards"][2]["mig_devices"], 0);
}

#[test]
fn a_server_is_a_compute_process_and_its_client_an_mps_process() {
    let node = Node::new();
    let pid = std::process::id();
    node.occupy(V100, ProcessKind::MpsServer, "nvidia-cuda-mps-server", 30);
    let client = ProcessKind::MpsClient { server: i32::try_from(pid).unwrap() };
    node.occupy(V100, client, "python", 312);
    let card = describe(&node)["cards"][1].clone();
    assert_eq!(card["compute"], json!([{ "pid": pid, "used": 30 * MIB, "gpu_instance": null }]));
    assert_eq!(card["mps"], json!([{ "pid": pid, "used": 312 * MIB, "gpu_instance": null }]));
    assert_eq!(card["graphics"], json!([]));
}

#[test]
fn without_a_driver_the_initialisation_fails() {
    let node = Node::new();
    node.change(|state| state.faults.driver_not_loaded = true);
    let outcome = node.run(PROBE, &[]);
    assert_eq!(outcome.json(), json!({ "error": "DriverNotLoaded" }));
}

#[test]
fn a_lost_card_fails_and_the_count_stays() {
    let node = Node::new();
    node.change(|state| state.gpus[1].health = Health::Lost);
    assert_eq!(node.run(PROBE, &[]).json(), json!({ "error": "GpuLost" }));
}

struct Waiting {
    probe: Child,
    output: BufReader<ChildStdout>,
}

/// Starts a wait; returns once the cards are registered.
fn wait_for_event(node: &Node, timeout_ms: &str) -> Waiting {
    let mut command = node.command(PROBE);
    command.args(["--wait-ms", timeout_ms]).stdout(Stdio::piped());
    let mut probe = command.spawn().unwrap();
    let mut output = BufReader::new(probe.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "{\"registered\":true}\n");
    Waiting { probe, output }
}

impl Waiting {
    fn answer(mut self) -> Value {
        let mut text = String::new();
        self.output.read_to_string(&mut text).unwrap();
        self.probe.wait().unwrap();
        serde_json::from_str(&text).unwrap()
    }
}

#[test]
fn a_new_xid_wakes_the_wait_and_an_old_one_does_not() {
    let node = Node::new();
    node.raise_xid(T4, 13);
    let waiting = wait_for_event(&node, "20000");
    node.raise_xid(V100, 31);
    let answer = waiting.answer();
    assert_eq!(answer["event"], json!({ "uuid": V100, "xid": 31 }));
    assert!(answer["cost"]["waited_ms"].as_u64().unwrap() < 10_000);
}

#[test]
fn a_wait_blocks_until_its_timeout_and_takes_under_a_millisecond_of_cpu() {
    let node = Node::new();
    let answer = wait_for_event(&node, "1000").answer();
    assert_eq!(answer["event"], json!({ "error": "Timeout" }));
    assert!(answer["cost"]["waited_ms"].as_u64().unwrap() >= 1000);
    let cpu = answer["cost"]["cpu_us"].as_u64().unwrap();
    assert!(cpu < 1000, "{cpu} us in one second");
}

#[test]
fn changes_that_are_no_xid_do_not_end_the_wait() {
    let node = Node::new();
    let waiting = wait_for_event(&node, "300");
    node.change(|state| state.gpus[0].compute_mode = ComputeMode::Prohibited);
    assert_eq!(waiting.answer()["event"], json!({ "error": "Timeout" }));
}

#[test]
fn a_card_that_is_lost_ends_the_wait_after_its_last_xid() {
    let node = Node::new();
    let waiting = wait_for_event(&node, "20000");
    node.change(|state| state.gpus[0].health = Health::Lost);
    assert_eq!(waiting.answer()["event"], json!({ "error": "GpuLost" }));
}
