//! A real Kubernetes on this machine: a control plane and nodes, each a [`Host`] of its own.

mod control_plane;
mod host;
mod init;
mod network;
mod node;
mod pki;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::cgroups;
use crate::wait::eventually;

pub use control_plane::ControlPlane;
pub use host::Host;
pub(crate) use host::output_of;
pub use init::run as init;
pub use node::{Node, NodeSpec};

/// What a cluster is made of.
#[derive(Debug, Clone)]
pub struct Parts {
    /// The directory with Kubernetes' programs and `helm`.
    pub programs: PathBuf,
    /// The directory with the simulator's programs and libraries.
    pub simulator: PathBuf,
    /// Image archives that every node gets.
    pub images: Vec<PathBuf>,
    /// Where logs go.
    pub logs: PathBuf,
}

/// A cluster that is up. It ends with this value, and with this process.
#[derive(Debug)]
pub struct Cluster {
    /// API server, scheduler and controllers.
    pub control_plane: ControlPlane,
    /// Its nodes.
    pub nodes: Vec<Node>,
    dir: tempfile::TempDir,
    parts: Parts,
}

impl Cluster {
    /// Starts the control plane and the nodes and waits until they are ready.
    pub fn start(parts: Parts, specs: &[NodeSpec]) -> Result<Self> {
        std::fs::create_dir_all(&parts.logs)?;
        cgroups::remove_stale(node::CGROUPS_OF_RUNS);
        // Sockets' paths are short.
        let dir = tempfile::Builder::new().prefix("mpshare-e2e-").tempdir()?;
        let control_plane = ControlPlane::start(&parts, dir.path())?;
        let mut cluster = Self { control_plane, nodes: Vec::new(), dir, parts };
        for (index, spec) in specs.iter().enumerate() {
            cluster.add_node(u8::try_from(index)? + 1, spec.clone())?;
        }
        for node in &cluster.nodes {
            cluster.await_ready(node.name())?;
        }
        Ok(cluster)
    }

    fn add_node(&mut self, index: u8, spec: NodeSpec) -> Result<()> {
        let dir = self.dir.path().join(&spec.name);
        let node = Node::start(&self.control_plane, &self.parts, (index, spec), dir)?;
        self.nodes.push(node);
        Ok(())
    }

    /// A node by its name.
    pub fn node(&mut self, name: &str) -> Result<&mut Node> {
        let found = self.nodes.iter_mut().find(|node| node.name() == name);
        found.with_context(|| format!("there is no node `{name}`"))
    }

    /// The power of a node fails and comes back.
    pub fn reboot(&mut self, name: &str) -> Result<()> {
        let Self { control_plane, nodes, parts, .. } = self;
        let node = nodes.iter_mut().find(|node| node.name() == name).context("no such node")?;
        node.reboot(control_plane, parts)
    }

    /// Waits until a node is Ready.
    pub fn await_ready(&self, node: &str) -> Result<()> {
        let ready = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
        eventually(&format!("node `{node}` is ready"), Duration::from_mins(1), || {
            Ok(self.kubectl(&["get", "node", node, "-o", ready])? == "True")
        })
    }

    /// Ends a node's kubelet and starts it again, until it has said what it found.
    pub fn restart_kubelet(&mut self, name: &str) -> Result<()> {
        let node = self.node(name)?;
        node.end_kubelet()?;
        node.start_kubelet()?;
        self.await_heartbeat(name)
    }

    /// Waits for the next word of a node's kubelet. Until then the Node object may say what was so
    /// before a restart.
    pub fn await_heartbeat(&self, node: &str) -> Result<()> {
        let last = "jsonpath={.status.conditions[?(@.type==\"Ready\")].lastHeartbeatTime}";
        let heartbeat = || self.kubectl(&["get", "node", node, "-o", last]);
        let before = heartbeat()?;
        eventually(&format!("the kubelet of `{node}` reports"), Duration::from_mins(1), || {
            Ok(heartbeat()? != before)
        })
    }

    /// Runs `kubectl` and returns what it printed.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        let output = self.command("kubectl").args(args).output()?;
        text_of(&output, &format!("kubectl {}", args.join(" ")))
    }

    /// Gives `kubectl` a manifest.
    pub fn apply(&self, manifest: &str) -> Result<String> {
        use std::io::Write as _;
        let mut command = self.command("kubectl");
        command.args(["apply", "-f", "-"]).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        child.stdin.take().context("no stdin")?.write_all(manifest.as_bytes())?;
        text_of(&child.wait_with_output()?, "kubectl apply")
    }

    /// Gives `kubectl` a manifest in the name of somebody who may do everything.
    pub fn apply_as(&self, user: &str, manifest: &str) -> Result<String> {
        self.shell(&format!(
            "kubectl apply --as={user} --as-group=system:masters -f - <<'EOF'\n{manifest}\nEOF"
        ))
    }

    /// Runs a line of shell as a person with `kubectl` and `helm` would.
    pub fn shell(&self, line: &str) -> Result<String> {
        let output = self.command("bash").args(["-c", line]).output()?;
        text_of(&output, line)
    }

    /// A command on the administrator's machine, which is the control plane's here.
    pub fn command(&self, program: &str) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let (programs, plugins) = (self.parts.programs.display(), self.parts.simulator.display());
        let mut command = Command::new("nsenter");
        command
            .args(["-t", &self.control_plane.host().pid().to_string(), "-n", "--"])
            .arg(program)
            .env("PATH", format!("{programs}:{plugins}:{path}"))
            .env("KUBECONFIG", self.control_plane.admin_kubeconfig())
            .stdin(Stdio::null());
        command
    }

    /// The URL of the API server.
    pub fn server(&self) -> String {
        self.control_plane.server()
    }

    /// The file with the certificate of the API server's authority.
    pub fn authority(&self) -> PathBuf {
        self.control_plane.authority()
    }

    /// Keeps what helps to understand a failure: objects, events, logs of our pods.
    pub fn collect(&self, name: &str) -> Result<()> {
        let dir = self.parts.logs.join(name);
        std::fs::create_dir_all(&dir)?;
        let keep = |file: &str, args: &[&str]| {
            let text = self.kubectl(args).unwrap_or_else(|error| format!("{error:#}\n"));
            std::fs::write(dir.join(file), text)
        };
        keep(
            "objects.yaml",
            &["get", "nodes,pods,ds,deploy,leases,jobs,cm,events", "-A", "-o", "yaml"],
        )?;
        keep("pods.txt", &["get", "pods", "-A", "-o", "wide"])?;
        keep("events.txt", &["get", "events", "-A", "--sort-by=.metadata.creationTimestamp"])?;
        keep("describe.txt", &["describe", "nodes"])?;
        let users = ["logs", "-l", "e2e=user", "--all-containers", "--prefix", "--tail=20"];
        keep("users.log", &[&users[..], &["--max-log-requests=200"]].concat())?;
        for app in ["nvidia-mps-control-daemon", "nvidia-device-plugin-daemonset"] {
            let label = format!("qcloud-app={app}");
            let args = ["logs", "-n", "kube-system", "-l", &label, "--all-containers", "--prefix"];
            keep(&format!("{app}.log"), &[&args[..], &["--tail=-1"]].concat())?;
        }
        for container in ["kube-scheduler", "mpshare-scheduler-extender"] {
            let label = "app.kubernetes.io/component in (scheduler,scheduler-extender)";
            let args = ["logs", "-n", "kube-system", "-l", label, "-c", container, "--prefix"];
            keep(&format!("second-{container}.log"), &[&args[..], &["--tail=-1"]].concat())?;
        }
        for node in &self.nodes {
            node.collect(&dir)?;
        }
        Ok(())
    }

    /// Stops everything, gently first, and removes what the kernel would keep.
    pub fn stop(mut self) -> Result<()> {
        for node in &mut self.nodes {
            node.power_off()?;
        }
        self.control_plane.stop();
        cgroups::remove(&node::cgroups_of_run())
    }

    /// A program of ours, for running on a node without a container.
    pub fn program(&self, name: &str) -> Result<String> {
        let path = self.parts.simulator.join(name);
        path.to_str().map(str::to_owned).context("the program's path isn't UTF-8")
    }

    /// How a person reaches it.
    pub fn hint(&self) -> String {
        let kubeconfig = self.control_plane.admin_kubeconfig();
        let (programs, pid) = (self.parts.programs.display(), self.control_plane.host().pid());
        format!("nsenter -t {pid} -n {programs}/kubectl --kubeconfig {}", kubeconfig.display())
    }

    /// Where its files are.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }
}

fn text_of(output: &Output, what: &str) -> Result<String> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("`{what}`: {}\n{text}{error}", output.status);
    }
    Ok(text)
}
