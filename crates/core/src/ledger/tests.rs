mod binds;
mod unconfirmed;

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::Reason;
use crate::testing::{resource, uuid};

const NOW: Duration = Duration::from_secs(1000);

fn memory() -> ResourceName {
    resource("aliyun.com/gpu-mem")
}

fn card(index: u32, units: u64) -> Card {
    Card {
        uuid: uuid(index),
        index,
        resource: memory(),
        unit: Memory::from_gib(1),
        units,
        not_ready: None,
        client_cap: 48,
        held: None,
        outside: Memory::ZERO,
        withheld: Memory::ZERO,
    }
}

fn node(cards: Vec<Card>) -> NodeFacts {
    NodeFacts { cards: Ok(cards), policy: Policy::Binpack, max_pods: None }
}

fn name(text: &str) -> NodeName {
    NodeName(text.to_owned())
}

fn uid(n: usize) -> PodUid {
    PodUid(format!("u{n}"))
}

fn wish(container: &str, stage: Stage, units: u64) -> Wish {
    Wish { container: container.to_owned(), position: 0, stage, resource: memory(), units }
}

fn demand(units: &[u64]) -> Demand {
    let wishes = units.iter().enumerate();
    Demand::new(wishes.map(|(at, n)| wish(&format!("c{at}"), Stage::Main, *n)).collect())
}

fn at(gpus: &[(u32, u64)]) -> Claim {
    let places = gpus
        .iter()
        .enumerate()
        .map(|(at, (gpu, units))| (format!("c{at}"), [(uuid(*gpu), *units)].into()));
    Claim::Of(Allocation(places.collect()))
}

fn pod(n: usize, on: Option<&str>, units: &[u64], claim: Claim) -> PodFacts {
    PodFacts {
        uid: uid(n),
        namespace: "default".to_owned(),
        name: format!("p{n}"),
        node: on.map(name),
        demand: demand(units),
        claim,
        is_confirmed: true,
    }
}

fn ledger(cards: Vec<Card>) -> Ledger {
    let mut ledger = Ledger::default();
    ledger.set_node(&name("n"), node(cards));
    ledger
}

fn free(ledger: &Ledger) -> Vec<u64> {
    let cards = ledger.node(&name("n")).unwrap().cards.as_ref().unwrap();
    cards.iter().map(|card| card.free().mib() / 1024).collect()
}

fn placed(ledger: &Ledger, units: &[u64]) -> Vec<u32> {
    let Ok(Plan::On { allocation, .. }) = ledger.plan(&name("n"), &demand(units)) else {
        return Vec::new();
    };
    let cards = ledger.node(&name("n")).unwrap().cards.as_ref().unwrap();
    let index =
        |gpu: &GpuUuid| cards.iter().find(|card| card.card.uuid == *gpu).unwrap().card.index;
    allocation.0.values().map(|gpus| index(gpus.keys().next().unwrap())).collect()
}

fn refusal(ledger: &Ledger, demand: &Demand) -> String {
    ledger.plan(&name("n"), demand).unwrap_err().to_string()
}

#[test]
fn two_pods_of_7_fill_a_card_of_15_and_the_third_hears_why_it_waits() {
    let mut ledger = ledger(vec![card(0, 15)]);
    ledger.set_pod(pod(1, Some("n"), &[7], at(&[(0, 7)])));
    ledger.set_pod(pod(2, Some("n"), &[7], at(&[(0, 7)])));
    assert_eq!(
        refusal(&ledger, &demand(&[2])),
        "not enough `aliyun.com/gpu-mem` on one GPU for 2: 14 of 15 GiB allocated on GPU0"
    );
    assert_eq!(placed(&ledger, &[1]), [0]);
}

#[test]
fn the_card_with_the_least_room_that_fits_is_taken_and_spread_takes_the_emptiest() {
    let cards = vec![card(0, 12), card(1, 8), card(2, 4), card(3, 16)];
    let mut ledger = ledger(cards.clone());
    assert_eq!(placed(&ledger, &[8]), [1]);
    ledger.set_node(&name("n"), NodeFacts { policy: Policy::Spread, ..node(cards) });
    assert_eq!(placed(&ledger, &[8]), [3]);
}

#[test]
fn containers_go_to_cards_of_their_own_where_none_has_room_for_both() {
    let mut ledger = ledger(vec![card(0, 10), card(1, 8)]);
    assert_eq!(placed(&ledger, &[7, 8]), [0, 1]);
    assert_eq!(placed(&ledger, &[3, 3]), [1, 1]);
    // Largest first on the tightest card would leave 4 + 4 without a place: another card is tried.
    ledger.set_node(&name("n"), node(vec![card(0, 8), card(1, 9)]));
    assert_eq!(placed(&ledger, &[5, 4, 4, 4]), [1, 1, 0, 0]);
    assert!(
        refusal(&ledger, &demand(&[9, 9]))
            .starts_with("not enough `aliyun.com/gpu-mem` on one GPU for 9 + 9")
    );
}

#[test]
fn a_pod_with_an_init_container_is_kept_on_one_card_and_counts_its_peak() {
    let wishes = vec![
        wish("i", Stage::Init, 6),
        wish("s", Stage::Sidecar, 2),
        wish("c", Stage::Main, 4),
        wish("d", Stage::Main, 1),
    ];
    let demand = Demand::new(wishes);
    assert_eq!(demand.peak(), 7);
    let mut ledger = ledger(vec![card(0, 6), card(1, 7)]);
    let Ok(Plan::On { allocation, .. }) = ledger.plan(&name("n"), &demand) else { panic!() };
    assert!(!allocation.names(&uuid(0)));
    let claim = Claim::Of(allocation);
    ledger.set_pod(PodFacts { demand, claim, ..pod(1, Some("n"), &[], Claim::Absent) });
    assert_eq!(free(&ledger), [6, 0]);
}

#[test]
fn no_annotation_frees_or_hides_what_a_spec_asks_for() {
    for claim in [
        Claim::Absent,
        Claim::Unreadable,
        at(&[(0, 1)]),
        at(&[(0, u64::MAX)]),
        at(&[(9, 7)]),
        at(&[(0, 7), (1, 7)]),
        Claim::Of(Allocation::default()),
    ] {
        let mut ledger = ledger(vec![card(0, 15), card(1, 15)]);
        ledger.set_pod(pod(1, Some("n"), &[7], claim.clone()));
        assert_eq!(free(&ledger), [8, 8], "{claim:?}");
        assert_eq!(ledger.node(&name("n")).unwrap().unplaced, [uid(1)]);
    }
}

#[test]
fn a_claim_that_becomes_another_one_frees_nothing_until_it_is_withdrawn() {
    let mut ledger = ledger(vec![card(0, 15), card(1, 15)]);
    let claims = |ledger: &mut Ledger, claim: Claim| {
        ledger.set_pod(pod(1, Some("n"), &[7], claim));
        free(ledger)
    };
    assert_eq!(claims(&mut ledger, at(&[(0, 7)])), [8, 15]);
    assert_eq!(claims(&mut ledger, at(&[(1, 7)])), [8, 8], "a lie");
    assert_eq!(claims(&mut ledger, at(&[(1, 7)])), [8, 8], "told again");
    assert_eq!(claims(&mut ledger, at(&[(0, 7)])), [8, 15], "taken back");
    assert_eq!(claims(&mut ledger, at(&[(1, 7)])), [8, 8]);
    assert_eq!(claims(&mut ledger, Claim::Absent), [8, 8], "withdrawn by the node");
    assert_eq!(claims(&mut ledger, at(&[(1, 7)])), [15, 8]);
    assert_eq!(claims(&mut ledger, at(&[(0, 7)])), [8, 8]);
    ledger.expire(NOW);
    ledger.expire(NOW + Duration::from_secs(89));
    assert_eq!(free(&ledger), [8, 8]);
    ledger.expire(NOW + Duration::from_secs(90));
    assert_eq!(free(&ledger), [8, 15], "the node lets it stand");
}

#[test]
fn a_whole_card_beside_memory_needs_no_place() {
    let whole = Card { resource: "nvidia.com/gpu".parse().unwrap(), ..card(2, 1) };
    let mut ledger = ledger(vec![card(0, 15), card(1, 15), whole]);
    let mut facts = pod(1, Some("n"), &[7], at(&[(0, 7)]));
    let of_card = Wish {
        container: "whole".to_owned(),
        resource: "nvidia.com/gpu".parse().unwrap(),
        units: 1,
        ..facts.demand.wishes()[0].clone()
    };
    let wishes = facts.demand.wishes().iter().cloned().chain([of_card]);
    facts.demand = Demand::new(wishes.collect());
    ledger.set_pod(facts);
    assert_eq!(free(&ledger)[..2], [8, 15]);
}

#[test]
fn more_than_a_card_has_saturates() {
    let mut ledger = ledger(vec![card(0, 15)]);
    for n in 0..3 {
        ledger.set_pod(pod(n, Some("n"), &[u64::MAX], Claim::Absent));
        ledger.set_pod(pod(n + 10, Some("n"), &[9], at(&[(0, 9)])));
    }
    assert_eq!(free(&ledger), [0]);
    assert!(ledger.plan(&name("n"), &demand(&[1])).is_err());
    assert!(ledger.plan(&name("n"), &demand(&[10_000_000_000])).is_err());
}

#[test]
fn cards_that_arent_ready_or_have_their_most_pods_or_clients_are_left_out() {
    let faulty = Card { not_ready: Some("Fault".to_owned()), ..card(0, 15) };
    let crowded = Card { client_cap: 1, ..card(1, 15) };
    let mut ledger = ledger(vec![faulty, crowded.clone()]);
    ledger.set_pod(pod(1, Some("n"), &[1], at(&[(1, 1)])));
    assert_eq!(
        refusal(&ledger, &demand(&[2])),
        "not enough `aliyun.com/gpu-mem` on one GPU for 2: GPU0 is Fault, \
         1 of 15 GiB allocated on GPU1 to 1 clients, the most that MPS takes"
    );
    let facts = NodeFacts { max_pods: Some(1), ..node(vec![card(1, 15)]) };
    ledger.set_node(&name("n"), facts);
    assert_eq!(
        refusal(&ledger, &demand(&[2])),
        "not enough `aliyun.com/gpu-mem` on one GPU for 2: \
         1 of 15 GiB allocated on GPU1 to 1 pods, the node's most"
    );
}

#[test]
fn what_mps_cant_do_is_refused() {
    let ledger = ledger(vec![card(0, 15), card(1, 15)]);
    let several = demand(&[8]).with_gpu_count(Some("2".to_owned()));
    assert!(matches!(ledger.plan(&name("n"), &several), Err(Reason::SeveralGpusAsked { .. })));
    let one = demand(&[8]).with_gpu_count(Some("1".to_owned()));
    assert!(ledger.plan(&name("n"), &one).is_ok());
    assert!(matches!(ledger.plan(&name("other"), &one), Err(Reason::NoUnits { .. })));
}

#[test]
fn replicas_need_one_card_with_as_many_left_and_whole_cards_are_the_kubelets() {
    let gpu = resource("nvidia.com/gpu");
    let shared = |index, units| Card { resource: gpu.clone(), ..card(index, units) };
    let asks = |units| {
        let wish = Wish { resource: gpu.clone(), ..wish("c0", Stage::Main, units) };
        Demand::new(vec![wish])
    };
    let mut ledger = ledger(vec![shared(0, 4), shared(1, 4)]);
    let taken = PodFacts { demand: asks(3), ..pod(1, Some("n"), &[], at(&[(0, 3)])) };
    ledger.set_pod(taken);
    assert!(matches!(ledger.plan(&name("n"), &asks(4)), Ok(Plan::On { .. })));
    assert!(ledger.plan(&name("n"), &asks(5)).is_err());
    ledger.set_node(&name("n"), node(vec![shared(0, 1), shared(1, 1)]));
    assert_eq!(ledger.plan(&name("n"), &asks(2)), Ok(Plan::Anywhere));
    assert_eq!(ledger.plan(&name("other"), &asks(2)), Ok(Plan::Anywhere));
}

#[test]
fn a_list_ends_what_it_doesnt_show_and_binds_that_ended_before_it() {
    let mut ledger = ledger(vec![card(0, 15)]);
    ledger.set_pod(pod(1, Some("n"), &[3], at(&[(0, 3)])));
    for n in [2, 3] {
        assert!(ledger.reserve(&uid(n), &demand(&[4]), &name("n"), NOW).is_ok());
    }
    ledger.bound(&uid(2), &name("n"));
    let older = ledger.unseen();
    ledger.bound(&uid(3), &name("n"));
    ledger.keep_pods(&BTreeSet::new(), &older, NOW);
    assert_eq!(free(&ledger), [11]);
    // Pod 3 may have been gone before the list was made; then no event will tell.
    ledger.expire(NOW + Duration::from_secs(89));
    assert_eq!(free(&ledger), [11]);
    ledger.expire(NOW + Duration::from_secs(90));
    assert_eq!(free(&ledger), [15]);
    ledger.keep_nodes(&BTreeSet::new());
    assert!(ledger.node(&name("n")).is_none());
}

/// What may happen in a cluster.
#[derive(Debug, Clone)]
enum Step {
    Bind(usize, Vec<u64>, usize),
    Confirm(usize),
    Lose(usize),
    Fail(usize),
    Show(usize),
    Delete(usize),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let pod = 0..12_usize;
    prop_oneof![
        4 => (pod.clone(), prop::collection::vec(0..9_u64, 1..4), 0..2_usize)
            .prop_map(|(pod, units, node)| Step::Bind(pod, units, node)),
        2 => pod.clone().prop_map(Step::Confirm),
        1 => pod.clone().prop_map(Step::Lose),
        1 => pod.clone().prop_map(Step::Fail),
        3 => pod.clone().prop_map(Step::Show),
        2 => pod.prop_map(Step::Delete),
        1 => Just(Step::Restart),
    ]
}

/// The API server's truth beside the ledger.
struct World {
    ledger: Ledger,
    truth: BTreeMap<PodUid, PodFacts>,
    in_flight: BTreeMap<usize, PodFacts>,
}

impl World {
    fn new() -> Self {
        let mut world =
            Self { ledger: Ledger::default(), truth: BTreeMap::new(), in_flight: BTreeMap::new() };
        world.nodes();
        world
    }

    fn nodes(&mut self) {
        for node_name in ["n0", "n1"] {
            self.ledger.set_node(&name(node_name), node(vec![card(0, 10), card(1, 7)]));
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Bind(n, units, on) => self.bind(n, &units, on),
            Step::Confirm(n) => self.land(n, Ledger::bound),
            Step::Lose(n) => self.land(n, |ledger, uid, on| ledger.leave_open(uid, on, NOW)),
            Step::Fail(n) => {
                if let Some(pod) = self.in_flight.remove(&n) {
                    self.ledger.release(&pod.uid, &pod.node.unwrap());
                }
            }
            Step::Show(n) => {
                if let Some(pod) = self.truth.get(&uid(n)) {
                    self.ledger.set_pod(pod.clone());
                }
            }
            Step::Delete(n) => {
                if self.truth.remove(&uid(n)).is_some() {
                    self.ledger.remove_pod(&uid(n));
                }
            }
            Step::Restart => {
                self.ledger = Ledger::default();
                self.in_flight.clear();
                self.nodes();
                for pod in self.truth.values() {
                    self.ledger.set_pod(pod.clone());
                }
            }
        }
    }

    fn bind(&mut self, n: usize, units: &[u64], on: usize) {
        let on = name(&format!("n{on}"));
        if self.truth.contains_key(&uid(n)) || self.in_flight.contains_key(&n) {
            return;
        }
        let asked = demand(units);
        if let Ok(Reserved::Go(Some(place))) = self.ledger.reserve(&uid(n), &asked, &on, NOW) {
            let facts = pod(n, Some(&on.0), units, Claim::Of(place));
            self.in_flight.insert(n, facts);
        }
    }

    fn land(&mut self, n: usize, tell: impl Fn(&mut Ledger, &PodUid, &NodeName)) {
        if let Some(pod) = self.in_flight.remove(&n) {
            tell(&mut self.ledger, &pod.uid, pod.node.as_ref().unwrap());
            self.truth.insert(pod.uid.clone(), pod);
        }
    }

    fn held(&self, node: &str, gpu: u32) -> u64 {
        let pods = self.truth.values().filter(|pod| pod.node == Some(name(node)));
        let places = pods.filter_map(|pod| match &pod.claim {
            Claim::Of(allocation) => Some(&allocation.0),
            Claim::Absent | Claim::Unreadable => None,
        });
        places.flat_map(BTreeMap::values).filter_map(|gpus| gpus.get(&uuid(gpu))).sum()
    }
}

proptest! {
    #[test]
    fn no_order_of_events_over_commits_a_card(steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
            for node in ["n0", "n1"] {
                prop_assert!(world.held(node, 0) <= 10);
                prop_assert!(world.held(node, 1) <= 7);
            }
        }
    }

    #[test]
    fn a_place_always_has_room_for_what_it_gets(
        needs in prop::collection::vec(1..12_u64, 1..4),
        cards in prop::collection::vec(1..16_u64, 1..5),
        spread in any::<bool>(),
    ) {
        let policy = if spread { Policy::Spread } else { Policy::Binpack };
        let cards: Vec<Card> =
            cards.iter().zip(0..).map(|(units, index)| card(index, *units)).collect();
        let mut ledger = Ledger::default();
        ledger.set_node(&name("n"), NodeFacts { policy, ..node(cards.clone()) });
        let demand = demand(&needs);
        let plan = ledger.plan(&name("n"), &demand);
        let room = ledger.room_for("n", &demand).map_err(|unfit| unfit.reason());
        prop_assert_eq!(&plan.as_ref().map(drop).map_err(Clone::clone), &room);
        if let Ok(Plan::On { allocation, score }) = plan {
            prop_assert_eq!(ledger.score("n", &demand), score);
            prop_assert!(score <= 10);
            prop_assert_eq!(allocation.0.len(), needs.len());
            for card in &cards {
                let gpus = allocation.0.values().filter_map(|gpus| gpus.get(&card.uuid));
                prop_assert!(gpus.sum::<u64>() <= card.units);
            }
        }
    }
}

#[test]
fn memory_outside_of_shares_is_taken_off_in_whole_units_where_that_is_wished() {
    let mut used = card(0, 15);
    used.outside = Memory::from_mib(1336);
    for (outside, most) in [(Outside::Ignored, 15), (Outside::Subtracted, 13)] {
        let mut ledger = Ledger::new(outside);
        ledger.set_node(&name("n"), node(vec![used.clone()]));
        let usage = ledger.node(&name("n")).unwrap();
        assert!(usage.room_for(&demand(&[most])).is_ok(), "{outside:?}");
        let more = demand(&[most + 1]);
        let why = usage.room_for(&more).unwrap_err().reason().to_string();
        let says_why = why.contains("2 GiB used by processes without a share");
        assert_eq!(says_why, outside == Outside::Subtracted, "{why}");
    }
}
