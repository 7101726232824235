use super::*;
use crate::testing::{inventory, node_config, ready, resource, share, status, unit, uuid};
use mpshare_core::plan;

const SETTLE: Duration = Duration::from_secs(1);
const LEAVING: Duration = Duration::from_secs(5);

/// A node with one card, whose state a test changes step by step.
struct Node {
    start: Instant,
    replicas: u32,
    status: Option<NodeStatus>,
    live: Vec<LiveShare>,
    activity: Activity,
    offers: Offers,
    again: Option<Duration>,
}

fn generation(replicas: u32) -> String {
    let node = plan(&node_config(replicas), &inventory(1), &[]);
    node.gpus[0].generation.to_string()
}

fn ready_at(replicas: u32) -> NodeStatus {
    status(vec![ready(0, &generation(replicas))])
}

impl Node {
    /// Shared into two and ready.
    fn new() -> Self {
        let mut node = Self {
            start: Instant::now(),
            replicas: 2,
            status: Some(ready_at(2)),
            live: Vec::new(),
            activity: Activity::default(),
            offers: Offers::default(),
            again: None,
        };
        node.after(0.0);
        node
    }

    fn at(&self, seconds: f64) -> Instant {
        self.start + Duration::from_secs_f64(seconds)
    }

    /// Decides at a time; healthy units and all of them.
    fn after(&mut self, seconds: f64) -> (Vec<u32>, usize) {
        let plan = plan(&node_config(self.replicas), &inventory(1), &self.live);
        let inputs = Inputs {
            plan: Some(&plan),
            status: self.status.as_ref(),
            live: &self.live,
            activity: self.activity,
            settle: SETTLE,
            leaving: LEAVING,
        };
        let decision = decide(&self.offers, &inputs, self.at(seconds));
        self.offers = decision.offers;
        self.again = decision.again.map(|at| at - self.start);
        let list = &self.offers.lists()[&resource("nvidia.com/gpu")];
        let healthy = (0..8).filter(|n| {
            let offered = list.get(&unit(0, *n));
            offered.is_some_and(|unit| unit.health == Health::Healthy)
        });
        (healthy.collect(), list.len())
    }

    fn state(&mut self, state: GpuState) {
        self.status.as_mut().unwrap().gpus[0].state = state;
    }
}

#[test]
fn units_are_healthy_only_at_the_generation_of_the_plan() {
    let mut node = Node::new();
    assert_eq!(node.after(0.0), (vec![0, 1], 2));
    assert_eq!(node.again, None);
    for missing in [None, Some(ready_at(3))] {
        let mut node = Node::new();
        node.offers = Offers::default();
        node.status = missing;
        assert_eq!(node.after(0.0), (vec![], 2));
    }
}

#[test]
fn a_card_that_stops_being_ready_takes_its_units_off_the_offer_at_once() {
    for state in [GpuState::Starting, GpuState::Fault, GpuState::Absent] {
        let mut node = Node::new();
        node.state(state);
        assert_eq!(node.after(0.1), (vec![], 2), "{state}");
        assert_eq!(node.again, None);
    }
}

#[test]
fn while_the_supervisor_follows_a_change_old_units_stay_and_new_ones_wait() {
    let mut node = Node::new();
    node.replicas = 4;
    assert_eq!(node.after(1.0), (vec![0, 1], 4));
    assert_eq!(node.again, Some(Duration::from_secs(2)));
    node.state(GpuState::Starting);
    assert_eq!(node.after(1.5), (vec![0, 1], 4));
    node.status = Some(ready_at(4));
    assert_eq!(node.after(1.6), (vec![0, 1, 2, 3], 4));
    assert_eq!(node.again, None);
}

#[test]
fn a_change_that_is_not_followed_takes_all_off_the_offer() {
    let mut node = Node::new();
    node.replicas = 4;
    node.after(1.0);
    node.replicas = 3;
    assert_eq!(node.after(1.9), (vec![0, 1], 4), "another change doesn't begin anew");
    assert_eq!(node.after(2.0), (vec![], 4));
    assert_eq!(node.after(2.1), (vec![], 4));
}

#[test]
fn a_card_that_breaks_in_the_middle_of_a_change_is_off_the_offer_at_once() {
    let mut node = Node::new();
    node.replicas = 4;
    node.after(1.0);
    node.state(GpuState::Fault);
    assert_eq!(node.after(1.1), (vec![], 4));
    node.state(GpuState::Starting);
    assert_eq!(node.after(1.2), (vec![], 4), "and stays so until it is verified");
}

#[test]
fn an_id_that_leaves_the_plan_is_unhealthy_first_and_gone_after_five_quiet_seconds() {
    let mut node = Node::new();
    node.replicas = 4;
    node.status = Some(ready_at(4));
    node.after(1.0);
    node.replicas = 2;
    node.status = Some(ready_at(2));
    assert_eq!(node.after(10.0), (vec![0, 1], 4));
    assert_eq!(node.again, Some(Duration::from_secs(15)));
    assert_eq!(node.after(14.9), (vec![0, 1], 4));
    assert_eq!(node.after(15.0), (vec![0, 1], 2));
}

#[test]
fn a_call_of_the_kubelet_keeps_leaving_ids_in_the_list() {
    let mut node = Node::new();
    node.replicas = 1;
    node.status = Some(ready_at(1));
    node.after(10.0);
    let (begin, end) = (node.at(14.0), node.at(17.0));
    node.activity.begin(begin);
    assert_eq!(node.after(16.0).1, 3, "the whole card and two former units");
    assert_eq!(node.again, None, "the end of the call is what comes next");
    node.activity.end(end);
    assert_eq!(node.after(17.0).1, 3);
    assert_eq!(node.again, Some(Duration::from_secs(22)));
    assert_eq!(node.after(22.0).1, 1);
}

#[test]
fn a_leaving_id_that_comes_back_begins_anew() {
    let mut node = Node::new();
    node.replicas = 4;
    node.status = Some(ready_at(4));
    node.after(1.0);
    for (replicas, at) in [(2, 10.0), (4, 12.0), (2, 14.0)] {
        node.replicas = replicas;
        node.status = Some(ready_at(replicas));
        node.after(at);
    }
    assert_eq!(node.after(15.5).1, 4, "gone since 14, not since 10");
    assert_eq!(node.after(19.0).1, 2);
}

#[test]
fn a_held_id_never_leaves_and_is_healthy_whatever_the_config() {
    let mut node = Node::new();
    node.live = vec![share(&[unit(0, 3)], 3840, 250)];
    assert_eq!(node.after(1.0), (vec![0, 3], 3), "one half fits beside a quarter");
    assert_eq!(node.after(100.0), (vec![0, 3], 3));
    node.status = Some(ready_at(4));
    assert_eq!(node.after(101.0), (vec![3], 3), "the generation doesn't touch it");
    node.state(GpuState::Fault);
    assert_eq!(node.after(102.0), (vec![], 3), "the card does");
}

#[test]
fn a_renamed_resource_ends_as_an_empty_list() {
    let mut node = Node::new();
    node.after(0.0);
    let empty = Inputs {
        plan: None,
        status: None,
        live: &[],
        activity: Activity::default(),
        settle: SETTLE,
        leaving: LEAVING,
    };
    let leaving = decide(&node.offers, &empty, node.at(1.0));
    let gone = decide(&leaving.offers, &empty, leaving.again.unwrap());
    let list = &gone.offers.lists()[&resource("nvidia.com/gpu")];
    assert!(list.is_empty());
    assert_eq!(gone.again, None);
}

#[test]
fn without_a_plan_held_units_are_still_listed() {
    let live = [share(&[unit(0, 1)], 7680, 500)];
    let status = ready_at(2);
    let inputs = Inputs {
        plan: None,
        status: Some(&status),
        live: &live,
        activity: Activity::default(),
        settle: SETTLE,
        leaving: LEAVING,
    };
    let decision = decide(&Offers::default(), &inputs, Instant::now());
    let list = &decision.offers.lists()[&resource("nvidia.com/gpu")];
    assert_eq!(list[&unit(0, 1)].health, Health::Healthy);
}

#[test]
fn a_device_has_id_health_and_numa_node() {
    let mut node = Node::new();
    node.state(GpuState::Fault);
    node.after(1.0);
    let list = devices(&node.offers.lists()[&resource("nvidia.com/gpu")]);
    assert_eq!(list[0].id, format!("{}::0", uuid(0)));
    assert_eq!(list[0].health, "Unhealthy");
    let topology = list[0].topology.as_ref().unwrap();
    assert_eq!(topology.nodes, [NumaNode { id: 0 }]);
}

#[test]
fn the_first_list_waits_for_the_supervisors_verdict_good_or_bad() {
    let mut node = Node::new();
    assert!(node.offers.all_judged(node.status.as_ref()));
    node.offers = Offers::default();
    assert!(!node.offers.all_judged(node.status.as_ref()), "no card, no verdict");
    node.state(GpuState::Starting);
    node.after(0.0);
    assert!(!node.offers.all_judged(node.status.as_ref()));
    node.state(GpuState::Fault);
    assert!(node.offers.all_judged(node.status.as_ref()));
}
