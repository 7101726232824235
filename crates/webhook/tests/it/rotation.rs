//! Rotation with lives of seconds, under load and with every replica ended at each step.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mpshare_testkit::fakekube::FakeKube;
use mpshare_webhook::{Lives, SelfMade};
use serde_json::json;

use crate::client::Connection;
use crate::scene::{NAME, bundle, cluster, pod, review, secret_text, self_made, started, until};

fn fast() -> SelfMade {
    let lives = Lives { authority: Duration::from_secs(9), serving: Duration::from_secs(6) };
    SelfMade { lives, settle: Duration::from_secs(1), ..self_made() }
}

/// How late an API server learns of a changed configuration.
const LAG: Duration = Duration::from_millis(300);

/// The bundle that an API server goes by.
#[derive(Default)]
struct Lagging(VecDeque<(Instant, Vec<u8>)>);

impl Lagging {
    fn trusted(&mut self, kube: &FakeKube) -> Vec<u8> {
        let now = Instant::now();
        // While two entries differ, each goes by its own.
        let bundle = bundle(kube);
        if !bundle.is_empty() {
            self.0.push_back((now, bundle));
        }
        while self.0.get(1).is_some_and(|(since, _)| now.duration_since(*since) >= LAG) {
            self.0.pop_front();
        }
        self.0[0].1.clone()
    }
}

/// Sends reviews by new connections and by a kept one, each trusting what an API server knows at its
/// beginning, until it is told to stop; returns how many were answered.
async fn load(kube: Arc<FakeKube>, to: Vec<std::net::SocketAddr>, stop: Arc<AtomicBool>) -> u64 {
    let body = review(&json!({"object": pod("4")}));
    let (mut answered, mut lagging) = (0, Lagging::default());
    let mut kept = Connection::open(to[0], NAME, &bundle(&kube)).await.unwrap();
    while !stop.load(Ordering::Relaxed) {
        for address in &to {
            let trusted = lagging.trusted(&kube);
            let mut new = Connection::open(*address, NAME, &trusted).await.unwrap();
            let answer = new.post("/mutate/enforce", &body).await.unwrap();
            assert_eq!(answer.code, 200);
            // Handshakes are what is slow.
            for _ in 0..20 {
                let answer = kept.post("/validate/enforce", &body).await.unwrap();
                assert_eq!(answer.code, 200);
            }
            answered += 21;
        }
    }
    answered
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_review_is_lost_while_everything_is_rotated() {
    let kube = Arc::new(cluster().await);
    let replicas = [started(&kube, fast()).await, started(&kube, fast()).await];
    let first = secret_text(&kube, "ca.crt");
    let stop = Arc::new(AtomicBool::new(false));
    let to: Vec<_> = replicas.iter().map(|replica| replica.reviews).collect();
    let loads: Vec<_> = (0..2)
        .map(|_| tokio::spawn(load(Arc::clone(&kube), to.clone(), Arc::clone(&stop))))
        .collect();
    let seen = Arc::new(AtomicU64::new(0));
    let mut serving = BTreeSet::new();
    let authority = || secret_text(&kube, "ca.crt").matches("BEGIN").count();
    until("one CA instead of the first", async || {
        serving_seen(&kube, &seen);
        authority() == 1 && !secret_text(&kube, "ca.crt").contains(first.trim())
    })
    .await;
    serving.insert(secret_text(&kube, "tls.crt"));
    until("another serving certificate", async || {
        !serving.contains(&secret_text(&kube, "tls.crt"))
    })
    .await;
    stop.store(true, Ordering::Relaxed);
    let mut answered = 0;
    for load in loads {
        answered += load.await.unwrap();
    }
    assert!(answered > 2_000, "only {answered} reviews");
    assert!(seen.load(Ordering::Relaxed) > 0, "both CAs were never published together");
}

fn serving_seen(kube: &FakeKube, seen: &AtomicU64) {
    if bundle(kube).windows(5).filter(|word| *word == b"BEGIN").count() == 2 {
        seen.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn a_rotation_whose_every_step_is_another_processs_completes() {
    let kube = cluster().await;
    let first = {
        started(&kube, fast()).await.kill().await;
        secret_text(&kube, "ca.crt")
    };
    let mut before = secret_text(&kube, "ca.crt") + &secret_text(&kube, "tls.crt");
    let mut states = Vec::new();
    while states.len() < 12 {
        let webhook = started(&kube, fast()).await;
        let now = async || secret_text(&kube, "ca.crt") + &secret_text(&kube, "tls.crt");
        until("a step", async || now().await != before).await;
        // Before the configurations have what it wrote, as likely as not.
        webhook.kill().await;
        before = now().await;
        let authorities = secret_text(&kube, "ca.crt");
        states.push((authorities.matches("BEGIN").count(), authorities.contains(first.trim())));
        if states.last() == Some(&(1, false)) {
            break;
        }
    }
    assert!(states.contains(&(2, true)), "{states:?}");
    assert_eq!(states.last(), Some(&(1, false)), "{states:?}");
    let webhook = started(&kube, self_made()).await;
    until("trusted", async || {
        Connection::open(webhook.reviews, NAME, &bundle(&kube)).await.is_ok()
    })
    .await;
}
