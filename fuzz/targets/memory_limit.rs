//! Any text as a container's limits: what is written for it has one form, is at most the share, and
//! is left as it is the second time.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use mpshare_core::admission::{
    Amount, Container, Edit, EnvVar, Fleet, FleetCard, FleetNode, List, Place, Policy, Subject,
    Value, change, judge,
};
use mpshare_core::ledger::{NodeName, Stage};
use mpshare_core::{Memory, Reason, ThreadPercent};

const RESOURCE: &str = "nvidia.com/gpu";
const MEMORY_LIMIT: &str = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT";
const PERCENTAGE: &str = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";
const SHARE: u64 = 4096;

static FLEET: LazyLock<Fleet> = LazyLock::new(|| {
    let card = FleetCard {
        resource: RESOURCE.parse().unwrap(),
        unit: Memory::from_mib(SHARE),
        percent: ThreadPercent::FULL.split(4),
        units: 4,
        driver: None,
    };
    let node = FleetNode { labels: [].into(), cards: vec![card] };
    let mut fleet = Fleet::default();
    fleet.set(&NodeName("n".to_owned()), node);
    fleet
});

fuzz_target!(|text: &str| {
    let policy = Policy { cap_percent: true, ..Policy::default() };
    let mut subject = subject(text);
    for edit in change(&subject, &FLEET, &policy).edits {
        let Edit::SetEnv { index, value, .. } = edit else { panic!("{edit:?}") };
        subject.containers[0].env[index].value = Value::Text(value);
    }
    assert!(change(&subject, &FLEET, &policy).edits.is_empty());
    let Some((_, Value::Text(limit))) = subject.containers[0].variable(MEMORY_LIMIT) else {
        panic!("no limit")
    };
    let mib = limit.strip_prefix("0=").and_then(|it| it.strip_suffix('M')).unwrap();
    assert!((1..=SHARE).contains(&mib.parse().unwrap()), "{limit}");
    let found = judge(&subject, &FLEET, &policy);
    assert!(found.iter().all(|it| matches!(it, Reason::PercentUnreadable { .. })), "{found:?}");
    // Where no card is known, nothing may panic either.
    let open = Fleet::default();
    drop((change(&subject, &open, &policy), judge(&subject, &open, &policy)));
});

/// A pod with a share whose container sets both limits to this.
fn subject(text: &str) -> Subject {
    let variable =
        |name: &str| EnvVar { name: name.to_owned(), value: Value::Text(text.to_owned()) };
    let container = Container {
        name: "c".to_owned(),
        place: Place { list: List::Main, position: 0, has_env: true },
        stage: Stage::Main,
        asked: vec![Amount { resource: RESOURCE.parse().unwrap(), units: 1, text: "1".to_owned() }],
        env: vec![variable(MEMORY_LIMIT), variable(PERCENTAGE)],
        has_env_from: false,
        mounts: Vec::new(),
        is_privileged: false,
        user: None,
    };
    Subject { containers: vec![container], ..Subject::default() }
}
