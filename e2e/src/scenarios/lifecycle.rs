//! Install, uninstall, and what stays.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use mpshare_sim_state::{ComputeMode, ProcessKind};

use super::{ONE_CARD, RELEASE, TWO_CARDS, await_units, choose, rolled_out};
use crate::clients::{clients, ensure_same};
use crate::cluster::{Cluster, Node};
use crate::pods::{self, Pod};
use crate::wait::eventually;

/// NVIDIA's documented way to install, with its documented config, in its namespace; only the
/// chart and the image are ours.
pub(super) fn nvidia_values(cluster: &mut Cluster) -> Result<()> {
    cluster.shell("helm uninstall mpshare --namespace kube-system --wait")?;
    cluster.kubectl(&["label", "node", ONE_CARD, "nvidia.com/device-plugin.config-"])?;
    cluster.kubectl(&["label", "node", ONE_CARD, "nvidia.com/gpu.present=true"])?;
    let file = cluster.dir().join("dp-mps-10.yaml");
    fs::write(
        &file,
        "version: v1\nsharing:\n  mps:\n    resources:\n    - name: nvidia.com/gpu\n      replicas: 10\n",
    )?;
    let set = format!("--set-file config.map.config0={}", file.display());
    cluster.shell(&format!(
        "helm upgrade -i nvdp deploy/helm/mpshare --namespace nvidia-device-plugin --create-namespace \
         --set config.default=config0 {set} --set gfd.enabled=true \
         --set image.repository=docker.io/library/mpshare --set image.tag=dev \
         --set nvidiaDriverRoot=/run/nvidia/driver --set webhook.annotationWriters[0]=extender"
    ))?;
    await_units(cluster, ONE_CARD, 10)?;
    Pod::new("a-tenth", ONE_CARD, &["--alloc", "2Gi", "--hold", "forever"]).start(cluster)?;
    pods::delete_all(cluster)?;
    cluster.shell("helm uninstall nvdp --namespace nvidia-device-plugin --wait")?;
    cluster.kubectl(&["label", "node", ONE_CARD, "nvidia.com/gpu.present-"])?;
    install_again(cluster)
}

/// A node whose driver is installed on the node itself, not below a driver container's root.
pub(super) fn driver_on_the_node(cluster: &mut Cluster) -> Result<()> {
    for dir in DRIVER_DIRECTORIES {
        let layers = format!("lowerdir=/run/nvidia/driver{dir}:{dir}");
        let host = cluster.node(ONE_CARD)?.host();
        host.run("mount", &["-t", "overlay", "overlay", "-o", &layers, dir])?;
    }
    cluster.shell(&format!("helm upgrade {RELEASE} --set nvidiaDriverRoot=/"))?;
    rolled_out(cluster)?;
    // The daemon that runs is taken over; a new one comes from where the driver is now.
    for (config, units) in [("mps-1x", 1), ("mps-4x", 4)] {
        choose(cluster, ONE_CARD, config)?;
        await_units(cluster, ONE_CARD, units)?;
    }
    Pod::new("on-the-node", ONE_CARD, &["--alloc", "2Gi", "--hold", "forever"]).start(cluster)?;
    let running = cluster.node(ONE_CARD)?.host().run("ps", &["-eo", "args="])?;
    let daemon = running.lines().find(|line| line.contains("nvidia-cuda-mps-control"));
    ensure!(daemon.is_some_and(|line| !line.contains("/run/nvidia/driver")), "{daemon:?}");
    pods::delete_all(cluster)?;
    cluster.shell(&format!("helm upgrade {RELEASE}"))?;
    rolled_out(cluster)?;
    choose(cluster, ONE_CARD, "mps-1x")?;
    await_units(cluster, ONE_CARD, 1)?;
    for dir in DRIVER_DIRECTORIES {
        cluster.node(ONE_CARD)?.host().run("umount", &["-l", dir])?;
    }
    super::reset(cluster)
}

/// Where a package puts the driver's programs and libraries.
const DRIVER_DIRECTORIES: [&str; 2] = ["/usr/bin", "/usr/lib/x86_64-linux-gnu"];

/// Uninstalled under a running client: that one lives on, its card's daemon too. The other nodes are
/// as before the install. When the client has ended, `mpshare node cleanup` finishes.
pub(super) fn uninstall_with_clients(cluster: &mut Cluster) -> Result<()> {
    Pod::new("stays", ONE_CARD, &["--alloc", "2Gi", "--hold", "forever"]).start(cluster)?;
    let before = clients(cluster)?;
    cluster.shell("helm uninstall mpshare --namespace kube-system --wait")?;
    ensure_same(cluster, &before, "uninstall")?;
    ensure_clean(cluster.node(TWO_CARDS)?)?;
    let state = cluster.node(ONE_CARD)?.driver_state()?;
    ensure!(
        state.processes.iter().any(|process| process.kind == ProcessKind::MpsServer),
        "the client's server has ended"
    );
    let log = cluster.shell("kubectl logs -n kube-system job/mpshare-uninstall")?;
    ensure!(log.contains(&format!("node `{ONE_CARD}`: clients live on")), "the job says {log}");
    let finish = what_finishes(cluster)?;
    let said = cluster.shell(&finish.run)?;
    ensure!(said.contains("1 client lives on"), "the cleanup says {said}");
    pods::delete_all(cluster)?;
    let said = clean_up(cluster, ONE_CARD)?;
    println!("    cleanup: {}", said.trim().replace('\n', "\n             "));
    ensure_clean(cluster.node(ONE_CARD)?)?;
    // The same commands as often as somebody likes.
    let said = cluster.shell(&finish.run)?;
    ensure!(said.contains("nothing of mpshare is left"), "the cleanup says {said}");
    cluster.shell(&finish.forget)?;
    let told = condition(cluster, "reason")?;
    ensure!(told.is_empty(), "the node's condition still says `{told}`");
    install_again(cluster)
}

/// The commands that a node's condition gives.
struct Finish {
    run: String,
    forget: String,
}

fn what_finishes(cluster: &mut Cluster) -> Result<Finish> {
    let reason = condition(cluster, "reason")?;
    ensure!(reason == "Uninstalled", "the node's condition says `{reason}`");
    let message = condition(cluster, "message")?;
    let commands = message.split_once("to finish, when that has changed: ");
    let commands = commands.and_then(|(_, it)| it.split_once("; when it is clean: "));
    let (run, forget) = commands.with_context(|| format!("no command in `{message}`"))?;
    Ok(Finish { run: run.to_owned(), forget: forget.to_owned() })
}

/// A field of the condition of the node with clients.
fn condition(cluster: &mut Cluster, field: &str) -> Result<String> {
    let path = format!("jsonpath={{.status.conditions[?(@.type==\"MPSShareReady\")].{field}}}");
    cluster.kubectl(&["get", "node", ONE_CARD, "-o", &path])
}

/// Without clients nothing is left.
pub(super) fn uninstall(cluster: &mut Cluster) -> Result<()> {
    pods::delete_all(cluster)?;
    cluster.shell("helm uninstall mpshare --namespace kube-system --wait")?;
    for node in &cluster.nodes {
        ensure_clean(node)?;
    }
    // The job stays a moment, so that Helm sees its end.
    eventually("nothing of ours is left", Duration::from_mins(1), || {
        let ours = cluster.shell(
            "kubectl get all,cm,sa,role,rolebinding,clusterrole,clusterrolebinding -A -o name | grep -i -E 'mpshare|nvidia' || true",
        )?;
        ensure!(ours.is_empty(), "objects stay: {ours}");
        Ok(true)
    })?;
    install_again(cluster)
}

/// What an administrator runs on a node; here the image's program runs there without a container.
fn clean_up(cluster: &mut Cluster, node: &str) -> Result<String> {
    let program = cluster.program("mpshare")?;
    let node = cluster.node(node)?;
    let arguments = ["node", "cleanup", "--launch", "host", "--driver-root", "/run/nvidia/driver"];
    node.host().run(&program, &arguments)
}

/// No daemon, no server, compute modes as they were, no file, no cgroup.
fn ensure_clean(node: &Node) -> Result<()> {
    let name = node.name();
    eventually(&format!("`{name}` is as before the install"), Duration::from_secs(30), || {
        let state = node.driver_state()?;
        ensure!(state.processes.is_empty(), "`{name}` has processes: {:?}", state.processes);
        for gpu in &state.gpus {
            ensure!(gpu.compute_mode == ComputeMode::Default, "`{}` is exclusive", gpu.uuid);
        }
        let running = node.host().run("ps", &["-eo", "args="])?;
        ensure!(!running.contains("nvidia-cuda-mps"), "`{name}` has a daemon: {running}");
        let left = fs::read_dir(node.host().path("/run/nvidia/mps")).into_iter().flatten();
        let left: Vec<_> = left.flatten().map(|entry| entry.file_name()).collect();
        ensure!(left.is_empty(), "`{name}` has files: {left:?}");
        for cgroup in node.daemon_cgroups() {
            ensure!(!cgroup.exists(), "`{}` stays", cgroup.display());
        }
        Ok(true)
    })
}

fn install_again(cluster: &mut Cluster) -> Result<()> {
    cluster.shell(&format!("helm install {RELEASE}"))?;
    choose(cluster, ONE_CARD, "mps-2x")?;
    await_units(cluster, ONE_CARD, 2)?;
    await_units(cluster, TWO_CARDS, 4)
}
