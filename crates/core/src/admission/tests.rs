//! Each rule by a pod that keeps it and one that doesn't.

use std::collections::BTreeMap;

use super::*;
use crate::ledger::{NodeName, Stage};
use crate::{Memory, Reason, ResourceName, ThreadPercent};

const LIMIT: &str = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT";
const PERCENT: &str = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";
const MEMORY: &str = "aliyun.com/gpu-mem";
const GPU: &str = "nvidia.com/gpu";

fn name(resource: &str) -> ResourceName {
    resource.parse().unwrap()
}

fn card(resource: &str, unit: u64, units: u32, driver: &str) -> FleetCard {
    FleetCard {
        resource: name(resource),
        unit: Memory::from_mib(unit),
        percent: ThreadPercent::FULL.split(if resource == MEMORY { 1 } else { units }),
        units: units.into(),
        driver: Some(driver.parse().unwrap()),
    }
}

/// A card of 15 GiB in units of 1 GiB; one in 4 and one in 2 replicas; one of one unit; an old driver.
/// Of the nodes of pool `1x` with their whole cards nobody tells.
fn fleet() -> Fleet {
    let mut fleet = Fleet::default();
    let mut add = |node: &str, pool: &str, cards: Vec<FleetCard>| {
        let labels = [("pool", pool), ("kubernetes.io/hostname", node)];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        fleet.set(&NodeName(node.to_owned()), FleetNode { labels, cards });
    };
    add("memory", "m", vec![card(MEMORY, 1024, 15, "555.1")]);
    add("quarters", "4x", vec![card(GPU, 3840, 4, "555.1")]);
    add("halves", "2x", vec![card(GPU, 8192, 2, "555.1")]);
    add("single", "one", vec![card(GPU, 8192, 1, "555.1")]);
    add("old", "old", vec![card(GPU, 8192, 2, "535.1")]);
    fleet
}

fn container(resource: &str, units: u64) -> Container {
    Container {
        name: "c".to_owned(),
        place: Place { list: List::Main, position: 0, has_env: false },
        stage: Stage::Main,
        asked: vec![Amount { resource: name(resource), units, text: units.to_string() }],
        env: Vec::new(),
        has_env_from: false,
        mounts: Vec::new(),
        is_privileged: false,
        user: None,
    }
}

impl Container {
    fn with(mut self, variable: &str, value: &str) -> Self {
        let value = Value::Text(value.to_owned());
        self.env.push(EnvVar { name: variable.to_owned(), value });
        self.place.has_env = true;
        self
    }

    fn mounting(mut self, path: &str) -> Self {
        self.mounts.push(path.to_owned());
        self
    }
}

fn pod(container: Container) -> Subject {
    Subject { containers: vec![container], ..Subject::default() }
}

fn in_pool(pool: &str, container: Container) -> Subject {
    let node_selector = [("pool".to_owned(), pool.to_owned())].into();
    Subject { node_selector, ..pod(container) }
}

fn policy() -> Policy {
    Policy {
        scheduler_name: Some("mpshare-scheduler".to_owned()),
        cap_percent: true,
        ..Policy::default()
    }
}

/// The pod as it is after its edits.
fn apply(mut subject: Subject, edits: &[Edit]) -> Subject {
    for edit in edits {
        match edit {
            Edit::SetScheduler(name) => subject.scheduler = Some(name.clone()),
            Edit::SetEnv { at, index, name, value } => {
                let of = subject.containers.iter_mut().find(|it| it.place == *at).unwrap();
                assert_eq!(of.env[*index].name, *name);
                of.env[*index].value = Value::Text(value.clone());
            }
            Edit::AddEnv { at, name, value } => {
                let of = subject.containers.iter_mut().find(|it| it.place == *at).unwrap();
                let value = Value::Text(value.clone());
                of.env.push(EnvVar { name: name.clone(), value });
            }
        }
    }
    subject
}

/// What a variable is after admission, and what its author is told.
#[track_caller]
fn admitted(subject: &Subject, variable: &str) -> (Option<String>, Vec<String>) {
    let changes = change(subject, &fleet(), &policy());
    let after = apply(subject.clone(), &changes.edits);
    assert_eq!(change(&after, &fleet(), &policy()).edits, [], "the second time changes more");
    let value = after.containers[0].variable(variable).map(|(_, value)| match value {
        Value::Text(text) => text.clone(),
        Value::Elsewhere => "elsewhere".to_owned(),
    });
    (value, changes.notes.iter().map(ToString::to_string).collect())
}

fn sentences(subject: &Subject) -> Vec<String> {
    judge(subject, &fleet(), &policy()).iter().map(ToString::to_string).collect()
}

#[track_caller]
fn is_found(subject: &Subject, sentence: &str) {
    assert_eq!(sentences(subject), [sentence]);
}

#[track_caller]
fn is_fine(subject: &Subject) {
    assert_eq!(sentences(subject), [""; 0]);
}

#[test]
fn plain_bytes_become_the_drivers_form_and_nothing_else_changes() {
    let pod = in_pool("2x", container(GPU, 1).with(LIMIT, "4294967296").with(PERCENT, "25"));
    let changes = change(&pod, &fleet(), &policy());
    let [Edit::SetEnv { index: 0, value, .. }] = &*changes.edits else { panic!("{changes:?}") };
    assert_eq!(value, "0=4096M");
    assert_eq!(changes.notes, []);
    is_fine(&apply(pod, &changes.edits));
}

#[test]
fn a_limit_above_the_share_is_lowered_to_it() {
    let of = |units, text: &str| {
        admitted(&pod(container(MEMORY, units).with(LIMIT, text)), LIMIT).0.unwrap()
    };
    assert_eq!(of(7, "0=8G"), "0=7168M");
    assert_eq!(of(7, "0=4G"), "0=4G", "it is what the driver takes");
    assert_eq!(of(7, "0=2G,1=4G"), "0=2048M", "an entry for another card drops every limit");
    let (limit, notes) = admitted(&pod(container(MEMORY, 2).with(LIMIT, "4294967296")), LIMIT);
    assert_eq!(limit.unwrap(), "0=2048M");
    assert_eq!(
        notes,
        [
            "container `c` sets a memory limit of 4 GiB, but on the smallest GPU that its pod may come to its share is 2 GiB, which is the limit; hint: ask for more units, or choose nodes by their labels"
        ]
    );
}

#[test]
fn the_smallest_share_of_the_nodes_that_a_pod_may_go_to_counts() {
    let limited = |pool: &str| {
        let pod = in_pool(pool, container(GPU, 1).with(LIMIT, "0=6G"));
        admitted(&pod, LIMIT).0.unwrap()
    };
    assert_eq!((limited("2x").as_str(), limited("4x").as_str()), ("0=6G", "0=3840M"));
    // One unit may be all that a card has to offer, and a share all the same.
    let alone = in_pool("one", container(GPU, 1).with(LIMIT, "0=2G,1=4G"));
    assert_eq!(admitted(&alone, LIMIT).0.unwrap(), "0=2048M");
    let anywhere = pod(container(GPU, 1).with(LIMIT, "0=6G"));
    assert_eq!(admitted(&anywhere, LIMIT).0.unwrap(), "0=3840M");
    let twice = in_pool("4x", container(GPU, 2).with(LIMIT, "0=6G"));
    assert_eq!(admitted(&twice, LIMIT).0.unwrap(), "0=6G");
    let rule = Rule::In(vec!["halves".to_owned()]);
    let term = Term {
        labels: vec![Requirement { key: "kubernetes.io/hostname".to_owned(), rule }],
        fields: Vec::new(),
    };
    let by_affinity = Subject { node_terms: vec![term], ..anywhere.clone() };
    assert_eq!(admitted(&by_affinity, LIMIT).0.unwrap(), "0=6G");
    let bound = Subject { node: Some("halves".to_owned()), ..anywhere };
    assert_eq!(admitted(&bound, LIMIT).0.unwrap(), "0=6G");
}

#[test]
fn where_no_gpu_is_known_a_limit_is_only_written_as_the_driver_takes_it() {
    let changed = |text: &str| {
        change(&pod(container(GPU, 1).with(LIMIT, text)), &Fleet::default(), &policy()).edits
    };
    assert!(matches!(&*changed("4294967296"), [Edit::SetEnv { value, .. }] if value == "0=4096M"));
    assert_eq!(changed("much"), []);
}

#[test]
fn of_cards_that_may_be_whole_only_the_form_of_a_limit_is_looked_at() {
    let whole = container(GPU, 8).with("CUDA_VISIBLE_DEVICES", "1").mounting("/dev/shm");
    is_fine(&pod(whole.clone()));
    let mut whole = in_pool("1x", whole.with(LIMIT, "0=2G,1=4G"));
    assert_eq!(admitted(&whole, LIMIT), (Some("0=2048M".to_owned()), Vec::new()));
    whole.containers[0].has_env_from = true;
    let policy = Policy { visible_devices: Some("void".to_owned()), ..policy() };
    assert_eq!(change(&whole, &fleet(), &policy).edits.len(), 1);
}

#[test]
fn what_cannot_be_read_is_replaced_by_the_share() {
    let (limit, notes) = admitted(&pod(container(MEMORY, 3).with(LIMIT, "x=4G")), LIMIT);
    assert_eq!(limit.unwrap(), "0=3072M");
    assert_eq!(
        notes,
        [
            "container `c` sets a memory limit that can't be read (`x=4G`), so that its share is its limit; hint: write it as `0=4G`, or in bytes"
        ]
    );
}

#[test]
fn a_percentage_is_lowered_only_where_the_policy_says_so() {
    let pod = in_pool("4x", container(GPU, 1).with(PERCENT, "60"));
    let (percent, notes) = admitted(&pod, PERCENT);
    assert_eq!((percent.unwrap().as_str(), notes.len()), ("25.0", 1));
    let free = Policy { cap_percent: false, ..policy() };
    assert_eq!(change(&pod, &fleet(), &free).edits, []);
    assert_eq!(judge(&pod, &fleet(), &free), []);
    let all_threads = self::pod(container(MEMORY, 1).with(PERCENT, "60"));
    assert_eq!(admitted(&all_threads, PERCENT), (Some("60".to_owned()), Vec::new()));
}

#[test]
fn variables_that_nobody_sees_are_outweighed_by_the_specs() {
    let mut hidden = container(MEMORY, 7).with("A", "b");
    hidden.has_env_from = true;
    let changes = change(
        &pod(hidden),
        &fleet(),
        &Policy { visible_devices: Some("void".to_owned()), ..policy() },
    );
    let added: BTreeMap<&str, &str> = changes
        .edits
        .iter()
        .filter_map(|edit| match edit {
            Edit::AddEnv { name, value, .. } => Some((name.as_str(), value.as_str())),
            _ => None,
        })
        .collect();
    assert_eq!(
        added,
        [
            (LIMIT, "0=7168M"),
            (PERCENT, "100.0"),
            ("CUDA_MPS_PIPE_DIRECTORY", "/mps/aliyun.com/gpu-mem/pipe"),
            ("NVIDIA_VISIBLE_DEVICES", "void"),
        ]
        .into()
    );
}

#[test]
fn where_shares_differ_the_smallest_is_written_and_said() {
    let mut hidden = container(GPU, 1);
    hidden.has_env_from = true;
    let (limit, notes) = admitted(&pod(hidden.clone()), LIMIT);
    assert_eq!(limit.unwrap(), "0=3840M");
    assert!(notes[0].contains("the share of the smallest GPU"), "{notes:?}");
    let (limit, notes) = admitted(&in_pool("2x", hidden), LIMIT);
    assert_eq!((limit.unwrap().as_str(), notes.len()), ("0=8192M", 0));
}

#[test]
fn only_pods_with_memory_units_and_no_scheduler_of_their_own_get_ours() {
    let of = |subject: &Subject| change(subject, &fleet(), &policy()).edits;
    let ours = [Edit::SetScheduler("mpshare-scheduler".to_owned())];
    let memory = pod(container(MEMORY, 1));
    assert_eq!(of(&memory), ours);
    let default = Some("default-scheduler".to_owned());
    assert_eq!(of(&Subject { scheduler: default, ..memory.clone() }), ours);
    assert_eq!(of(&Subject { scheduler: Some("volcano".to_owned()), ..memory.clone() }), []);
    assert_eq!(of(&Subject { node: Some("memory".to_owned()), ..memory.clone() }), []);
    assert_eq!(of(&pod(container(GPU, 1))), []);
    let none = Policy { scheduler_name: None, ..policy() };
    assert_eq!(change(&memory, &fleet(), &none).edits, []);
}

#[test]
fn amounts_that_nobody_can_mean_are_found() {
    is_fine(&pod(container(MEMORY, 15)));
    is_found(
        &pod(container(MEMORY, 0)),
        "container `c` asks for 0 `aliyun.com/gpu-mem`; hint: ask for 1 or more, or leave the line out",
    );
    is_found(
        &pod(container(MEMORY, 16)),
        "container `c` asks for 16 units of `aliyun.com/gpu-mem`, and no GPU that its pod may come to has more than 15; hint: ask for 15 or less",
    );
    let written = |text: &str, units| {
        let mut container = container(MEMORY, units);
        container.asked[0].text = text.to_owned();
        pod(container)
    };
    is_found(
        &written("10G", 10_000_000_000),
        "container `c` asks for `10G` of `aliyun.com/gpu-mem`, which is 10000000000 units; hint: write the number of units without a suffix, such as `7`",
    );
    assert_eq!(sentences(&written("1Ki", 1024)).len(), 1);
    // The API server writes a plain 1000 so.
    assert!(sentences(&written("1k", 1000))[0].contains("has more than 15"));
    // Whole cards are a matter of the node.
    is_fine(&pod(container(GPU, 8)));
    assert_eq!(judge(&pod(container(MEMORY, 99)), &Fleet::default(), &policy()), []);
}

#[test]
fn two_resources_in_one_container_are_found() {
    let mut both = container(MEMORY, 1);
    both.asked.push(Amount { resource: name(GPU), units: 1, text: "1".to_owned() });
    is_found(
        &pod(both),
        "container `c` asks for `aliyun.com/gpu-mem` and for `nvidia.com/gpu`, but a process can use the MPS daemon of one GPU only; hint: ask for one of them",
    );
}

#[test]
fn gpus_named_past_the_ledger_are_found_with_and_without_a_request() {
    let sentence = "container `c` sets `NVIDIA_VISIBLE_DEVICES` (`all`), by which it would see GPUs that it wasn't given; hint: remove it, and ask for `aliyun.com/gpu-mem` or `nvidia.com/gpu`";
    is_found(&pod(container(MEMORY, 1).with("NVIDIA_VISIBLE_DEVICES", "all")), sentence);
    let none = || Container { asked: Vec::new(), ..container(MEMORY, 1) };
    is_found(&pod(none().with("NVIDIA_VISIBLE_DEVICES", "all")), sentence);
    is_fine(&pod(none().with("NVIDIA_VISIBLE_DEVICES", "void")));
    is_fine(&pod(none().with("NVIDIA_VISIBLE_DEVICES", "all").with("NVIDIA_VISIBLE_DEVICES", "")));
    is_fine(&pod(none().with(LIMIT, "much")));
    is_found(
        &pod(none().with("CUDA_MPS_PIPE_DIRECTORY", "/run/nvidia/mps")),
        "container `c` sets `CUDA_MPS_PIPE_DIRECTORY`, which is mpshare's to say; hint: remove it",
    );
    is_found(
        &pod(container(MEMORY, 1).with("CUDA_VISIBLE_DEVICES", "1")),
        "container `c` sets `CUDA_VISIBLE_DEVICES` (`1`), but the one GPU of its share is its device 0; hint: remove it",
    );
    is_fine(&pod(container(MEMORY, 1)
        .with("CUDA_VISIBLE_DEVICES", "0")
        .with("CUDA_MPS_CLIENT_PRIORITY", "1")));
}

#[test]
fn limits_that_were_not_written_anew_are_found() {
    let limited = |text: &str| pod(container(MEMORY, 2).with(LIMIT, text));
    is_found(
        &limited("1073741824"),
        "container `c` sets its memory limit as `1073741824`, which the driver doesn't take for what it means; hint: write `0=1024M`",
    );
    assert!(sentences(&limited("0=4096M"))[0].contains("its share is 2 GiB"));
    assert!(sentences(&limited("0=1024M,1=1024M"))[0].contains("hint: write `0=1024M`"));
    is_fine(&limited("0=1024M"));
    is_found(
        &pod(container(MEMORY, 2).with(PERCENT, "25%")),
        "container `c` sets a thread percentage that can't be read (`25%`); hint: write a number above 0 and at most 100",
    );
    let mut hidden = container(MEMORY, 2);
    hidden.env.push(EnvVar { name: LIMIT.to_owned(), value: Value::Elsewhere });
    is_found(
        &pod(hidden),
        "container `c` takes `CUDA_MPS_PINNED_DEVICE_MEM_LIMIT` from a place that can't be seen here; hint: write its value into the spec",
    );
}

#[test]
fn privileged_containers_are_found_as_the_policy_says() {
    let privileged = Container { is_privileged: true, ..container(MEMORY, 1) };
    let without = pod(Container { asked: Vec::new(), ..privileged.clone() });
    let count = |subject: &Subject, privileged| {
        judge(subject, &fleet(), &Policy { privileged, ..policy() }).len()
    };
    is_found(
        &pod(privileged.clone()),
        "container `c` is privileged and reaches every GPU of its node, past all shares; hint: leave `privileged` out, the device plugin gives it what it needs",
    );
    let beside = Subject {
        containers: vec![container(MEMORY, 1), without.containers[0].clone()],
        ..Subject::default()
    };
    assert_eq!(count(&beside, Privileged::WithUnits), 1);
    assert_eq!([count(&without, Privileged::WithUnits), count(&without, Privileged::All)], [0, 1]);
    assert_eq!(count(&pod(privileged), Privileged::Allowed), 0);
}

#[test]
fn volumes_over_the_way_to_the_daemon_are_found() {
    is_found(
        &pod(container(MEMORY, 1).mounting("/dev/shm/")),
        "container `c` mounts a volume at `/dev/shm/`, over what connects it with the MPS daemon of its GPU; hint: mount it elsewhere; a `/dev/shm` of its own is there already",
    );
    let over = ["/dev", "//dev//shm", "/mps", "/mps/aliyun.com/gpu-mem/pipe"];
    let around = ["/x/../dev/shm", "/../mps", "x/y/../../mps/./aliyun.com"];
    for path in over.into_iter().chain(around) {
        assert_eq!(sentences(&pod(container(MEMORY, 1).mounting(path))).len(), 1, "{path}");
    }
    for path in ["/dev/shmem", "/data", "/dev/shm/cache", "/dev/shm/../x", "/mps/../data"] {
        is_fine(&pod(container(MEMORY, 1).mounting(path)));
    }
    is_fine(&in_pool("1x", container(GPU, 1).mounting("/dev/shm")));
}

#[test]
fn mounts_that_name_gpus_are_found_with_and_without_a_request() {
    let path = "/var/run/nvidia-container-devices/all";
    let none = Container { asked: Vec::new(), ..container(MEMORY, 1) };
    for container in [none, container(MEMORY, 1)] {
        is_found(
            &pod(container.mounting(path)),
            "container `c` mounts something at `/var/run/nvidia-container-devices/all`, by which it would be given a GPU that it wasn't given; hint: remove it, and ask for `aliyun.com/gpu-mem` or `nvidia.com/gpu`",
        );
    }
}

#[test]
fn paths_of_the_node_that_reach_gpus_are_found() {
    let with = |path: &str, container: Container| {
        let volumes = [("v".to_owned(), Volume::HostPath(path.to_owned()))].into();
        Subject { volumes, ..pod(container) }
    };
    let none = || Container { asked: Vec::new(), ..container(MEMORY, 1) };
    is_found(
        &with("/run/nvidia/mps", none()),
        "volume `v` is `/run/nvidia/mps` of the node, by which its pod could reach GPUs past all shares; hint: remove it, and ask for `aliyun.com/gpu-mem` or `nvidia.com/gpu`",
    );
    let processes = ["/proc/1/root/run/nvidia", "/proc/1/task/1/cwd/proc/self/root/dev/nvidia0"];
    let direct = ["/dev/nvidia0", "/dev/nvidiactl", "/var/run/nvidia", "/run//nvidia/./mps"];
    for path in direct.into_iter().chain(processes) {
        assert_eq!(sentences(&with(path, none())).len(), 1, "{path}");
    }
    for path in ["/", "/dev", "/run", "/var/run", "/proc", "/proc/1/root"] {
        is_fine(&with(path, none()));
        assert_eq!(sentences(&with(path, container(MEMORY, 1))).len(), 1, "{path}");
    }
    is_fine(&with("/data/nvidia", container(MEMORY, 1)));
    let rooted = Policy { own_paths: vec!["/opt/driver".to_owned()], ..policy() };
    assert_eq!(judge(&with("/opt/driver/lib", none()), &fleet(), &rooted).len(), 1);
}

#[test]
fn users_that_an_old_driver_lets_wait_are_found() {
    let of = |pool: &str, users: [i64; 2]| {
        let one = |user| Container { user: Some(user), ..container(GPU, 1) };
        Subject { containers: users.map(one).into(), ..in_pool(pool, container(GPU, 1)) }
    };
    is_found(
        &of("old", [0, 1000]),
        "containers `c` and `c` run as users 0 and 1000, and the MPS of driver 535.1 serves one user at a time, so that one of them may wait for ever; hint: give them one `runAsUser`, or use nodes with a driver of 555 or newer",
    );
    is_fine(&of("old", [5, 5]));
    is_fine(&of("2x", [0, 1000]));
    let own = |pool: &str| Subject { has_own_users: true, ..in_pool(pool, container(GPU, 1)) };
    is_found(
        &own("old"),
        "the pod has users of its own (`hostUsers: false`), and the MPS of driver 535.1 serves one user of the node at a time; hint: leave `hostUsers` out, or use nodes with a driver of 555 or newer",
    );
    is_fine(&own("2x"));
}

#[test]
fn several_gpus_for_one_container_are_found() {
    let label =
        |label: &str| Subject { gpu_count: Some(label.to_owned()), ..pod(container(MEMORY, 1)) };
    is_fine(&label("1"));
    assert!(matches!(&*judge(&label("2"), &fleet(), &policy()), [Reason::SeveralGpusAsked { .. }]));
}

#[test]
fn a_resource_is_known_for_as_long_as_a_card_has_it() {
    let mut fleet = fleet();
    let known = |fleet: &Fleet| fleet.resources().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(known(&fleet), [MEMORY, GPU]);
    fleet.set(&NodeName("memory".to_owned()), FleetNode::default());
    assert_eq!(known(&fleet), [GPU]);
    fleet.keep(&[NodeName("halves".to_owned())].into());
    assert_eq!(known(&fleet), [GPU]);
    fleet.remove(&NodeName("halves".to_owned()));
    assert_eq!(known(&fleet), [""; 0]);
}
