//! What happens to pods, on their nodes and in the API, and what else can go wrong there.

use std::collections::BTreeMap;

use mpshare_api::names::ALLOCATION;

use super::{GARBAGE, Trouble, World};
use crate::kubelet::{Admission, Steering};

impl World {
    pub(super) fn create(&mut self) {
        if self.pending().len() > 5 {
            return;
        }
        for _ in 0..self.random.usize(1..5) {
            let containers = if self.random.u8(0..4) == 0 { 2 } else { 1 };
            let size = || self.random.choice(self.layout.sizes).copied().unwrap_or(1);
            let units: Vec<u64> = std::iter::repeat_with(size).take(containers).collect();
            let uid = self.api.create(&units);
            self.note(|| format!("create {uid} {units:?}"));
            self.known.push(uid);
        }
    }

    pub(super) fn pending(&self) -> Vec<String> {
        let unbound = self.api.pods.values().filter(|pod| pod.spec.node_name.is_none());
        unbound.map(|pod| pod.metadata.uid.clone()).collect()
    }

    pub(super) fn any_pod(&mut self) -> Option<String> {
        let pods: Vec<&String> = self.api.pods.keys().collect();
        self.random.choice(pods).cloned()
    }

    pub(super) fn delete(&mut self) {
        let Some(uid) = self.any_pod() else { return };
        if self.random.u8(0..3) == 0 {
            self.note(|| format!("force-delete {uid}"));
            self.api.remove(&uid);
        } else {
            self.note(|| format!("delete {uid}"));
            self.api.delete(&uid);
        }
    }

    /// A pod's containers end, because it is done or was deleted; the API hears it later.
    pub(super) fn end_pod(&mut self) {
        let Some(uid) = self.any_pod() else { return };
        let Some(pod) = self.api.pods.get(&uid) else { return };
        let Some(node) = pod.spec.node_name.clone() else { return };
        let is_deleted = pod.metadata.deletion_timestamp.is_some();
        let Some(kubelet) = self.kubelets.iter_mut().find(|it| it.name == node) else { return };
        let has_begun = kubelet.held.contains_key(&uid);
        let is_over = !has_begun && !kubelet.coming(&self.api).contains(&uid);
        if has_begun {
            kubelet.end(&uid);
            self.note(|| format!("{uid} ends on its node"));
        }
        if is_deleted || is_over {
            self.finish(&uid);
        }
    }

    /// The API hears that a pod has ended; a deleted one is gone then.
    pub(super) fn finish(&mut self, uid: &str) {
        self.note(|| format!("{uid} has ended, says the API"));
        let Some(pod) = self.api.pods.get(uid) else { return };
        let is_deleted = pod.metadata.deletion_timestamp.is_some();
        self.api.change(uid, |pod| "Succeeded".clone_into(&mut pod.status.phase));
        if is_deleted {
            self.api.remove(uid);
        }
    }

    pub(super) fn admit(&mut self) -> Result<(), String> {
        let at = self.random.usize(0..self.kubelets.len());
        let coming = self.kubelets[at].coming(&self.api);
        let Some(uid) = self.random.choice(coming) else { return Ok(()) };
        let is_blind = !self.is_settling && self.is(Trouble::Blindness) && self.random.bool();
        let steering =
            if is_blind { Steering::Blind(self.random.usize(..)) } else { self.steering() };
        self.admit_one(at, &uid, steering)
    }

    pub(super) fn steering(&self) -> Steering {
        if self.is(Trouble::Swaps) { Steering::BySize } else { Steering::Exact }
    }

    pub(super) fn admit_one(
        &mut self,
        at: usize,
        uid: &str,
        steering: Steering,
    ) -> Result<(), String> {
        let kubelet = &mut self.kubelets[at];
        let came = kubelet.admit(&mut self.api, uid, steering);
        let held = kubelet.held.get(uid).cloned();
        self.note(|| format!("admit {uid}, {steering:?}: {came:?} {held:?}"));
        match came {
            Admission::Admitted => self.tally.admitted += 1,
            Admission::Failed if self.is_steered() => {
                return Err(format!("{uid} was bound and the kubelet has no room for it"));
            }
            Admission::Failed => self.tally.failed += 1,
        }
        Ok(())
    }

    pub(super) fn correct(&mut self) {
        let at = self.random.usize(0..self.kubelets.len());
        self.correct_on(at);
    }

    /// Whether there was anything to correct.
    pub(super) fn correct_on(&mut self, at: usize) -> bool {
        let corrected = self.kubelets[at].correct(&mut self.api);
        self.tally.corrected += usize::from(!corrected.is_empty());
        for text in &corrected {
            self.note(|| format!("corrected {text}"));
        }
        !corrected.is_empty()
    }

    pub(super) fn trouble(&mut self) {
        match self.random.choice(self.troubles.clone()) {
            Some(Trouble::Cards) => {
                let at = self.random.usize(0..self.kubelets.len());
                let kubelet = &mut self.kubelets[at];
                let place = self.random.usize(0..kubelet.cards.len());
                let held = kubelet.on_card(place);
                let card = &mut kubelet.cards[place];
                if self.random.bool() {
                    card.is_ready = !card.is_ready;
                } else {
                    card.units = self.random.u64(held..=card.size);
                }
                let kubelet = &self.kubelets[at];
                kubelet.publish(&mut self.api);
                let cards = format!("{:?}", kubelet.cards);
                self.note(|| format!("cards are {cards}"));
            }
            Some(Trouble::Users) => {
                let Some(uid) = self.any_pod() else { return };
                let text = self.random.choice(GARBAGE).unwrap_or_default();
                self.note(|| format!("a user writes `{text}` into {uid}"));
                let change = [(ALLOCATION, Some(text.to_owned()))];
                self.api.annotate(&uid, change.into());
            }
            Some(Trouble::Strangers) => {
                let Some(uid) = self.random.choice(self.pending()) else { return };
                let node = self.any_node();
                let answer = self.api.bind(&uid, node, &BTreeMap::new());
                self.note(|| format!("a stranger binds {uid} to {node}: {answer:?}"));
            }
            Some(Trouble::LateBindings | Trouble::Swaps | Trouble::Blindness) | None => {}
        }
    }
}
