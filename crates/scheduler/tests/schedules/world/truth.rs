//! What must be true: at every moment, and in the end.

use std::collections::BTreeMap;

use mpshare_core::ledger::{Ledger, NodeName};

use super::World;
use crate::extender::{Extender, Post};
use crate::kubelet::{Kubelet, claimed};

impl World {
    /// What must be true at every moment.
    pub(super) fn check(&self) -> Result<(), String> {
        for kubelet in &self.kubelets {
            let is_exact = self.is_exact();
            let promised = if is_exact { self.promised(kubelet) } else { BTreeMap::new() };
            for (at, card) in kubelet.cards.iter().enumerate() {
                let name = format!("{} of {}", card.uuid, kubelet.name);
                let held = kubelet.on_card(at);
                if held > card.size {
                    return Err(format!("{held} of {} units handed out on {name}", card.size));
                }
                if !is_exact {
                    continue;
                }
                let promised = promised.get(&card.uuid).copied().unwrap_or(0);
                if promised > card.size {
                    return Err(format!("{promised} of {} units promised on {name}", card.size));
                }
                let counted = self.counted(kubelet.name, &card.uuid);
                if counted < promised {
                    return Err(format!("{promised} units promised on {name}, {counted} counted"));
                }
            }
        }
        Ok(())
    }

    /// What pods that are bound hold by their annotations, until their containers have ended.
    pub(super) fn promised(&self, kubelet: &Kubelet) -> BTreeMap<String, u64> {
        let mut sums = BTreeMap::new();
        let coming = kubelet.coming(&self.api);
        for pod in self.api.on(kubelet.name) {
            let uid = &pod.metadata.uid;
            if !coming.contains(uid) && !kubelet.held.contains_key(uid) {
                continue;
            }
            let places = claimed(pod).into_iter().flat_map(|it| it.0.into_values()).flatten();
            for (gpu, units) in places {
                *sums.entry(gpu.to_string()).or_default() += units;
            }
        }
        sums
    }

    /// What the leader counts on a card, in units of a GiB.
    pub(super) fn counted(&self, node: &str, card: &str) -> u64 {
        let extender = self.extenders.get(&self.leader);
        let usage = extender.and_then(|it| it.ledger.node(&NodeName(node.to_owned())));
        let cards = usage.and_then(|usage| usage.cards.as_ref().ok()).into_iter().flatten();
        let mine = cards.filter(|usage| usage.card.uuid.as_str() == card);
        mine.map(|usage| usage.held().mib() / 1024).sum()
    }

    /// Whoever sent a Binding that takes effect counts it, whatever it has heard since.
    pub(super) fn is_covered(&self, owner: usize, post: &Post) -> Result<(), String> {
        let Some(extender) = self.extenders.get(&owner) else { return Ok(()) };
        let Some(usage) = extender.ledger.node(&NodeName(post.node.clone())) else {
            return Err(format!("{} isn't counted by its binder", post.uid));
        };
        let cards = usage.cards.as_ref().ok().into_iter().flatten();
        let plan = post.annotations.get(mpshare_api::names::ALLOCATION);
        let is_placed = cards
            .filter(|card| plan.is_some_and(|plan| plan.contains(card.card.uuid.as_str())))
            .all(|card| card.pods.iter().any(|(uid, _)| uid.0 == post.uid));
        // Where the plan isn't possible any more it counts on every card.
        let is_anywhere = usage.unplaced.iter().any(|uid| uid.0 == post.uid);
        let is_counted = is_placed || is_anywhere;
        is_counted.then_some(()).ok_or_else(|| format!("{} isn't counted by its binder", post.uid))
    }

    /// Ledger, annotations and kubelets say the same, and nobody waits who needn't.
    pub(super) fn is_true(&mut self) -> Result<(), String> {
        let fresh = Extender::started(&self.api);
        let waiting = self.pending();
        self.tally.waiting += waiting.len();
        for uid in &waiting {
            let demand = self.api.pods.get(uid).map(|pod| pod.demand());
            let demand = demand.unwrap_or_default();
            for (name, _) in self.layout.nodes {
                let name = NodeName((*name).to_owned());
                let fits = |ledger: &Ledger| ledger.plan(&name, &demand).is_ok();
                if fits(&fresh.ledger) {
                    return Err(format!("{uid} waits although {name} has room"));
                }
            }
        }
        let nodes = self.layout.nodes;
        let leader = self.ask()?;
        if leader.ledger.reservations() > 0 {
            let open = leader.ledger.reservations();
            return Err(format!("{open} binds are open for ever"));
        }
        for (name, _) in nodes {
            let name = NodeName((*name).to_owned());
            if leader.ledger.node(&name) != fresh.ledger.node(&name) {
                return Err(format!("a ledger from the start sees {name} in another way"));
            }
        }
        for kubelet in &self.kubelets {
            for (at, card) in kubelet.cards.iter().enumerate() {
                let counted = self.counted(kubelet.name, &card.uuid);
                let held = kubelet.on_card(at);
                if counted != held {
                    let name = format!("{} of {}", card.uuid, kubelet.name);
                    return Err(format!("{held} units handed out on {name}, {counted} counted"));
                }
            }
        }
        Ok(())
    }
}
