//! The end of a schedule: everything comes to rest.

use std::time::Duration;

use super::{Flying, Trouble, World};

impl World {
    /// Everything that is on its way arrives, all is corrected; then whoever waits is scheduled. In
    /// the end each pod has what its annotation says, or no card has room for it.
    pub(super) fn settle(&mut self) -> Result<(), String> {
        self.is_settling = true;
        self.note(|| "it settles".to_owned());
        self.now += Duration::from_secs(1);
        for Flying { owner, post } in std::mem::take(&mut self.flying) {
            self.arrive(owner, &post, false)?;
        }
        let leader = self.leader;
        self.extenders.retain(|number, _| *number == leader);
        self.quiet()?;
        // Whatever has been wrong is over from here on.
        self.troubles.retain(|trouble| *trouble == Trouble::Swaps);
        let failed = self.tally.failed;
        for uid in self.pending() {
            let fitting = self.fitting(&uid);
            let Some(node) = fitting.first() else { continue };
            let Some(post) = self.bind(&uid, node)? else {
                return Err(format!("{uid} fits on {node} and isn't bound"));
            };
            self.arrive(self.leader, &post, false)?;
        }
        self.quiet()?;
        if self.tally.failed != failed {
            return Err("a pod fails although all is known".to_owned());
        }
        self.is_true()
    }

    /// Until nothing moves any more by itself.
    pub(super) fn quiet(&mut self) -> Result<(), String> {
        for _ in 0..100 {
            let mut moves = false;
            for at in 0..self.kubelets.len() {
                self.kubelets[at].forget_gone(&self.api);
                for uid in self.kubelets[at].coming(&self.api) {
                    self.admit_one(at, &uid, self.steering())?;
                    moves = true;
                }
                moves |= self.correct_on(at);
            }
            moves |= self.finish_all();
            self.publish();
            while self.look() {
                moves = true;
            }
            let Self { extenders, random, api, now, .. } = self;
            for extender in extenders.values_mut() {
                while extender.is_listing() {
                    extender.relist(api, *now, random);
                }
                while extender.deliver(random) {}
            }
            if !moves {
                // Longer than a bind of unknown end can take.
                let (before, after) = (self.now, self.now + Duration::from_secs(100));
                self.now = after;
                self.ask()?.ledger.expire(before);
                self.ask()?.ledger.expire(after);
                return Ok(());
            }
        }
        Err("it doesn't come to rest".to_owned())
    }

    /// Deleted pods end, and pods that ended on their node are said to have ended.
    pub(super) fn finish_all(&mut self) -> bool {
        let mut over = Vec::new();
        for kubelet in &mut self.kubelets {
            let coming = kubelet.coming(&self.api);
            for pod in self.api.on(kubelet.name) {
                let uid = &pod.metadata.uid;
                let is_deleted = pod.metadata.deletion_timestamp.is_some();
                let has_ended = !coming.contains(uid) && !kubelet.held.contains_key(uid);
                if is_deleted || has_ended {
                    over.push(uid.clone());
                }
            }
            for uid in &over {
                kubelet.end(uid);
            }
        }
        for uid in &over {
            self.finish(uid);
        }
        !over.is_empty()
    }
}
