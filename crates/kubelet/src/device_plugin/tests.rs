//! The field numbers, against bytes encoded by hand: tag byte = number * 8 + wire type.

use std::collections::BTreeMap;

use prost::Message;

use super::*;

fn check<M: Message + Default + PartialEq + std::fmt::Debug>(message: &M, bytes: &[u8]) {
    assert_eq!(message.encode_to_vec(), bytes, "encoded");
    assert_eq!(&M::decode(bytes).unwrap(), message, "decoded");
}

#[test]
fn register_request_is_version_endpoint_resource_options() {
    let message = RegisterRequest {
        version: "v1beta1".into(),
        endpoint: "e.sock".into(),
        resource_name: "a/b".into(),
        options: Some(DevicePluginOptions {
            pre_start_required: true,
            get_preferred_allocation_available: true,
        }),
    };
    check(&message, b"\x0a\x07v1beta1\x12\x06e.sock\x1a\x03a/b\x22\x04\x08\x01\x10\x01");
}

#[test]
fn device_is_id_health_topology() {
    let device = Device {
        id: "g0".into(),
        health: HEALTHY.into(),
        topology: Some(TopologyInfo { nodes: vec![NumaNode { id: 1 }] }),
    };
    let message = ListAndWatchResponse { devices: vec![device] };
    check(&message, b"\x0a\x13\x0a\x02g0\x12\x07Healthy\x1a\x04\x0a\x02\x08\x01");
}

#[test]
fn preferred_allocation_request_is_available_must_size() {
    let request = ContainerPreferredAllocationRequest {
        available_device_i_ds: vec!["a".into(), "b".into()],
        must_include_device_i_ds: vec!["a".into()],
        allocation_size: 2,
    };
    let message = PreferredAllocationRequest { container_requests: vec![request] };
    check(&message, b"\x0a\x0b\x0a\x01a\x0a\x01b\x12\x01a\x18\x02");
}

#[test]
fn preferred_allocation_response_is_ids() {
    let response = ContainerPreferredAllocationResponse { device_i_ds: vec!["b".into()] };
    let message = PreferredAllocationResponse { container_responses: vec![response] };
    check(&message, b"\x0a\x03\x0a\x01b");
}

#[test]
fn allocate_request_is_ids() {
    let message = AllocateRequest {
        container_requests: vec![ContainerAllocateRequest { devices_ids: vec!["x".into()] }],
    };
    check(&message, b"\x0a\x03\x0a\x01x");
}

#[test]
fn allocate_response_is_envs_mounts_devices_annotations_cdi() {
    let response = ContainerAllocateResponse {
        envs: BTreeMap::from([("E".into(), "1".into())]),
        mounts: vec![Mount {
            container_path: "/c".into(),
            host_path: "/h".into(),
            read_only: true,
        }],
        devices: vec![DeviceSpec {
            container_path: "/d".into(),
            host_path: "/D".into(),
            permissions: "rw".into(),
        }],
        annotations: BTreeMap::from([("k".into(), "v".into())]),
        cdi_devices: vec![CdiDevice { name: "n".into() }],
    };
    let mut bytes = b"\x0a\x06\x0a\x01E\x12\x011".to_vec();
    bytes.extend(b"\x12\x0a\x0a\x02/c\x12\x02/h\x18\x01");
    bytes.extend(b"\x1a\x0c\x0a\x02/d\x12\x02/D\x1a\x02rw");
    bytes.extend(b"\x22\x06\x0a\x01k\x12\x01v");
    bytes.extend(b"\x2a\x03\x0a\x01n");
    check(&response, &bytes);
}

#[test]
fn pre_start_request_is_ids() {
    let message = PreStartContainerRequest { devices_ids: vec!["x".into()] };
    check(&message, b"\x0a\x01x");
}
