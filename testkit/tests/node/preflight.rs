//! What a node lacks: refused card by card with the reason, and told in one message.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;

use mpshare_api::{GpuState, GpuStatus};
use mpshare_sim_state::ComputeMode;
use mpshare_testkit::simnode::{Role, Setup, SimNode, built};

use crate::scene::{bare, card, ready, wait, write_config};

async fn refused(node: &SimNode, index: usize, code: &str) -> String {
    let is_refused = |card: &GpuStatus| {
        card.state == GpuState::Refused && card.reason.as_ref().is_some_and(|it| it.code == code)
    };
    card(node, index, &format!("refused as {code}"), is_refused).await.reason.unwrap().message
}

fn preflights(node: &SimNode) -> Vec<String> {
    let log = std::fs::read_to_string(node.log(Role::Supervisor)).unwrap_or_default();
    log.lines().filter(|line| line.contains("preflight: ")).map(str::to_owned).collect()
}

/// Cards of these tests alone: a foreign daemon for one is nobody else's.
fn cards() -> Setup {
    Setup {
        cards: vec![
            ("t4", "GPU-f0e10001-d6a4-be7f-0d2c-8b2f6c3c7a11"),
            ("v100", "GPU-f0e10002-41d7-6b0e-9c88-27e1d4a0b6f2"),
        ],
        ..Setup::two_cards()
    }
}

/// Idle, in a place of no meaning: named, and nothing is refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_holds_no_card_is_named_and_refuses_none() {
    let setup = Setup {
        cards: vec![("t4", "GPU-f0e20001-d6a4-be7f-0d2c-8b2f6c3c7a11")],
        ..Setup::two_cards()
    };
    let uuid = setup.cards[0].1;
    let mut node = bare(setup).await;
    let pipe = node.path().join("f");
    start_daemon(&node, &pipe, uuid);
    write_config(&node, 2);
    node.start_role(Role::Supervisor).unwrap();
    ready(&node, 0).await;
    let named = || {
        let reasons = node.status().map(|status| status.reasons).unwrap_or_default();
        let pipe = pipe.display().to_string();
        reasons.iter().any(|it| it.code == "ForeignDaemonNearby" && it.message.contains(&pipe))
    };
    wait("it is named", named).await;
    control(&node, &pipe, "quit\n");
    wait("it is forgotten", || !named()).await;
}

fn uuid(index: usize) -> &'static str {
    cards().cards[index].1
}

/// A daemon of somebody else's for one card.
fn foreign_daemon(node: &SimNode, pipe: &Path, index: usize) {
    start_daemon(node, pipe, uuid(index));
}

fn start_daemon(node: &SimNode, pipe: &Path, uuid: &str) {
    std::fs::create_dir_all(pipe).unwrap();
    let started = node
        .program("nvidia-cuda-mps-control")
        .arg("-d")
        .env("CUDA_VISIBLE_DEVICES", uuid)
        .env("CUDA_MPS_PIPE_DIRECTORY", pipe)
        .env("CUDA_MPS_LOG_DIRECTORY", pipe.with_extension("log"))
        .status()
        .unwrap();
    assert!(started.success());
}

fn control(node: &SimNode, pipe: &Path, command: &str) {
    let mut program = node.program("nvidia-cuda-mps-control");
    program.env("CUDA_MPS_PIPE_DIRECTORY", pipe).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = program.spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), command.as_bytes()).unwrap();
    child.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_mps_programs_shared_cards_are_refused_untouched_until_they_are_there() {
    let mut node = bare(cards()).await;
    let server = node.path().join("bin/nvidia-cuda-mps-server");
    std::fs::remove_file(&server).unwrap();
    write_config(&node, 2);
    node.start_role(Role::Supervisor).unwrap();
    for index in [0, 1] {
        let message = refused(&node, index, "ProgramMissing").await;
        let tried =
            format!("no executable `nvidia-cuda-mps-server` in `{}/bin`", node.path().display());
        assert!(message.contains(&tried), "{message}");
    }
    let modes = |node: &SimNode| {
        let state = node.store().read().unwrap();
        state.gpus.iter().map(|gpu| gpu.compute_mode).collect::<Vec<_>>()
    };
    assert_eq!(modes(&node), [ComputeMode::Default; 2]);
    wait("one message has both cards", || preflights(&node).len() == 1).await;
    let said = &preflights(&node)[0];
    assert!(
        said.contains("preflight: (1) ") && said.matches("` can't be shared").count() == 2,
        "{said}"
    );
    symlink(built().join("nvidia-cuda-mps-server"), server).unwrap();
    ready(&node, 0).await;
    ready(&node, 1).await;
    // Other daemons of this machine are told, too.
    wait("it is told that nothing of this is missing any more", || {
        preflights(&node).last().is_some_and(|said| !said.contains("can't be shared"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_lists_all_that_is_missing_and_then_that_nothing_is() {
    let node = bare(cards()).await;
    let look = || {
        let mut command = node.program("mpshare");
        command.args(["node", "preflight", "--mps-root"]).arg(node.mps_root().path());
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        // Of other daemons on this machine, this test knows nothing.
        let (nearby, lines): (Vec<&str>, Vec<&str>) =
            text.lines().partition(|line| line.starts_with("ForeignDaemonNearby"));
        let code = if nearby.is_empty() { output.status.code().unwrap() } else { 1 };
        (code, lines.join("\n"))
    };
    let (code, text) = look();
    assert!(
        (code, text.as_str()) == (0, "nothing that MPS needs is missing here") || text.is_empty(),
        "{text}"
    );
    std::fs::remove_file(node.path().join("bin/nvidia-cuda-mps-control")).unwrap();
    node.store().update(|state| state.gpus[0].compute_capability = (6, 1)).unwrap();
    let (code, text) = look();
    let codes: Vec<&str> = text.lines().filter_map(|line| Some(line.split_once(':')?.0)).collect();
    assert_eq!((code, codes), (1, vec!["NoMemoryIsolation", "ProgramMissing", "ProgramMissing"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn whole_cards_need_no_mps_programs() {
    let mut node = bare(cards()).await;
    std::fs::remove_file(node.path().join("bin/nvidia-cuda-mps-control")).unwrap();
    write_config(&node, 1);
    node.start_role(Role::Supervisor).unwrap();
    ready(&node, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_cannot_be_entered_is_told_with_what_the_pod_needs() {
    let mut setup = cards();
    setup.supervisor = vec!["--launch", "host", "--host-mount-namespace", "/nowhere/ns/mnt"];
    let mut node = bare(setup).await;
    write_config(&node, 2);
    node.start_role(Role::Supervisor).unwrap();
    let message = refused(&node, 0, "HostUnreachable").await;
    assert!(message.contains("can't enter the mount namespace `/nowhere/ns/mnt`"), "{message}");
    assert!(message.ends_with("must be privileged and have `hostPID: true`"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_are_looked_for_on_the_host_below_the_driver_root() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: entering a mount namespace needs root");
        return;
    }
    let mut setup = cards();
    setup.supervisor =
        "--launch host --host-mount-namespace /proc/self/ns/mnt --driver-root /nowhere"
            .split(' ')
            .collect();
    let mut node = bare(setup).await;
    write_config(&node, 2);
    node.start_role(Role::Supervisor).unwrap();
    let message = refused(&node, 0, "ProgramMissing").await;
    assert!(
        message.contains("no executable `nvidia-cuda-mps-control` in `/nowhere/usr/bin`"),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_as_nvidias_plugin_starts_it_keeps_its_card_from_being_shared_and_no_other() {
    let mut node = bare(cards()).await;
    let pipe = node.mps_root().path().join("nvidia.com/gpu/pipe");
    foreign_daemon(&node, &pipe, 0);
    write_config(&node, 2);
    node.start_role(Role::Supervisor).unwrap();
    let message = refused(&node, 0, "ForeignMps").await;
    assert!(message.contains(&format!("with pipe directory `{}` isn't ours", pipe.display())));
    ready(&node, 1).await;
    control(&node, &pipe, "quit\n");
    ready(&node, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_anywhere_is_named_once_its_server_holds_a_card() {
    let mut node = bare(cards()).await;
    let pipe = node.path().join("f");
    foreign_daemon(&node, &pipe, 0);
    control(&node, &pipe, "start_server -uid 0\n");
    wait("its server holds the card", || !node.store().read().unwrap().processes.is_empty()).await;
    write_config(&node, 2);
    node.start_role(Role::Supervisor).unwrap();
    let is_named =
        |card: &GpuStatus| card.reason.as_ref().is_some_and(|it| it.code == "ForeignMps");
    let status = card(&node, 0, "in the way", is_named).await;
    let message = status.reason.unwrap().message;
    assert!(message.contains(&pipe.display().to_string()), "{message}");
    ready(&node, 1).await;
    control(&node, &pipe, "quit\n");
    ready(&node, 0).await;
}
