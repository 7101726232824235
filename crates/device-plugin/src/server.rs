//! The gRPC service of one resource: the kubelet's calls, translated.
//!
//! No decision is made here. Every refusal carries the sentence of its [`Reason`], which the
//! kubelet puts into the pod's status message.

use std::pin::Pin;
use std::sync::Arc;

use futures::{Stream, StreamExt};
use mpshare_core::{Reason, ResourceName};
use mpshare_kubelet::device_plugin::{
    AllocateRequest, AllocateResponse, ContainerPreferredAllocationRequest,
    ContainerPreferredAllocationResponse, Device, DevicePlugin, DevicePluginOptions, Empty,
    ListAndWatchResponse, PreStartContainerRequest, PreStartContainerResponse,
    PreferredAllocationRequest, PreferredAllocationResponse,
};
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use crate::node::Node;

/// A device list, shared by all its readers.
pub(crate) type Devices = Arc<Vec<Device>>;

/// The service of one resource.
pub(crate) struct Service {
    /// What answers.
    pub(crate) node: Arc<Node>,
    /// The resource.
    pub(crate) resource: ResourceName,
    /// The list to stream.
    pub(crate) devices: watch::Receiver<Devices>,
    /// How many streams there are.
    pub(crate) streams: watch::Sender<Streams>,
    /// Ends all streams and waits.
    pub(crate) close: CancellationToken,
}

/// `ListAndWatch` streams of one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Streams {
    /// Open now.
    pub(crate) open: usize,
    /// Ever opened.
    pub(crate) opened: u64,
}

/// Counts a stream for as long as it lives.
struct OpenStream(watch::Sender<Streams>);

impl OpenStream {
    fn count(streams: &watch::Sender<Streams>) -> Self {
        streams.send_modify(|streams| {
            streams.open += 1;
            streams.opened += 1;
        });
        Self(streams.clone())
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.send_modify(|streams| streams.open = streams.open.saturating_sub(1));
    }
}

/// What every plugin of ours can do.
pub(crate) const OPTIONS: DevicePluginOptions =
    DevicePluginOptions { pre_start_required: true, get_preferred_allocation_available: true };

#[tonic::async_trait]
impl DevicePlugin for Service {
    type ListAndWatchStream =
        Pin<Box<dyn Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

    async fn get_device_plugin_options(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(OPTIONS))
    }

    async fn list_and_watch(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let open = OpenStream::count(&self.streams);
        // A watch keeps the latest list only: a slow reader skips lists and holds up nobody.
        let lists = WatchStream::new(self.devices.clone()).map(move |devices| {
            let _counted = &open;
            Ok(ListAndWatchResponse { devices: devices.to_vec() })
        });
        let lists = lists.take_until(self.close.clone().cancelled_owned());
        Ok(Response::new(Box::pin(lists)))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        let requests = request.into_inner().container_requests;
        let mut container_responses = Vec::with_capacity(requests.len());
        for request in &requests {
            container_responses.push(self.prefer(request).await);
        }
        Ok(Response::new(PreferredAllocationResponse { container_responses }))
    }

    async fn allocate(
        &self,
        request: Request<AllocateRequest>,
    ) -> Result<Response<AllocateResponse>, Status> {
        let requests = request.into_inner().container_requests;
        let answers =
            requests.iter().map(|request| self.node.allocate(&self.resource, &request.devices_ids));
        let container_responses = answers
            .collect::<Result<Vec<_>, _>>()
            .map_err(|reason| refused(&reason, "allocation refused"))?;
        Ok(Response::new(AllocateResponse { container_responses }))
    }

    async fn pre_start_container(
        &self,
        request: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        let ids = request.into_inner().devices_ids;
        tokio::select! {
            verdict = self.node.pre_start(&ids) => {
                verdict.map_err(|reason| refused(&reason, "container held back"))?;
                Ok(Response::new(PreStartContainerResponse {}))
            }
            () = self.close.cancelled() => {
                Err(Status::unavailable("the device plugin is restarting"))
            }
        }
    }
}

impl Service {
    async fn prefer(
        &self,
        request: &ContainerPreferredAllocationRequest,
    ) -> ContainerPreferredAllocationResponse {
        let size = usize::try_from(request.allocation_size).unwrap_or_default();
        ContainerPreferredAllocationResponse {
            device_i_ds: self
                .node
                .preferred(
                    &self.resource,
                    (&request.available_device_i_ds, &request.must_include_device_i_ds),
                    size,
                )
                .await,
        }
    }
}

fn refused(reason: &Reason, what: &'static str) -> Status {
    tracing::warn!(reason = reason.code(), "{what}: {reason}");
    Status::failed_precondition(reason.to_string())
}
