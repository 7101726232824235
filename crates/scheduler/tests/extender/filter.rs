use serde_json::{Value, json};

use crate::scene::{Scene, gpus, pod};

#[tokio::test]
async fn names_are_answered_with_names_and_a_full_node_with_its_numbers() {
    let scene = Scene::with(&[("n1", &[15]), ("n2", &[15]), ("cpu", &[])]).await;
    scene.run("a", &["7"], "n1").await;
    scene.run("b", &["7"], "n1").await;
    let answer = scene.filter(&pod("c", &["2"]), &["n1", "n2", "cpu", "unknown"]).await;
    insta::assert_json_snapshot!(answer, @r#"
    {
      "Error": "",
      "FailedAndUnresolvableNodes": {
        "cpu": "no GPU of the node offers `aliyun.com/gpu-mem`",
        "unknown": "no GPU of the node offers `aliyun.com/gpu-mem`"
      },
      "FailedNodes": {
        "n1": "not enough `aliyun.com/gpu-mem` on one GPU for 2: 14 of 15 GiB allocated on GPU0"
      },
      "NodeNames": [
        "n2"
      ],
      "Nodes": null
    }
    "#);
}

#[tokio::test]
async fn whole_nodes_are_given_back_as_they_came() {
    let scene = Scene::with(&[("n1", &[15]), ("n2", &[1])]).await;
    let node = |name: &str| json!({"metadata": {"name": name}, "status": {"x": 1}});
    let body = json!({
        "pod": pod("a", &["2"]), "nodes": {"items": [node("n1"), node("n2")]}, "nodenames": null,
    });
    let answer = scene.send("filter", body.to_string()).await;
    assert_eq!(answer["Nodes"]["items"], json!([node("n1")]));
    assert_eq!(answer["NodeNames"], Value::Null);
    assert!(answer["FailedNodes"]["n2"].is_string());
}

#[tokio::test]
async fn many_full_nodes_say_few_different_things() {
    let names: Vec<String> = (0..20).map(|n| format!("n{n}")).collect();
    let units: Vec<u64> = (1..21).collect();
    let nodes: Vec<(&str, &[u64])> =
        names.iter().map(String::as_str).zip(units.chunks(1)).collect();
    let scene = Scene::with(&nodes).await;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let answer = scene.filter(&pod("a", &["100"]), &names).await;
    let failed = answer["FailedNodes"].as_object().unwrap();
    assert_eq!(failed.len(), 20);
    let text = "not enough `aliyun.com/gpu-mem` on one GPU for 100: at most 20 GiB free on one";
    assert!(failed.values().all(|it| it == text), "{failed:?}");
}

#[tokio::test]
async fn a_thousand_full_nodes_are_answered_briefly_and_the_best_of_them_with_its_numbers() {
    let names: Vec<String> = (0..1000).map(|n| format!("cn-hangzhou.192.168.{n}.1")).collect();
    let full = |_: usize| -> &[u64] { &[15, 15, 15, 15, 15, 15, 15, 15] };
    let mut nodes: Vec<(&str, &[u64])> =
        names.iter().map(String::as_str).zip((0..).map(full)).collect();
    nodes[7].1 = &[1, 18];
    let scene = Scene::with(&nodes).await;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let answer = scene.filter(&pod("a", &["19"]), &names).await;
    assert!(answer.to_string().len() < 64 * 1024);
    let failed = answer["FailedNodes"].as_object().unwrap();
    assert_eq!(failed.len(), 1000);
    let mut texts: Vec<&str> = failed.values().map(|text| text.as_str().unwrap()).collect();
    texts.sort_unstable();
    texts.dedup();
    assert_eq!(
        texts,
        [
            "no GPU has 19 units free",
            "not enough `aliyun.com/gpu-mem` on one GPU for 19: \
             0 of 1 GiB allocated on GPU0, 0 of 18 GiB allocated on GPU1"
        ]
    );
    let mut several = pod("a", &["8"]);
    several["metadata"]["labels"] = json!({"aliyun.com/gpu-count": "2"});
    let answer = scene.filter(&several, &names).await;
    assert!(answer.to_string().len() < 64 * 1024);
    let failed = answer["FailedAndUnresolvableNodes"].as_object().unwrap();
    let is_whole = |text: &&Value| text.as_str().unwrap().starts_with("label `aliyun.com");
    assert_eq!((failed.len(), failed.values().filter(is_whole).count()), (1000, 1));
}

#[tokio::test]
async fn what_is_no_question_is_answered_with_an_error() {
    let scene = Scene::with(&[("n1", &[15])]).await;
    for body in [
        "",
        "[]",
        "null",
        "{}",
        r#"{"Pod":null,"NodeNames":["n1"]}"#,
        r#"{"Pod":{},"Nodes":null,"NodeNames":null}"#,
        r#"{"Pod":{"spec":7},"NodeNames":["n1"]}"#,
        r#"{"Pod":{},"pod":{},"NodeNames":["n1"]}"#,
        "\u{0}\u{1}",
    ] {
        let answer = scene.send("filter", body).await;
        assert_ne!(answer["Error"], "", "{body}");
        assert_eq!(answer["NodeNames"], Value::Null);
        assert_ne!(scene.send("bind", body).await["Error"], "", "{body}");
        assert!(scene.send("prioritize", body).await.is_array(), "{body}");
    }
}

#[tokio::test]
async fn odd_amounts_and_pods_have_an_answer() {
    let scene = Scene::with(&[("n1", &[15])]).await;
    let both = json!({"Pod": pod("a", &["1"]), "Nodes": {"items": []}, "NodeNames": ["n1"]});
    assert_eq!(scene.send("filter", both.to_string()).await["NodeNames"], json!(["n1"]));
    for (units, fits) in [("0", true), ("15", true), ("16", false), ("10G", false), ("x", false)] {
        let answer = scene.filter(&pod("a", &[units]), &["n1"]).await;
        assert_eq!(answer["NodeNames"] == json!(["n1"]), fits, "{units}: {answer}");
    }
    let mut several = pod("a", &["8"]);
    several["metadata"]["labels"] = json!({"aliyun.com/gpu-count": "2"});
    let answer = scene.filter(&several, &["n1"]).await;
    let why = answer["FailedAndUnresolvableNodes"]["n1"].as_str().unwrap();
    assert!(why.starts_with("label `aliyun.com/gpu-count: 2` asks for several GPUs"), "{why}");
}

#[tokio::test]
async fn five_thousand_nodes_are_answered() {
    let scene = Scene::with(&[("n4999", &[15])]).await;
    let names: Vec<String> = (0..5000).map(|n| format!("n{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let answer = scene.filter(&pod("a", &["1"]), &names).await;
    assert_eq!(answer["NodeNames"], json!(["n4999"]));
}

#[tokio::test]
async fn of_many_nodes_with_room_the_hundred_that_suit_best_are_named_in_their_order() {
    let names: Vec<String> = (0..150).map(|n| format!("n{n}")).collect();
    let size = |n: usize| -> &[u64] { if n.is_multiple_of(2) { &[10] } else { &[4] } };
    let nodes: Vec<(&str, &[u64])> =
        names.iter().map(String::as_str).zip((0..).map(size)).collect();
    let scene = Scene::with(&nodes).await;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let answer = scene.filter(&pod("a", &["3"]), &names).await;
    // The smaller ones are fuller then; and of the others those that were named first.
    let best = |n: &usize| n % 2 == 1 || *n < 50;
    let expected: Vec<String> = (0..150).filter(best).map(|n| format!("n{n}")).collect();
    assert_eq!(answer["NodeNames"], json!(expected));
    assert!(answer["FailedNodes"].as_object().is_none_or(serde_json::Map::is_empty), "{answer}");
    let whole: Vec<Value> = names.iter().map(|name| json!({"metadata": {"name": name}})).collect();
    let body = json!({"Pod": pod("b", &["3"]), "Nodes": {"items": whole}}).to_string();
    let answer = scene.send("filter", body).await;
    assert_eq!(answer["Nodes"]["items"].as_array().unwrap().len(), 100);
}

#[tokio::test]
async fn the_fuller_node_scores_higher_and_the_emptier_one_where_nodes_spread() {
    let scene = Scene::with(&[("n1", &[10]), ("n2", &[10]), ("n3", &[10])]).await;
    scene.run("a", &["5"], "n1").await;
    scene.kube.patch_node_label("n3", "ack.node.gpu.placement", "spread").await.unwrap();
    // Who isn't named gets 0.
    let body = json!({"Pod": pod("b", &["2"]), "NodeNames": ["n1", "n2", "n3", "x"]}).to_string();
    let expected = json!([
        {"Host": "n1", "Score": 7},
        {"Host": "n2", "Score": 2},
        {"Host": "n3", "Score": 8},
    ]);
    let scores = async || scene.send("prioritize", body.clone()).await == expected;
    scene.until("the scores", scores).await;
}

#[tokio::test]
async fn a_nodes_inventory_is_followed_and_garbage_in_it_is_named() {
    let scene = Scene::with(&[("n1", &[4])]).await;
    let asks = pod("a", &["8"]);
    scene.until_filter(&asks, "n1", false).await;
    let with = |text: String| json!({"metadata": {"annotations": {"mpshare.io/gpus": text}}});
    scene.kube.patch("nodes", "", "n1", with(gpus(&[4, 8]))).await.unwrap();
    scene.until_filter(&asks, "n1", true).await;
    scene.kube.patch("nodes", "", "n1", with("[{\"uuid\":7}]".to_owned())).await.unwrap();
    scene.until_filter(&asks, "n1", false).await;
    let answer = scene.filter(&asks, &["n1"]).await;
    assert_eq!(
        answer["FailedAndUnresolvableNodes"]["n1"],
        "the node's GPUs aren't known: `uuid` of card 0 of the GPU inventory is no text"
    );
}
