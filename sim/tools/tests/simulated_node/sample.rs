//! CUDA without MPS.

use std::fs;

use mpshare_sim_state::{ComputeMode, Health, ProcId, ProcessKind, SimState};
use rustix::process::Signal;
use serde_json::json;

use crate::node::{Node, T4, V100, eventually};
use crate::running::{Running, SAMPLE, of_kind, sample};

fn on_card(state: &SimState, gpu: &str) -> Vec<(ProcessKind, u64)> {
    let processes = state.processes.iter().filter(|process| process.gpu == gpu);
    processes.map(|process| (process.kind, process.used_mib)).collect()
}

#[test]
fn without_a_daemon_a_program_runs_without_limits_and_without_a_word() {
    let node = Node::new();
    let mut command = node.command(SAMPLE);
    command
        .env("CUDA_MPS_PIPE_DIRECTORY", node.path().join("nowhere"))
        .env("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=1G")
        .env("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "10");
    let (outcome, events) = sample(&node, command, "--until-oom 1Gi");
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
    let started = &of_kind(&events, "started")[0];
    assert_eq!(started["mps"], false);
    assert_eq!(started["uuid"], T4);
    assert_eq!(started["sm_count"], 40);
    assert_eq!(started["free_mib"], 15360 - 448 - 312);
    assert_eq!(started["total_mib"], 15360);
    assert_eq!(of_kind(&events, "exhausted")[0]["all_mib"], 14 * 1024);
}

#[test]
fn an_allocation_that_does_not_fit_fails_with_out_of_memory() {
    let node = Node::new();
    let (outcome, _) = sample(&node, node.command(SAMPLE), "--alloc 2Gi --alloc 14Gi");
    assert_eq!(outcome.code, Some(1));
    assert_eq!(outcome.stderr, "cuda-sample: cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY\n");
}

#[test]
fn a_holder_is_on_its_card_with_context_and_allocations() {
    let node = Node::new();
    let _holder = Running::holding(&node, node.command(SAMPLE), "--alloc 1Gi --alloc 512Mi", 1);
    let state = node.store.read().unwrap();
    assert_eq!(on_card(&state, T4), [(ProcessKind::Plain, 1536 + 312)]);
}

#[test]
fn a_killed_process_frees_its_memory() {
    let node = Node::new();
    let holder = Running::holding(&node, node.command(SAMPLE), "--alloc 1Gi", 1);
    holder.signal(Signal::KILL);
    assert_eq!(holder.end().0, None);
    assert_eq!(on_card(&node.store.read().unwrap(), T4), []);
}

#[test]
fn sigterm_ends_a_holder() {
    let node = Node::new();
    let holder = Running::holding(&node, node.command(SAMPLE), "", 1);
    holder.signal(Signal::TERM);
    assert_eq!(holder.end().0, Some(143));
}

#[test]
fn several_processes_end_with_the_first_one() {
    let node = Node::new();
    let holders = Running::holding(&node, node.command(SAMPLE), "--processes 3", 3);
    let pids: Vec<i32> = holders
        .events("holding")
        .iter()
        .map(|event| i32::try_from(event["pid"].as_i64().unwrap()).unwrap())
        .collect();
    assert_eq!(on_card(&node.store.read().unwrap(), T4).len(), 3);
    assert!(!pids.contains(&holders.pid()));
    holders.signal(Signal::KILL);
    holders.end();
    eventually("the children are gone", || {
        pids.iter().all(|pid| ProcId::of(*pid).is_none()).then_some(())
    });
}

#[test]
fn the_visible_cards_are_renumbered() {
    let node = Node::new();
    let uses = |visible: &str, device: &str| {
        let mut command = node.command(SAMPLE);
        command.env("CUDA_VISIBLE_DEVICES", visible);
        sample(&node, command, &format!("--device {device}"))
    };
    let (_, by_uuid) = uses(V100, "0");
    assert_eq!(of_kind(&by_uuid, "started")[0]["uuid"], V100);
    let (_, by_index) = uses("2,0", "1");
    assert_eq!(of_kind(&by_index, "started")[0]["uuid"], T4);
    let (beyond, _) = uses("0", "1");
    assert_eq!(beyond.stderr, "cuda-sample: cuCtxCreate_v2: CUDA_ERROR_INVALID_DEVICE\n");
    let (without, _) = uses("", "0");
    assert_eq!(without.stderr, "cuda-sample: cuInit: CUDA_ERROR_NO_DEVICE\n");
}

#[test]
fn without_a_driver_there_is_no_device() {
    let node = Node::new();
    node.change(|state| state.faults.driver_not_loaded = true);
    let (outcome, _) = sample(&node, node.command(SAMPLE), "");
    assert_eq!(outcome.stderr, "cuda-sample: cuInit: CUDA_ERROR_NO_DEVICE\n");
}

#[test]
fn an_exclusive_card_refuses_a_second_process() {
    let node = Node::new();
    node.change(|state| state.gpus[0].compute_mode = ComputeMode::ExclusiveProcess);
    let _holder = Running::holding(&node, node.command(SAMPLE), "", 1);
    let (second, _) = sample(&node, node.command(SAMPLE), "");
    assert_eq!(second.stderr, "cuda-sample: cuCtxCreate_v2: CUDA_ERROR_DEVICE_UNAVAILABLE\n");
    let (elsewhere, _) = sample(&node, node.command(SAMPLE), "--device 1");
    assert_eq!(elsewhere.code, Some(0));
}

#[test]
fn a_kernel_takes_its_time() {
    let node = Node::new();
    let (_, events) = sample(&node, node.command(SAMPLE), "--launch-ms 60");
    assert!(of_kind(&events, "launched")[0]["milliseconds"].as_u64().unwrap() >= 60);
}

#[test]
fn a_fault_ends_the_program_and_raises_an_xid() {
    let node = Node::new();
    let (outcome, events) = sample(&node, node.command(SAMPLE), "--fault --hold forever");
    assert_eq!(outcome.code, Some(1));
    assert_eq!(outcome.stderr, "cuda-sample: cuMemsetD8_v2: CUDA_ERROR_ILLEGAL_ADDRESS\n");
    let failed = of_kind(&events, "failed")[0].clone();
    assert_eq!(
        (failed["code"].clone(), failed["call"].clone()),
        (json!(700), json!("cuMemsetD8_v2"))
    );
    let xids: Vec<u32> =
        node.store.read().unwrap().gpus[0].xids.iter().map(|event| event.xid).collect();
    assert_eq!(xids, [31]);
}

#[test]
fn a_holder_notices_that_its_card_is_lost() {
    let node = Node::new();
    let holder = Running::holding(&node, node.command(SAMPLE), "", 1);
    node.change(|state| state.gpus[0].health = Health::Lost);
    let (code, error) = holder.end();
    assert_eq!(code, Some(1));
    assert_eq!(error, "cuda-sample: cuCtxSynchronize: CUDA_ERROR_UNKNOWN");
}

#[test]
fn a_file_can_be_put_into_shared_memory() {
    let node = Node::new();
    let (_, events) = sample(&node, node.command(SAMPLE), "--touch-shm mine");
    assert_eq!(of_kind(&events, "touched").len(), 1);
    assert!(fs::exists(node.path().join("shm/mine")).unwrap());
}
