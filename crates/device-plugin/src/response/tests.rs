use super::*;
use crate::testing::{inventory, resource, share, unit, uuid};
use mpshare_core::DeviceId;

fn shared() -> Grant {
    let shares = vec![share(&[unit(0, 0)], 7680, 500)];
    Grant { live: shares.clone(), shares, memory_units: None }
}

fn whole(cards: u32) -> Grant {
    let shares: Vec<LiveShare> = (0..cards)
        .map(|n| LiveShare {
            mode: Mode::Exclusive,
            resource: resource("nvidia.com/gpu"),
            ..share(&[DeviceId::whole(uuid(n))], 15360, 1000)
        })
        .collect();
    Grant { live: shares.clone(), shares, memory_units: None }
}

fn answered(grant: &Grant, plugin: &PluginOptions) -> ContainerAllocateResponse {
    let daemon = DaemonPaths {
        pipe: "/run/nvidia/mps/nvidia.com/gpu/GPU-00000000/pipe".into(),
        shm: "/run/nvidia/mps/nvidia.com/gpu/GPU-00000000/shm".into(),
    };
    let inventory = inventory(2);
    let surroundings = Surroundings {
        plugin,
        cdi_kind: "nvidia.com/gpu",
        dev_root: Path::new("/dev"),
        control_nodes: &["nvidiactl", "nvidia-uvm"],
        inventory: &inventory,
    };
    response(grant, Some(&daemon), &surroundings)
}

fn with(list: &[DeviceListStrategy]) -> PluginOptions {
    PluginOptions { device_list: list.to_vec(), ..PluginOptions::default() }
}

#[test]
fn a_share_comes_with_its_limits_its_daemon_and_its_card() {
    let answer = answered(&shared(), &PluginOptions::default());
    let card = uuid(0).to_string();
    let envs: Vec<(&str, &str)> =
        answer.envs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(
        envs,
        [
            ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "50.0"),
            ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=7680M"),
            ("CUDA_MPS_PIPE_DIRECTORY", "/mps/nvidia.com/gpu/pipe"),
            ("CUDA_VISIBLE_DEVICES", card.as_str()),
            ("NVIDIA_VISIBLE_DEVICES", card.as_str()),
        ]
    );
    let mounts: Vec<_> = answer
        .mounts
        .iter()
        .map(|mount| (mount.container_path.as_str(), mount.host_path.as_str(), mount.read_only))
        .collect();
    let host = "/run/nvidia/mps/nvidia.com/gpu/GPU-00000000";
    assert_eq!(
        mounts,
        [
            ("/mps/nvidia.com/gpu/pipe", format!("{host}/pipe").as_str(), true),
            ("/dev/shm", format!("{host}/shm").as_str(), false),
        ]
    );
    assert_eq!(answer.devices, []);
}

#[test]
fn units_of_memory_are_told_as_ack_tells_them_beside_the_limits() {
    let ids: Vec<DeviceId> = (0..7).map(|n| unit(1, n)).collect();
    let name = resource("aliyun.com/gpu-mem");
    let shares = vec![LiveShare { resource: name, ..share(&ids, 7168, 1000) }];
    let grant = Grant { live: shares.clone(), shares, memory_units: Some(15) };
    let answer = answered(&grant, &PluginOptions::default());
    let card = uuid(1).to_string();
    let envs: Vec<(&str, &str)> =
        answer.envs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(
        envs,
        [
            ("ALIYUN_COM_GPU_MEM_CONTAINER", "7"),
            ("ALIYUN_COM_GPU_MEM_DEV", "15"),
            ("ALIYUN_COM_GPU_MEM_IDX", "1"),
            ("ALIYUN_COM_GPU_MEM_POD", "7"),
            ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100.0"),
            ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=7168M"),
            ("CUDA_MPS_PIPE_DIRECTORY", "/mps/aliyun.com/gpu-mem/pipe"),
            ("CUDA_VISIBLE_DEVICES", card.as_str()),
            ("NVIDIA_VISIBLE_DEVICES", card.as_str()),
        ]
    );
}

#[test]
fn whole_cards_know_nothing_of_mps() {
    let answer = answered(&whole(2), &PluginOptions::default());
    let cards = format!("{},{}", uuid(0), uuid(1));
    assert_eq!(answer.envs["NVIDIA_VISIBLE_DEVICES"], cards);
    assert_eq!(answer.envs["CUDA_VISIBLE_DEVICES"], cards);
    assert_eq!(answer.envs.len(), 2);
    assert_eq!(answer.mounts, []);
}

#[test]
fn volume_mounts_name_cards_by_mounts_of_dev_null() {
    let answer = answered(&whole(2), &with(&[DeviceListStrategy::VolumeMounts]));
    assert_eq!(answer.envs["NVIDIA_VISIBLE_DEVICES"], "/var/run/nvidia-container-devices");
    let paths: Vec<_> = answer.mounts.iter().map(|mount| &mount.container_path).collect();
    let path = |n| format!("/var/run/nvidia-container-devices/{}", uuid(n));
    assert_eq!(paths, [&path(0), &path(1)]);
    assert!(answer.mounts.iter().all(|mount| mount.host_path == "/dev/null"));
}

#[test]
fn cdi_names_come_in_their_field_or_in_annotations() {
    let plugin = with(&[DeviceListStrategy::CdiAnnotations, DeviceListStrategy::CdiCri]);
    let answer = answered(&whole(2), &plugin);
    let names = [0, 1].map(|n| format!("nvidia.com/gpu={}", uuid(n)));
    let in_field: Vec<_> = answer.cdi_devices.iter().map(|device| &device.name).collect();
    assert_eq!(in_field, [&names[0], &names[1]]);
    let (key, value) = answer.annotations.first_key_value().unwrap();
    assert_eq!(key, "cdi.k8s.io/mpshare_GPU-00000000_2");
    assert_eq!(*value, names.join(","));
    assert_eq!(answer.envs["NVIDIA_VISIBLE_DEVICES"], "void");
}

#[test]
fn indexes_name_cards_to_the_runtime_and_never_to_cuda() {
    let plugin = PluginOptions { device_ids: DeviceIdStrategy::Index, ..PluginOptions::default() };
    let answer = answered(&whole(2), &plugin);
    assert_eq!(answer.envs["NVIDIA_VISIBLE_DEVICES"], "0,1");
    assert!(answer.envs["CUDA_VISIBLE_DEVICES"].starts_with("GPU-"));
}

#[test]
fn device_nodes_are_those_of_the_cards_and_the_control_nodes_that_exist() {
    let plugin = PluginOptions { pass_device_specs: true, ..PluginOptions::default() };
    let answer = answered(&whole(2), &plugin);
    let nodes: Vec<_> = answer
        .devices
        .iter()
        .map(|node| (node.container_path.as_str(), node.permissions.as_str()))
        .collect();
    assert_eq!(
        nodes,
        [
            ("/dev/nvidia-uvm", "rw"),
            ("/dev/nvidia0", "rw"),
            ("/dev/nvidia1", "rw"),
            ("/dev/nvidiactl", "rw"),
        ]
    );
}
