//! The demo, ended in every way.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use mpshare_testkit::simnode::built;
use rustix::process::{Pid, Signal, kill_process};

use crate::scene::wait;

/// A demo that keeps its node up, and the node's directory.
fn kept_demo() -> (Child, PathBuf) {
    let mut demo = Command::new(built().join("mpshare-demo"))
        .args(["story", "--keep"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(demo.stderr.take().unwrap()).lines();
    let mut places = lines
        .map_while(Result::ok)
        .filter_map(|line| line.trim().strip_prefix("status and logs are in ").map(PathBuf::from));
    let place = places.next().unwrap();
    (demo, place)
}

fn processes_of(place: &Path) -> usize {
    let mark = format!("MPSHARE_SIM_DIR={}", place.join("sim").display());
    let entries = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let is_of = |environ: Vec<u8>| environ.split(|byte| *byte == 0).any(|e| e == mark.as_bytes());
    entries
        .filter_map(|entry| std::fs::read(entry.path().join("environ")).ok())
        .filter(|e| is_of(e.clone()))
        .count()
}

async fn leaves_nothing_after(signal: Signal) {
    let (mut demo, place) = kept_demo();
    assert!(processes_of(&place) > 6, "daemons, servers, clients and the product run");
    let pid = Pid::from_raw(i32::try_from(demo.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
    demo.wait().unwrap();
    wait(&format!("no process is left after {signal:?}"), || processes_of(&place) == 0).await;
    wait(&format!("no file is left after {signal:?}"), || !place.exists()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_demo_that_is_interrupted_leaves_nothing() {
    leaves_nothing_after(Signal::INT).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_demo_whose_terminal_closes_leaves_nothing() {
    leaves_nothing_after(Signal::HUP).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_demo_leaves_nothing() {
    leaves_nothing_after(Signal::KILL).await;
}
