//! The extender: the real ledger, fed by watches that may lag, and a bind that goes the way of
//! `bind.rs`: room first, then the POST, then a look where the answer says too little.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use mpshare_api::pod::Pod;
use mpshare_api::pod_allocation::annotations;
use mpshare_core::Reason;
use mpshare_core::ledger::{Ledger, NodeFacts, NodeName, PodUid, Reserved};

use crate::api::{Answer, Api, Change, is_live};

/// A Binding on its way.
#[derive(Debug, Clone)]
pub(crate) struct Post {
    pub(crate) id: usize,
    pub(crate) uid: String,
    pub(crate) node: String,
    pub(crate) annotations: BTreeMap<&'static str, String>,
    pub(crate) sent: Duration,
}

/// When something is asked, and under which number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stamp {
    pub(crate) now: Duration,
    pub(crate) id: usize,
}

/// How far a call of `bind` is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Posted,
    /// No success was answered: is the pod bound?
    Looking(Was),
}

/// What the API server's answer was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Was {
    /// No.
    Refused,
    /// None: the request may still take effect.
    Open,
}

#[derive(Debug, Clone)]
struct Call {
    post: usize,
    uid: PodUid,
    node: NodeName,
    stage: Stage,
}

/// A list that takes its time, during which binds go on.
#[derive(Debug, Default)]
struct Relist {
    older: BTreeSet<PodUid>,
    /// `None` until the API server has answered.
    pods: Option<Vec<Arc<Pod>>>,
    known: BTreeSet<PodUid>,
}

/// An extender.
#[derive(Debug, Default)]
pub(crate) struct Extender {
    pub(crate) ledger: Ledger,
    calls: Vec<Call>,
    /// What the watches have yet to deliver: one of all pods, in the order of the writes, and one of the
    /// nodes.
    pods: VecDeque<(String, Option<Arc<Pod>>)>,
    nodes: BTreeMap<&'static str, VecDeque<NodeFacts>>,
    relist: Option<Relist>,
}

/// What the call of `bind` came to at once.
#[derive(Debug)]
pub(crate) enum Begun {
    /// A Binding is on its way.
    Sent(Post),
    /// A success without one.
    AlreadyThere,
    /// It is on another node.
    Elsewhere(NodeName),
    /// Not now.
    Refused(Option<Reason>),
}

impl Extender {
    /// One that has listed everything.
    pub(crate) fn started(api: &Api) -> Self {
        let mut extender = Self::default();
        for (name, facts) in &api.nodes {
            extender.ledger.set_node(&NodeName((*name).to_owned()), facts.clone());
        }
        api.pods.values().for_each(|pod| extender.apply(Some(pod), ""));
        extender.ledger.doubt_unconfirmed();
        extender
    }

    /// Takes changes into its watches' queues.
    pub(crate) fn hear(&mut self, change: &Change) {
        match change {
            Change::Pod(uid, pod) => {
                self.pods.push_back((uid.clone(), pod.clone()));
            }
            Change::Node(name, facts) => {
                self.nodes.entry(name).or_default().push_back(facts.clone());
            }
        }
    }

    fn apply(&mut self, pod: Option<&Pod>, uid: &str) {
        match pod.map(|pod| (pod, pod.facts())) {
            Some((_, Some(facts))) => self.ledger.set_pod(facts),
            Some((pod, None)) => self.ledger.remove_pod(&PodUid(pod.metadata.uid.clone())),
            None => self.ledger.remove_pod(&PodUid(uid.to_owned())),
        }
    }

    /// Delivers one event, any of those that are the next.
    pub(crate) fn deliver(&mut self, random: &mut Rng) -> bool {
        let nodes: Vec<&'static str> = self.nodes.keys().copied().collect();
        // The watch of pods has ended.
        let has_pods = self.relist.is_none() && !self.pods.is_empty();
        if nodes.is_empty() && !has_pods {
            return false;
        }
        let at = random.usize(0..nodes.len() + usize::from(has_pods));
        if let Some(name) = nodes.get(at) {
            let queue = self.nodes.entry(name).or_default();
            if let Some(facts) = queue.pop_front() {
                self.ledger.set_node(&NodeName((*name).to_owned()), facts);
            }
            self.nodes.retain(|_, queue| !queue.is_empty());
        } else if let Some((uid, pod)) = self.pods.pop_front() {
            self.apply(pod.as_deref(), &uid);
        }
        true
    }

    /// Goes on with listing all pods anew, or begins to.
    pub(crate) fn relist(&mut self, api: &Api, now: Duration, random: &mut Rng) {
        let Some(relist) = &mut self.relist else {
            let older = self.ledger.unseen();
            self.relist = Some(Relist { older, ..Relist::default() });
            return;
        };
        let Some(pods) = &mut relist.pods else {
            // The list holds all that these events told.
            self.pods.clear();
            let mut pods: Vec<Arc<Pod>> = api.pods.values().cloned().collect();
            random.shuffle(&mut pods);
            relist.pods = Some(pods);
            return;
        };
        if let Some(pod) = pods.pop() {
            if let Some(facts) = pod.facts() {
                relist.known.insert(facts.uid);
            }
            return self.apply(Some(&pod), "");
        }
        let Some(relist) = self.relist.take() else { return };
        self.ledger.keep_pods(&relist.known, &relist.older, now);
    }

    /// Whether it is in the middle of a list.
    pub(crate) fn is_listing(&self) -> bool {
        self.relist.is_some()
    }

    /// A call of `bind`.
    pub(crate) fn bind(&mut self, api: &Api, uid: &str, node: &str, stamp: Stamp) -> Begun {
        let Stamp { now, id } = stamp;
        let (key, name) = (PodUid(uid.to_owned()), NodeName(node.to_owned()));
        let known = self.ledger.pod(&key).map(|pod| pod.demand.clone());
        let Some(demand) = known.or_else(|| api.pods.get(uid).map(|pod| pod.demand())) else {
            return Begun::Refused(None);
        };
        let allocation = match self.ledger.reserve(&key, &demand, &name, now) {
            Ok(Reserved::Go(Some(allocation))) => allocation,
            // No card here is whole, and none is somebody else's.
            Ok(Reserved::Go(None) | Reserved::Busy) => return Begun::Refused(None),
            Ok(Reserved::AlreadyThere) => return Begun::AlreadyThere,
            Ok(Reserved::Elsewhere(node)) => return Begun::Elsewhere(node),
            Err(reason) => return Begun::Refused(Some(reason)),
        };
        let cards = self.ledger.node(&name).and_then(|usage| usage.cards.as_ref().ok());
        let cards: Vec<_> = cards.into_iter().flatten().map(|card| card.card.clone()).collect();
        let annotations = annotations(&allocation, &demand, &cards, 0);
        self.calls.push(Call { post: id, uid: key, node: name, stage: Stage::Posted });
        Begun::Sent(Post { id, uid: uid.to_owned(), node: node.to_owned(), annotations, sent: now })
    }

    /// The API server's answer to a Binding comes, or doesn't.
    pub(crate) fn answered(&mut self, post: usize, answer: Option<Answer>) {
        let Some(at) = self.calls.iter().position(|call| call.post == post) else { return };
        if self.calls[at].stage != Stage::Posted {
            return;
        }
        match answer {
            Some(Answer::Bound) => {
                let call = self.calls.swap_remove(at);
                self.ledger.bound(&call.uid, &call.node);
            }
            Some(Answer::Gone) => {
                let call = self.calls.swap_remove(at);
                self.ledger.release(&call.uid, &call.node);
            }
            Some(Answer::Conflict) => self.calls[at].stage = Stage::Looking(Was::Refused),
            None => self.calls[at].stage = Stage::Looking(Was::Open),
        }
    }

    /// Bindings that it still waits for, or has to look after.
    pub(crate) fn open_posts(&self) -> Vec<usize> {
        let open = self.calls.iter().filter(|call| call.stage == Stage::Posted);
        open.map(|call| call.post).collect()
    }

    /// Looks at a pod whose bind wasn't answered with success; the look itself may fail.
    pub(crate) fn look(&mut self, api: &Api, now: Duration, random: &mut Rng, fails: bool) -> bool {
        let looking: Vec<usize> =
            (0..self.calls.len()).filter(|at| self.calls[*at].stage != Stage::Posted).collect();
        let Some(at) = random.choice(looking) else { return false };
        let Call { uid, node, stage, .. } = self.calls.swap_remove(at);
        let pod = api.pods.get(&uid.0);
        if fails {
            self.ledger.leave_open(&uid, &node, now);
            return true;
        }
        let on = pod.and_then(|pod| pod.spec.node_name.as_deref());
        let is_deleted = pod.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some());
        match on {
            Some(_) if pod.is_some_and(|pod| !is_live(pod)) => self.ledger.release(&uid, &node),
            Some(on) if on == node.0 => self.ledger.bound(&uid, &node),
            Some(_) => self.ledger.release(&uid, &node),
            None if is_deleted || stage == Stage::Looking(Was::Refused) => {
                self.ledger.release(&uid, &node);
            }
            None => self.ledger.leave_open(&uid, &node, now),
        }
        true
    }
}
