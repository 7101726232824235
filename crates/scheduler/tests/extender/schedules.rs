//! Many pods, many orders of events, one rule: no card is ever over-committed.

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use futures::future::join_all;
use mpshare_testkit::fakekube::{Effect, Matching, Times};
use serde_json::{Value, json};

use crate::scene::{Scene, pod};

const NODES: [(&str, &[u64]); 2] = [("n1", &[10, 7, 7]), ("n2", &[16])];
const SEEDS: u64 = 24;
const STEPS: usize = 60;

struct Cluster {
    scene: Scene,
    random: Rng,
    made: usize,
    bound: usize,
    refused: usize,
}

#[tokio::test]
async fn no_schedule_over_commits_a_card() {
    let (mut bound, mut refused) = (0, 0);
    for seed in 0..SEEDS {
        let scene = Scene::with(&NODES).await;
        let random = Rng::with_seed(seed);
        let mut cluster = Cluster { scene, random, made: 0, bound: 0, refused: 0 };
        for step in 0..STEPS {
            cluster.step().await;
            cluster.check(seed, step);
        }
        bound += cluster.bound;
        refused += cluster.refused;
    }
    assert!(bound > 200 && refused > 200, "too quiet: {bound} bound, {refused} refused");
}

impl Cluster {
    async fn step(&mut self) {
        match self.random.u32(0..20) {
            0..5 => self.create().await,
            5..13 => self.bind().await,
            13..15 => self.delete().await,
            15..17 => self.end().await,
            17..19 => self.disturb(),
            _ => {
                self.scene.kube.faults().clear();
                self.scene.restart().await;
            }
        }
    }

    async fn create(&mut self) {
        for _ in 0..self.random.usize(1..5) {
            self.made += 1;
            let units: Vec<String> =
                (0..self.random.usize(1..4)).map(|_| self.random.u64(0..8).to_string()).collect();
            let units: Vec<&str> = units.iter().map(String::as_str).collect();
            self.scene.create(pod(&format!("p{}", self.made), &units)).await;
        }
    }

    /// Binds some pods at once, whatever `filter` would have said; one of them twice.
    async fn bind(&mut self) {
        let mut pods = self.scene.kube.list("pods");
        pods.retain(|pod| pod["spec"]["nodeName"].is_null());
        self.random.shuffle(&mut pods);
        pods.truncate(4);
        pods.extend(pods.first().cloned());
        let calls: Vec<(Value, &str)> = pods
            .into_iter()
            .map(|pod| (pod, self.random.choice(NODES).map_or("n1", |node| node.0)))
            .collect();
        let binds = calls.iter().map(|(pod, node)| self.scene.bind(pod, node));
        let errors = join_all(binds).await;
        self.bound += errors.iter().filter(|error| error.is_empty()).count();
        self.refused += errors.iter().filter(|error| !error.is_empty()).count();
    }

    async fn delete(&mut self) {
        if let Some(name) = self.any_name() {
            self.scene.kube.delete("pods", "default", &name).await.unwrap();
        }
    }

    /// Lets a pod end, or vanish as one that was being deleted does.
    async fn end(&mut self) {
        let Some(name) = self.any_name() else { return };
        let pod = self.scene.stored(&name).unwrap();
        if pod["metadata"]["deletionTimestamp"].is_string() {
            let uid = pod["metadata"]["uid"].as_str().unwrap();
            self.scene.kube.confirm_pod_deletion("default", &name, uid).await.unwrap();
        } else if pod["spec"]["nodeName"].is_string() {
            let ended = json!({"phase": "Succeeded"});
            self.scene.kube.patch_status("pods", "default", &name, ended).await.unwrap();
        }
    }

    fn disturb(&mut self) {
        let binding = Matching::any().resource("pods").subresource("binding");
        let effect = match self.random.u32(0..4) {
            0 => Effect::LoseReply(500),
            1 => Effect::Fail(500),
            2 => Effect::Fail(409),
            _ => Effect::Delay(Duration::from_millis(10)),
        };
        self.scene.kube.faults().inject(Times::Next(2), binding, effect);
    }

    fn any_name(&mut self) -> Option<String> {
        let pods = self.scene.kube.list("pods");
        let pod = self.random.choice(&pods)?;
        pod["metadata"]["name"].as_str().map(str::to_owned)
    }

    /// Adds up what every live pod holds by its spec, on the card that its annotation names.
    fn check(&self, seed: u64, step: usize) {
        let mut held: BTreeMap<(String, String), u64> = BTreeMap::new();
        for pod in self.scene.kube.list("pods") {
            let ended = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
            let Some(node) = pod["spec"]["nodeName"].as_str().filter(|_| !ended) else { continue };
            let places = pod["metadata"]["annotations"]["mpshare.io/allocation"].as_str();
            let places: Value = serde_json::from_str(places.unwrap_or("{}")).unwrap();
            for container in pod["spec"]["containers"].as_array().unwrap() {
                let amount = &container["resources"]["limits"]["aliyun.com/gpu-mem"];
                let units: u64 = amount.as_str().unwrap().parse().unwrap();
                if units == 0 {
                    continue;
                }
                let gpus = places[container["name"].as_str().unwrap()].as_object().unwrap();
                let (gpu, told) = gpus.iter().next().unwrap();
                assert_eq!((gpus.len(), told.as_u64()), (1, Some(units)));
                *held.entry((node.to_owned(), gpu.clone())).or_default() += units;
            }
        }
        for ((node, gpu), units) in held {
            let cards = NODES.iter().find(|(name, _)| *name == node).unwrap().1;
            let index: usize = gpu.trim_start_matches("GPU-0").parse().unwrap_or(0);
            assert!(
                units <= cards[index],
                "seed {seed}, step {step}: {units} units on {gpu} of {node}"
            );
        }
    }
}
