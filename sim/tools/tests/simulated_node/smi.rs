//! What `nvidia-smi` prints.

use std::os::unix::process::parent_id;
use std::process::id;

use mpshare_sim_state::{ComputeMode, Health, ProcId, ProcessKind, SimProcess};

use crate::node::{Node, Outcome, T4, V100, outcome, process};

const SMI: &str = env!("CARGO_BIN_EXE_nvidia-smi");

fn smi(node: &Node, arguments: &[&str]) -> Outcome {
    node.run(SMI, arguments)
}

#[test]
fn the_table_shows_cards_and_processes() {
    let node = Node::new();
    node.occupy(V100, ProcessKind::MpsServer, "nvidia-cuda-mps-server", 30);
    let parent = i32::try_from(parent_id()).unwrap();
    let client = SimProcess {
        id: ProcId::of(parent).unwrap(),
        ..process(V100, ProcessKind::MpsClient { server: 1 }, "python", 312)
    };
    node.change(|state| state.processes.push(client));
    node.change(|state| state.gpus[1].compute_mode = ComputeMode::ExclusiveProcess);
    let shown = smi(&node, &[]);
    assert_eq!(shown.code, Some(0), "{}", shown.stdout);
    let column = |pid: u32| format!("{pid:>10}");
    let (_date, table) = shown.stdout.split_once('\n').unwrap();
    let table = table.replace(&column(id()), "  <server>");
    let table = table.replace(&column(parent_id()), "  <client>");
    assert_eq!(table, include_str!("golden/table.txt"));
}

#[test]
fn cards_are_listed_with_their_uuids() {
    let node = Node::new();
    let listed = smi(&node, &["-L"]).stdout;
    assert_eq!(listed.lines().next(), Some(format!("GPU 0: Tesla T4 (UUID: {T4})").as_str()));
    assert_eq!(listed.lines().count(), 3);
}

#[test]
fn a_query_answers_in_csv() {
    let node = Node::new();
    node.occupy(T4, ProcessKind::Plain, "python", 1000);
    let fields = "index,uuid,name,memory.total,memory.used,memory.free,compute_mode,\
                  driver_version,compute_cap,mig.mode.current,pci.bus_id,temperature.gpu,\
                  utilization.gpu";
    let query = format!("--query-gpu={fields}");
    assert_eq!(smi(&node, &[&query, "--format=csv"]).stdout, include_str!("golden/query.csv"));
    let bare = smi(&node, &["--query-gpu=memory.total", "--format=csv,noheader,nounits"]);
    assert_eq!(bare.stdout, "15360\n32768\n40960\n");
    let unknown = smi(&node, &["--query-gpu=colour", "--format=csv"]);
    assert_eq!(unknown.stdout, "Field \"colour\" is not a valid field to query.\n");
    assert_eq!(unknown.code, Some(2));
}

#[test]
fn compute_processes_answer_in_csv() {
    let node = Node::new();
    node.occupy(T4, ProcessKind::Plain, "python", 1000);
    let query = "--query-compute-apps=pid,process_name,used_memory,gpu_uuid";
    let shown = smi(&node, &[query, "--format=csv"]).stdout;
    let pid = id();
    let expected = format!(
        "pid, process_name, used_gpu_memory [MiB], gpu_uuid\n{pid}, python, 1000 MiB, {T4}\n"
    );
    assert_eq!(shown, expected);
}

#[test]
fn the_compute_mode_of_one_card_is_set_by_uuid() {
    let node = Node::new();
    let set = smi(&node, &["-i", V100, "-c", "EXCLUSIVE_PROCESS"]);
    assert_eq!(
        set.stdout,
        "Set compute mode to EXCLUSIVE_PROCESS for GPU 00000000:00:08.0.\nAll done.\n"
    );
    let gpus = node.store.read().unwrap().gpus;
    assert_eq!(gpus[1].compute_mode, ComputeMode::ExclusiveProcess);
    assert_eq!(gpus[0].compute_mode, ComputeMode::Default);
}

#[test]
fn a_refused_compute_mode_is_exit_code_4() {
    let node = Node::new();
    node.change(|state| state.faults.compute_mode_denied = true);
    let refused = smi(&node, &["-i", "0", "-c", "3"]);
    assert_eq!(refused.code, Some(4));
    assert!(refused.stdout.contains("Insufficient Permissions"), "{}", refused.stdout);
    assert_eq!(node.store.read().unwrap().gpus[0].compute_mode, ComputeMode::Default);
}

#[test]
fn no_driver_is_exit_code_9_and_no_library_12() {
    let node = Node::new();
    node.change(|state| state.faults.driver_not_loaded = true);
    let no_driver = smi(&node, &[]);
    assert_eq!(no_driver.code, Some(9));
    assert!(no_driver.stdout.starts_with("NVIDIA-SMI has failed because it couldn't communicate"));
    let no_library = outcome(node.command(SMI).env("LD_LIBRARY_PATH", node.path()));
    assert_eq!(no_library.code, Some(12), "{}", no_library.stdout);
}

#[test]
fn a_lost_card_is_exit_code_15() {
    let node = Node::new();
    node.change(|state| state.gpus[0].health = Health::Lost);
    let lost = smi(&node, &[]);
    assert_eq!(lost.code, Some(15));
    assert!(lost.stdout.contains("GPU is lost.  Reboot the system"), "{}", lost.stdout);
    assert_eq!(smi(&node, &["-i", "1", "-L"]).code, Some(0));
}
