//! Any body of a review, through reading, changing, patching and judging, in every mode.

#![no_main]

use std::collections::BTreeSet;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use mpshare_api::admission_review::Request;
use mpshare_core::admission::{Fleet, FleetCard, FleetNode, Policy};
use mpshare_core::ledger::NodeName;
use mpshare_core::{Memory, ThreadPercent};
use mpshare_webhook::{Mode, Rules, mutate, validate};

/// A card in units of memory, one in replicas, one that is whole, one with an old driver.
static FLEET: LazyLock<Fleet> = LazyLock::new(|| {
    let mut fleet = Fleet::default();
    let cards = [
        ("m", "aliyun.com/gpu-mem", 1024, 15, "570.86"),
        ("r", "nvidia.com/gpu", 4096, 4, "570.86"),
        ("w", "nvidia.com/gpu", 16384, 1, "570.86"),
        ("o", "nvidia.com/gpu", 8192, 2, "535.1"),
    ];
    for (node, resource, mib, units, driver) in cards {
        let card = FleetCard {
            resource: resource.parse().unwrap(),
            unit: Memory::from_mib(mib),
            percent: ThreadPercent::FULL,
            units,
            driver: driver.parse().ok(),
        };
        let labels = [("pool".to_owned(), node.to_owned())].into();
        fleet.set(&NodeName(node.to_owned()), FleetNode { labels, cards: vec![card] });
    }
    fleet
});

static POLICY: LazyLock<Policy> = LazyLock::new(|| Policy {
    scheduler_name: Some("gpu".to_owned()),
    cap_percent: true,
    own_paths: vec!["/opt/driver".to_owned()],
    visible_devices: Some("void".to_owned()),
    ..Policy::default()
});

fuzz_target!(|body: &[u8]| {
    let Ok(mut request) = Request::read(body) else { return };
    let rules = Rules { policy: &POLICY, fleet: &FLEET, own_accounts: &BTreeSet::new() };
    for mode in [Mode::Enforce, Mode::Warn, Mode::Audit] {
        if let Ok(reviewed) = validate(rules, mode, &request) {
            reviewed.response.to_body().unwrap();
        }
    }
    let Ok(reviewed) = mutate(rules, Mode::Enforce, &request) else { return };
    let body = reviewed.response.to_body().unwrap();
    let Some(operations) = operations(&body) else { return };
    json_patch::patch(&mut request.object, &operations).unwrap();
    let again = mutate(rules, Mode::Enforce, &request).unwrap();
    let again = again.response.to_body().unwrap();
    assert!(self::operations(&again).is_none(), "the second time more is changed");
});

/// The patch of an answer.
fn operations(body: &[u8]) -> Option<json_patch::Patch> {
    use base64::Engine as _;
    let body: serde_json::Value = serde_json::from_slice(body).unwrap();
    let text = body.pointer("/response/patch")?.as_str().unwrap();
    let text = base64::engine::general_purpose::STANDARD.decode(text).unwrap();
    Some(serde_json::from_slice(&text).unwrap())
}
