//! The real `kubectl`, where it is installed.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use mpshare_testkit::fakekube::FakeKube;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};

use super::seams::Echo;
use super::{config_map, node, pod_on, soon, start};

/// `kubectl` aimed at a fake server, with its own empty home.
struct Kubectl {
    home: tempfile::TempDir,
    kubeconfig: PathBuf,
}

/// What a command printed and how it ended.
#[derive(Debug)]
struct Printed {
    ok: bool,
    stdout: String,
    stderr: String,
}

impl Kubectl {
    /// `None`, with a word why, where there is no kubectl.
    async fn on(kube: &FakeKube) -> Option<Self> {
        let probe = Command::new("kubectl").args(["version", "--client"]).output().await;
        if !probe.is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: no kubectl");
            return None;
        }
        let home = tempfile::tempdir().unwrap();
        let kubeconfig = kube.kubeconfig(home.path()).unwrap();
        Some(Self { home, kubeconfig })
    }

    async fn run(&self, arguments: &str) -> Printed {
        self.feed(arguments, "").await
    }

    fn spawn(&self, arguments: &str) -> Child {
        Command::new("kubectl")
            .args(arguments.split_whitespace())
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", self.home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    async fn feed(&self, arguments: &str, input: &str) -> Printed {
        let mut child = self.spawn(arguments);
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).await.unwrap();
        drop(stdin);
        let output = soon(arguments, child.wait_with_output()).await.unwrap();
        Printed {
            ok: output.status.success(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// The words of each line that the command prints; it must succeed.
    async fn rows(&self, arguments: &str) -> Vec<Vec<String>> {
        let printed = self.run(arguments).await;
        assert!(printed.ok, "kubectl {arguments}: {printed:?}");
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
        printed.stdout.lines().map(words).collect()
    }
}

fn running(name: &str) -> serde_json::Value {
    let mut pod = pod_on(name, "n1");
    pod["status"] = json!({
        "phase": "Running",
        "containerStatuses": [{"name": "main", "ready": true, "restartCount": 2, "image": "i",
            "imageID": "", "state": {"running": {}}}],
    });
    pod
}

#[tokio::test]
async fn kubectl_get_prints_the_servers_tables() {
    let kube = start().await;
    let Some(kubectl) = Kubectl::on(&kube).await else {
        return;
    };
    kube.create(running("a")).await.unwrap();
    kube.create(node("n1")).await.unwrap();
    kube.create(config_map("settings", "1")).await.unwrap();
    let pods = kubectl.rows("get pods").await;
    assert_eq!(pods[0], ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]);
    assert_eq!(pods[1][..4], ["a", "1/1", "Running", "2"]);
    let nodes = kubectl.rows("get node").await;
    assert_eq!(nodes[0], ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]);
    assert_eq!([&nodes[1][..3], &nodes[1][4..]].concat(), ["n1", "Ready", "<none>", "v1.33.0"]);
    let maps = kubectl.rows("get cm settings").await;
    assert_eq!(maps[1][..2], ["settings", "1"]);
    let wide = kubectl.rows("get po -A -o wide").await;
    assert!(wide[1].contains(&"n1".to_owned()), "{wide:?}");
    let none = kubectl.run("get daemonsets").await;
    assert_eq!(none.stderr, "No resources found in default namespace.\n");
}

#[tokio::test]
async fn kubectl_get_reads_fields_and_selectors() {
    let kube = start().await;
    let Some(kubectl) = Kubectl::on(&kube).await else {
        return;
    };
    kube.create(node("n1")).await.unwrap();
    kube.patch_node_label("n1", "gpu", "yes").await.unwrap();
    let capacity = kubectl
        .rows(r"get node -l gpu=yes -o jsonpath={.items[0].status.capacity.nvidia\.com/gpu}")
        .await;
    assert_eq!(capacity, [["4"]]);
    let missing = kubectl.run("get node n2").await;
    assert_eq!(missing.stderr, "Error from server (NotFound): nodes \"n2\" not found\n");
}

#[tokio::test]
async fn kubectl_label_and_taint_change_the_node() {
    let kube = start().await;
    let Some(kubectl) = Kubectl::on(&kube).await else {
        return;
    };
    kube.create(node("n1")).await.unwrap();
    let set = kubectl.rows("label node n1 nvidia.com/device-plugin.config=mps-2x").await;
    assert_eq!(set, [["node/n1", "labeled"]]);
    let node = kube.get("nodes", "", "n1").unwrap();
    assert_eq!(node["metadata"]["labels"]["nvidia.com/device-plugin.config"], "mps-2x");
    kubectl.rows("label node n1 nvidia.com/device-plugin.config-").await;
    let node = kube.get("nodes", "", "n1").unwrap();
    assert_eq!(node.pointer("/metadata/labels").and_then(|l| l.as_object()?.keys().next()), None);
    kubectl.rows("cordon n1").await;
    assert_eq!(kubectl.rows("get node n1").await[1][1], "Ready,SchedulingDisabled");
}

#[tokio::test]
async fn kubectl_describe_node_shows_pods_and_events() {
    let kube = start().await;
    let Some(kubectl) = Kubectl::on(&kube).await else {
        return;
    };
    kube.create(node("n1")).await.unwrap();
    kube.create(running("tenant")).await.unwrap();
    kube.create(json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e1"},
        "involvedObject": {"kind": "Node", "name": "n1", "uid": "n1"},
        "type": "Warning", "reason": "ShareRefused", "message": "too much memory",
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z",
        "count": 1, "source": {"component": "mpshare"},
    }))
    .await
    .unwrap();
    let text = kubectl.run("describe node n1").await;
    assert!(text.ok, "{text:?}");
    for part in ["tenant", "ShareRefused", "too much memory", "nvidia.com/gpu"] {
        assert!(text.stdout.contains(part), "{part} is missing in {}", text.stdout);
    }
    let events = kubectl.rows("get events").await;
    assert!(events[1].contains(&"node/n1".to_owned()), "{events:?}");
}

#[tokio::test]
async fn kubectl_apply_creates_and_updates_without_flags() {
    let kube = start().await;
    let Some(kubectl) = Kubectl::on(&kube).await else {
        return;
    };
    let manifest = |replicas: u32| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: cm}}\ndata: {{size: '{replicas}'}}\n\
             ---\n\
             apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web}}\n\
             spec:\n  replicas: {replicas}\n  selector: {{matchLabels: {{app: web}}}}\n  \
             template:\n    metadata: {{labels: {{app: web}}}}\n    \
             spec: {{containers: [{{name: c, image: i}}]}}\n"
        )
    };
    let made = kubectl.feed("apply -f -", &manifest(1)).await;
    assert_eq!(made.stdout, "configmap/cm created\ndeployment.apps/web created\n", "{made:?}");
    let changed = kubectl.feed("apply -f -", &manifest(2)).await;
    let expected = "configmap/cm configured\ndeployment.apps/web configured\n";
    assert_eq!(changed.stdout, expected, "{changed:?}");
    let again = kubectl.feed("apply -f -", &manifest(2)).await;
    let expected = "configmap/cm unchanged\ndeployment.apps/web unchanged\n";
    assert_eq!(again.stdout, expected, "{again:?}");
    assert_eq!(kube.get("configmaps", "default", "cm").unwrap()["data"]["size"], "2");
    assert_eq!(kube.get("deployments", "default", "web").unwrap()["metadata"]["generation"], 2);
    let server_side = kubectl.feed("apply --server-side -f -", &manifest(3)).await;
    assert!(server_side.ok, "{server_side:?}");
    assert_eq!(kube.get("configmaps", "default", "cm").unwrap()["data"]["size"], "3");
}

#[tokio::test]
async fn kubectl_get_all_and_rollout_status_know_a_daemon_set() {
    let kube = start().await;
    let Some(kubectl) = Kubectl::on(&kube).await else {
        return;
    };
    kube.create(json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}}},
        "status": {"observedGeneration": 1, "desiredNumberScheduled": 2, "numberReady": 2,
            "updatedNumberScheduled": 2, "numberAvailable": 2, "currentNumberScheduled": 2,
            "numberMisscheduled": 0},
    }))
    .await
    .unwrap();
    let all = kubectl.rows("get all").await;
    assert_eq!(all[1][..2], ["daemonset.apps/agent", "2"]);
    let status = kubectl.run("rollout status ds/agent --timeout=10s").await;
    assert_eq!(status.stdout, "daemon set \"agent\" successfully rolled out\n", "{status:?}");
}

#[tokio::test]
async fn kubectl_get_watch_prints_changes_as_they_come() {
    let kube = start().await;
    let Some(kubectl) = Kubectl::on(&kube).await else {
        return;
    };
    kube.create(running("a")).await.unwrap();
    let mut child = kubectl.spawn("get pods --watch --output-watch-events");
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut line = async || soon("a line", lines.next_line()).await.unwrap().unwrap();
    assert!(line().await.starts_with("EVENT"));
    assert!(line().await.starts_with("ADDED"));
    kube.delete("pods", "default", "a").await.unwrap();
    let changed = line().await;
    assert!(changed.starts_with("MODIFIED") && changed.contains("Terminating"), "{changed}");
    child.kill().await.unwrap();
}

#[tokio::test]
async fn kubectl_delete_waits_until_the_object_is_gone() {
    let kube = Arc::new(start().await);
    let Some(kubectl) = Kubectl::on(&kube).await else {
        return;
    };
    kube.create(running("a")).await.unwrap();
    let mut changes = kube.changes();
    let kubelet = Arc::clone(&kube);
    let confirm = tokio::spawn(async move {
        let marked = changes.next().await.unwrap().object;
        assert!(marked["metadata"]["deletionTimestamp"].is_string());
        let uid = marked["metadata"]["uid"].as_str().unwrap();
        kubelet.confirm_pod_deletion("default", "a", uid).await.unwrap();
    });
    let deleted = kubectl.rows("delete pod a").await;
    assert_eq!(deleted[0][..3], ["pod", "\"a\"", "deleted"]);
    confirm.await.unwrap();
    assert_eq!(kube.get("pods", "default", "a"), None);
}

#[tokio::test]
async fn kubectl_logs_and_wait_work() {
    let kube = start().await;
    let Some(kubectl) = Kubectl::on(&kube).await else {
        return;
    };
    kube.set_logs(Arc::new(Echo));
    kube.create(running("a")).await.unwrap();
    kube.create(node("n1")).await.unwrap();
    let logs = kubectl.run("logs -f --tail=5 a").await;
    assert_eq!(logs.stdout, "a/main says hello\ntail Some(5) follow true\n", "{logs:?}");
    let waited = kubectl.rows("wait --for=condition=Ready node/n1 --timeout=10s").await;
    assert_eq!(waited[0], ["node/n1", "condition", "met"]);
}

#[tokio::test]
async fn kubectl_drain_evicts() {
    let kube = start().await;
    let Some(kubectl) = Kubectl::on(&kube).await else {
        return;
    };
    kube.create(node("n1")).await.unwrap();
    let mut finished = running("a");
    finished["status"]["phase"] = json!("Succeeded");
    kube.create(finished).await.unwrap();
    let drained = kubectl.run("drain n1 --force").await;
    assert!(drained.ok, "{drained:?}");
    assert_eq!(kube.get("pods", "default", "a"), None);
}
