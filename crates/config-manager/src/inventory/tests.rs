use super::*;
use crate::testing;
use mpshare_api::ChosenConfig;
use mpshare_api::config::parse;
use mpshare_core::{DeviceId, Memory, Mode, Share, ThreadPercent};
use std::sync::LazyLock;

const GIB: &str =
    "sharing: {mps: {resources: [{name: aliyun.com/gpu-mem, memoryUnit: 1Gi, devices: [0, 1]}]}}";
/// Nothing is known of how the cards are used.
fn unused() -> UseOfCards<'static> {
    static UNUSED: LazyLock<Usage> = LazyLock::new(Usage::default);
    UseOfCards { held: None, usage: &UNUSED }
}

const UUIDS: [&str; 3] = ["GPU-aaaaaaaa-1111", "GPU-bbbbbbbb-2222", "GPU-cccccccc-3333"];

fn config(text: &str) -> Config {
    let chosen = ChosenConfig {
        version: 1,
        name: "gpu-mem".to_owned(),
        why: "a test".to_owned(),
        text: text.to_owned(),
        drain: mpshare_api::DrainWish::default(),
    };
    Config { accepted: parse("gpu-mem", text).unwrap(), chosen }
}

fn gpu(index: u32, memory_mib: u64, generation: &str) -> GpuStatus {
    GpuStatus {
        model: "Tesla V100-SXM2-16GB".to_owned(),
        memory_mib,
        compute_capability: (7, 0),
        generation: generation.to_owned(),
        ..testing::gpu(UUIDS[usize::try_from(index).unwrap()], index)
    }
}

fn status(gpus: Vec<GpuStatus>) -> NodeStatus {
    testing::status("gpu-mem", gpus)
}

fn two_cards() -> NodeStatus {
    status(vec![
        gpu(0, 16130, "mps/aliyun.com/gpu-mem/15x1024M@100.0"),
        gpu(1, 23028, "mps/aliyun.com/gpu-mem/22x1024M@100.0"),
        gpu(2, 15360, "exclusive/nvidia.com/gpu"),
    ])
}

#[test]
fn a_card_that_is_drained_keeps_its_units_and_whole_ones_are_told_of_only_then() {
    let mut all = two_cards();
    let reason = mpshare_core::Reason::CardDrained { gpu: UUIDS[0].parse().unwrap() };
    for gpu in &mut all.gpus {
        gpu.state = GpuState::Draining;
        gpu.reason = Some((&reason).into());
    }
    let told = |text: &str| {
        let mut config = config(text);
        config.accepted.node.drain = mpshare_core::Drain::All;
        annotations(Some(&config), Some(&all), &[], unused()).unwrap()
    };
    let gpus = told(GIB).gpus().unwrap().0;
    let said = |gpu: &NodeGpu| (gpu.units, gpu.state.clone(), gpu.reason_code.clone().unwrap());
    let drained = |units| (units, "Draining".to_owned(), "CardDrained".to_owned());
    assert_eq!(gpus.iter().map(said).collect::<Vec<_>>(), [drained(15), drained(22), drained(1)]);
    assert_eq!(gpus[2].resource(), "nvidia.com/gpu");
    assert_eq!(told(GIB).count.as_deref(), Some("2"), "those that are shared");
    assert_eq!((told("").gpus().unwrap().0.len(), told("").count), (3, None));
}

/// Units and state of each card.
fn said(text: &str, status: &NodeStatus, live: &[LiveShare]) -> Vec<(u64, String)> {
    let annotations = annotations(Some(&config(text)), Some(status), live, unused()).unwrap();
    let gpus: NodeGpus = annotations.gpus.unwrap().parse().unwrap();
    assert_eq!(annotations.count.unwrap(), gpus.0.len().to_string());
    gpus.0.into_iter().map(|gpu| (gpu.units, gpu.state)).collect()
}

fn live(index: usize, units: u32, resource: &str) -> LiveShare {
    let gpu: mpshare_core::GpuUuid = UUIDS[index].parse().unwrap();
    LiveShare {
        ids: (0..units).map(|n| DeviceId::replica(gpu.clone(), n)).collect(),
        gpu,
        resource: resource.parse().unwrap(),
        mode: Mode::Mps,
        share: Share { memory: Memory::from_gib(units.into()), percent: ThreadPercent::FULL },
    }
}

#[test]
fn the_text_has_every_shared_card_with_its_own_units_and_no_whole_one() {
    let annotations = annotations(Some(&config(GIB)), Some(&two_cards()), &[], unused()).unwrap();
    let text = annotations.gpus.unwrap();
    let gpus: NodeGpus = text.parse().unwrap();
    let first = &gpus.0[0];
    assert_eq!((&*first.uuid, first.index, &*first.model), (UUIDS[0], 0, "Tesla V100-SXM2-16GB"));
    assert_eq!((first.memory_mib, first.unit_mib, first.units), (16130, 1024, 15));
    assert_eq!(first.resource.as_deref(), Some("aliyun.com/gpu-mem"));
    assert_eq!(gpus.0[1].units, 22);
    assert_eq!((gpus.0.len(), annotations.count.as_deref()), (2, Some("2")));
}

#[test]
fn shares_that_are_handed_out_change_nothing() {
    let shares = [live(0, 7, "aliyun.com/gpu-mem")];
    assert_eq!(said(GIB, &two_cards(), &shares), said(GIB, &two_cards(), &[]));
}

#[test]
fn units_that_shares_of_a_former_config_hold_are_not_counted() {
    let shares = [live(0, 7, "nvidia.com/gpu")];
    assert_eq!(said(GIB, &two_cards(), &shares)[0].0, 0);
    assert_eq!(said(GIB, &two_cards(), &shares)[1].0, 22);
}

#[test]
fn only_a_card_at_this_configs_generation_is_ready() {
    let mut status = two_cards();
    status.gpus[0].generation = "mps/nvidia.com/gpu/2x8065M@50.0".to_owned();
    status.gpus[1].state = GpuState::Fault;
    let states: Vec<String> = said(GIB, &status, &[]).into_iter().map(|(_, state)| state).collect();
    assert_eq!(states, ["Starting", "Fault"]);
}

#[test]
fn a_refused_card_is_said_with_no_units() {
    let mut status = two_cards();
    status.gpus[0].mig = Some(true);
    assert_eq!(said(GIB, &status, &[])[0], (0, "Refused".to_owned()));
}

#[test]
fn replicas_are_said_under_their_own_name() {
    let text = "sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}";
    let all = annotations(Some(&config(text)), Some(&two_cards()), &[], unused()).unwrap();
    let gpus: NodeGpus = all.gpus.unwrap().parse().unwrap();
    assert_eq!(gpus.0[0].resource.as_deref(), Some("nvidia.com/gpu"));
    assert_eq!((gpus.0[0].unit_mib, gpus.0[0].units), (8065, 2));
}

#[test]
fn a_node_that_is_not_shared_has_none_and_an_unread_one_keeps_what_it_has() {
    let nothing = Some(Annotations::default());
    assert_eq!(annotations(Some(&config("")), Some(&two_cards()), &[], unused()), nothing);
    assert_eq!(annotations(None, None, &[], unused()), nothing);
    assert_eq!(annotations(Some(&config(GIB)), None, &[], unused()), None);
}

#[test]
fn held_units_are_told_of_all_cards_or_of_none() {
    let held = BTreeMap::from([(UUIDS[0].to_owned(), 7)]);
    let told = |held| {
        let use_of_cards = UseOfCards { held, ..unused() };
        let all = annotations(Some(&config(GIB)), Some(&two_cards()), &[], use_of_cards).unwrap();
        let gpus = all.gpus().unwrap().0;
        gpus.into_iter().map(|gpu| gpu.held_units).collect::<Vec<_>>()
    };
    assert_eq!(told(Some(&held)), [Some(7), Some(0)]);
    assert_eq!(told(None), [None, None]);
}
