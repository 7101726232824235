//! CUDA through MPS: limits, and what a client shares with its server and its neighbours.

use std::process::Command;

use mpshare_sim_state::shm::SHM_ENV;
use mpshare_sim_state::{ComputeMode, ProcessKind};
use serde_json::Value;

use crate::mps::Mps;
use crate::node::{Node, T4, V100, eventually};
use crate::running::{Running, SAMPLE, of_kind, sample};

/// What a client gets in steps of 64 MiB, in MiB; `None` when it isn't a client.
fn obtainable(node: &Node, command: Command) -> u64 {
    let (outcome, events) = sample(node, command, "--until-oom 64Mi");
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert_eq!(of_kind(&events, "started")[0]["mps"], true);
    of_kind(&events, "exhausted")[0]["all_mib"].as_u64().unwrap()
}

/// What a limit leaves in steps of 64 MiB beside the context's own 312 MiB.
fn beside_context(limit_mib: u64) -> u64 {
    (limit_mib - 312) / 64 * 64
}

fn started(events: &[Value]) -> Value {
    of_kind(events, "started")[0].clone()
}

#[test]
fn a_client_is_held_to_the_limit_of_its_server_with_its_context_counted() {
    let node = Node::new();
    let mps = Mps::start(&node, T4);
    mps.ask("set_default_device_pinned_mem_limit 0 4096M");
    let (_, events) = sample(&node, mps.command(SAMPLE), "");
    assert_eq!(started(&events)["free_mib"], 4096 - 312);
    assert_eq!(started(&events)["total_mib"], 15360);
    assert_eq!(obtainable(&node, mps.command(SAMPLE)), beside_context(4096));
}

#[test]
fn the_environment_of_a_client_only_lowers_its_limit() {
    let node = Node::new();
    let mps = Mps::start(&node, T4);
    mps.ask("set_default_device_pinned_mem_limit 0 4096M");
    let with = |limit: &str| {
        let mut command = mps.command(SAMPLE);
        command.env("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", limit);
        obtainable(&node, command)
    };
    assert_eq!(with("0=1G"), beside_context(1024));
    assert_eq!(with("0=8G"), beside_context(4096));
}

#[test]
fn a_limit_for_a_card_that_the_client_does_not_see_drops_every_limit() {
    let node = Node::new();
    let mps = Mps::start(&node, T4);
    mps.ask("set_default_device_pinned_mem_limit 0 4096M");
    let mut command = mps.command(SAMPLE);
    command.env("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=2G,1=4G");
    let whole_card = 15360 - 448 - 30;
    assert_eq!(obtainable(&node, command), beside_context(whole_card));
}

#[test]
fn a_percentage_shows_in_the_multiprocessors_and_in_the_time_of_a_kernel() {
    let node = Node::new();
    let mps = Mps::start(&node, T4);
    mps.ask("set_default_active_thread_percentage 25");
    let (_, events) = sample(&node, mps.command(SAMPLE), "--launch-ms 20");
    assert_eq!(started(&events)["sm_count"], 10);
    assert!(of_kind(&events, "launched")[0]["milliseconds"].as_u64().unwrap() >= 80);
}

#[test]
fn the_daemon_restricts_and_renumbers_the_cards() {
    let node = Node::new();
    let mps = Mps::start(&node, V100);
    let (_, events) = sample(&node, mps.command(SAMPLE), "--device 0");
    assert_eq!(started(&events)["uuid"], V100);
    let mut command = mps.command(SAMPLE);
    command.env("CUDA_VISIBLE_DEVICES", "1");
    let (beyond, _) = sample(&node, command, "");
    assert_eq!(beyond.stderr, "cuda-sample: cuInit: CUDA_ERROR_NO_DEVICE\n");
}

#[test]
fn on_an_exclusive_card_who_avoids_mps_gets_nothing() {
    let node = Node::new();
    node.change(|state| state.gpus[0].compute_mode = ComputeMode::ExclusiveProcess);
    let mps = Mps::start(&node, T4);
    let _client = Running::holding(&node, mps.command(SAMPLE), "", 1);
    let (second, _) = sample(&node, mps.command(SAMPLE), "");
    assert_eq!(second.code, Some(0), "{}", second.stderr);
    let (stray, _) = sample(&node, mps.command(SAMPLE), "--no-mps-env");
    assert_eq!(stray.code, Some(1));
    assert_eq!(stray.stderr, "cuda-sample: cuCtxCreate_v2: CUDA_ERROR_DEVICE_UNAVAILABLE\n");
}

#[test]
fn clients_appear_as_such_in_the_node() {
    let node = Node::new();
    let mps = Mps::start(&node, T4);
    let client = Running::holding(&node, mps.command(SAMPLE), "--alloc 100Mi", 1);
    let processes = node.store.read().unwrap().processes;
    let server = mps.servers()[0];
    let entry = processes.iter().find(|process| process.id.pid == client.pid()).unwrap();
    assert_eq!(entry.kind, ProcessKind::MpsClient { server });
    assert_eq!(entry.used_mib, 412);
}

#[test]
fn a_client_loses_its_context_with_its_server() {
    let node = Node::new();
    let mps = Mps::start(&node, T4);
    let client = Running::holding(&node, mps.command(SAMPLE), "", 1);
    mps.kill_servers();
    let (code, error) = client.end();
    assert_eq!(code, Some(1));
    assert_eq!(error, "cuda-sample: cuCtxSynchronize: CUDA_ERROR_MPS_RPC_FAILURE");
}

#[test]
fn a_client_can_be_terminated_and_its_neighbour_goes_on() {
    let node = Node::new();
    let mps = Mps::start(&node, T4);
    let victim = Running::holding(&node, mps.command(SAMPLE), "", 1);
    let neighbour = Running::holding(&node, mps.command(SAMPLE), "", 1);
    let server = mps.servers()[0];
    assert_eq!(mps.ask(&format!("terminate_client {server} {}", victim.pid())), "0\n");
    let (code, error) = victim.end();
    assert_eq!(code, Some(1));
    assert_eq!(error, "cuda-sample: cuCtxSynchronize: CUDA_ERROR_MPS_CLIENT_TERMINATED");
    assert_eq!(neighbour.events("failed"), Vec::<Value>::new());
}

#[test]
fn a_fault_takes_the_neighbours_along_and_keeps_new_clients_out_until_they_have_gone() {
    let node = Node::new();
    let mps = Mps::start(&node, T4);
    let innocent = Running::holding(&node, mps.command(SAMPLE), "--linger", 1);
    let (guilty, _) = sample(&node, mps.command(SAMPLE), "--fault");
    assert_eq!(guilty.stderr, "cuda-sample: cuMemsetD8_v2: CUDA_ERROR_ILLEGAL_ADDRESS\n");
    let failed = eventually("the neighbour fails", || innocent.events("failed").pop());
    assert_eq!(failed["error"], "CUDA_ERROR_ILLEGAL_ADDRESS");
    let (refused, _) = sample(&node, mps.command(SAMPLE), "");
    assert_eq!(refused.stderr, "cuda-sample: cuInit: CUDA_ERROR_MPS_SERVER_NOT_READY\n");
    drop(innocent);
    eventually("a new client gets in", || {
        (sample(&node, mps.command(SAMPLE), "").0.code == Some(0)).then_some(())
    });
}

#[test]
fn a_client_with_another_shared_memory_directory_cannot_connect() {
    let node = Node::new();
    let mps = Mps::start(&node, T4);
    let elsewhere = node.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let mut command = mps.command(SAMPLE);
    command.env(SHM_ENV, &elsewhere);
    let (apart, _) = sample(&node, command, "");
    assert_eq!(apart.stderr, "cuda-sample: cuInit: CUDA_ERROR_MPS_CONNECTION_FAILED\n");
}

#[test]
fn the_segment_of_a_killed_server_goes_with_the_next_one() {
    let node = Node::new();
    let mps = Mps::start(&node, T4);
    let segments = || std::fs::read_dir(node.path().join("shm")).unwrap().count();
    let client = Running::holding(&node, mps.command(SAMPLE), "", 1);
    mps.kill_servers();
    client.end();
    assert_eq!(segments(), 1);
    eventually("a new server is there", || {
        (sample(&node, mps.command(SAMPLE), "").0.code == Some(0)).then_some(())
    });
    assert_eq!(segments(), 1);
}
