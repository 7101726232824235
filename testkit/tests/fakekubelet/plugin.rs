//! A device plugin that does what its test says, right or wrong.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mpshare_kubelet::device_plugin::{
    AllocateRequest, AllocateResponse, ContainerAllocateResponse,
    ContainerPreferredAllocationResponse, Device, DevicePlugin, DevicePluginOptions,
    DevicePluginServer, Empty, HEALTHY, ListAndWatchResponse, Mount, NumaNode,
    PreStartContainerRequest, PreStartContainerResponse, PreferredAllocationRequest,
    PreferredAllocationResponse, RegisterError, RegisterRequest, TopologyInfo, UNHEALTHY, VERSION,
    register,
};
use tokio::net::UnixListener;
use tokio::sync::{Semaphore, watch};
use tokio_stream::wrappers::{UnixListenerStream, WatchStream};
use tokio_stream::{Stream, StreamExt};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

pub(crate) const GPU: &str = "nvidia.com/gpu";
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// What the plugin answers. Gates are closed with 0 permits; each call takes one.
pub(crate) struct Behaviour {
    pub(crate) options: DevicePluginOptions,
    pub(crate) list: watch::Sender<Vec<Device>>,
    pub(crate) preferred: Mutex<Option<Vec<String>>>,
    pub(crate) reply: Mutex<Result<ContainerAllocateResponse, Status>>,
    pub(crate) pre_start: Mutex<Result<(), Status>>,
    pub(crate) preferred_gate: Semaphore,
    pub(crate) allocate_gate: Semaphore,
    /// Names and ids of calls, in order.
    pub(crate) calls: Mutex<Vec<(&'static str, Vec<String>)>>,
}

impl Behaviour {
    pub(crate) fn new(ids: &[&str]) -> Self {
        Self {
            options: DevicePluginOptions {
                pre_start_required: false,
                get_preferred_allocation_available: true,
            },
            list: watch::Sender::new(healthy(ids)),
            preferred: Mutex::new(None),
            reply: Mutex::new(Ok(ContainerAllocateResponse::default())),
            pre_start: Mutex::new(Ok(())),
            preferred_gate: Semaphore::new(Semaphore::MAX_PERMITS),
            allocate_gate: Semaphore::new(Semaphore::MAX_PERMITS),
            calls: Mutex::new(Vec::new()),
        }
    }

    pub(crate) fn count(&self, call: &str) -> usize {
        let calls = self.calls.lock().unwrap();
        calls.iter().filter(|(name, _)| *name == call).count()
    }

    pub(crate) async fn called(&self, call: &str, times: usize) {
        wait_until(call, || self.count(call) >= times).await;
    }

    fn note(&self, call: &'static str, ids: &[String]) {
        self.calls.lock().unwrap().push((call, ids.to_vec()));
    }
}

/// A plugin that serves, until dropped.
pub(crate) struct Plugin {
    pub(crate) behaviour: Arc<Behaviour>,
    pub(crate) endpoint: String,
    directory: PathBuf,
    ended: CancellationToken,
}

impl Plugin {
    /// Serves `behaviour` at `endpoint` in `directory`, without registering.
    pub(crate) fn serve(directory: &Path, endpoint: &str, behaviour: Behaviour) -> Self {
        let behaviour = Arc::new(behaviour);
        let listener = UnixListener::bind(directory.join(endpoint)).unwrap();
        let ended = CancellationToken::new();
        let service = DevicePluginServer::new(Service {
            behaviour: Arc::clone(&behaviour),
            ended: ended.clone(),
        });
        let serving =
            tonic::transport::Server::builder().add_service(service).serve_with_incoming_shutdown(
                UnixListenerStream::new(listener),
                ended.clone().cancelled_owned(),
            );
        tokio::spawn(serving);
        Self { behaviour, endpoint: endpoint.into(), directory: directory.into(), ended }
    }

    pub(crate) async fn register(&self) -> Result<(), RegisterError> {
        let kubelet = self.directory.join("kubelet.sock");
        register(&kubelet, request(&self.endpoint, GPU), SOON).await
    }

    /// Ends the streams and the server.
    pub(crate) fn end(&self) {
        self.ended.cancel();
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        self.end();
    }
}

pub(crate) fn request(endpoint: &str, resource: &str) -> RegisterRequest {
    RegisterRequest {
        version: VERSION.into(),
        endpoint: endpoint.into(),
        resource_name: resource.into(),
        options: None,
    }
}

pub(crate) fn device(id: &str, health: &str) -> Device {
    Device { id: id.into(), health: health.into(), topology: None }
}

pub(crate) fn healthy(ids: &[&str]) -> Vec<Device> {
    ids.iter().map(|id| device(id, HEALTHY)).collect()
}

pub(crate) fn unhealthy(ids: &[&str]) -> Vec<Device> {
    ids.iter().map(|id| device(id, UNHEALTHY)).collect()
}

/// A device that is near to these NUMA nodes.
pub(crate) fn near(mut device: Device, nodes: &[i64]) -> Device {
    let nodes = nodes.iter().map(|id| NumaNode { id: *id }).collect();
    device.topology = Some(TopologyInfo { nodes });
    device
}

pub(crate) fn reply(envs: &[(&str, &str)], mounts: &[(&str, &Path)]) -> ContainerAllocateResponse {
    let envs = envs.iter().map(|(k, v)| ((*k).into(), (*v).into()));
    let mounts = mounts.iter().map(|(container, host)| Mount {
        container_path: (*container).into(),
        host_path: host.display().to_string(),
        read_only: false,
    });
    ContainerAllocateResponse {
        envs: envs.collect::<BTreeMap<_, _>>(),
        mounts: mounts.collect(),
        ..ContainerAllocateResponse::default()
    }
}

/// Polls `condition` until it holds; fails the test when it doesn't in time.
pub(crate) async fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let polling = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(SOON, polling).await.is_ok(), "{what}");
}

struct Service {
    behaviour: Arc<Behaviour>,
    ended: CancellationToken,
}

#[tonic::async_trait]
impl DevicePlugin for Service {
    type ListAndWatchStream =
        Pin<Box<dyn Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

    async fn get_device_plugin_options(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(self.behaviour.options))
    }

    async fn list_and_watch(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<Self::ListAndWatchStream>, Status> {
        self.behaviour.note("ListAndWatch", &[]);
        let lists = WatchStream::new(self.behaviour.list.subscribe());
        let messages = lists.map(|devices| Ok(ListAndWatchResponse { devices }));
        let ended = self.ended.clone().cancelled_owned();
        let until_ended = futures::StreamExt::take_until(messages, Box::pin(ended));
        Ok(Response::new(Box::pin(until_ended)))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        let request = request.into_inner().container_requests.remove(0);
        let offered = request.available_device_i_ds;
        self.behaviour.note("GetPreferredAllocation", &offered);
        let permit = self.behaviour.preferred_gate.acquire().await;
        permit.unwrap().forget();
        let ids = self.behaviour.preferred.lock().unwrap().clone();
        Ok(Response::new(PreferredAllocationResponse {
            container_responses: vec![ContainerPreferredAllocationResponse {
                device_i_ds: ids.unwrap_or_default(),
            }],
        }))
    }

    async fn allocate(
        &self,
        request: Request<AllocateRequest>,
    ) -> Result<Response<AllocateResponse>, Status> {
        let ids = request.into_inner().container_requests.remove(0).devices_ids;
        self.behaviour.note("Allocate", &ids);
        let permit = self.behaviour.allocate_gate.acquire().await;
        permit.unwrap().forget();
        let reply = self.behaviour.reply.lock().unwrap().clone()?;
        Ok(Response::new(AllocateResponse { container_responses: vec![reply] }))
    }

    async fn pre_start_container(
        &self,
        request: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        let ids = request.into_inner().devices_ids;
        self.behaviour.note("PreStartContainer", &ids);
        self.behaviour.pre_start.lock().unwrap().clone()?;
        Ok(Response::new(PreStartContainerResponse {}))
    }
}
