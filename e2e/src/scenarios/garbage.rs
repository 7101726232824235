//! What users write that makes no sense, and pods that the extender never saw: each gets a clear
//! answer, and the ledger stays true.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::ack::{await_inspect, sharing};
use super::{
    FIFTEEN_GIB, TWO_CARDS, WRITER, await_units, choose, end_sharing_by_memory, share_by_memory,
};
use crate::cluster::{Cluster, Node};
use crate::pods::{self, Pod};
use crate::wait::eventually;

const ALLOCATION: &str = "mpshare.io/allocation";

/// Claims in annotations, amounts, an inventory that somebody overwrites, a pod that was bound
/// without being asked for.
pub(super) fn in_every_place(cluster: &mut Cluster) -> Result<()> {
    share_by_memory(cluster, FIFTEEN_GIB, 15)?;
    await_inspect(cluster, "0/15 (0%)")?;

    let garbage = json!({ALLOCATION: "{{{", "ALIYUN_COM_GPU_MEM_IDX": "99999999999999999999"});
    let bound = sharing("bound", 7)
        .with("/metadata/annotations", garbage)
        .with("/spec/nodeName", json!(FIFTEEN_GIB));
    start_as_writer(cluster, &bound)?;
    await_truth(cluster, "bound")?;
    await_inspect(cluster, "7/15 (46%)")?;

    let foreign = json!({"cuda": {"GPU-ffffffff-0000": 7}}).to_string();
    let foreign = sharing("foreign", 7).with("/metadata/annotations", json!({ALLOCATION: foreign}));
    start_as_writer(cluster, &foreign)?;
    await_truth(cluster, "foreign")?;
    await_inspect(cluster, "14/15 (93%)")?;

    for claim in ["{}", "null", r#"{"cuda":{"GPU-ffffffff-0000":18446744073709551615}}"#] {
        let annotation = format!("{ALLOCATION}={claim}");
        let annotate = ["annotate", "pod", "foreign", &annotation, "--overwrite"];
        let said = cluster.kubectl(&annotate).err().context("a user's claim is accepted")?;
        ensure!(format!("{said:#}").contains("written by mpshare alone"), "{said:#}");
    }
    await_inspect(cluster, "14/15 (93%)")?;

    for inventory in ["[garbage", "[]"] {
        let annotation = format!("mpshare.io/gpus={inventory}");
        cluster.kubectl(&["annotate", "node", FIFTEEN_GIB, &annotation, "--overwrite"])?;
        await_inspect(cluster, "14/15 (93%)")?;
    }
    amounts(cluster)?;
    pods::delete_all(cluster)?;
    await_inspect(cluster, "0/15 (0%)")?;
    end_sharing_by_memory(cluster, FIFTEEN_GIB)
}

/// Starts a pod as somebody who may write our annotations, of others they aren't taken.
fn start_as_writer(cluster: &Cluster, pod: &Pod) -> Result<()> {
    let refused = pod.create(cluster).err().context("a user's claim is accepted")?;
    ensure!(format!("{refused:#}").contains("written by mpshare alone"), "{refused:#}");
    cluster.apply_as(WRITER, &pod.manifest().to_string())?;
    pods::await_log(cluster, pod.name(), "holding")
}

/// More than any card has waits with its number, none needs no card, a part of one is refused.
fn amounts(cluster: &Cluster) -> Result<()> {
    let of = |name: &str, amount: Value| {
        sharing(name, 1)
            .with_container("resources", json!({"limits": {"aliyun.com/gpu-mem": amount}}))
    };
    of("huge", json!("10G")).create(cluster)?;
    await_event(cluster, "huge", "for 10000000000")?;
    of("none", json!(0)).create(cluster)?;
    let node = ["get", "pod", "none", "-o", "jsonpath={.spec.nodeName}"];
    eventually("the pod that asks for nothing has a node", Duration::from_secs(30), || {
        Ok(cluster.kubectl(&node)? == FIFTEEN_GIB)
    })?;
    let said = of("half", json!("0.5")).create(cluster).err().context("half a unit is accepted")?;
    ensure!(format!("{said:#}").contains("must be an integer"), "{said:#}");
    Ok(())
}

/// A pod that nobody has scheduled or admitted: its share holds, although it names other cards, and the
/// ledger learns of it.
pub(super) fn static_pod(cluster: &mut Cluster) -> Result<()> {
    share_by_memory(cluster, FIFTEEN_GIB, 15)?;
    let all = json!([{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]);
    let pod = sharing("static", 2)
        .with("/spec/nodeSelector", json!({}))
        .with("/metadata/namespace", json!("default"))
        .with_container("env", all);
    let manifest = pod.manifest().to_string();
    cluster.node(FIFTEEN_GIB)?.set_static_pod("static", Some(&manifest))?;
    let mirror = format!("static-{FIFTEEN_GIB}");
    let seen = pods::await_log(cluster, &mirror, "holding").and_then(|()| {
        await_inspect(cluster, "2/15 (13%)")?;
        await_truth(cluster, &mirror)?;
        let got = pods::most_memory(cluster, &mirror)?;
        ensure!(got <= 2048, "it got {got} MiB of 2 GiB");
        Ok(())
    });
    cluster.node(FIFTEEN_GIB)?.set_static_pod("static", None)?;
    seen?;
    await_inspect(cluster, "0/15 (0%)")?;
    end_sharing_by_memory(cluster, FIFTEEN_GIB)
}

/// Several shares of one container come from one card: where each card has one free, a pod for two
/// waits, although a scheduler that counts per node has two.
pub(super) fn two_shares_of_one_card(cluster: &mut Cluster) -> Result<()> {
    choose(cluster, TWO_CARDS, "mps-2x")?;
    await_units(cluster, TWO_CARDS, 4)?;
    let hold = ["--alloc", "1Gi", "--hold", "forever"];
    for name in ["one", "two", "three"] {
        Pod::new(name, TWO_CARDS, &hold).start(cluster)?;
        await_truth(cluster, name)?;
    }
    let card = |name: &str| claim(cluster, name);
    let lonely = ["one", "two", "three"].into_iter().find(|name| {
        let mine = card(name).unwrap_or_default();
        ["one", "two", "three"].iter().filter(|it| card(it).is_ok_and(|it| it == mine)).count() == 1
    });
    let lonely = lonely.context("no pod is alone on its card")?;
    let other = ["one", "two", "three"].into_iter().find(|name| *name != lonely);
    cluster.kubectl(&["delete", "pod", other.context("no other pod")?])?;
    Pod::new("wide", TWO_CARDS, &hold)
        .with_container("resources", json!({"limits": {"nvidia.com/gpu": 2}}))
        .create(cluster)?;
    await_event(cluster, "wide", "on one GPU for 2")?;
    cluster.kubectl(&["delete", "pod", lonely])?;
    pods::await_log(cluster, "wide", "holding")?;
    await_truth(cluster, "wide")?;
    ensure!(claim(cluster, "wide")?.ends_with(":2}}"), "{}", claim(cluster, "wide")?);
    pods::delete_all(cluster)
}

/// What a pod's annotation says.
fn claim(cluster: &Cluster, pod: &str) -> Result<String> {
    let path = "jsonpath={.metadata.annotations.mpshare\\.io/allocation}";
    cluster.kubectl(&["get", "pod", pod, "-o", path])
}

/// Waits until a pod's annotation names a card of this cluster.
fn await_truth(cluster: &Cluster, pod: &str) -> Result<()> {
    let cards: Vec<String> = cluster
        .nodes
        .iter()
        .map(Node::driver_state)
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .flat_map(|state| state.gpus.into_iter().map(|gpu| gpu.uuid))
        .collect();
    eventually(&format!("`{pod}` says where it is"), Duration::from_secs(30), || {
        let claim = claim(cluster, pod)?;
        Ok(cards.iter().any(|card| claim.contains(card)))
    })
}

/// Waits until an Event of a pod has a text.
fn await_event(cluster: &Cluster, pod: &str, text: &str) -> Result<()> {
    let selector = format!("involvedObject.name={pod}");
    let mut events = String::new();
    eventually(&format!("an Event of `{pod}` says `{text}`"), Duration::from_secs(30), || {
        events = cluster.kubectl(&["get", "events", "--field-selector", &selector])?;
        Ok(events.contains(text))
    })
    .with_context(|| events)
}
