//! The suite itself, on the simulated driver: that it can fail, and that nothing of it is left when
//! it is broken off.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_mins(1);

/// A place of its own for one run.
fn place() -> TempDir {
    tempfile::Builder::new().prefix("gs").tempdir_in("/tmp").unwrap()
}

fn suite(place: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mpshare-gpu-suite"));
    command.args(["run", "--simulator"]).args(arguments).env("TMPDIR", place);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// The processes of all runs in a place.
fn processes(place: &Path) -> Vec<i32> {
    let mark = format!("MPSHARE_GPU_SUITE={}/", place.display());
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_marked = |pid: &i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry.starts_with(mark.as_bytes()))
    };
    pids.filter(is_marked).collect()
}

fn wait(what: &str, mut fact: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !fact() {
        assert!(Instant::now() < until, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A run whose daemon has a server, and whose server has a client.
fn at_work(place: &Path, arguments: &[&str]) -> Child {
    let child = suite(place, arguments).spawn().unwrap();
    wait("it is at work", || {
        let names = processes(place)
            .into_iter()
            .map(|pid| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default());
        let names: Vec<_> = names.collect();
        names.iter().any(|name| name.contains("mps-server"))
            && names.iter().any(|name| name.contains("\0client\0"))
    });
    child
}

fn send(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

#[test]
fn a_driver_whose_limits_do_not_hold_fails_the_run_and_the_report_says_where() {
    let place = place();
    let report = place.path().join("report.json");
    let faults = r#"{"memory_limit_ignored": true}"#;
    let path = report.display().to_string();
    let arguments =
        ["--simulated-faults", faults, "--report", &path, "limits.memory", "contract.nobody"];
    let status = suite(place.path(), &arguments).status().unwrap();
    assert_eq!(status.code(), Some(1));
    let report: Value = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
    assert_eq!((&report["outcome"], &report["simulated"]), (&"failed".into(), &true.into()));
    let checks = report["checks"].as_array().unwrap();
    let told: Vec<_> = checks.iter().map(|check| (&check["name"], &check["outcome"])).collect();
    let expected = [("contract.nobody-listens", "passed"), ("limits.memory-holds", "failed")];
    let expected = expected.map(|(name, outcome)| (Value::from(name), Value::from(outcome)));
    assert!(told.into_iter().eq(expected.iter().map(|(name, outcome)| (name, outcome))));
    let why = checks[1]["why"].as_str().unwrap();
    assert!(why.contains("were set, but"), "{why}");
}

#[test]
fn a_check_whose_time_is_over_fails_and_the_next_one_begins_with_nothing_of_it() {
    let place = place();
    let report = place.path().join("report.json");
    let path = report.display().to_string();
    let arguments = ["--check-limit-ms", "400", "--report", &path, "drain", "faults"];
    let status = suite(place.path(), &arguments).status().unwrap();
    assert_eq!(status.code(), Some(1));
    let report: Value = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
    let checks = report["checks"].as_array().unwrap();
    assert_eq!(checks.len(), 2, "{checks:?}");
    for check in checks {
        assert_eq!(check["why"], "not done within 400ms", "{check}");
        assert!(check["milliseconds"].as_u64().unwrap() < 15_000, "{check}");
    }
    assert!(processes(place.path()).is_empty());
}

#[test]
fn ctrl_c_leaves_nothing_behind() {
    let place = place();
    let report = place.path().with_extension("json");
    let path = report.display().to_string();
    let mut child = at_work(place.path(), &["--report", &path, "supervisor.killed"]);
    send(&child, Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let text = fs::read_to_string(&report).unwrap();
    fs::remove_file(report).unwrap();
    let report: Value = serde_json::from_str(&text).unwrap();
    let why = report["why"].as_str().unwrap();
    assert!(why.starts_with("broken off by signal 2; put back: "), "{why}");
    assert!(why.contains("compute mode EXCLUSIVE_PROCESS, restored to DEFAULT"), "{why}");
    assert!(processes(place.path()).is_empty());
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
}

#[test]
fn a_suite_that_is_killed_leaves_nothing_behind() {
    let place = place();
    let mut child = at_work(place.path(), &["drain"]);
    send(&child, Signal::KILL);
    child.wait().unwrap();
    wait("its processes have ended", || processes(place.path()).is_empty());
    wait("its files are gone", || fs::read_dir(place.path()).unwrap().count() == 0);
}
