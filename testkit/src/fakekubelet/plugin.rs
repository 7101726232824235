//! The kubelet's side of the plugin's life: `Register`, the connection back to the plugin, and
//! its `ListAndWatch` stream, as Kubernetes 1.34 does it (`facts/kubernetes.md` 1.2 and 1.3),
//! with its flaw: clients are found by resource name only.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpshare_kubelet::device_plugin::{
    Device, DevicePluginClient, Empty, ListAndWatchResponse, MAX_MESSAGE_BYTES, RegisterRequest,
    Registration, VERSION,
};
use mpshare_kubelet::socket::connect;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use super::checkpoint;
use super::devices::{Client, Devices, Endpoint};
use super::node::Node;
use super::resource_name::is_extended_resource;
use super::violation::{Rpc, Violation};

/// Pause between two attempts to dial an endpoint where nobody listens yet.
const DIAL_PAUSE: Duration = Duration::from_millis(20);

/// The registration service of one kubelet process.
pub(super) struct Registrar {
    pub(super) node: Arc<Node>,
    /// Fires when the kubelet process ends.
    pub(super) ended: CancellationToken,
    pub(super) tasks: TaskTracker,
}

#[tonic::async_trait]
impl Registration for Registrar {
    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<Empty>, Status> {
        let request = request.into_inner();
        check_request(&request)?;
        // The kubelet goes on if the plugin hangs up meanwhile; then the plugin isn't to blame.
        let hung_up = CancellationToken::new();
        let _hang_up = hung_up.clone().drop_guard();
        let plugin = Plugin { node: Arc::clone(&self.node), resource: request.resource_name };
        let tasks = self.tasks.clone();
        let ended = self.ended.clone();
        let connecting = self.tasks.spawn(async move {
            let connecting = plugin.connect(&request.endpoint, &hung_up, &tasks, &ended);
            tokio::select! {
                result = connecting => result,
                () = ended.cancelled() => Err(Status::unavailable("kubelet is shutting down")),
            }
        });
        let connected =
            connecting.await.map_err(|_| Status::internal("registration task ended"))?;
        connected.map(|()| Response::new(Empty {}))
    }
}

fn check_request(request: &RegisterRequest) -> Result<(), Status> {
    if request.version != VERSION {
        return Err(Status::unknown(format!(
            "requested API version \"{}\" is not supported by kubelet. Supported version is [\"{VERSION}\"]",
            request.version
        )));
    }
    if !is_extended_resource(&request.resource_name) {
        return Err(Status::unknown(format!(
            "the ResourceName \"{}\" is invalid",
            request.resource_name
        )));
    }
    Ok(())
}

/// One registered plugin.
struct Plugin {
    node: Arc<Node>,
    resource: String,
}

impl Plugin {
    /// Dials the plugin, asks for its options and starts its stream.
    async fn connect(
        self,
        endpoint: &str,
        hung_up: &CancellationToken,
        tasks: &TaskTracker,
        ended: &CancellationToken,
    ) -> Result<(), Status> {
        let closed = CancellationToken::new();
        let number = self.node.change(|state| {
            let number = state.devices.number();
            let client = Client { number, closed: closed.clone() };
            state.devices.clients.insert(self.resource.clone(), client);
            number
        });
        let mut client = match self.dial(endpoint, hung_up).await {
            Ok(client) => client,
            Err(status) => return Err(self.forget_client(status)),
        };
        let asking = client.get_device_plugin_options(Empty {});
        let options = match self.node.call(Rpc::Options, &self.resource, asking).await {
            Ok(options) => options.into_inner(),
            Err(status) => return Err(self.forget_client(status)),
        };
        let endpoint = Endpoint {
            client: Some(client.clone()),
            closed: closed.clone(),
            options: Some(options),
            stopped: None,
        };
        self.node.change(|state| {
            state.devices.endpoints.insert(self.resource.clone(), endpoint);
        });
        let ended = ended.clone();
        tasks.spawn(async move {
            tokio::select! {
                () = self.run(client, number, closed) => {}
                () = ended.cancelled() => {}
            }
        });
        Ok(())
    }

    /// The kubelet drops whatever client it finds under the name, also an older one.
    fn forget_client(&self, status: Status) -> Status {
        self.node.change(|state| state.devices.clients.remove(&self.resource));
        status
    }

    async fn dial(
        &self,
        endpoint: &str,
        hung_up: &CancellationToken,
    ) -> Result<DevicePluginClient<Channel>, Status> {
        let socket = self.node.options.device_plugins.join(endpoint);
        let timeout = self.node.options.dial_timeout;
        if let Ok(channel) = tokio::time::timeout(timeout, dial_patiently(&socket)).await {
            return Ok(
                DevicePluginClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES)
            );
        }
        if !hung_up.is_cancelled() {
            self.node.record(Violation::NotServing {
                resource: self.resource.clone(),
                endpoint: endpoint.into(),
            });
        }
        Err(Status::unknown("failed to dial device plugin: context deadline exceeded"))
    }

    /// `runClient`: the stream, and what happens at its end.
    async fn run(
        self,
        client: DevicePluginClient<Channel>,
        number: u64,
        closed: CancellationToken,
    ) {
        tokio::select! {
            () = self.listen(client) => {}
            () = closed.cancelled() => {}
        }
        let found = self.node.change(|state| state.devices.clients.remove(&self.resource));
        let Some(found) = found else { return };
        if found.number != number {
            self.node
                .record(Violation::NewerClientDisconnected { resource: self.resource.clone() });
        }
        found.closed.cancel();
        self.node.change(|state| state.devices.disconnect(&self.resource, Instant::now()));
    }

    async fn listen(&self, mut client: DevicePluginClient<Channel>) {
        let mut stream = match client.list_and_watch(Empty {}).await {
            Ok(response) => response.into_inner(),
            Err(status) => return self.stream_failed(&status),
        };
        loop {
            match stream.message().await {
                Ok(Some(ListAndWatchResponse { devices })) => self.take_over(devices),
                Ok(None) => return,
                Err(status) => return self.stream_failed(&status),
            }
        }
    }

    fn stream_failed(&self, status: &Status) {
        self.node.check_size(Rpc::ListAndWatch, &self.resource, status);
        tracing::info!(resource = %self.resource, error = status.message(), "ListAndWatch ended");
    }

    fn take_over(&self, devices: Vec<Device>) {
        let violations = self.node.change(|state| {
            let violations = state.devices.replace_list(&self.resource, devices, Instant::now());
            write_checkpoint(&self.node, &state.devices);
            violations
        });
        for violation in violations {
            self.node.record(violation);
        }
    }
}

async fn dial_patiently(socket: &Path) -> Channel {
    loop {
        if let Ok(channel) = connect(socket, Duration::from_secs(10)).await {
            return channel;
        }
        tokio::time::sleep(DIAL_PAUSE).await;
    }
}

/// Writes the checkpoint; the kubelet logs a failure and goes on.
pub(super) fn write_checkpoint(node: &Node, devices: &Devices) {
    if let Err(error) = checkpoint::write(&node.options.device_plugins, devices) {
        tracing::warn!(%error, "the checkpoint could not be written");
    }
}
