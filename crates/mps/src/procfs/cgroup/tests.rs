use super::*;
use proptest::prelude::*;

const UID: &str = "0a1b2c3d-1111-2222-3333-444455556666";
const UID_SLICE: &str = "0a1b2c3d_1111_2222_3333_444455556666";
const HASH: &str = "0123456789abcdef0123456789abcdef";
const ID: &str = "4f5e6d7c8b9a0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796";

fn check(text: &str, pod: &str, container: Option<&str>) {
    let found = container_of(text).unwrap_or_else(|| panic!("nothing in {text}"));
    assert_eq!(found.pod.as_str(), pod, "{text}");
    let id = found.container.as_ref().map(ContainerId::as_str);
    assert_eq!(id, container, "{text}");
}

fn v2(path: &str) -> String {
    format!("0::{path}\n")
}

#[test]
fn cgroupfs_paths_are_read_for_every_class_of_pod() {
    for class in ["", "/burstable", "/besteffort"] {
        check(&v2(&format!("/kubepods{class}/pod{UID}/{ID}")), UID, Some(ID));
    }
}

#[test]
fn systemd_paths_are_read_for_every_class_of_pod() {
    for (slice, prefix) in [
        ("", "kubepods"),
        ("/kubepods-burstable.slice", "kubepods-burstable"),
        ("/kubepods-besteffort.slice", "kubepods-besteffort"),
    ] {
        let path = format!(
            "/kubepods.slice{slice}/{prefix}-pod{UID_SLICE}.slice/cri-containerd-{ID}.scope"
        );
        check(&v2(&path), UID, Some(ID));
    }
}

#[test]
fn a_cgroup_root_and_other_runtimes_change_nothing() {
    for scope in ["cri-containerd", "crio", "docker"] {
        let path = format!(
            "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/\
             kubelet-kubepods-burstable-pod{UID_SLICE}.slice/{scope}-{ID}.scope"
        );
        check(&v2(&path), UID, Some(ID));
    }
}

#[test]
fn a_static_pod_is_named_by_the_hash_of_its_file() {
    check(&v2(&format!("/kubepods/pod{HASH}/{ID}")), HASH, Some(ID));
    let path = format!("/kubepods.slice/kubepods-pod{HASH}.slice/cri-containerd-{ID}.scope");
    check(&v2(&path), HASH, Some(ID));
}

#[test]
fn version_1_is_read_from_the_controllers_that_the_kubelet_manages() {
    let path = format!("/kubepods/besteffort/pod{UID}/{ID}");
    let text =
        format!("12:rdma:/\n5:cpu,cpuacct:{path}\n4:memory:{path}\n1:name=systemd:/x\n0::/\n");
    check(&text, UID, Some(ID));
    // A group of another controller is no evidence against them.
    let other = UID.replace('0', "9");
    let text = format!("9:rdma:/kubepods/pod{other}/{ID}\n4:cpuset,memory:{path}\n");
    check(&text, UID, Some(ID));
}

#[test]
fn groups_that_a_tenant_makes_below_its_own_do_not_make_it_another_pod() {
    let other = UID.replace('0', "9");
    let other_id = ID.replace('4', "0");
    let path = format!("/kubepods/pod{UID}/{ID}/kubepods/pod{other}/{other_id}");
    check(&v2(&path), UID, Some(ID));
    let path = format!("/kubepods/pod{UID}/nested/{other_id}");
    check(&v2(&path), UID, None);
}

#[test]
fn a_node_in_a_container_has_its_pods_below_that() {
    let path = format!("/system.slice/docker-{ID}.scope/kubelet/kubepods/pod{UID}/{ID}");
    check(&v2(&path), UID, Some(ID));
}

#[test]
fn processes_of_the_host_belong_to_no_pod() {
    for path in [
        "/",
        "/system.slice/containerd.service",
        "/user.slice/user-0.slice/session-1.scope",
        "/mpshare/GPU-cb1213a3",
        "/../..",
        "/podman/pod1",
        "/kubepods/pod-not-a-uid",
    ] {
        assert_eq!(container_of(&v2(path)), None, "{path}");
    }
    assert_eq!(container_of(""), None);
}

#[test]
fn a_process_of_no_pod_is_the_hosts_unless_its_group_cannot_be_seen() {
    let host = |text: &str, path: &str| assert_eq!(home_of(text), Home::Host(path.to_owned()));
    host(
        "0::/user.slice/user-0.slice/session-1.scope\n",
        "/user.slice/user-0.slice/session-1.scope",
    );
    host(
        &v2(&format!("/system.slice/docker-{ID}.scope")),
        &format!("/system.slice/docker-{ID}.scope"),
    );
    host("4:memory:/docker/abc\n1:name=systemd:/x\n0::/\n", "/docker/abc");
    host("0::/\n", "/");
    for hidden in ["0::/../..\n", "0::/../pod1/x\n", "4:memory:/\n0::/../x\n", "", "nonsense"] {
        assert_eq!(home_of(hidden), Home::Hidden, "{hidden}");
    }
    let Home::Pod(found) = home_of(&v2(&format!("/kubepods/pod{UID}/{ID}"))) else { panic!() };
    assert_eq!(found.pod.as_str(), UID);
}

proptest! {
    #[test]
    fn any_text_is_read(text in "(?s).*") {
        let found = container_of(&text);
        assert_eq!(found.is_some(), matches!(home_of(&text), Home::Pod(_)));
    }

    #[test]
    fn any_segments_are_read(text in "0::(/[a-fp0-9d_-]{0,40}(pod)?[a-f0-9é_-]{30,40}(\\.slice)?){1,4}") {
        let _found = container_of(&text);
    }
}
