//! A node: kube-proxy, containerd and kubelet on a machine with a simulated driver.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use mpshare_sim_runtime::Config;
use mpshare_sim_state::{Driver, SimGpu, SimState, Store};
use rustix::process::Signal;

use super::control_plane::ControlPlane;
use super::host::{Host, output_of};
use super::{Parts, network};
use crate::cgroups;
use crate::driver_root;
use crate::wait::eventually;

/// What a node is like.
#[derive(Debug, Clone)]
pub struct NodeSpec {
    /// Its name.
    pub name: String,
    /// Its cards.
    pub cards: Vec<SimGpu>,
    /// Its driver.
    pub driver: Driver,
}

/// A node that is up.
#[derive(Debug)]
pub struct Node {
    host: Host,
    spec: NodeSpec,
    index: u8,
    /// Its disk.
    dir: PathBuf,
    programs: PathBuf,
    kubeconfig: PathBuf,
    /// Of people who work on the node, in no pod.
    programs_started: Vec<String>,
}

impl Node {
    /// Installs a node and starts it.
    pub(super) fn start(
        plane: &ControlPlane,
        parts: &Parts,
        (index, spec): (u8, NodeSpec),
        dir: PathBuf,
    ) -> Result<Self> {
        let subject = format!("/O=system:nodes/CN=system:node:{}", spec.name);
        plane.pki().issue(&spec.name, &subject, &[])?;
        let kubeconfig = plane.write_kubeconfig(&spec.name)?;
        install(&dir, &spec, index, plane, parts)?;
        let host = boot(&spec, &dir, parts)?;
        let programs = parts.programs.clone();
        let programs_started = Vec::new();
        let mut node = Self { host, spec, index, dir, programs, kubeconfig, programs_started };
        node.come_up(plane)?;
        for image in &parts.images {
            node.import(image)?;
        }
        node.start_kubelet()?;
        Ok(node)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// Its machine.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Where cgroups of this node's MPS daemons are, while there are any.
    pub fn daemon_cgroups(&self) -> Vec<PathBuf> {
        let cards = self.spec.cards.iter();
        cards.flat_map(|card| cgroups::paths(&daemon_cgroup(&card.uuid))).collect()
    }

    /// Starts a program of the node itself, in no pod.
    pub fn start_program(&mut self, name: &str, command: &mut Command) -> Result<()> {
        self.programs_started.push(name.to_owned());
        self.host.start(name, command)
    }

    /// Ends a program that [`Self::start_program`] started.
    pub fn end_program(&mut self, name: &str) -> Result<()> {
        self.programs_started.retain(|started| started != name);
        self.host.end(name, Signal::KILL)
    }

    /// Ends all programs that [`Self::start_program`] started.
    pub fn end_programs(&mut self) -> Result<()> {
        let started = std::mem::take(&mut self.programs_started);
        started.iter().try_for_each(|name| self.host.end(name, Signal::KILL))
    }

    /// The PIDs of processes whose command line contains a text.
    pub fn pids_of(&self, command: &str) -> Result<Vec<i32>> {
        let listed = self.host.run("ps", &["-eo", "pid=,args="])?;
        let found = listed.lines().filter(|line| line.contains(command));
        let pid = |line: &str| Ok(line.split_whitespace().next().context("no PID")?.parse()?);
        found.map(pid).collect()
    }

    /// Ends a process by force.
    pub fn kill(&self, pid: i32) -> Result<()> {
        self.host.run("kill", &["-9", &pid.to_string()]).map(drop)
    }

    /// What its simulated driver knows now. Asked on the node: only there dead processes are seen
    /// to be dead.
    pub fn driver_state(&self) -> Result<SimState> {
        let program = std::env::current_exe()?;
        let mut command = self.host.command(program);
        let text = output_of(command.args(["driver-state", STATE_DIR]))?;
        serde_json::from_str(&text).context("the driver's state isn't readable")
    }

    /// Changes what its simulated driver knows: faults, modes.
    pub fn change_driver(&self, change: impl FnOnce(&mut SimState)) -> Result<()> {
        Ok(Store::at(self.host.path(STATE_DIR)).update(change)?)
    }

    /// What isn't the kubelet's: network, driver, containerd, kube-proxy.
    fn come_up(&mut self, plane: &ControlPlane) -> Result<()> {
        network::connect(plane.host(), &self.host, self.index)?;
        self.load_driver()?;
        self.start_containerd()?;
        let mut proxy = self.host.command(self.programs.join("kube-proxy"));
        proxy.arg("--config").arg(self.dir.join("kube-proxy.yaml"));
        self.host.start("kube-proxy", &mut proxy)
    }

    /// As a boot does: the driver knows its cards and no process, and its CDI specification is
    /// there.
    fn load_driver(&self) -> Result<()> {
        let state = self.host.path(STATE_DIR);
        driver_root::create_state(&state, self.spec.driver.clone(), &self.spec.cards)?;
        let namespace = fs::metadata(format!("/proc/{}/ns/pid", self.host.pid()))?.ino();
        self.change_driver(|state| state.pid_namespace = Some(namespace))?;
        let program = std::env::current_exe()?;
        let mut command = self.host.command(program);
        command.arg("write-cdi").arg(self.dir.join("toolkit")).arg(CDI_DIR);
        output_of(&mut command).map(drop)
    }

    /// Starts containerd and waits until it answers.
    pub fn start_containerd(&mut self) -> Result<()> {
        let mut command = self.host.command("containerd");
        command.arg("--config").arg(self.dir.join("containerd.toml"));
        self.host.start("containerd", &mut command)?;
        eventually("containerd answers", Duration::from_secs(30), || {
            Ok(self.host.run("ctr", &["-a", SOCKET, "version"]).is_ok())
        })
    }

    /// Runs a line of shell with the node's programs in the network of a container's pod.
    pub fn in_pods_network(&self, id: &str, line: &str) -> Result<String> {
        let tasks = self.host.run("ctr", &["-a", SOCKET, "-n", "k8s.io", "task", "ls"])?;
        let task = tasks.lines().find(|task| task.starts_with(id)).context("no such container")?;
        let pid = task.split_whitespace().nth(1).context("the container has no PID")?;
        self.host.run("nsenter", &["-t", pid, "-n", "--", "sh", "-c", line])
    }

    /// Sends a signal to the program of a container; `KILL` ends it as a crash does.
    pub fn signal_container(&self, id: &str, signal: Signal) -> Result<()> {
        let signal = signal.as_raw().to_string();
        let kill = ["-a", SOCKET, "-n", "k8s.io", "task", "kill", "--signal", &signal, id];
        self.host.run("ctr", &kill).map(drop)
    }

    /// Ends containerd; its containers live on.
    pub fn end_containerd(&mut self) -> Result<()> {
        self.host.end("containerd", Signal::KILL)
    }

    /// Starts the kubelet.
    pub fn start_kubelet(&mut self) -> Result<()> {
        let mut command = self.host.command(self.programs.join("kubelet"));
        command
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .arg("--config")
            .arg(self.dir.join("kubelet.yaml"))
            .args(["--root-dir", "/var/lib/kubelet", "--v=2"])
            .args(["--hostname-override", &self.spec.name])
            .args(["--node-ip", &network::address(self.index)]);
        self.host.start("kubelet", &mut command)
    }

    /// Has the kubelet run a pod of which the API server only gets a mirror; without a manifest it ends.
    pub fn set_static_pod(&self, name: &str, manifest: Option<&str>) -> Result<()> {
        let dir = self.dir.join("kubelet/manifests");
        let file = dir.join(format!("{name}.json"));
        match manifest {
            Some(text) => {
                fs::create_dir_all(dir)?;
                // The kubelet reads whatever is there.
                let next = self.dir.join("kubelet/next.json");
                fs::write(&next, text)?;
                fs::rename(next, file)?;
            }
            None => fs::remove_file(file)?,
        }
        Ok(())
    }

    /// Ends the kubelet; the pods live on.
    pub fn end_kubelet(&mut self) -> Result<()> {
        self.host.end("kubelet", Signal::KILL)
    }

    /// The power fails and comes back: no process is left, `/run` is empty, the disk stays.
    pub(super) fn reboot(&mut self, plane: &ControlPlane, parts: &Parts) -> Result<()> {
        self.power_off()?;
        cgroups::create(&cgroup(&self.spec))?;
        self.host = boot(&self.spec, &self.dir, parts)?;
        self.come_up(plane)?;
        self.start_kubelet()
    }

    /// Where its kubelet tells which pod has which devices, reached from outside.
    pub fn pod_resources_socket(&self) -> PathBuf {
        self.host.path("/var/lib/kubelet/pod-resources/kubelet.sock")
    }

    /// Imports an image archive.
    pub fn import(&self, archive: &Path) -> Result<()> {
        let archive = archive.to_str().context("the archive's path isn't UTF-8")?;
        let import = ["-a", SOCKET, "-n", "k8s.io", "image", "import", archive];
        self.host.run("ctr", &import).map(drop)
    }

    /// Keeps the files that our parts share.
    pub(super) fn collect(&self, dir: &Path) -> Result<()> {
        let dir = dir.join(self.name());
        fs::create_dir_all(&dir)?;
        let mps = self.host.path("/run/nvidia/mps");
        for file in [
            "config.yaml",
            "status.json",
            "allocations.json",
            "bound-pods.json",
            "holdings.json",
            "compute-modes.json",
        ] {
            if let Ok(text) = fs::read(mps.join(file)) {
                fs::write(dir.join(file), text)?;
            }
        }
        fs::write(dir.join("processes.txt"), self.host.run("ps", &["axf"])?)?;
        Ok(())
    }

    /// Ends everything on it. Cgroups go too, which on this one machine outlive a node.
    pub(super) fn power_off(&mut self) -> Result<()> {
        self.host.power_off();
        for card in &self.spec.cards {
            cgroups::remove(&daemon_cgroup(&card.uuid))?;
        }
        cgroups::remove(&cgroup(&self.spec))
    }
}

/// Where the node has its driver.
const DRIVER_ROOT: &str = "/run/nvidia/driver";
/// Where the simulated driver keeps its state.
const STATE_DIR: &str = "/run/mpshare-sim";
const CDI_DIR: &str = "/run/cdi";
const SOCKET: &str = "/run/containerd/containerd.sock";

/// The root of the node's cgroups: two kubelets on one machine must not share one.
fn cgroup(spec: &NodeSpec) -> PathBuf {
    cgroups_of_run().join(&spec.name)
}

/// Followed by the run's PID.
pub(super) const CGROUPS_OF_RUNS: &str = "mpshare-e2e-";

/// The parent of all nodes' cgroups.
pub(super) fn cgroups_of_run() -> PathBuf {
    format!("{CGROUPS_OF_RUNS}{}", std::process::id()).into()
}

/// The cgroup of a card's MPS daemon.
fn daemon_cgroup(uuid: &str) -> PathBuf {
    Path::new("mpshare").join(uuid.chars().take(12).collect::<String>())
}

fn boot(spec: &NodeSpec, dir: &Path, parts: &Parts) -> Result<Host> {
    let binds = [(dir.join("kubelet"), "/var/lib/kubelet"), (dir.join("driver"), DRIVER_ROOT)];
    Host::boot(&spec.name, &binds, &parts.logs)
}

/// Writes a node's disk: driver, container runtime, configs.
fn install(
    dir: &Path,
    spec: &NodeSpec,
    index: u8,
    plane: &ControlPlane,
    parts: &Parts,
) -> Result<()> {
    for part in ["kubelet", "driver", "cni", "toolkit"] {
        fs::create_dir_all(dir.join(part))?;
    }
    cgroups::create(&cgroup(spec))?;
    driver_root::install(&dir.join("driver"), &parts.simulator, &spec.cards)?;
    let config = Config::of_driver_root(DRIVER_ROOT);
    driver_root::install_runtime(&dir.join("toolkit"), &parts.simulator, &config)?;
    let fill = |text: &str| {
        text.replace("{dir}", &dir.display().to_string())
            .replace("{pki}", &plane.pki().dir().display().to_string())
            .replace("{node}", &spec.name)
            .replace("{cgroup}", &format!("/{}", cgroup(spec).display()))
            .replace("{kubeconfig}", &plane.admin_kubeconfig().display().to_string())
            .replace("{subnet}", &network::pods(index))
    };
    let write = |file: &str, text: &str| fs::write(dir.join(file), fill(text));
    write("containerd.toml", include_str!("../../cluster/containerd.toml"))?;
    write("kubelet.yaml", include_str!("../../cluster/kubelet.yaml"))?;
    write("kube-proxy.yaml", include_str!("../../cluster/kube-proxy.yaml"))?;
    write("cni/10-pods.conflist", include_str!("../../cluster/pods.conflist"))?;
    Ok(())
}
