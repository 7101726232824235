//! Bad pods, and what becomes of each in the three modes.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{await_webhook, namespace, try_out};
use crate::cluster::Cluster;
use crate::pods::{CUDA_IMAGE, Pod};
use crate::scenarios::{FIFTEEN_GIB, ODD_CARDS, TWO_CARDS, end_sharing_by_memory, share_by_memory};
use crate::wait::eventually;

/// Refused with the sentence, warned about with it, or let pass with an Event.
pub(in crate::scenarios) fn pods_in_each_mode(cluster: &mut Cluster) -> Result<()> {
    share_by_memory(cluster, FIFTEEN_GIB, 15)?;
    await_webhook(cluster)?;
    namespace(cluster, "lenient", "warn")?;
    namespace(cluster, "silent", "audit")?;
    namespace(cluster, "free", "off")?;
    for (pod, sentence) in bad_pods() {
        let name = pod.name().to_owned();
        let within = |namespace: &str| pod.clone().with("/metadata/namespace", json!(namespace));
        let refused = try_out(cluster, &within("strict"))?;
        let is_refused = refused.contains("denied the request: ") && refused.contains(sentence);
        ensure!(is_refused, "`{name}` isn't refused by `{sentence}`: {refused}");
        ensure!(refused.contains("hint: "), "no hint: {refused}");
        let warned = try_out(cluster, &within("lenient"))?;
        let is_warned = warned.contains("created") && warned.contains("Warning: ");
        ensure!(is_warned && warned.contains(sentence), "`{name}` isn't warned about: {warned}");
        for mode in ["silent", "free"] {
            let passed = try_out(cluster, &within(mode))?;
            let is_passed = passed.contains("created") && !passed.contains("Warning: ");
            ensure!(is_passed, "`{name}` doesn't pass in `{mode}`: {passed}");
        }
    }
    println!("    {} bad pods, each refused, warned about, and let pass", bad_pods().len());
    audit(cluster)?;
    ephemeral(cluster)?;
    annotations(cluster)?;
    for name in ["silent", "strict"] {
        cluster.kubectl(&["delete", "pods", "--all", "-n", name, "--grace-period=1"])?;
    }
    end_sharing_by_memory(cluster, FIFTEEN_GIB)
}

/// A bad pod with what its refusal says.
type Bad = (Pod, &'static str);

fn bad_pods() -> Vec<Bad> {
    [requests(), variables(), paths(), users()].concat()
}

fn asking(name: &str, amount: impl Into<Value>) -> Pod {
    let limits = json!({"aliyun.com/gpu-mem": amount.into()});
    Pod::new(name, FIFTEEN_GIB, &[]).with_container("resources", json!({"limits": limits}))
}

/// What nobody can mean.
fn requests() -> Vec<Bad> {
    let both = json!({"limits": {"aliyun.com/gpu-mem": 1, "nvidia.com/gpu": 1}});
    let two = json!({"aliyun.com/gpu-count": "2"});
    vec![
        (asking("none", 0), "asks for 0 `aliyun.com/gpu-mem`"),
        (
            asking("suffix", "10G"),
            "asks for `10G` of `aliyun.com/gpu-mem`, which is 10000000000 units",
        ),
        (asking("binary", "1Ki"), "asks for `1Ki` of `aliyun.com/gpu-mem`"),
        (asking("huge", 16), "has more than 15"),
        (
            Pod::new("both", TWO_CARDS, &[]).with_container("resources", both),
            "asks for `aliyun.com/gpu-mem` and for `nvidia.com/gpu`",
        ),
        (asking("two-gpus", 2).with("/metadata/labels", two), "asks for several GPUs"),
    ]
}

/// What isn't a container's to say.
fn variables() -> Vec<Bad> {
    let with = |name: &str, variable: &str, value: &str| {
        asking(name, 2).with_container("env", json!([{"name": variable, "value": value}]))
    };
    let hidden = json!([{
        "name": "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
        "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}},
    }]);
    let all = "sets `NVIDIA_VISIBLE_DEVICES` (`all`)";
    vec![
        (with("all-gpus", "NVIDIA_VISIBLE_DEVICES", "all"), all),
        (
            with("for-nothing", "NVIDIA_VISIBLE_DEVICES", "all")
                .with_container("resources", json!({})),
            all,
        ),
        (with("other-device", "CUDA_VISIBLE_DEVICES", "1"), "sets `CUDA_VISIBLE_DEVICES` (`1`)"),
        (with("own-pipe", "CUDA_MPS_PIPE_DIRECTORY", "/tmp"), "sets `CUDA_MPS_PIPE_DIRECTORY`"),
        (
            with("percent", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "150"),
            "thread percentage that can't be read (`150`)",
        ),
        (asking("hidden", 2).with_container("env", hidden), "from a place that can't be seen here"),
    ]
}

/// Ways past MPS, or over it.
fn paths() -> Vec<Bad> {
    let mounting = |name: &str, path: &str| {
        asking(name, 2)
            .with("/spec/volumes", json!([{"name": "v", "emptyDir": {}}]))
            .with_container("volumeMounts", json!([{"name": "v", "mountPath": path}]))
    };
    let host = |name: &str, path: &str| {
        Pod::new(name, TWO_CARDS, &[])
            .with("/spec/volumes", json!([{"name": "v", "hostPath": {"path": path}}]))
            .with_container("resources", json!({}))
    };
    let privileged = json!({"privileged": true});
    vec![
        (
            Pod::new("privileged", TWO_CARDS, &[]).with_container("securityContext", privileged),
            "is privileged and reaches every GPU",
        ),
        (mounting("own-shm", "/dev/shm"), "mounts a volume at `/dev/shm`"),
        (mounting("own-pipes", "/mps"), "mounts a volume at `/mps`"),
        (host("daemons", "/run/nvidia/mps"), "is `/run/nvidia/mps` of the node"),
        (host("driver", "/run/nvidia/driver"), "is `/run/nvidia/driver` of the node"),
        (host("card", "/dev/nvidia0"), "is `/dev/nvidia0` of the node"),
    ]
}

/// Users that an old driver serves one at a time.
fn users() -> Vec<Bad> {
    let old = |name: &str| Pod::new(name, ODD_CARDS, &[]);
    let container = |uid: u32| {
        json!({
            "name": format!("c{uid}"), "image": CUDA_IMAGE,
            "resources": {"limits": {"nvidia.com/gpu": 1}}, "securityContext": {"runAsUser": uid},
        })
    };
    let two = json!([container(1), container(2)]);
    vec![
        (
            old("own-users").with("/spec/hostUsers", json!(false)),
            "users of its own (`hostUsers: false`)",
        ),
        (old("two-users").with("/spec/containers", two), "serves one user at a time"),
    ]
}

/// What passes without a word in the mode `audit` is an Event there.
fn audit(cluster: &Cluster) -> Result<()> {
    let pod = Pod::new("audited", TWO_CARDS, &[])
        .with("/metadata/namespace", json!("silent"))
        .with("/spec/nodeSelector", json!({"no": "node"}))
        .with_container("env", json!([{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]));
    pod.create(cluster)?;
    let mut events = String::new();
    let seen = eventually("the Event of an audited pod", Duration::from_secs(30), || {
        events = cluster.kubectl(&["get", "events", "-n", "silent"])?;
        Ok(events.contains("AdmissionAudit") && events.contains("NVIDIA_VISIBLE_DEVICES"))
    });
    seen.with_context(|| events)
}

/// A container that is added for debugging is looked at as any other.
fn ephemeral(cluster: &Cluster) -> Result<()> {
    Pod::new("debugged", TWO_CARDS, &["--hold", "forever"])
        .with("/metadata/namespace", json!("strict"))
        .create(cluster)?;
    let debug = |variable: &str| {
        cluster.shell(&format!(
            "kubectl debug -n strict debugged --image={CUDA_IMAGE} --env={variable} -- sleep 1 2>&1 || true"
        ))
    };
    let refused = debug("NVIDIA_VISIBLE_DEVICES=all")?;
    ensure!(refused.contains("sets `NVIDIA_VISIBLE_DEVICES` (`all`)"), "{refused}");
    let fine = debug("NVIDIA_VISIBLE_DEVICES=void")?;
    ensure!(!fine.contains("denied"), "{fine}");
    Ok(())
}

/// Nobody but mpshare writes where a pod is: on creation, on change, on binding.
fn annotations(cluster: &Cluster) -> Result<()> {
    let claim = json!({"mpshare.io/allocation": "{}"});
    for namespace in ["strict", "free"] {
        let pod = Pod::new("claims", TWO_CARDS, &[])
            .with("/metadata/namespace", json!(namespace))
            .with("/metadata/annotations", claim.clone());
        let said = try_out(cluster, &pod)?;
        ensure!(said.contains("is written by mpshare alone"), "in `{namespace}`: {said}");
    }
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding",
        "metadata": {"name": "audited", "namespace": "silent", "annotations": claim},
        "target": {"apiVersion": "v1", "kind": "Node", "name": TWO_CARDS},
    });
    let said = cluster.shell(&format!(
        "kubectl create --raw /api/v1/namespaces/silent/pods/audited/binding -f - <<'EOF' 2>&1 || true\n{binding}\nEOF"
    ))?;
    ensure!(said.contains("is written by mpshare alone"), "{said}");
    Ok(())
}
