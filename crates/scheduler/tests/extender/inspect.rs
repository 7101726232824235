use crate::scene::{Scene, pod};

#[tokio::test]
async fn inspect_has_the_form_that_aliyuns_tools_read() {
    let scene = Scene::with(&[("n1", &[15, 15]), ("cpu", &[])]).await;
    scene.run("a", &["3"], "n1").await;
    let shown = async || {
        let text = scene.get("/gpushare-scheduler/inspect").await.unwrap();
        text.contains("\"name\":\"a\"")
    };
    scene.until("the pod is shown by its name", shown).await;
    let text = scene.get("/gpushare-scheduler/inspect").await.unwrap();
    assert_eq!(
        text,
        "{\"nodes\":[{\"name\":\"n1\",\"totalGPU\":30,\"usedGPU\":3,\"devs\":[\
         {\"id\":0,\"uuid\":\"GPU-00\",\"totalGPU\":15,\"usedGPU\":3,\"unitMiB\":1024,\"pods\":\
         [{\"name\":\"a\",\"namespace\":\"default\",\"usedGPU\":3}]},\
         {\"id\":1,\"uuid\":\"GPU-01\",\"totalGPU\":15,\"usedGPU\":0,\"unitMiB\":1024,\"pods\":[]}]}]}"
    );
    assert_eq!(scene.get("/gpushare-scheduler/inspect/n1").await.unwrap(), text);
    let unknown = scene.get("/gpushare-scheduler/inspect/x").await.unwrap();
    assert_eq!(unknown, "{\"nodes\":[],\"error\":\"there is no node `x`\"}");
}

#[tokio::test]
async fn probes_version_and_metrics_answer() {
    let scene = Scene::with(&[("n1", &[15])]).await;
    scene.run("a", &["3"], "n1").await;
    scene.create(pod("b", &["1"])).await;
    scene.bind_by_hand("b", "n1").await;
    assert_eq!(scene.get("/healthz").await.unwrap(), "ok");
    assert_eq!(scene.get("/version").await.unwrap(), env!("CARGO_PKG_VERSION"));
    for line in [
        "mpshare_gpu_capacity_mib{node=\"n1\",gpu=\"GPU-00\"} 15360",
        "mpshare_gpu_allocated_mib{node=\"n1\",gpu=\"GPU-00\"} 3072",
        "mpshare_ledger_unplaced_pods{node=\"n1\"} 1",
        "mpshare_ledger_binds_in_flight 0",
        "mpshare_extender_requests_total{verb=\"bind\",result=\"ok\"} 1",
    ] {
        let shown = async || scene.get("/metrics").await.unwrap().lines().any(|it| it == line);
        scene.until(line, shown).await;
    }
}
