//! The MPS root, removed on the host under the containers that have it mounted.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use mpshare_testkit::simnode::{Role, Setup, SimNode};

use super::{check, logged};
use crate::scene::{GPU, PATIENCE, bare, client, hold, label, logs, wait, wait_or};

/// Leads to what `host` is now, also when it is removed, as a container's mount does.
fn mount(node: &SimNode, host: &Path) -> File {
    std::fs::create_dir(host).unwrap();
    let open = File::open(host).unwrap();
    let at = format!("/proc/{}/fd/{}", std::process::id(), open.as_raw_fd());
    symlink(at, node.mps_root().path()).unwrap();
    open
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_end_with_the_root_under_their_mounts_and_heal_in_new_containers() {
    let mut node = bare(Setup::two_cards()).await;
    let host = node.path().join("host-mps");
    let old = mount(&node, &host);
    label(&node, 2).await;
    node.start_product().unwrap();
    if let Err(error) = node.kubelet().wait_allocatable(GPU, 4, PATIENCE).await {
        panic!("{error}\n{}", logs(&node));
    }
    // Again and again, because somebody writes all the time.
    wait("the root is gone", || std::fs::remove_dir_all(&host).is_ok()).await;
    let sentence = "has been removed from the host";
    for role in Role::ALL {
        let is_told = || logged(&node, role, sentence) == 1;
        wait_or("the end is told once", || logs(&node), is_told).await;
    }
    let until = Instant::now() + PATIENCE;
    while node.ended_roles().len() < Role::ALL.len() {
        assert!(Instant::now() < until, "they have not all ended\n{}", logs(&node));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(old);
    std::fs::remove_file(node.mps_root().path()).unwrap();
    let _new = mount(&node, &host);
    node.start_product().unwrap();
    if let Err(error) = node.kubelet().wait_allocatable(GPU, 4, PATIENCE).await {
        panic!("{error}\n{:#?}\n{}", node.status(), logs(&node));
    }
    hold(&node, client("new", 1, "1Gi")).await;
    check(&node);
    assert_eq!(node.ended_roles(), [], "{}", logs(&node));
}
