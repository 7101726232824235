//! The pod resources service (`facts/kubernetes.md` 3): active pods only, one entry per device
//! id and NUMA node, regular init containers never, no UIDs.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use mpshare_kubelet::device_plugin::Device;
use mpshare_kubelet::pod_resources::{
    AllocatableResourcesRequest, AllocatableResourcesResponse, ContainerDevices,
    ContainerResources, GetPodResourcesRequest, GetPodResourcesResponse, ListPodResourcesRequest,
    ListPodResourcesResponse, NumaNode, PodResources, PodResourcesLister, TopologyInfo,
};
use tonic::{Request, Response, Status};

use super::devices::{Devices, Holding};
use super::node::{Deletion, Node, PodRecord, State, lock};
use super::options::RateLimit;
use super::pod::{ContainerKind, ContainerSpec};

/// Calls a second of all users together, and how many may come at once.
const QPS: f64 = 100.0;
const BURST: f64 = 10.0;

/// The service of one kubelet process.
pub(super) struct Lister {
    node: Arc<Node>,
    /// Calls that may come now, and when that was counted.
    bucket: Mutex<(f64, Instant)>,
}

impl Lister {
    pub(super) fn new(node: Arc<Node>) -> Self {
        Self { node, bucket: Mutex::new((BURST, Instant::now())) }
    }

    fn check_rate(&self) -> Result<(), Status> {
        if self.node.options.rate_limit == RateLimit::Off {
            return Ok(());
        }
        let mut bucket = lock(&self.bucket);
        let now = Instant::now();
        let more = now.duration_since(bucket.1).as_secs_f64() * QPS;
        *bucket = ((bucket.0 + more).min(BURST), now);
        if bucket.0 < 1.0 {
            return Err(Status::resource_exhausted("rejected by rate limit"));
        }
        bucket.0 -= 1.0;
        Ok(())
    }
}

#[tonic::async_trait]
impl PodResourcesLister for Lister {
    async fn list(
        &self,
        _: Request<ListPodResourcesRequest>,
    ) -> Result<Response<ListPodResourcesResponse>, Status> {
        self.check_rate()?;
        let pod_resources = self.node.change(|state| {
            state.free_inactive();
            let active = state.pods.values().filter(|record| record.is_active());
            active.map(|record| of_pod(state, record)).collect()
        });
        Ok(Response::new(ListPodResourcesResponse { pod_resources }))
    }

    async fn get_allocatable_resources(
        &self,
        _: Request<AllocatableResourcesRequest>,
    ) -> Result<Response<AllocatableResourcesResponse>, Status> {
        self.check_rate()?;
        let devices = self.node.read(|state| healthy_devices(&state.devices));
        Ok(Response::new(AllocatableResourcesResponse {
            devices,
            ..AllocatableResourcesResponse::default()
        }))
    }

    async fn get(
        &self,
        request: Request<GetPodResourcesRequest>,
    ) -> Result<Response<GetPodResourcesResponse>, Status> {
        self.check_rate()?;
        let asked = request.into_inner();
        let found = self.node.read(|state| {
            let mut pods = state
                .pods
                .values()
                .filter(|record| record.arrived && record.deletion != Deletion::Forced);
            let record = pods.find(|record| {
                record.spec.name == asked.pod_name && record.spec.namespace == asked.pod_namespace
            });
            record.map(|record| of_pod(state, record))
        });
        match found {
            Some(pod) => Ok(Response::new(GetPodResourcesResponse { pod_resources: Some(pod) })),
            None => Err(Status::unknown(format!(
                "pod {} in namespace {} not found",
                asked.pod_name, asked.pod_namespace
            ))),
        }
    }
}

fn of_pod(state: &State, record: &PodRecord) -> PodResources {
    let pod = &record.spec;
    let sidecars =
        pod.init_containers().filter(|container| container.kind == ContainerKind::Sidecar);
    let listed = sidecars.chain(pod.app_containers());
    let containers = listed.map(|container| of_container(state, &pod.uid, container));
    PodResources {
        name: pod.name.clone(),
        namespace: pod.namespace.clone(),
        containers: containers.collect(),
    }
}

fn of_container(state: &State, uid: &str, container: &ContainerSpec) -> ContainerResources {
    let holdings = state.devices.pods.get(uid);
    let holdings = holdings.and_then(|containers| containers.get(&container.name));
    let entries = |(resource, holding): (&String, &Holding)| {
        let ids = holding.ids.iter();
        ids.flat_map(|id| entries(&state.devices, resource, id)).collect::<Vec<_>>()
    };
    ContainerResources {
        name: container.name.clone(),
        devices: holdings.into_iter().flatten().flat_map(entries).collect(),
        ..ContainerResources::default()
    }
}

fn healthy_devices(devices: &Devices) -> Vec<ContainerDevices> {
    let resources = devices.resources.iter();
    let all = resources.flat_map(|(name, resource)| {
        let ids = resource.healthy.iter();
        ids.flat_map(|id| entries(devices, name, id)).collect::<Vec<_>>()
    });
    all.collect()
}

/// One entry per NUMA node of the device, or one without topology.
fn entries(devices: &Devices, resource: &str, id: &str) -> Vec<ContainerDevices> {
    let entry = |topology: Option<TopologyInfo>| ContainerDevices {
        resource_name: resource.into(),
        device_ids: vec![id.into()],
        topology,
    };
    let known = devices.resources.get(resource).and_then(|r| r.known.get(id));
    let nodes = known.map_or_else(Vec::new, numa_nodes);
    if nodes.is_empty() {
        return vec![entry(None)];
    }
    let on = |id: i64| TopologyInfo { nodes: vec![NumaNode { id }] };
    nodes.into_iter().map(|id| entry(Some(on(id)))).collect()
}

fn numa_nodes(device: &Device) -> Vec<i64> {
    let topology = device.topology.iter();
    topology.flat_map(|t| t.nodes.iter().map(|node| node.id)).collect()
}
