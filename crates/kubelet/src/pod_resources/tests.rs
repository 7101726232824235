//! The field numbers, against bytes encoded by hand, and the grouping.

use prost::Message;

use super::*;

fn check<M: Message + Default + PartialEq + std::fmt::Debug>(message: &M, bytes: &[u8]) {
    assert_eq!(message.encode_to_vec(), bytes, "encoded");
    assert_eq!(&M::decode(bytes).unwrap(), message, "decoded");
}

fn device(resource: &str, id: &str, numa_node: i64) -> ContainerDevices {
    ContainerDevices {
        resource_name: resource.into(),
        device_ids: vec![id.into()],
        topology: Some(TopologyInfo { nodes: vec![NumaNode { id: numa_node }] }),
    }
}

fn answer(devices: Vec<ContainerDevices>) -> ListPodResourcesResponse {
    ListPodResourcesResponse {
        pod_resources: vec![PodResources {
            name: "p".into(),
            namespace: "n".into(),
            containers: vec![ContainerResources {
                name: "c".into(),
                devices,
                ..ContainerResources::default()
            }],
        }],
    }
}

#[test]
fn list_answer_is_pods_containers_devices() {
    let mut bytes = b"\x0a\x1a\x0a\x01p\x12\x01n\x1a\x12\x0a\x01c".to_vec();
    bytes.extend(b"\x12\x0d\x0a\x01r\x12\x02d0\x1a\x04\x0a\x02\x08\x01");
    check(&answer(vec![device("r", "d0", 1)]), &bytes);
}

#[test]
fn allocatable_answer_is_devices_cpus_memory() {
    let message = AllocatableResourcesResponse {
        devices: vec![ContainerDevices {
            resource_name: "r".into(),
            device_ids: vec!["d".into()],
            topology: None,
        }],
        cpu_ids: vec![3],
        memory: vec![ContainerMemory { memory_type: "m".into(), size: 9, topology: None }],
    };
    check(&message, b"\x0a\x06\x0a\x01r\x12\x01d\x12\x01\x03\x1a\x05\x0a\x01m\x10\x09");
}

#[test]
fn get_request_is_name_namespace() {
    let message = GetPodResourcesRequest { pod_name: "p".into(), pod_namespace: "n".into() };
    check(&message, b"\x0a\x01p\x12\x01n");
}

#[test]
fn get_answer_is_a_pod() {
    let message = GetPodResourcesResponse {
        pod_resources: Some(PodResources { name: "p".into(), ..PodResources::default() }),
    };
    check(&message, b"\x0a\x03\x0a\x01p");
}

#[test]
fn dynamic_resource_starts_at_field_two() {
    let message = DynamicResource {
        claim_name: "c".into(),
        claim_namespace: "n".into(),
        claim_resources: vec![ClaimResource {
            cdi_devices: vec![CdiDevice { name: "x".into() }],
            driver_name: "d".into(),
            pool_name: "p".into(),
            device_name: "v".into(),
        }],
    };
    check(&message, b"\x12\x01c\x1a\x01n\x22\x0e\x0a\x03\x0a\x01x\x12\x01d\x1a\x01p\x22\x01v");
}

#[test]
fn entries_are_grouped_by_holder_and_numa_duplicates_collapse() {
    let devices = vec![
        device("r", "d0", 0),
        device("r", "d0", 1),
        device("r", "d1", 0),
        device("s", "d0", 0),
    ];
    let held = held_devices(answer(devices));
    let ids = |resource: &str| {
        let holder = Holder {
            namespace: "n".into(),
            pod: "p".into(),
            container: "c".into(),
            resource: resource.into(),
        };
        held[&holder].iter().cloned().collect::<Vec<_>>()
    };
    assert_eq!(ids("r"), ["d0", "d1"]);
    assert_eq!(ids("s"), ["d0"]);
    assert_eq!(held.len(), 2);
}

#[tokio::test]
async fn a_kubelet_that_is_away_is_an_error_not_a_hang() {
    let dir = tempfile::tempdir().unwrap();
    let mut client = lister(&dir.path().join("kubelet.sock")).unwrap();
    let error = list(&mut client, Duration::from_secs(10)).await.unwrap_err();
    assert!(matches!(error, ListError::Failed(_)), "{error}");
}
