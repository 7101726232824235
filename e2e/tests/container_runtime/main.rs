//! Containers of the real runc, made through the stand-in for NVIDIA's container runtime.
//!
//! Without root or runc nothing can be made, and the tests say so.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and says where it can't run"
)]

mod container;
mod machine;

use std::path::Path;

use container::Container;
use machine::{Mps, eventually, on_machine};
use mpshare_sim_state::ProcessKind;

#[test]
fn a_container_sees_exactly_the_card_that_its_variable_names() {
    on_machine(|machine| {
        let second = machine.cards[1].uuid.clone();
        for id in [second.as_str(), "1", &second[..12]] {
            let container = Container::new().env("NVIDIA_VISIBLE_DEVICES", id);
            let said = machine.run(&container, &["nvidia-smi", "-L"]);
            assert_eq!(
                said.out,
                format!("GPU 0: Tesla V100-SXM2-32GB (UUID: {second})\n"),
                "{said:?}"
            );
        }
    });
}

#[test]
fn cuda_sees_the_same_card_as_nvidia_smi() {
    on_machine(|machine| {
        let second = &machine.cards[1].uuid;
        let container = Container::new().env("NVIDIA_VISIBLE_DEVICES", second);
        let said = machine.run(&container, &["cuda-sample", "--alloc", "100Mi"]);
        assert!(said.out.contains(second), "{said:?}");
        let said = machine.run(&container, &["cuda-sample", "--device", "1"]);
        assert_ne!(said.code, Some(0), "{said:?}");
    });
}

#[test]
fn void_and_no_variable_bring_no_driver() {
    on_machine(|machine| {
        for container in [Container::new().env("NVIDIA_VISIBLE_DEVICES", "void"), Container::new()]
        {
            let said = machine.run(&container, &["ls", "/usr/bin/nvidia-smi", "/dev/nvidiactl"]);
            assert_ne!(said.code, Some(0), "{said:?}");
            assert_eq!(said.out, "", "{said:?}");
        }
    });
}

#[test]
fn none_brings_a_driver_that_finds_no_card() {
    on_machine(|machine| {
        let container = Container::new().env("NVIDIA_VISIBLE_DEVICES", "none");
        let script = "ls /dev/nvidia* && exec nvidia-smi -L";
        let said = machine.run(&container, &["sh", "-c", script]);
        assert!(!said.out.contains("GPU-"), "{said:?}");
        assert!(said.out.starts_with("/dev/nvidia-uvm\n/dev/nvidiactl\n"), "{said:?}");
    });
}

#[test]
fn a_part_of_the_driver_comes_alone_if_it_is_asked_for_alone() {
    on_machine(|machine| {
        let container = Container::new()
            .env("NVIDIA_VISIBLE_DEVICES", "all")
            .env("NVIDIA_DRIVER_CAPABILITIES", "utility");
        let said = machine.run(&container, &["nvidia-smi", "-L"]);
        assert_eq!(said.out.lines().count(), 2, "{said:?}");
        let said = machine.run(&container, &["cuda-sample"]);
        assert!(said.err.contains("libcuda.so.1"), "{said:?}");
    });
}

#[test]
fn an_unknown_card_fails_the_create_with_the_reason_in_the_log() {
    on_machine(|machine| {
        let unknown = "no-gpu-has-10MiB-to-run";
        let container = Container::new().env("NVIDIA_VISIBLE_DEVICES", unknown);
        let said = machine.create(&container);
        assert_ne!(said.code, Some(0), "{said:?}");
        let reason =
            format!("nvidia-container-cli: device error: {unknown}: unknown device: unknown");
        assert_eq!(said.err.trim(), reason);
        let line: serde_json::Value = serde_json::from_str(&said.log).unwrap();
        assert_eq!(line["level"], "error");
        assert_eq!(line["msg"], reason);
    });
}

#[test]
fn a_privileged_container_opens_every_card_whatever_it_asks_for() {
    on_machine(|machine| {
        let second = machine.cards[1].uuid.clone();
        let container = Container::new().privileged().env("NVIDIA_VISIBLE_DEVICES", &second);
        let said = machine.run(&container, &["nvidia-smi", "-L"]);
        assert_eq!(said.out.lines().count(), 2, "{said:?}");
        let container = Container::new().privileged().env("NVIDIA_VISIBLE_DEVICES", "void");
        let said = machine.run(&container, &["sh", "-c", "ls /dev/nvidia? /usr/bin/nvidia-smi"]);
        assert_eq!(said.out, "/dev/nvidia0\n/dev/nvidia1\n", "{said:?}");
    });
}

#[test]
fn a_mount_below_the_devices_directory_names_a_card() {
    on_machine(|machine| {
        let second = machine.cards[1].uuid.clone();
        let directory = "/var/run/nvidia-container-devices";
        let container = Container::new()
            .env("NVIDIA_VISIBLE_DEVICES", directory)
            .bind(Path::new("/dev/null"), &format!("{directory}/{second}"));
        let said = machine.run(&container, &["nvidia-smi", "-L"]);
        assert_eq!(said.out, format!("GPU 0: Tesla V100-SXM2-32GB (UUID: {second})\n"), "{said:?}");
    });
}

#[test]
fn a_cdi_device_in_an_annotation_wins_over_the_variable() {
    on_machine(|machine| {
        let second = machine.cards[1].uuid.clone();
        let container = Container::new()
            .env("NVIDIA_VISIBLE_DEVICES", "all")
            .annotation("cdi.k8s.io/plugin_x", &format!("nvidia.com/gpu={second}"));
        let said = machine.run(&container, &["nvidia-smi", "-L"]);
        assert_eq!(said.out, format!("GPU 0: Tesla V100-SXM2-32GB (UUID: {second})\n"), "{said:?}");
        let container = Container::new().annotation("cdi.k8s.io/plugin_x", "nvidia.com/gpu=GPU-9");
        let said = machine.create(&container);
        assert_eq!(said.err.trim(), "unresolvable CDI devices nvidia.com/gpu=GPU-9");
    });
}

#[test]
fn a_user_without_rights_on_a_read_only_root_uses_its_card() {
    on_machine(|machine| {
        let container =
            Container::new().env("NVIDIA_VISIBLE_DEVICES", "0").user(1000).read_only_root();
        let said = machine.run(&container, &["cuda-sample", "--alloc", "100Mi"]);
        assert_eq!(said.code, Some(0), "{said:?}");
        assert!(said.out.contains(&machine.cards[0].uuid), "{said:?}");
    });
}

#[test]
fn a_client_in_a_container_is_known_by_its_pid_on_the_host_and_holds_its_limit() {
    on_machine(|machine| {
        let second = machine.cards[1].uuid.clone();
        let mps = Mps::start(machine, &second);
        let container = Container::new()
            .env("NVIDIA_VISIBLE_DEVICES", &second)
            .env("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=1G")
            .env("CUDA_VISIBLE_DEVICES", "0");
        let container = mps.share(container);
        let running = machine.start(&container, &["cuda-sample", "--hold", "forever"]);
        let client = || {
            let processes = machine.store.read().unwrap().processes;
            processes.into_iter().find(|process| process.id.pid == running.pid())
        };
        eventually("the client is on its card", || client().is_some());
        let client = client().unwrap();
        assert!(matches!(client.kind, ProcessKind::MpsClient { .. }), "{client:?}");
        assert_eq!((client.gpu, client.limit_mib), (second, Some(1024)));
    });
}

#[test]
fn a_program_in_a_container_is_known_by_its_pid_on_the_host_and_gone_when_it_is() {
    on_machine(|machine| {
        let container = Container::new().env("NVIDIA_VISIBLE_DEVICES", "1");
        let running = machine.start(&container, &["cuda-sample", "--hold", "forever"]);
        let on_card = || -> Vec<i32> {
            let processes = machine.store.read().unwrap().processes;
            processes.iter().map(|process| process.id.pid).collect()
        };
        eventually("the program is on its card", || !on_card().is_empty());
        assert_eq!(on_card(), [running.pid()]);
        // Another container sees it under the same number, and frees its memory when it has gone.
        let said = machine.run(&container, &["nvidia-smi"]);
        assert!(said.out.contains(&format!(" {} ", running.pid())), "{said:?}");
        drop(running);
        let said = machine.run(&container, &["nvidia-smi"]);
        assert!(!said.out.contains("cuda-sample"), "{said:?}");
    });
}

#[test]
fn an_image_of_the_catalogue_is_small() {
    on_machine(|machine| {
        let size = machine.layer_size();
        assert!(size < 12 << 20, "{size} bytes");
    });
}
