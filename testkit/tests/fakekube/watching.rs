//! Watches: bookmarks, selections, and recovery of kube's watcher.

use std::pin::Pin;
use std::time::Duration;

use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{WatchEvent, WatchParams};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt};
use mpshare_testkit::fakekube::{ChangeKind, FakeKube, Settings, WatchEnd};
use serde_json::json;

use super::{config_map, config_maps, pod, soon, start};

type Watch = Pin<Box<dyn Stream<Item = Result<WatchEvent<ConfigMap>, kube::Error>> + Send>>;

async fn raw_watch(kube: &FakeKube, params: WatchParams, from: &str) -> Watch {
    config_maps(kube).watch(&params, from).await.unwrap().boxed()
}

async fn next(watch: &mut Watch) -> WatchEvent<ConfigMap> {
    soon("a watch event", watch.next()).await.unwrap().unwrap()
}

fn describe(event: &WatchEvent<ConfigMap>) -> String {
    match event {
        WatchEvent::Added(object) => format!("added {}", object.name_any()),
        WatchEvent::Modified(object) => format!("modified {}", object.name_any()),
        WatchEvent::Deleted(object) => format!("deleted {}", object.name_any()),
        WatchEvent::Bookmark(mark) => format!("bookmark {}", mark.metadata.resource_version),
        WatchEvent::Error(status) => format!("error {}", status.code),
    }
}

#[tokio::test]
async fn a_watch_from_a_version_shows_what_came_after_it() {
    let kube = start().await;
    let first = kube.create(config_map("a", "1")).await.unwrap();
    kube.create(config_map("b", "1")).await.unwrap();
    let from = first["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = raw_watch(&kube, WatchParams::default().disable_bookmarks(), from).await;
    assert_eq!(describe(&next(&mut watch).await), "added b");
    kube.patch("configmaps", "default", "a", json!({"data": {"k": "2"}})).await.unwrap();
    assert_eq!(describe(&next(&mut watch).await), "modified a");
    kube.delete("configmaps", "default", "a").await.unwrap();
    assert_eq!(describe(&next(&mut watch).await), "deleted a");
}

#[tokio::test]
async fn an_object_that_stops_matching_is_deleted_for_the_watch() {
    let kube = start().await;
    let mut body = config_map("a", "1");
    body["metadata"]["labels"] = json!({"on": "yes"});
    kube.create(body).await.unwrap();
    let params = WatchParams::default().labels("on=yes").disable_bookmarks();
    let mut watch = raw_watch(&kube, params, "0").await;
    assert_eq!(describe(&next(&mut watch).await), "added a");
    let labels = json!({"metadata": {"labels": {"on": "no"}}});
    kube.patch("configmaps", "default", "a", labels).await.unwrap();
    assert_eq!(describe(&next(&mut watch).await), "deleted a");
}

#[tokio::test]
async fn bookmarks_carry_the_newest_version_of_the_store() {
    let settings = Settings { bookmark_interval: Duration::from_millis(5), ..Settings::default() };
    let kube = FakeKube::start_with(settings).await.unwrap();
    let mut watch = raw_watch(&kube, WatchParams::default(), "0").await;
    kube.create(pod("unrelated")).await.unwrap();
    let wanted = format!("bookmark {}", kube.revision());
    soon("a bookmark", async { while describe(&next(&mut watch).await) != wanted {} }).await;
}

#[tokio::test]
async fn a_watch_ends_at_its_time_limit() {
    let kube = start().await;
    let params = WatchParams::default().timeout(1);
    let mut watch = raw_watch(&kube, params, "0").await;
    let rest = async { while watch.try_next().await.unwrap().is_some() {} };
    soon("the end of the watch", rest).await;
}

#[tokio::test]
async fn a_watch_from_a_compacted_version_gets_410_in_the_stream() {
    let kube = start().await;
    let first = kube.create(config_map("a", "1")).await.unwrap();
    kube.compact_history();
    let from = first["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = raw_watch(&kube, WatchParams::default(), from).await;
    assert_eq!(describe(&next(&mut watch).await), "error 410");
}

#[tokio::test]
async fn the_history_forgets_beyond_its_size() {
    let kube = FakeKube::start_with(Settings { history: 3, ..Settings::default() }).await.unwrap();
    for i in 0..5 {
        kube.create(config_map(&format!("c{i}"), "1")).await.unwrap();
    }
    let newest = kube.revision();
    let mut recent = raw_watch(&kube, WatchParams::default(), &(newest - 3).to_string()).await;
    assert_eq!(describe(&next(&mut recent).await), "added c2");
    let mut old = raw_watch(&kube, WatchParams::default(), &(newest - 4).to_string()).await;
    assert_eq!(describe(&next(&mut old).await), "error 410");
}

/// A watcher's view: the names it knows after each full list, and single changes.
async fn wait_for(
    stream: &mut Pin<Box<dyn Stream<Item = watcher::Result<Event<ConfigMap>>> + Send>>,
    wanted: &str,
) -> Vec<String> {
    let mut seen = Vec::new();
    soon(wanted, async {
        loop {
            let line = match stream.next().await.unwrap() {
                Ok(Event::Init) => "init".to_owned(),
                Ok(Event::InitApply(object)) => format!("listed {}", object.name_any()),
                Ok(Event::InitDone) => "listed all".to_owned(),
                Ok(Event::Apply(object)) => format!("applied {}", object.name_any()),
                Ok(Event::Delete(object)) => format!("deleted {}", object.name_any()),
                Err(error) => format!("error {error}"),
            };
            seen.push(line.clone());
            if line == wanted {
                break;
            }
        }
    })
    .await;
    seen
}

async fn watcher_survives(config: watcher::Config, disturb: impl Fn(&FakeKube)) -> Vec<String> {
    let kube = start().await;
    kube.create(config_map("a", "1")).await.unwrap();
    let mut stream = watcher(config_maps(&kube), config).boxed();
    wait_for(&mut stream, "listed all").await;
    kube.create(config_map("b", "1")).await.unwrap();
    wait_for(&mut stream, "applied b").await;
    // The change is made while the watcher is not reading, so the watch has not delivered it.
    disturb(&kube);
    kube.delete("configmaps", "default", "a").await.unwrap();
    kube.create(config_map("c", "1")).await.unwrap();
    disturb(&kube);
    let mut seen = Vec::new();
    soon("the watcher to see c", async {
        loop {
            let event = stream.next().await.unwrap();
            match event {
                Ok(Event::Apply(o) | Event::InitApply(o)) if o.name_any() == "c" => break,
                Ok(Event::Delete(o)) => seen.push(format!("deleted {}", o.name_any())),
                Ok(Event::Init) => seen.push("init".to_owned()),
                Ok(Event::Apply(_) | Event::InitApply(_) | Event::InitDone) => {}
                Err(error) => seen.push(format!("error {error}")),
            }
        }
    })
    .await;
    seen
}

#[tokio::test]
async fn kubes_watcher_goes_on_after_its_watch_is_closed() {
    let seen = watcher_survives(watcher::Config::default(), |kube| {
        kube.end_watches(WatchEnd::Closed);
    })
    .await;
    assert_eq!(seen, ["deleted a"], "it resumes where it was, without a new list");
}

#[tokio::test]
async fn kubes_watcher_goes_on_after_its_connection_breaks() {
    let seen = watcher_survives(watcher::Config::default(), |kube| {
        kube.end_watches(WatchEnd::Broken);
    })
    .await;
    assert!(seen.contains(&"deleted a".to_owned()), "{seen:?}");
}

#[tokio::test]
async fn kubes_watcher_lists_again_after_410() {
    let seen = watcher_survives(watcher::Config::default(), |kube| {
        kube.end_watches(WatchEnd::Closed);
        kube.compact_history();
    })
    .await;
    assert!(seen.contains(&"init".to_owned()), "{seen:?}");
}

#[tokio::test]
async fn kubes_streaming_list_works_and_recovers() {
    let config = watcher::Config::default().streaming_lists();
    let seen = watcher_survives(config, |kube| {
        kube.end_watches(WatchEnd::Closed);
        kube.compact_history();
    })
    .await;
    assert!(seen.contains(&"init".to_owned()), "{seen:?}");
}

#[tokio::test]
async fn a_watch_event_can_come_twice() {
    let kube = start().await;
    kube.faults().copies_of_watch_events(2);
    let mut watch = raw_watch(&kube, WatchParams::default().disable_bookmarks(), "0").await;
    kube.create(config_map("a", "1")).await.unwrap();
    assert_eq!(describe(&next(&mut watch).await), "added a");
    assert_eq!(describe(&next(&mut watch).await), "added a");
}

#[tokio::test]
async fn a_metadata_watcher_gets_metadata_only() {
    let kube = start().await;
    kube.create(pod("a")).await.unwrap();
    let api: Api<PartialObjectMeta<Pod>> = Api::default_namespaced(kube.client().unwrap());
    let mut stream = watcher(api, watcher::Config::default()).boxed();
    let object = soon("the pod's metadata", async {
        loop {
            if let Event::InitApply(object) = stream.next().await.unwrap().unwrap() {
                break object;
            }
        }
    })
    .await;
    assert_eq!(object.name_any(), "a");
}

#[tokio::test]
async fn changes_are_seen_in_process_in_order() {
    let kube = start().await;
    let mut changes = kube.changes();
    kube.create(config_map("a", "1")).await.unwrap();
    kube.delete("configmaps", "default", "a").await.unwrap();
    let first = soon("a change", changes.next()).await.unwrap();
    let second = soon("a change", changes.next()).await.unwrap();
    assert_eq!((first.kind, second.kind), (ChangeKind::Added, ChangeKind::Deleted));
    assert_eq!(first.resource, "configmaps");
}
