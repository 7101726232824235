//! The seams: admission and container logs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use axum::body::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use kube::ResourceExt;
use kube::api::{LogParams, Patch, PatchParams, PostParams};
use mpshare_testkit::fakekube::{
    Admission, ApiError, FakeKube, Follow, LogRequest, Operation, PodLogs, Review,
};
use serde_json::{Value, json};

use super::{config_map, config_maps, pod_on, pods, refusal, soon, start, typed};

/// Labels new pods and refuses those that are called `bad`.
struct Gate;

impl Admission for Gate {
    fn review(&self, review: Review) -> BoxFuture<'_, Result<Option<Value>, ApiError>> {
        async move {
            if review.resource.plural != "pods" || review.operation != Operation::Create {
                return Ok(None);
            }
            if review.name == "bad" {
                return Err(ApiError::new(403, "Forbidden", "no"));
            }
            let mut object = review.object;
            assert_eq!(object["metadata"].get("uid"), None, "not given out yet");
            object["metadata"]["labels"] = json!({"seen": "yes"});
            Ok(Some(object))
        }
        .boxed()
    }
}

#[tokio::test]
async fn an_admission_hook_changes_and_refuses_writes() {
    let kube = start().await;
    kube.set_admission(Arc::new(Gate));
    let api = pods(&kube);
    let params = PostParams::default();
    let made = api.create(&params, &typed(super::pod("good"))).await.unwrap();
    assert_eq!(made.labels()["seen"], "yes");
    let refused = api.create(&params, &typed(super::pod("bad"))).await;
    assert_eq!(refusal(refused), (403, "Forbidden".to_owned()));
    kube.create(config_map("bad", "1")).await.unwrap();
}

/// Writes to the object itself while the first update is being admitted.
struct Rival {
    kube: Weak<FakeKube>,
    done: AtomicBool,
}

impl Admission for Rival {
    fn review(&self, review: Review) -> BoxFuture<'_, Result<Option<Value>, ApiError>> {
        async move {
            if review.operation == Operation::Update && !self.done.swap(true, Ordering::Relaxed) {
                let kube = self.kube.upgrade().unwrap();
                let theirs = json!({"data": {"theirs": "1"}});
                kube.patch("configmaps", "default", "a", theirs).await?;
            }
            Ok(None)
        }
        .boxed()
    }
}

async fn with_rival() -> Arc<FakeKube> {
    let kube = Arc::new(start().await);
    kube.create(config_map("a", "1")).await.unwrap();
    let done = AtomicBool::new(false);
    kube.set_admission(Arc::new(Rival { kube: Arc::downgrade(&kube), done }));
    kube
}

#[tokio::test]
async fn a_patch_that_lost_a_race_is_made_again_on_the_newer_object() {
    let kube = with_rival().await;
    let ours = Patch::Merge(json!({"data": {"ours": "1"}}));
    config_maps(&kube).patch("a", &PatchParams::default(), &ours).await.unwrap();
    let data = &kube.get("configmaps", "default", "a").unwrap()["data"];
    assert_eq!(*data, json!({"k": "1", "ours": "1", "theirs": "1"}));
}

#[tokio::test]
async fn a_replace_that_lost_a_race_conflicts() {
    let kube = with_rival().await;
    let api = config_maps(&kube);
    let mut ours = api.get("a").await.unwrap();
    ours.data = Some([("ours".to_owned(), "1".to_owned())].into());
    let refused = api.replace("a", &PostParams::default(), &ours).await;
    assert_eq!(refusal(refused), (409, "Conflict".to_owned()));
}

#[tokio::test]
async fn a_dropped_server_closes_its_port() {
    let kube = start().await;
    let address = kube.url().trim_start_matches("http://").to_owned();
    tokio::net::TcpStream::connect(&address).await.unwrap();
    drop(kube);
    soon("the port to close", async {
        while tokio::net::TcpStream::connect(&address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Says what it was asked for.
pub(crate) struct Echo;

impl PodLogs for Echo {
    fn open(
        &self,
        request: LogRequest,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Bytes>, ApiError>> {
        let follow = request.follow == Follow::UntilEnd;
        let lines = vec![
            Bytes::from(format!("{}/{} says hello\n", request.pod, request.container)),
            Bytes::from(format!("tail {:?} follow {follow}\n", request.tail_lines)),
        ];
        async move { Ok(futures::stream::iter(lines).boxed()) }.boxed()
    }
}

#[tokio::test]
async fn logs_come_from_the_provider() {
    let kube = start().await;
    kube.create(pod_on("a", "n1")).await.unwrap();
    let api = pods(&kube);
    assert_eq!(refusal(api.logs("a", &LogParams::default()).await).0, 500);
    kube.set_logs(Arc::new(Echo));
    let params = LogParams { tail_lines: Some(3), ..LogParams::default() };
    let text = api.logs("a", &params).await.unwrap();
    assert_eq!(text, "a/main says hello\ntail Some(3) follow false\n");
    let wrong = LogParams { container: Some("none".to_owned()), ..LogParams::default() };
    assert_eq!(refusal(api.logs("a", &wrong).await).0, 400);
}
