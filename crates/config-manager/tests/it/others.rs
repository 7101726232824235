//! Others at work: a second config-manager, somebody who writes our condition or removes the root.

use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

use mpshare_api::MpsRoot;
use serde_json::json;

use crate::harness::{LABEL, Rig};
use crate::{HALVES, report, until_elapsed};

#[tokio::test]
async fn a_second_one_on_the_node_waits_and_says_nothing_until_the_first_has_ended() {
    let mut rig = Rig::new(&json!({})).await;
    rig.start(|options| options.default_config = Some("mps-2x".to_owned()));
    rig.until_in_force("mps-2x").await;
    let before = rig.until_condition("Unknown", "StatusMissing").await;
    let inode = fs::metadata(rig.root.config()).unwrap().ino();
    let (shutdown, second) = rig.start_second("mps-4x");
    until_elapsed(Duration::from_secs(2)).await;
    assert_eq!(fs::metadata(rig.root.config()).unwrap().ino(), inode, "the config was rewritten");
    assert_eq!(rig.condition("MPSShareReady").unwrap(), before);
    assert_eq!(rig.events("ConfigApplied").len(), 1);
    rig.stop().await;
    rig.until_in_force("mps-4x").await;
    shutdown.cancel();
    second.await.unwrap().unwrap();
}

#[tokio::test]
async fn one_that_waits_can_be_stopped() {
    let mut rig = Rig::on("mps-2x").await;
    rig.until_in_force("mps-2x").await;
    let (shutdown, second) = rig.start_second("mps-4x");
    shutdown.cancel();
    second.await.unwrap().unwrap();
    rig.stop().await;
}

#[tokio::test]
async fn a_condition_that_somebody_else_changed_or_removed_is_written_again() {
    let rig = Rig::on("mps-2x").await;
    rig.report(&report(HALVES));
    rig.until_condition("True", "Ready").await;
    for _ in 0..2 {
        rig.overwrite_condition("Uninstalled").await;
        assert_eq!(rig.ours(), Some(("False".to_owned(), "Uninstalled".to_owned())));
        rig.until_condition("True", "Ready").await;
    }
    assert_eq!(rig.condition("Ready").unwrap()["reason"], "KubeletReady");
}

#[tokio::test]
async fn two_writers_that_disagree_write_seldom() {
    let rig = Rig::on("mps-2x").await;
    rig.report(&report(HALVES));
    rig.until_condition("True", "Ready").await;
    let start = Instant::now();
    let mut written = 0;
    while start.elapsed() < Duration::from_secs(6) {
        if rig.ours() == Some(("True".to_owned(), "Ready".to_owned())) {
            rig.overwrite_condition("Theirs").await;
            written += 1;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!((2..=6).contains(&written), "{written} times");
}

#[tokio::test]
async fn a_root_that_was_removed_under_its_mount_is_the_end_and_is_named() {
    let mut rig = Rig::new(&json!({LABEL: "mps-2x"})).await;
    fs::create_dir_all(rig.root.path()).unwrap();
    let open = fs::File::open(rig.root.path()).unwrap();
    // Leads to the open directory, as a container's mount does.
    let mounted = format!("/proc/self/fd/{}", open.as_raw_fd());
    rig.start(|options| options.root = MpsRoot::new(&mounted));
    rig.until_in_force("mps-2x").await;
    fs::remove_dir_all(rig.root.path()).unwrap();
    let error = rig.ended().await.unwrap_err().to_string();
    assert!(error.contains(&format!("directory `{mounted}` has been removed")), "{error}");
    assert!(rig.events("ConfigNotWritten").is_empty());
}
