//! The real program against a fake API server.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use mpshare_testkit::fakekube::{Effect, FakeKube, Matching, Times};
use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_kubectl-inspect-cgpu");

/// A cluster, and a home of the program's own.
struct Scene {
    kube: FakeKube,
    home: tempfile::TempDir,
}

impl Scene {
    async fn new() -> Self {
        let scene =
            Self { kube: FakeKube::start().await.unwrap(), home: tempfile::tempdir().unwrap() };
        scene.kube.kubeconfig(scene.home.path()).unwrap();
        scene
    }

    fn kubeconfig(&self) -> PathBuf {
        self.home.path().join("kubeconfig")
    }

    async fn node(&self, name: &str, annotations: Value, capacity: Value) {
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "annotations": annotations},
            "status": {
                "capacity": capacity, "allocatable": capacity,
                "addresses": [{"type": "InternalIP", "address": "192.168.0.71"}],
            },
        });
        self.kube.create(node).await.unwrap();
    }

    /// A node as in the ACK document, one card of 15 GiB.
    async fn node_of_ours(&self, name: &str) {
        let card = json!({"uuid": "GPU-0a", "index": 0, "model": "Tesla V100-SXM2-16GB",
            "memoryMiB": 16384, "unitMiB": 1024, "units": 15, "state": "Ready"});
        let annotations = json!({"mpshare.io/gpus": json!([card]).to_string()});
        self.node(name, annotations, json!({"aliyun.com/gpu-mem": "15"})).await;
    }

    async fn pod(&self, name: &str, node: &str, units: u64, annotations: Value) {
        let limits = json!({"aliyun.com/gpu-mem": units.to_string()});
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "annotations": annotations},
            "spec": {"nodeName": node, "containers": [
                {"name": "c", "image": "i", "resources": {"limits": limits, "requests": limits}}]},
        });
        self.kube.create(pod).await.unwrap();
    }

    async fn run(&self, arguments: &[&str]) -> Answer {
        let kubeconfig = self.kubeconfig();
        run(self.home.path(), Path::new(PROGRAM), Some(&kubeconfig), arguments).await
    }
}

/// What the program said.
#[derive(Debug)]
struct Answer {
    code: i32,
    out: String,
    err: String,
}

async fn run(home: &Path, program: &Path, kubeconfig: Option<&Path>, arguments: &[&str]) -> Answer {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).env_clear().env("HOME", home);
    if let Some(kubeconfig) = kubeconfig {
        command.env("KUBECONFIG", kubeconfig);
    }
    let Output { status, stdout, stderr } =
        tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    Answer {
        code: status.code().unwrap(),
        out: String::from_utf8(stdout).unwrap(),
        err: String::from_utf8(stderr).unwrap(),
    }
}

const SUM: &str = "Allocated/Total GPU Memory In Cluster:";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_document_s_steps_show_the_document_s_numbers() {
    let scene = Scene::new().await;
    scene.node_of_ours("gpu-1").await;
    scene.node("cpu-1", json!({}), json!({"cpu": "8"})).await;
    let table = |used: &str, percent: &str| {
        format!(
            "NAME   IPADDRESS     GPU0(Allocated/Total)  GPU Memory(GiB)\n\
             gpu-1  192.168.0.71  {used:<21}  {used}\n{}\n{SUM}\n{used} ({percent}%)  \n",
            "-".repeat(49)
        )
    };
    let before = scene.run(&[]).await;
    assert_eq!(
        (before.code, before.out.as_str(), before.err.as_str()),
        (0, table("0/15", "0").as_str(), "")
    );
    let allocation = json!({"mpshare.io/allocation": r#"{"c":{"GPU-0a":7}}"#});
    scene.pod("mps-sample", "gpu-1", 7, allocation).await;
    assert_eq!(scene.run(&[]).await.out, table("7/15", "46"));
    let details = scene.run(&["-d"]).await.out;
    assert!(details.contains("\nmps-sample   default    7                \n"), "{details}");
    let done = json!({"phase": "Succeeded"});
    scene.kube.patch_status("pods", "default", "mps-sample", done).await.unwrap();
    assert_eq!(scene.run(&[]).await.out, table("0/15", "0"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_of_the_original_plugin_is_shown_too() {
    let scene = Scene::new().await;
    let capacity = json!({"aliyun.com/gpu-mem": "30", "aliyun.com/gpu-count": "2"});
    scene.node("a", json!({}), capacity).await;
    scene
        .pod("x", "a", 3, json!({"ALIYUN_COM_GPU_MEM_IDX": "1", "ALIYUN_COM_GPU_MEM_POD": "9"}))
        .await;
    scene.pod("y", "a", 2, json!({})).await;
    let out = scene.run(&[]).await.out;
    assert!(out.contains("a     192.168.0.71  0/15                   3/15                   2                   5/30\n"), "{out}");
    let wide = scene.run(&["-o", "wide", "-d"]).await.out;
    assert!(wide.contains("pod `default/y`: no annotation says which GPU"), "{wide}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn json_is_one_object_with_all_details() {
    let scene = Scene::new().await;
    scene.node_of_ours("a").await;
    scene.pod("x", "a", 7, json!({"mpshare.io/allocation": r#"{"c":{"GPU-0a":7}}"#})).await;
    let answer: Value = serde_json::from_str(&scene.run(&["--output=json"]).await.out).unwrap();
    assert_eq!(
        (&answer["unit"], &answer["allocated"], &answer["percent"]),
        (&json!("GiB"), &json!(7), &json!(46))
    );
    let node = &answer["nodes"][0];
    assert_eq!(
        (&node["name"], &node["gpus"][0]["uuid"], &node["gpus"][0]["total"]),
        (&json!("a"), &json!("GPU-0a"), &json!(15))
    );
    assert_eq!(
        node["pods"],
        json!([{"namespace": "default", "name": "x", "gpus": [{"index": 0, "units": 7}], "pending": 0, "reason": null}])
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_is_asked_for_by_its_name() {
    let scene = Scene::new().await;
    scene.node_of_ours("a").await;
    scene.node_of_ours("b").await;
    scene.node("cpu", json!({}), json!({"cpu": "8"})).await;
    scene.pod("x", "a", 7, json!({"mpshare.io/allocation": r#"{"c":{"GPU-0a":7}}"#})).await;
    let out = scene.run(&["b"]).await.out;
    assert!(
        out.contains("\nb ") && !out.contains("\na ") && out.ends_with("\n0/15 (0%)  \n"),
        "{out}"
    );
    let without = scene.run(&["cpu"]).await;
    assert_eq!(
        (without.code, without.err.as_str()),
        (0, "node `cpu` has no `aliyun.com/gpu-mem`\n")
    );
    let unknown = scene.run(&["c"]).await;
    assert_eq!((unknown.code, unknown.out.as_str()), (3, ""));
    assert!(
        unknown.err.starts_with("error: no node `c` in the cluster; hint: "),
        "{}",
        unknown.err
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_of_many_pods_is_read_page_by_page() {
    let scene = Scene::new().await;
    scene.node_of_ours("a").await;
    for n in 0..501 {
        let annotations = json!({"mpshare.io/allocation": r#"{"c":{"GPU-0a":1}}"#});
        scene.pod(&format!("p{n}"), "a", 1, annotations).await;
    }
    let answer: Value = serde_json::from_str(&scene.run(&["-o", "json"]).await.out).unwrap();
    assert_eq!(answer["allocated"], 501);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_says_what_is_needed() {
    let scene = Scene::new().await;
    scene.node_of_ours("a").await;
    let pods = Matching::any().resource("pods");
    scene.kube.faults().inject(Times::Always, pods, Effect::Fail(403));
    let forbidden = scene.run(&[]).await;
    assert_eq!((forbidden.code, forbidden.out.as_str()), (1, ""));
    assert!(forbidden.err.starts_with("error: not allowed to list pods: "), "{}", forbidden.err);
    assert!(
        forbidden.err.contains("hint: a ClusterRole with `get` and `list`"),
        "{}",
        forbidden.err
    );
    scene.kube.faults().clear();
    scene.kube.faults().inject(Times::Always, Matching::any(), Effect::Fail(401));
    let unknown = scene.run(&[]).await;
    assert!(unknown.err.contains("doesn't accept your credentials; hint: "), "{}", unknown.err);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_kubeconfig_is_found_as_kubectl_finds_it_and_what_is_wrong_with_it_is_told() {
    let scene = Scene::new().await;
    let home = scene.home.path();
    let none = run(home, Path::new(PROGRAM), None, &[]).await;
    assert_eq!(none.code, 1);
    assert!(none.err.starts_with("error: no cluster to ask"), "{}", none.err);

    std::fs::create_dir(home.join(".kube")).unwrap();
    std::fs::copy(scene.kubeconfig(), home.join(".kube/config")).unwrap();
    assert_eq!(run(home, Path::new(PROGRAM), None, &[]).await.code, 0);

    let list = PathBuf::from(format!("{}/absent:{}", home.display(), scene.kubeconfig().display()));
    assert_eq!(run(home, Path::new(PROGRAM), Some(&list), &[]).await.code, 0);

    let unknown = scene.run(&["--context", "x"]).await;
    assert!(
        unknown.err.contains("no context `x` in the kubeconfig; hint: there are: `fake`"),
        "{}",
        unknown.err
    );
    assert_eq!(scene.run(&["--context", "fake"]).await.code, 0);

    let absent = scene.run(&["--kubeconfig", "/absent"]).await;
    assert!(absent.err.starts_with("error: kubeconfig `/absent`: "), "{}", absent.err);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_is_not_there_is_named() {
    let scene = Scene::new().await;
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let gone = std::fs::read_to_string(scene.kubeconfig()).unwrap();
    let gone = gone.replace(&scene.kube.url(), &format!("http://127.0.0.1:{port}"));
    let path = scene.home.path().join("gone");
    std::fs::write(&path, gone).unwrap();
    let answer = scene.run(&["--kubeconfig", path.to_str().unwrap()]).await;
    assert_eq!(answer.code, 1);
    let start = format!("error: can't reach the API server `http://127.0.0.1:{port}/`: ");
    assert!(
        answer.err.starts_with(&start) && answer.err.ends_with("current-context`)?\n"),
        "{}",
        answer.err
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shells_and_kubectl_get_completions() {
    let scene = Scene::new().await;
    scene.node_of_ours("gpu-1").await;
    scene.node_of_ours("other").await;
    for (shell, sign) in
        [("bash", "complete -F"), ("zsh", "#compdef kubectl-inspect-cgpu"), ("fish", "complete -c")]
    {
        let script = scene.run(&["--completion", shell]).await;
        assert!(script.code == 0 && script.out.contains(sign), "{}", script.out);
    }
    let link = scene.home.path().join("kubectl_complete-inspect-cgpu");
    std::os::unix::fs::symlink(PROGRAM, &link).unwrap();
    let kubeconfig = scene.kubeconfig();
    let nodes = run(scene.home.path(), &link, Some(&kubeconfig), &["gp"]).await;
    assert_eq!(nodes.out, "gpu-1\n:4\n");
    let options = run(scene.home.path(), &link, Some(&kubeconfig), &["--ou"]).await;
    assert_eq!(options.out, "--output\n:4\n");
    let without = run(scene.home.path(), &link, None, &["gp"]).await;
    assert_eq!((without.code, without.out.as_str()), (0, ":4\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_usage_has_an_exit_code_of_its_own() {
    let scene = Scene::new().await;
    assert_eq!(scene.run(&["--output", "yaml"]).await.code, 2);
    assert_eq!(scene.run(&["--help"]).await.code, 0);
}
