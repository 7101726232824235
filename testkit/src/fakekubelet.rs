//! A kubelet's device manager and pod life, in this process: registration, device lists,
//! allocation, checkpoint, pod resources, admission, and pods that run as plain processes.
//!
//! It does what `facts/kubernetes.md` 1 says of Kubernetes 1.34, flaws included, and notes a
//! [`Violation`] where a plugin would make the real one panic, hang or lose it; a test ends with
//! `assert_eq!(kubelet.violations(), [])`. It isn't a kubelet for anything but device plugins:
//! no CPU or memory manager, topology policy `none`, no volumes but the two of [`Volume`], no
//! API server ([`FakeKubelet::admit`] and [`FakeKubelet::subscribe`] are for a bridge to one).
//! Everything that it started is killed when it is dropped.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpshare_kubelet::device_plugin::{KUBELET_SOCKET_NAME, RegistrationServer};
use mpshare_kubelet::pod_resources::PodResourcesListerServer;
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::transport::Server;

mod admission;
mod allocation;
mod checkpoint;
mod container;
mod devices;
mod handle;
mod kubernetes;
mod launch;
mod node;
mod observe;
mod options;
mod plugin;
mod pod;
mod pod_resources;
mod process;
mod resource_name;
mod run_options;
mod sandbox;
mod status;
mod violation;
mod worker;

pub use devices::{Amounts, DeviceList};
pub use handle::PodHandle;
pub use kubernetes::ManifestError;
pub use node::{PodChange, WaitError};
pub use options::{Options, RateLimit};
pub use pod::{ContainerKind, ContainerSpec, Image, PodSpec, RestartPolicy, Volume, pod};
pub use status::{ContainerState, ContainerStatus, Phase, PodStatus, RunOptions};
pub use violation::{Rpc, Violation};

use admission::{Command, Inbox, sync_loop};
use devices::Devices;
use node::{Node, PodRecord, lock};
use plugin::Registrar;
use pod_resources::Lister;
use process::Processes;
use worker::Stop;

/// Most time that the admission of known pods may take after a start.
const ADMISSION_DEADLINE: Duration = Duration::from_secs(10);
/// Pause between two looks for processes that containers started.
const CHILD_SCAN: Duration = Duration::from_millis(50);

/// Most time that a kubelet process spends on connections after its end.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// A node's kubelet.
pub struct FakeKubelet {
    node: Arc<Node>,
    commands: mpsc::UnboundedSender<Command>,
    inbox: Inbox,
    /// The kubelet process that is up.
    session: std::sync::Mutex<Option<Session>>,
    /// Ends what runs as long as the node.
    ended: CancellationToken,
}

/// One kubelet process.
struct Session {
    ended: CancellationToken,
    tasks: TaskTracker,
}

impl FakeKubelet {
    /// Starts a kubelet on a fresh node. Has to be called inside a tokio runtime.
    pub async fn start(options: Options) -> io::Result<Self> {
        let processes = Processes::new(options.proc_root.clone())?;
        let (commands, inbox) = mpsc::unbounded_channel();
        let kubelet = Self {
            node: Arc::new(Node::new(options, processes)),
            commands,
            inbox: Arc::new(tokio::sync::Mutex::new(inbox)),
            session: std::sync::Mutex::new(None),
            ended: CancellationToken::new(),
        };
        kubelet.resume().await?;
        kubelet.follow_children();
        Ok(kubelet)
    }

    /// Ends the kubelet process as `kill -9` does: connections break, containers go on, its socket
    /// files stay behind.
    pub async fn stop(&self) {
        let session = lock(&self.session).take();
        let Some(session) = session else { return };
        session.ended.cancel();
        session.tasks.close();
        // First everything in flight stops, then connections close: nobody sees them fail.
        session.tasks.wait().await;
        self.node.change(|state| {
            state.serving = None;
            let mut none = Devices::default();
            none.continue_numbers(&state.devices);
            for endpoint in state.devices.endpoints.values() {
                endpoint.closed.cancel();
            }
            state.devices = none;
        });
    }

    /// Starts the kubelet process again: removes every socket in the device plugin directory,
    /// reads the checkpoint, serves, and admits the pods that it finds once
    /// more. Has to be called inside a tokio runtime.
    pub async fn resume(&self) -> io::Result<()> {
        let options = &self.node.options;
        std::fs::create_dir_all(&options.device_plugins)?;
        if let Some(parent) = options.pod_resources_socket.parent() {
            std::fs::create_dir_all(parent)?;
        }
        remove_sockets(&options.device_plugins)?;
        let session = self.node.change(|state| {
            let mut devices = checkpoint::read(&options.device_plugins, Instant::now());
            devices.continue_numbers(&state.devices);
            let session = devices.number();
            state.devices = devices;
            session
        });
        let started = self.serve(session)?;
        *lock(&self.session) = Some(started);
        let admitted = |state: &node::State| (state.serving == Some(session)).then_some(());
        let waited = self.node.wait("known pods are admitted", ADMISSION_DEADLINE, admitted);
        waited.await.map_err(io::Error::other)
    }

    /// [`Self::stop`] and [`Self::resume`].
    pub async fn restart(&self) -> io::Result<()> {
        self.stop().await;
        self.resume().await
    }

    /// Ends kubelet and all containers and starts the kubelet again, as a reboot does. Pods that
    /// hold devices normally fail, because their plugin isn't back yet (`facts/kubernetes.md` 0.11).
    pub async fn reboot(&self) -> io::Result<()> {
        self.stop().await;
        let running = self.node.processes.kill_live();
        let ended = |state: &node::State| {
            let records = state.pods.values();
            let mut live = records.flat_map(|record| record.status.pids().into_values());
            (!live.any(|pid| running.contains(&pid))).then_some(())
        };
        let deadline = Duration::from_secs(10);
        let waited = self.node.wait("all containers have ended", deadline, ended);
        waited.await.map_err(io::Error::other)?;
        self.resume().await
    }

    fn serve(&self, session: u64) -> io::Result<Session> {
        let ended = CancellationToken::new();
        let tasks = TaskTracker::new();
        let registration = listen(&self.node.options.device_plugins.join(KUBELET_SOCKET_NAME))?;
        let pod_resources = listen(&self.node.options.pod_resources_socket)?;
        let registrar = RegistrationServer::new(Registrar {
            node: Arc::clone(&self.node),
            ended: ended.clone(),
            tasks: tasks.clone(),
        });
        let lister = PodResourcesListerServer::new(Lister::new(Arc::clone(&self.node)));
        let registering = Server::builder()
            .add_service(registrar)
            .serve_with_incoming_shutdown(registration, ended.clone().cancelled_owned());
        let listing = Server::builder()
            .add_service(lister)
            .serve_with_incoming_shutdown(pod_resources, ended.clone().cancelled_owned());
        tasks.spawn(serve_until(ended.clone(), registering));
        tasks.spawn(serve_until(ended.clone(), listing));
        let (node, inbox) = (Arc::clone(&self.node), Arc::clone(&self.inbox));
        tasks.spawn(ended.clone().run_until_cancelled_owned(sync_loop(node, inbox, session)));
        Ok(Session { ended, tasks })
    }

    fn follow_children(&self) {
        if self.node.options.proc_root.is_none() {
            return;
        }
        let node = Arc::clone(&self.node);
        let ended = self.ended.clone();
        tokio::spawn(ended.run_until_cancelled_owned(async move {
            let mut written = BTreeMap::new();
            loop {
                node.processes.follow_children(&mut written);
                tokio::time::sleep(CHILD_SCAN).await;
            }
        }));
    }

    /// Gives the kubelet a pod that was bound to its node. Admission happens in the sync loop; the
    /// handle's status tells how it went.
    pub fn admit(&self, pod: PodSpec) -> PodHandle {
        let uid = pod.uid.clone();
        self.node.change(|state| {
            let record = PodRecord::new(pod.clone(), state.devices.number());
            state.pods.insert(uid.clone(), record);
        });
        // The other end is a field of this very kubelet.
        drop(self.commands.send(Command::Add { uid }));
        self.handle(pod)
    }

    /// The pod with this UID.
    pub fn pod(&self, uid: &str) -> Option<PodHandle> {
        let pod = self.node.read(|state| state.pods.get(uid).map(|record| record.spec.clone()));
        pod.map(|pod| self.handle(pod))
    }

    fn handle(&self, pod: PodSpec) -> PodHandle {
        PodHandle {
            node: Arc::clone(&self.node),
            pod: Arc::new(pod),
            commands: self.commands.clone(),
        }
    }
}

impl Drop for FakeKubelet {
    fn drop(&mut self) {
        self.ended.cancel();
        if let Some(session) = lock(&self.session).take() {
            session.ended.cancel();
        }
        // Workers must not start anything again, and end.
        self.node.change(|state| {
            state.serving = None;
            let grace = Duration::ZERO;
            for worker in state.pods.values().filter_map(|record| record.worker.as_ref()) {
                worker.send_replace(Some(Stop { grace }));
            }
        });
        self.node.processes.kill_all();
    }
}

/// Serves until `ended`, and then not much longer: a peer that never speaks would hold it up.
async fn serve_until(
    ended: CancellationToken,
    server: impl Future<Output = Result<(), tonic::transport::Error>>,
) {
    let too_long = async {
        ended.cancelled().await;
        tokio::time::sleep(LAST_WORDS).await;
    };
    tokio::select! {
        result = server => if let Err(error) = result {
            tracing::error!(%error, "a service of the fake kubelet failed");
        },
        () = too_long => {}
    }
}

/// Listens on `socket`, over what an earlier process left there.
fn listen(socket: &std::path::Path) -> io::Result<UnixListenerStream> {
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    Ok(UnixListenerStream::new(UnixListener::bind(socket)?))
}

/// Removes sockets and leaves other files, as a kubelet does when it starts.
fn remove_sockets(directory: &std::path::Path) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_socket() {
            match std::fs::remove_file(entry.path()) {
                // Its plugin was quicker.
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}
