//! What happens between kube-scheduler, the extenders and the API server.

use mpshare_core::ledger::{NodeName, Plan};

use super::{Flying, POST_LIFE, Trouble, World};
use crate::api::Answer;
use crate::extender::{Begun, Extender, Post, Stamp};

impl World {
    /// kube-scheduler chooses a pod, asks where it fits, and has it bound; now and then it acts on
    /// what was true a while ago.
    pub(super) fn schedule(&mut self) -> Result<(), String> {
        let is_late = self.random.u8(0..10) == 0;
        let pending = self.pending();
        let choices = if is_late { &self.known } else { &pending };
        let Some(uid) = self.random.choice(choices).cloned() else { return Ok(()) };
        let fitting = self.fitting(&uid);
        let node = match self.random.choice(&fitting) {
            Some(node) if !is_late => *node,
            _ => self.any_node(),
        };
        if let Some(post) = self.bind(&uid, node)? {
            self.flying.push(Flying { owner: self.leader, post });
        }
        Ok(())
    }

    pub(super) fn fitting(&self, uid: &str) -> Vec<&'static str> {
        let (Some(pod), Some(extender)) =
            (self.api.pods.get(uid), self.extenders.get(&self.leader))
        else {
            return Vec::new();
        };
        let demand = pod.demand();
        let fits = |node: &str| {
            let plan = extender.ledger.plan(&NodeName(node.to_owned()), &demand);
            matches!(plan, Ok(Plan::On { .. }))
        };
        self.layout.nodes.iter().map(|(name, _)| *name).filter(|name| fits(name)).collect()
    }

    /// A call of `bind`; what it says without asking the API server has to be true.
    pub(super) fn bind(&mut self, uid: &str, node: &str) -> Result<Option<Post>, String> {
        self.numbers += 1;
        let stamp = Stamp { now: self.now, id: self.numbers };
        let Some(extender) = self.extenders.get_mut(&self.leader) else { return Ok(None) };
        let begun = extender.bind(&self.api, uid, node, stamp);
        self.note(|| format!("bind {uid} to {node}: {begun:?}"));
        let on = self.api.pods.get(uid).map(|pod| pod.spec.node_name.as_deref());
        match begun {
            Begun::Sent(post) => return Ok(Some(post)),
            Begun::AlreadyThere if on.is_none_or(|on| on == Some(node)) => {}
            Begun::Elsewhere(other) if on.is_none_or(|on| on == Some(&other.0)) => {}
            Begun::AlreadyThere | Begun::Elsewhere(_) => {
                return Err(format!("{uid} is on {on:?}, and {node} was said: {begun:?}"));
            }
            Begun::Refused(reason) => {
                self.tally.refused += 1;
                if reason.is_some_and(|reason| reason.to_string().is_empty()) {
                    return Err(format!("{uid} isn't told why it waits"));
                }
            }
        }
        Ok(None)
    }

    /// Something happens to a Binding in flight, or to its answer.
    pub(super) fn network(&mut self) -> Result<(), String> {
        let now = self.now;
        self.flying.retain(|flying| now.saturating_sub(flying.post.sent) < POST_LIFE);
        // An extender doesn't wait for ever for one that is lost.
        for extender in self.extenders.values_mut() {
            for post in extender.open_posts() {
                if !self.flying.iter().any(|flying| flying.post.id == post) {
                    extender.answered(post, None);
                }
            }
        }
        if self.flying.is_empty() {
            return Ok(());
        }
        let at = self.random.usize(0..self.flying.len());
        match self.random.u8(0..10) {
            0..6 => {
                let Flying { owner, post } = self.flying.swap_remove(at);
                let is_lost = self.random.u8(0..5) == 0;
                self.arrive(owner, &post, is_lost)
            }
            6..8 => {
                let Flying { owner, post } = self.flying.swap_remove(at);
                self.note(|| format!("binding {} of {} is lost", post.id, post.uid));
                self.answer(owner, post.id, None);
                Ok(())
            }
            _ => {
                // The extender has waited long enough; the request is still on its way.
                let (owner, id) = (self.flying[at].owner, self.flying[at].post.id);
                self.note(|| format!("binding {id} isn't waited for any more"));
                self.answer(owner, id, None);
                Ok(())
            }
        }
    }

    pub(super) fn arrive(
        &mut self,
        owner: usize,
        post: &Post,
        is_lost: bool,
    ) -> Result<(), String> {
        let answer = self.api.bind(&post.uid, &post.node, &post.annotations);
        self.note(|| format!("binding {} of {}: {answer:?}, lost: {is_lost}", post.id, post.uid));
        self.tally.bound += usize::from(answer == Answer::Bound);
        if answer == Answer::Bound {
            self.is_covered(owner, post)?;
        }
        self.answer(owner, post.id, Some(answer).filter(|_| !is_lost));
        Ok(())
    }

    pub(super) fn answer(&mut self, owner: usize, post: usize, answer: Option<Answer>) {
        if let Some(extender) = self.extenders.get_mut(&owner) {
            extender.answered(post, answer);
        }
    }

    pub(super) fn look(&mut self) -> bool {
        let fails = !self.is_settling && self.random.u8(0..4) == 0;
        let mut looked = false;
        for extender in self.extenders.values_mut() {
            looked |= extender.look(&self.api, self.now, &mut self.random, fails);
        }
        looked
    }

    pub(super) fn deliver(&mut self) {
        for _ in 0..self.random.usize(1..6) {
            for extender in self.extenders.values_mut() {
                extender.deliver(&mut self.random);
            }
        }
    }

    pub(super) fn relist(&mut self) {
        for _ in 0..self.random.usize(1..4) {
            if let Some(extender) = self.extenders.get_mut(&self.leader) {
                extender.relist(&self.api, self.now, &mut self.random);
            }
        }
    }

    /// What an extender has sent is through, or never will be, before its successor has listed the
    /// pods.
    pub(super) fn flush(&mut self, owner: usize) -> Result<(), String> {
        if self.is(Trouble::LateBindings) {
            return Ok(());
        }
        let all = std::mem::take(&mut self.flying);
        let (own, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|it| it.owner == owner);
        self.flying = others;
        for Flying { owner, post } in own {
            if self.random.bool() {
                self.arrive(owner, &post, true)?;
            } else {
                self.answer(owner, post.id, None);
            }
        }
        self.publish();
        Ok(())
    }

    pub(super) fn restart(&mut self) -> Result<(), String> {
        self.tally.restarts += 1;
        self.note(|| "the leader restarts".to_owned());
        self.flush(self.leader)?;
        self.extenders.remove(&self.leader);
        self.leader = self.start_extender();
        Ok(())
    }

    pub(super) fn start_extender(&mut self) -> usize {
        self.numbers += 1;
        self.extenders.insert(self.numbers, Extender::started(&self.api));
        self.numbers
    }

    pub(super) fn change_leader(&mut self) -> Result<(), String> {
        self.tally.restarts += 1;
        self.flush(self.leader)?;
        let other = self.extenders.keys().copied().find(|number| *number != self.leader);
        let leader = other.unwrap_or_else(|| self.start_extender());
        self.leader = leader;
        if !self.is(Trouble::LateBindings)
            && let Some(extender) = self.extenders.get_mut(&leader)
        {
            while extender.is_listing() {
                extender.relist(&self.api, self.now, &mut self.random);
            }
            while extender.deliver(&mut self.random) {}
        }
        self.note(|| format!("extender {leader} leads now"));
        Ok(())
    }
}
