use super::*;
use crate::testing::{inventory, ready, share, status, unit, uuid};
use mpshare_api::status::{ClientStatus, FormerPods};
use mpshare_api::{GpuState, GpuStatus};
use mpshare_core::{DeviceId, Memory, Mode, ThreadPercent};
use mpshare_kubelet::device_plugin::ContainerAllocateResponse;

/// Revision of what changes in a test.
const NEXT: u64 = 7;
const ADMISSION: Duration = Duration::from_secs(10);

/// What is known, in a form that is easy to change.
struct World {
    start: Instant,
    asked: Instant,
    listed: Option<PodResources>,
    checkpoint: Option<Vec<Entry>>,
    clients: Clients,
    inventory: Option<Inventory>,
}

impl World {
    /// The kubelet has answered, and nobody holds anything.
    fn new() -> Self {
        let start = Instant::now();
        Self {
            start,
            asked: start,
            listed: Some(PodResources::new()),
            checkpoint: Some(Vec::new()),
            clients: Clients::of(Some(&status(vec![ready(0, "any")]))),
            inventory: Some(inventory(1)),
        }
    }

    fn list(&mut self, pod: &str, ids: &[DeviceId]) {
        let holder = Holder {
            namespace: "default".into(),
            pod: pod.into(),
            container: "main".into(),
            resource: "nvidia.com/gpu".into(),
        };
        let ids = ids.iter().map(ToString::to_string).collect();
        self.listed.as_mut().unwrap().insert(holder, ids);
    }

    fn note(&mut self, pod: &str, ids: &[DeviceId], envs: &[(&str, &str)]) {
        let envs = envs.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        self.checkpoint.as_mut().unwrap().push(Entry {
            pod_uid: pod.into(),
            container: "main".into(),
            resource: "nvidia.com/gpu".into(),
            device_ids: ids.iter().map(ToString::to_string).collect(),
            reply: Some(ContainerAllocateResponse {
                envs: envs.collect(),
                ..ContainerAllocateResponse::default()
            }),
        });
    }

    fn client(&mut self, pod: &str) {
        let mut gpu = ready(0, "any");
        gpu.daemon.as_mut().unwrap().clients = vec![ClientStatus {
            pid: 7,
            memory_mib: None,
            pod_uid: Some(pod.into()),
            container_id: None,
        }];
        self.clients = Clients::of(Some(&status(vec![gpu])));
    }

    /// The supervisor has looked for former owners at a revision, and found those that are alive.
    fn look(&mut self, revision: u64, alive: &[&str]) {
        let alive = alive.iter().map(ToString::to_string).collect();
        let mut status = status(vec![ready(0, "any")]);
        status.former_pods = FormerPods { revision, alive };
        self.clients = Clients::of(Some(&status));
    }

    fn record(&self, n: u32) -> Record {
        Record::new(share(&[unit(0, n)], 3840, 250), self.start)
    }

    fn after(&self, records: &[Record], seconds: u64) -> Outcome {
        let evidence = Evidence {
            listing: self.listed.as_ref().map(|held| Listing { held, asked: self.asked }),
            checkpoint: self.checkpoint.as_deref(),
            clients: &self.clients,
            revision: NEXT,
            inventory: self.inventory.as_ref(),
            admission: ADMISSION,
        };
        reconcile(records, &evidence, self.start + Duration::from_secs(seconds))
    }
}

const LIMITS: [(&str, &str); 3] = [
    ("CUDA_MPS_PIPE_DIRECTORY", "/mps/nvidia.com/gpu/pipe"),
    ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=7680M"),
    ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "50.0"),
];

#[test]
fn a_share_that_nobody_holds_is_over_when_no_admission_can_be_under_way() {
    let world = World::new();
    let records = [world.record(0)];
    assert_eq!(world.after(&records, 9).records, records);
    let outcome = world.after(&records, 10);
    assert_eq!(outcome.records, []);
    assert_eq!(outcome.ended, [records[0].share.clone()]);
}

#[test]
fn a_share_that_the_kubelet_held_is_over_as_soon_as_it_lets_go() {
    let mut world = World::new();
    world.list("a", &[unit(0, 0)]);
    let held = world.after(&[world.record(0)], 1).records;
    assert_eq!(held[0].standing, Standing::Held);
    world.listed = Some(PodResources::new());
    assert_eq!(world.after(&held, 2).records, []);
}

#[test]
fn an_answer_from_before_the_grant_says_nothing_about_the_share() {
    let mut world = World::new();
    world.list("former-owner", &[unit(0, 0)]);
    let granted = Record { since: world.start + Duration::from_millis(1), ..world.record(0) };
    let records = world.after(&[granted], 1).records;
    assert_eq!(records[0].standing, Standing::Promised);
    world.listed = Some(PodResources::new());
    assert_eq!(world.after(&records, 2).records.len(), 1, "its pod is being admitted");
}

#[test]
fn either_source_keeps_a_share() {
    let mut listed = World::new();
    listed.list("a", &[unit(0, 0)]);
    assert_eq!(listed.after(&[listed.record(0)], 60).records.len(), 1);
    let mut noted = World::new();
    noted.note("pod-a", &[unit(0, 0)], &LIMITS);
    let outcome = noted.after(&[noted.record(0)], 60);
    assert_eq!(outcome.records.len(), 1);
    assert_eq!(outcome.ended, []);
    assert_eq!(outcome.checkpoint_only, [unit(0, 0).to_string()].into());
}

#[test]
fn without_an_answer_of_the_kubelet_no_share_is_over() {
    let mut world = World::new();
    world.listed = None;
    assert_eq!(world.after(&[world.record(0)], 1000).records.len(), 1);
}

#[test]
fn without_the_checkpoint_a_share_that_was_never_listed_may_be_an_init_container_s() {
    let mut world = World::new();
    world.checkpoint = None;
    assert_eq!(world.after(&[world.record(0)], 1000).records.len(), 1);
}

#[test]
fn without_the_checkpoint_the_pod_resources_api_ends_what_it_has_listed() {
    let mut world = World::new();
    world.checkpoint = None;
    world.list("a", &[unit(0, 0)]);
    let held = world.after(&[world.record(0)], 1).records;
    world.listed = Some(PodResources::new());
    assert_eq!(world.after(&held, 2).records, []);
}

#[test]
fn a_share_that_the_kubelet_lets_go_of_is_over_once_its_pod_was_looked_for() {
    let mut world = World::new();
    let held = Record { pod_uid: Some("pod-a".into()), ..world.record(0) };
    world.look(NEXT - 1, &[]);
    let left = world.after(&[held], 60).records;
    assert_eq!((left[0].pod_uid.as_ref(), left[0].revision), (None, NEXT));
    assert_eq!(left[0].former_pods, ["pod-a"], "that look was before its first process");
    assert_eq!(world.after(&left, 1000).records, left);
    world.look(NEXT, &["pod-a"]);
    assert_eq!(world.after(&left, 1000).records, left);
    world.look(NEXT, &[]);
    assert_eq!(world.after(&left, 1000).records, []);
}

#[test]
fn a_share_with_a_former_owner_that_has_a_client_is_not_over() {
    let mut world = World::new();
    world.client("pod-a");
    let successor = Record { former_pods: vec!["pod-a".into()], ..world.record(1) };
    let stranger = world.record(2);
    let outcome = world.after(&[successor.clone(), stranger], 1000);
    assert_eq!(outcome.records, [successor]);
}

#[test]
fn a_share_that_its_pod_left_is_not_over_before_the_clients_are_known() {
    let mut world = World::new();
    let left = Record { former_pods: vec!["pod-a".into()], ..world.record(0) };
    let starting = GpuStatus { state: GpuState::Starting, daemon: None, ..ready(0, "any") };
    for unknown in [None, Some(status(vec![starting]))] {
        world.clients = Clients::of(unknown.as_ref());
        assert_eq!(world.after(std::slice::from_ref(&left), 1000).records.len(), 1);
    }
    world.look(0, &[]);
    assert_eq!(world.after(&[left], 1000).records, []);
}

#[test]
fn a_pod_that_is_named_again_has_its_share_back() {
    let mut world = World::new();
    world.note("pod-a", &[unit(0, 0)], &LIMITS);
    let left = Record { former_pods: vec!["pod-a".into()], revision: NEXT, ..world.record(0) };
    let records = world.after(&[left], 60).records;
    assert_eq!(records[0].pod_uid.as_deref(), Some("pod-a"));
    assert!(records[0].former_pods.is_empty());
}

#[test]
fn the_checkpoint_tells_the_pod_but_not_while_it_may_name_the_former_one() {
    let mut world = World::new();
    world.note("pod-a", &[unit(0, 0)], &LIMITS);
    let fresh = world.after(&[world.record(0)], 1).records;
    assert_eq!(fresh[0].pod_uid.as_deref(), Some("pod-a"));

    let taken_over = Record { former_pods: vec!["pod-a".into()], ..world.record(0) };
    let early = world.after(std::slice::from_ref(&taken_over), 1).records;
    assert_eq!(early[0].pod_uid, None, "not written yet");
    let late = world.after(&[taken_over], 10).records;
    assert_eq!(late[0].pod_uid.as_deref(), Some("pod-a"), "an init container's id");
    assert!(late[0].former_pods.is_empty());
}

#[test]
fn former_pods_without_processes_are_forgotten_after_a_minute() {
    let mut world = World::new();
    world.list("b", &[unit(0, 0)]);
    let record = Record { former_pods: vec!["pod-a".into()], ..world.record(0) };
    let records = [record];
    assert_eq!(world.after(&records, 59).records[0].former_pods.len(), 1);
    assert_eq!(world.after(&records, 60).records[0].former_pods.len(), 0);
    world.client("pod-a");
    assert_eq!(world.after(&records, 60).records[0].former_pods.len(), 1);
}

#[test]
fn a_lost_record_is_made_again_from_the_reply_in_the_checkpoint() {
    let mut world = World::new();
    world.note("pod-a", &[unit(0, 0), unit(0, 1)], &LIMITS);
    let outcome = world.after(&[], 0);
    assert_eq!(outcome.records, outcome.rebuilt);
    let record = &outcome.records[0];
    assert_eq!(record.share, share(&[unit(0, 0), unit(0, 1)], 7680, 500));
    assert_eq!(record.pod_uid.as_deref(), Some("pod-a"));
    assert_eq!(record.basis, Basis::Granted);
    assert_eq!(world.after(&outcome.records, 0).rebuilt, []);
}

#[test]
fn an_id_in_two_entries_of_a_pod_is_counted_once() {
    let mut world = World::new();
    world.note(
        "pod-a",
        &[unit(0, 0)],
        &[
            LIMITS[0],
            ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=3840M"),
            ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "25.0"),
        ],
    );
    world.note("pod-a", &[unit(0, 0), unit(0, 1)], &LIMITS);
    let records = world.after(&[], 0).records;
    let sum: Memory = records.iter().map(|record| record.share.share.memory).sum();
    assert_eq!(records.len(), 2);
    assert_eq!(sum, Memory::from_mib(7680));
}

#[test]
fn a_whole_card_is_known_by_its_id_and_by_a_reply_without_mps() {
    let mut world = World::new();
    let id = DeviceId::whole(uuid(0));
    world.note("pod-a", std::slice::from_ref(&id), &[("NVIDIA_VISIBLE_DEVICES", "any")]);
    let records = world.after(&[], 0).records;
    assert_eq!(records[0].share.mode, Mode::Exclusive);
    assert_eq!(records[0].share.share.memory, Memory::from_mib(15360));
    assert_eq!(records[0].basis, Basis::Granted);
}

#[test]
fn what_cannot_be_read_counts_as_all_that_the_card_has_left_until_its_holder_ends() {
    for unreadable in [Some("0=7680"), Some("7680M"), Some(""), Some("0=-1M"), None] {
        let mut world = World::new();
        let envs =
            [("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", unreadable.unwrap_or("0=7680M")), LIMITS[2]];
        world.note("pod-a", &[unit(0, 3)], &envs);
        if unreadable.is_none() {
            world.checkpoint.as_mut().unwrap()[0].reply = None;
        }
        let known = Record { pod_uid: Some("pod-b".into()), ..world.record(0) };
        let records = world.after(&[known], 0).records;
        let assumed = &records[1];
        assert_eq!(assumed.basis, Basis::Assumed, "{unreadable:?}");
        assert_eq!(assumed.share.share.memory, Memory::from_mib(15360 - 3840));
        assert_eq!(assumed.share.share.percent, ThreadPercent::from_tenths(750).unwrap());
        world.checkpoint = Some(Vec::new());
        let left = world.after(&records, 10).records;
        world.look(NEXT, &[]);
        assert_eq!(world.after(&left, 11).records, []);
    }
}

#[test]
fn an_assumed_share_gets_its_true_size_when_the_checkpoint_can_be_read() {
    let mut world = World::new();
    world.checkpoint = None;
    world.list("a", &[unit(0, 0)]);
    let assumed = world.after(&[], 0).records;
    assert_eq!(assumed[0].basis, Basis::Assumed);
    assert_eq!(assumed[0].share.share.memory, Memory::from_mib(15360));
    world.checkpoint = Some(Vec::new());
    world.note("pod-a", &[unit(0, 0)], &LIMITS);
    let records = world.after(&assumed, 1).records;
    assert_eq!(records[0].share, share(&[unit(0, 0)], 7680, 500));
    assert_eq!(records[0].basis, Basis::Granted);
}

#[test]
fn ids_of_other_plugins_are_none_of_our_business() {
    let mut world = World::new();
    world.note("pod-a", &[unit(0, 0)], &LIMITS);
    let entries = world.checkpoint.as_mut().unwrap();
    entries[0].device_ids = ["nic-0".to_owned()].into();
    assert_eq!(world.after(&[], 0).records, []);
}
