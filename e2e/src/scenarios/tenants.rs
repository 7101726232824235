//! Pods as tenants write them: any user, any root file system, with and without the host's IPC.

use anyhow::{Result, ensure};
use serde_json::json;

use super::refusals::{await_condition, await_event};
use super::{ODD_CARDS, TWO_CARDS, await_units, choose};
use crate::clients::clients;
use crate::cluster::Cluster;
use crate::pods::{self, Pod};

const HOLD: [&str; 4] = ["--alloc", "1Gi", "--hold", "forever"];

/// All of them at once, on one card where they share it.
pub(super) fn of_all_kinds(cluster: &mut Cluster) -> Result<()> {
    choose(cluster, TWO_CARDS, "mps-4x")?;
    await_units(cluster, TWO_CARDS, 8)?;
    let pod = |name: &str| Pod::new(name, TWO_CARDS, &HOLD);
    let user = |uid: u32| json!({"runAsUser": uid, "runAsNonRoot": true});
    let hardened = json!({
        "runAsUser": 65532, "runAsNonRoot": true, "readOnlyRootFilesystem": true,
        "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
    });
    let kinds = [
        pod("root"),
        pod("host-ipc").with("/spec/hostIPC", json!(true)),
        pod("user-1000").with_container("securityContext", user(1000)),
        pod("user-1001").with_container("securityContext", user(1001)),
        pod("hardened").with_container("securityContext", hardened),
        pod("host-ipc-user")
            .with("/spec/hostIPC", json!(true))
            .with_container("securityContext", user(1000)),
    ];
    for pod in &kinds {
        pod.start(cluster)?;
    }
    let now = clients(cluster)?;
    ensure!(now.len() == kinds.len(), "{} pods have {} clients", kinds.len(), now.len());
    pods::delete_all(cluster)?;
    own_shared_memory(cluster)?;
    choose(cluster, TWO_CARDS, "mps-2x")?;
    await_units(cluster, TWO_CARDS, 4)
}

/// A pod that mounts something of its own over `/dev/shm` can't meet the daemon's shared memory. It
/// gets an answer at once.
fn own_shared_memory(cluster: &Cluster) -> Result<()> {
    Pod::new("own-shm", TWO_CARDS, &HOLD)
        .with("/spec/volumes", json!([{"name": "shm", "emptyDir": {"medium": "Memory"}}]))
        .with_container("volumeMounts", json!([{"name": "shm", "mountPath": "/dev/shm"}]))
        .create(cluster)?;
    pods::await_phase(cluster, "own-shm", "Failed")?;
    let answer = cluster.kubectl(&["logs", "own-shm"])?;
    ensure!(answer.contains("CUDA_ERROR_MPS"), "it isn't told that MPS is the matter: {answer}");
    pods::delete_all(cluster)
}

/// A 535 driver serves one uid at a time: the second one's pod waits, and the node says why.
pub(super) fn second_user_on_an_old_driver(cluster: &mut Cluster) -> Result<()> {
    choose(cluster, ODD_CARDS, "mps-2x")?;
    let as_user = |name: &str, uid: u32| {
        Pod::new(name, ODD_CARDS, &HOLD)
            .with_container("securityContext", json!({"runAsUser": uid}))
    };
    as_user("first", 1000).start(cluster)?;
    as_user("second", 1001).create(cluster)?;
    pods::await_phase(cluster, "second", "Running")?;
    await_event(cluster, "UserWaits", "of user 1001 waits")?;
    await_condition(cluster, ODD_CARDS, "of user 1001 waits")?;
    cluster.kubectl(&["delete", "pod", "first", "--grace-period=1"])?;
    pods::await_log(cluster, "second", "holding")?;
    pods::delete_all(cluster)
}
