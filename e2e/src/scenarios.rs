//! What is to be seen on a real Kubernetes. Each scenario leaves the cluster as it found it: our
//! product installed, nodes on `mps-2x`, no pod of a user.

#![expect(clippy::print_stdout, reason = "a person follows a run as it goes")]

mod ack;
mod admission;
mod clients;
mod containment;
mod garbage;
mod lifecycle;
mod race;
mod refusals;
mod restarts;
mod scheduler;
mod tenants;
mod tke;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use mpshare_sim_state::Driver;

use crate::cluster::{Cluster, NodeSpec};
use crate::driver_root::{Model, cards};
use crate::pods;
use crate::wait::eventually;

/// One story.
#[derive(Debug)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// Tells it.
    pub run: fn(&mut Cluster) -> Result<()>,
}

/// The scenario that all others build on.
pub const INSTALL: &str = "install";

/// All scenarios, in the order in which they are run.
pub const ALL: &[Scenario] = &[
    Scenario { name: INSTALL, run: tke::install },
    Scenario { name: "tke-labels", run: tke::labels },
    Scenario { name: "tke-checks", run: tke::checks },
    Scenario { name: "tke-examples", run: tke::examples },
    Scenario { name: "device-lists", run: tke::device_lists },
    Scenario { name: "label-with-live-shares", run: clients::label_with_live_shares },
    Scenario { name: "broken-config", run: clients::broken_config },
    Scenario { name: "twenty-clients-survive", run: clients::survive },
    Scenario { name: "tenants-of-all-kinds", run: tenants::of_all_kinds },
    Scenario { name: "second-user-on-535", run: tenants::second_user_on_an_old_driver },
    Scenario { name: "shares-across-restarts", run: restarts::shares },
    Scenario { name: "shares-as-sums", run: containment::shares_as_sums },
    Scenario { name: "fault-of-one-card", run: containment::fault_of_one_card },
    Scenario { name: "wedged-server", run: containment::wedged_server },
    Scenario { name: "drain", run: containment::drain },
    Scenario { name: "root-tenant", run: containment::root_tenant },
    Scenario { name: "refused-cards", run: refusals::cards },
    Scenario { name: "own-node-only", run: refusals::own_node_only },
    Scenario { name: "qgpu-node", run: refusals::qgpu },
    Scenario { name: "foreign-daemon", run: refusals::foreign_daemon },
    Scenario { name: "driver-on-the-node", run: lifecycle::driver_on_the_node },
    Scenario { name: "nvidia-values", run: lifecycle::nvidia_values },
    Scenario { name: "ack-document", run: ack::document },
    Scenario { name: "garbage-in", run: garbage::in_every_place },
    Scenario { name: "static-pod", run: garbage::static_pod },
    Scenario { name: "two-shares-of-one-card", run: garbage::two_shares_of_one_card },
    Scenario { name: "race-of-a-hundred", run: race::of_a_hundred },
    Scenario { name: "second-scheduler", run: scheduler::second },
    Scenario { name: "extender-of-the-control-plane", run: scheduler::extender_alone },
    Scenario { name: "admission-examples", run: admission::examples },
    Scenario { name: "admission-of-bad-pods", run: admission::pods_in_each_mode },
    Scenario { name: "admission-away", run: admission::webhook_away },
    Scenario { name: "ways-around-admission", run: admission::ways_around },
    Scenario { name: "uninstall-with-clients", run: lifecycle::uninstall_with_clients },
    Scenario { name: "uninstall", run: lifecycle::uninstall },
];

/// The chart as a release, for `helm install` and `helm upgrade`. The cluster's own scheduler has our
/// extender beside it already, so that the documents' YAML runs verbatim.
const RELEASE: &str = "mpshare deploy/helm/mpshare --namespace kube-system \
    --set image.repository=docker.io/library/mpshare --set image.tag=dev \
    --set nvidiaDriverRoot=/run/nvidia/driver --set scheduler.mode=none \
    --set webhook.annotationWriters[0]=extender";

/// The user of the extender beside the cluster's own scheduler, which the chart doesn't know.
const WRITER: &str = "extender";

/// The product's image as an upgrade brings it.
pub const NEXT_IMAGE: &str = "docker.io/library/mpshare:next";

/// The node with one card, which the documents' commands are about.
pub const ONE_CARD: &str = "gpu-a";
/// The node with two cards.
pub const TWO_CARDS: &str = "gpu-b";
/// The node with an old driver, a card with MIG on and one from before Volta beside a good one.
pub const ODD_CARDS: &str = "gpu-c";

/// The nodes that share their cards by count, and how many units they have on `mps-2x`.
pub const SHARING: [(&str, u32); 3] = [(ONE_CARD, 2), (TWO_CARDS, 4), (ODD_CARDS, 2)];

/// The node of the ACK document, with one card of 15 GiB.
pub const FIFTEEN_GIB: &str = "gpu-d";

/// The node of many small shares: eight cards of 15 GiB.
pub const EIGHT_CARDS: &str = "gpu-e";

/// The nodes of the cluster.
pub fn nodes() -> Vec<NodeSpec> {
    let node = |name: &str, version: &str, models: &[Model]| NodeSpec {
        name: name.to_owned(),
        driver: Driver { version: version.to_owned(), cuda: "12.5".to_owned() },
        // Two runs on one machine have cards of their own: cgroups of MPS daemons are named after
        // them.
        cards: cards(&format!("{name}-{}", std::process::id()), models),
    };
    vec![
        node(ONE_CARD, "555.42.06", &[Model::V100]),
        node(TWO_CARDS, "555.42.06", &[Model::T4, Model::T4]),
        node(FIFTEEN_GIB, "555.42.06", &[Model::T4]),
        node(ODD_CARDS, "535.161.08", &[Model::T4, Model::A100Mig, Model::P4]),
        node(EIGHT_CARDS, "555.42.06", &[Model::T4; 8]),
    ]
}

/// Makes of the cluster, however a failed scenario left it, what each one starts with.
pub fn reset(cluster: &mut Cluster) -> Result<()> {
    cluster.kubectl(&["delete", "deployments,jobs", "--all", "--timeout=60s"])?;
    pods::delete_all(cluster)?;
    for node in &mut cluster.nodes {
        node.end_programs()?;
    }
    for node in [FIFTEEN_GIB, EIGHT_CARDS] {
        end_sharing_by_memory(cluster, node)?;
    }
    cluster.shell(&format!("helm upgrade --install {RELEASE}"))?;
    for (node, units) in SHARING {
        choose(cluster, node, "mps-2x")?;
        await_units(cluster, node, units)?;
    }
    Ok(())
}

/// Waits until a node offers so many units.
pub(crate) fn await_units(cluster: &Cluster, node: &str, units: u32) -> Result<()> {
    let path = "jsonpath={.status.allocatable.nvidia\\.com/gpu}";
    eventually(&format!("`{node}` has {units} units"), Duration::from_mins(1), || {
        Ok(cluster.kubectl(&["get", "node", node, "-o", path])? == units.to_string())
    })
}

const UNITS_OF_MEMORY: &str = "jsonpath={.status.allocatable.aliyun\\.com/gpu-mem}";

/// Waits until a node offers so many units of memory.
pub(crate) fn await_units_of_memory(cluster: &Cluster, node: &str, units: u32) -> Result<()> {
    eventually(&format!("`{node}` has {units} units of memory"), Duration::from_mins(2), || {
        Ok(cluster.kubectl(&["get", "node", node, "-o", UNITS_OF_MEMORY])? == units.to_string())
    })
}

/// Has a node's cards shared by memory, in so many units.
pub(crate) fn share_by_memory(cluster: &Cluster, node: &str, units: u32) -> Result<()> {
    cluster.kubectl(&["label", "node", node, "ack.node.gpu.schedule=mps"])?;
    await_units_of_memory(cluster, node, units)
}

/// Takes that back, and waits until the node's status says so: whoever shares the node by memory
/// next would take its old number of units for the new one.
pub(crate) fn end_sharing_by_memory(cluster: &Cluster, node: &str) -> Result<()> {
    cluster.kubectl(&["label", "node", node, "ack.node.gpu.schedule-"])?;
    eventually(&format!("`{node}` has no units of memory"), Duration::from_mins(2), || {
        Ok(matches!(
            cluster.kubectl(&["get", "node", node, "-o", UNITS_OF_MEMORY])?.as_str(),
            "" | "0"
        ))
    })
}

/// Labels a node with a config's name.
pub(crate) fn choose(cluster: &Cluster, node: &str, config: &str) -> Result<()> {
    let label = format!("nvidia.com/device-plugin.config={config}");
    cluster.kubectl(&["label", "node", node, &label, "--overwrite"]).map(drop)
}

/// How long a rollout may take: a controller that has missed an event by an outage of the API server
/// waits for it for five minutes (`ExpectationsTimeout` in Kubernetes' `pkg/controller/controller_utils.go`).
const ROLLOUT: Duration = Duration::from_mins(8);

/// Waits until all pods of ours are of the present template and run.
pub(crate) fn rolled_out(cluster: &Cluster) -> Result<()> {
    for set in [
        "ds/nvidia-device-plugin-daemonset",
        "ds/nvidia-mps-control-daemon",
        "deployment/mpshare-webhook",
    ] {
        let status = ["rollout", "status", "-n", "kube-system", set, "--timeout=30s"];
        let begun = Instant::now();
        while let Err(error) = cluster.kubectl(&status) {
            ensure!(begun.elapsed() < ROLLOUT, "{error:#}");
            // When it has waited it goes on with the next event only, of which there may be none.
            let touched = format!("e2e/touched-after={}s", begun.elapsed().as_secs());
            cluster.kubectl(&["annotate", "-n", "kube-system", set, &touched, "--overwrite"])?;
        }
    }
    // Ready is what the kubelet saw last; a process that was killed a moment ago may be in it.
    eventually("all containers of ours run", Duration::from_mins(1), || {
        let count = |path: &str| {
            let path = format!("jsonpath={{.items[*].{path}}}");
            let ours = "app.kubernetes.io/name=mpshare,app.kubernetes.io/component notin (uninstall,cleanup)";
            let seen =
                cluster.kubectl(&["get", "pods", "-n", "kube-system", "-l", ours, "-o", &path])?;
            anyhow::Ok(seen.split_whitespace().count())
        };
        let running = count("status.containerStatuses[*].state.running.startedAt")?;
        let none_leaves = count("metadata.deletionTimestamp")? == 0;
        Ok(running > 0 && running == count("spec.containers[*].name")? && none_leaves)
    })
}

/// The name of the pod that one of our sets has on a node.
pub(crate) fn our_pod(cluster: &Cluster, set: &str, node: &str) -> Result<String> {
    let name = cluster.shell(&format!(
        "kubectl get pod -n kube-system -l qcloud-app={set} --field-selector spec.nodeName={node} -o name"
    ))?;
    Ok(name.trim().trim_start_matches("pod/").to_owned())
}
