//! Uninstalling from nodes of a fake API server, whose kubelet the tests play.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use mpshare_testkit::fakekube::{ChangeKind, Effect, FakeKube, Matching, Times};
use mpshare_uninstall::{CleanupPod, NodeOutcome, Options, Outcome, run};
use serde_json::{Value, json};

const NAMESPACE: &str = "kube-system";

fn options() -> Options {
    Options {
        pod: CleanupPod {
            namespace: NAMESPACE.to_owned(),
            image: "mpshare:1".to_owned(),
            mps_root: "/run/nvidia/mps".to_owned(),
            arguments: vec!["--driver-root=/run/nvidia/driver".to_owned()],
            ..CleanupPod::default()
        },
        former_pods: "qcloud-app in (nvidia-mps-control-daemon,nvidia-device-plugin-daemonset)"
            .to_owned(),
        within: Duration::from_secs(20),
        look_every: Duration::from_millis(5),
        job: None,
    }
}

/// A cluster with GPU nodes that have our condition.
async fn cluster(nodes: &[&str]) -> Arc<FakeKube> {
    let kube = FakeKube::start().await.unwrap();
    for name in nodes {
        let labels = json!({"nvidia.com/device-plugin.config": "mps-2x"});
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": labels, "annotations": {
                "mpshare.io/gpus": "[]", "aliyun.com/gpu-count": "0", "other": "stays",
            }},
            "status": {"conditions": [
                {"type": "Ready", "status": "True"},
                {"type": "MPSShareReady", "status": "True", "reason": "Ready"},
            ]},
        });
        kube.create(node).await.unwrap();
    }
    let other = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "cpu"}});
    kube.create(other).await.unwrap();
    Arc::new(kube)
}

/// Ends each cleanup's container as told by its node, and confirms deletions.
fn play_kubelets(kube: &Arc<FakeKube>, end: fn(&str) -> Value) {
    let kube = Arc::clone(kube);
    let mut changes = kube.changes();
    tokio::spawn(async move {
        while let Some(change) = changes.next().await {
            let pod = change.object;
            let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            if change.resource != "pods" || change.kind == ChangeKind::Deleted {
                continue;
            }
            if pod["metadata"].get("deletionTimestamp").is_some() {
                let uid = pod["metadata"]["uid"].as_str().unwrap();
                drop(kube.confirm_pod_deletion(NAMESPACE, &name, uid).await);
            } else if change.kind == ChangeKind::Added {
                let node = pod["spec"]["nodeName"].as_str().unwrap().to_owned();
                let status = end(&node);
                drop(kube.patch_status("pods", NAMESPACE, &name, status).await);
            }
        }
    });
}

fn terminated(code: i32, message: &str) -> Value {
    json!({
        "phase": if code == 0 { "Succeeded" } else { "Failed" },
        "containerStatuses": [{
            "name": "cleanup", "image": "mpshare:1", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": code, "message": message}},
        }],
    })
}

async fn uninstall(kube: &FakeKube, options: &Options) -> (Vec<NodeOutcome>, String) {
    let mut out = Vec::new();
    let outcomes = run(&kube.client().unwrap(), options, &mut out).await.unwrap();
    (outcomes, String::from_utf8(out).unwrap())
}

fn condition(kube: &FakeKube, node: &str) -> Option<Value> {
    let node = kube.get("nodes", "", node)?;
    let conditions = node["status"]["conditions"].as_array()?.clone();
    conditions.into_iter().find(|condition| condition["type"] == "MPSShareReady")
}

#[tokio::test]
async fn a_clean_node_loses_its_condition_and_nothing_is_left_in_the_cluster() {
    let kube = cluster(&["n1", "n2"]).await;
    play_kubelets(&kube, |_| terminated(0, "`GPU-ab`: clean"));
    let (outcomes, text) = uninstall(&kube, &options()).await;
    assert_eq!(outcomes.len(), 2, "not the node without GPU");
    assert!(outcomes.iter().all(NodeOutcome::is_clean));
    assert!(text.contains("node `n1`: clean\n  `GPU-ab`: clean\n"), "{text}");
    assert!(condition(&kube, "n1").is_none());
    let node = kube.get("nodes", "", "n1").unwrap();
    assert_eq!(node["status"]["conditions"][0]["type"], "Ready", "others' conditions stay");
    assert_eq!(node["metadata"]["annotations"], json!({"other": "stays"}));
    let left = || kube.list("pods").len();
    while left() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_pod_runs_the_cleanup_on_its_node_whatever_the_taints() {
    let kube = cluster(&["n1"]).await;
    let mut changes = kube.changes();
    play_kubelets(&kube, |_| terminated(0, ""));
    uninstall(&kube, &options()).await;
    let pod = loop {
        let change = changes.next().await.unwrap();
        if change.resource == "pods" {
            break change.object;
        }
    };
    let spec = &pod["spec"];
    assert_eq!((&spec["nodeName"], &spec["hostPID"]), (&json!("n1"), &json!(true)));
    assert_eq!(spec["tolerations"][0], json!({"operator": "Exists"}));
    let container = &spec["containers"][0];
    assert_eq!(container["securityContext"]["privileged"], true);
    assert_eq!(container["terminationMessagePolicy"], "FallbackToLogsOnError");
    let arguments: Vec<&str> =
        container["args"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    assert_eq!(
        arguments,
        [
            "node",
            "cleanup",
            "--launch=host",
            "--termination-log=/dev/termination-log",
            "--mps-root=/run/nvidia/mps",
            "--wait=0",
            "--driver-root=/run/nvidia/driver",
        ]
    );
}

#[tokio::test]
async fn clients_that_live_on_are_told_with_the_way_to_finish_and_the_other_node_is_cleaned() {
    let kube = cluster(&["n1", "n2"]).await;
    play_kubelets(&kube, |node| match node {
        "n1" => terminated(3, "`GPU-ab`: 1 client lives on (process 7 of pod x)"),
        _ => terminated(0, ""),
    });
    let (outcomes, text) = uninstall(&kube, &options()).await;
    assert!(matches!(outcomes[0].outcome, Outcome::ClientsLive(_)));
    assert!(outcomes[1].is_clean());
    assert!(text.contains("process 7 of pod x") && text.contains("kubectl create -f -"), "{text}");
    let condition = condition(&kube, "n1").unwrap();
    assert_eq!(
        (&condition["status"], &condition["reason"]),
        (&json!("False"), &json!("Uninstalled"))
    );
    let message = condition["message"].as_str().unwrap();
    assert!(message.contains("clients of its MPS daemons live on: `GPU-ab`"), "{message}");
    let commands: Vec<&str> =
        text.lines().map(str::trim).filter(|line| line.contains("kubectl ")).collect();
    assert_eq!(commands.len(), 3, "{text}");
    for command in commands {
        assert!(message.contains(command), "no {command} in {message}");
    }
}

/// The server's answers to requests on pods, and what becomes of the only node.
async fn with_fault(matching: Matching, effect: Effect) -> Outcome {
    let kube = cluster(&["n1"]).await;
    play_kubelets(&kube, |_| terminated(0, "done"));
    kube.faults().inject(Times::Next(1), matching.resource("pods"), effect);
    // Without the client's own patience, which covers few codes.
    let client = kube.client_without_retries().unwrap();
    let mut outcomes = run(&client, &options(), &mut Vec::new()).await.unwrap();
    outcomes.remove(0).outcome
}

#[tokio::test]
async fn one_failed_request_of_any_kind_ends_no_visit() {
    for verb in ["list", "get", "create", "delete"] {
        for effect in [Effect::Fail(500), Effect::LoseReply(500), Effect::Fail(503)] {
            let outcome = with_fault(Matching::any().verb(verb), effect).await;
            assert_eq!(outcome, Outcome::Clean("done".to_owned()), "{verb} {effect:?}");
        }
    }
}

#[tokio::test]
async fn what_the_server_refuses_for_good_is_told_at_once() {
    let outcome = with_fault(Matching::any().verb("create"), Effect::Fail(403)).await;
    assert!(matches!(&outcome, Outcome::Failed(why) if why.contains("refuses")), "{outcome:?}");
}

#[tokio::test]
async fn what_a_cleanup_said_stands_when_its_pod_cannot_be_deleted() {
    let kube = cluster(&["n1"]).await;
    play_kubelets(&kube, |_| terminated(0, "done"));
    let pods = || Matching::any().resource("pods").verb("delete");
    // The first request is for the pod of an earlier uninstall.
    kube.faults().inject(Times::Next(1), pods(), Effect::Fail(404));
    kube.faults().inject(Times::Always, pods(), Effect::Fail(403));
    let (outcomes, _) = uninstall(&kube, &options()).await;
    assert_eq!(outcomes[0].outcome, Outcome::Clean("done".to_owned()));
}

#[tokio::test]
async fn the_job_goes_soon_when_all_nodes_are_clean_and_stays_when_one_is_not() {
    let clean: fn(&str) -> Value = |_| terminated(0, "");
    let clients_live: fn(&str) -> Value = |node| terminated(if node == "n1" { 3 } else { 0 }, "");
    for (end, ttl) in [(clean, 10), (clients_live, 86_400)] {
        let kube = cluster(&["n1", "n2"]).await;
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "mpshare-uninstall", "namespace": NAMESPACE},
            "spec": {"ttlSecondsAfterFinished": 86_400},
        });
        kube.create(job).await.unwrap();
        play_kubelets(&kube, end);
        let options = Options { job: Some("mpshare-uninstall".to_owned()), ..options() };
        uninstall(&kube, &options).await;
        let job = kube.get("jobs", NAMESPACE, "mpshare-uninstall").unwrap();
        assert_eq!(job["spec"]["ttlSecondsAfterFinished"], ttl);
    }
}

#[tokio::test]
async fn a_node_is_cleaned_only_once_our_pods_have_left_it() {
    let kube = cluster(&["n1"]).await;
    let supervisor = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "supervisor", "namespace": NAMESPACE,
            "labels": {"qcloud-app": "nvidia-mps-control-daemon"}},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "mpshare:1"}]},
    });
    kube.create(supervisor).await.unwrap();
    let impatient = Options { within: Duration::from_millis(20), ..options() };
    let (outcomes, text) = uninstall(&kube, &impatient).await;
    assert!(matches!(outcomes[0].outcome, Outcome::Failed(_)));
    assert!(text.contains("`supervisor` still there after"), "{text}");
    assert_eq!(kube.list("pods").len(), 1, "no cleanup was tried");
    play_kubelets(&kube, |_| terminated(0, ""));
    let uninstalling = tokio::spawn({
        let kube = Arc::clone(&kube);
        async move { uninstall(&kube, &options()).await }
    });
    kube.delete("pods", NAMESPACE, "supervisor").await.unwrap();
    assert!(uninstalling.await.unwrap().0[0].is_clean());
}

#[tokio::test]
async fn a_pod_that_an_interrupted_uninstall_left_is_replaced() {
    let kube = cluster(&["n1"]).await;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "mpshare-cleanup-n1", "namespace": NAMESPACE},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "mpshare:0"}]},
    });
    kube.create(pod).await.unwrap();
    kube.patch_status("pods", NAMESPACE, "mpshare-cleanup-n1", terminated(3, "old")).await.unwrap();
    play_kubelets(&kube, |_| terminated(0, "new"));
    let (outcomes, _) = uninstall(&kube, &options()).await;
    assert_eq!(outcomes[0].outcome, Outcome::Clean("new".to_owned()));
}

#[tokio::test]
async fn a_cleanup_that_does_not_start_and_a_node_that_is_down_are_told_in_time() {
    let kube = cluster(&["n1"]).await;
    let down = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n2", "labels": {"nvidia.com/gpu.present": "true"}},
        "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]},
    });
    kube.create(down).await.unwrap();
    play_kubelets(&kube, |_| {
        json!({"phase": "Pending", "containerStatuses": [{
            "name": "cleanup", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}},
        }]})
    });
    let impatient = Options { within: Duration::from_millis(50), ..options() };
    let (outcomes, text) = uninstall(&kube, &impatient).await;
    assert!(outcomes.iter().all(|node| matches!(node.outcome, Outcome::Failed(_))));
    assert!(text.contains("ErrImagePull: no such image"), "{text}");
    assert!(text.contains("its kubelet doesn't answer"), "{text}");
    assert!(condition(&kube, "n2").is_none(), "a node that never had it gets none");
}
