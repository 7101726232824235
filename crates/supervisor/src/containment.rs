//! What processes on a card do past its shares: more memory than their share together, or memory
//! without any share.
//!
//! MPS limits each process by itself (facts/mps.md 2), and a process may have dropped its limit or
//! come past MPS. What a card's processes really use is what NVML says. [`sums`], [`victims`] and
//! [`shares`] are pure; this file remembers since when something is so, and [`ending`] ends
//! processes. [`leaving`] is about those of deleted pods. All that is remembered can be lost: a
//! successor sees the same processes and begins the grace period anew.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use mpshare_api::MpsRoot;
use mpshare_api::status::{ClientStatus, ReasonText};
use mpshare_core::{GpuUuid, Memory, Reason};
use mpshare_mps::{Pid, Proc, ProcessId};
use tracing::{info, warn};

mod ending;
mod leaving;
mod outsiders;
mod shares;
mod sums;
mod victims;

pub(crate) use ending::{Ending, Fate, Session, Victim};
pub(crate) use shares::KnownShares;

use leaving::Leaving;
use outsiders::Outsider;
use sums::{Excess, Holder};
use victims::Candidate;

use crate::farewell::EndingPods;
use crate::incidents::Incidents;
use crate::options::{ContainmentRules, Outsiders};

/// More of them would make a report that nobody reads.
const MOST_FINDINGS: usize = 32;

/// For so long a process has to be an outsider until it is named: the record of a new share may
/// be on its way.
const NAMED_AFTER: Duration = Duration::from_secs(2);

/// How often it is looked whether processes that are being ended have.
const ENDING_EVERY: Duration = Duration::from_millis(100);

/// What a look is about.
pub(crate) struct Scene<'a> {
    pub gpu: &'a GpuUuid,
    pub root: &'a MpsRoot,
    /// Processes of this host.
    pub host_proc: &'a Proc,
    /// Where their cgroups are read.
    pub cgroup_proc: &'a Proc,
    pub rules: &'a ContainmentRules,
    /// Who has shares of the card.
    pub shares: &'a KnownShares,
    /// Pods that are being deleted.
    pub ending: &'a EndingPods,
    /// Its MPS server.
    pub server: Option<Pid>,
}

/// What is remembered of a card's processes.
#[derive(Default)]
pub(crate) struct Containment {
    over: BTreeMap<Holder, Overrun>,
    outsiders: BTreeMap<ProcessId, Suspect>,
    ending: Option<Ending>,
    /// Whom this is about.
    being_ended: BTreeSet<ProcessId>,
    leaving: Leaving,
    ended: Incidents,
    /// Those that didn't end.
    stuck: BTreeSet<ProcessId>,
}

/// A holder that uses more than it has.
struct Overrun {
    since: Instant,
    /// The processes of the last look: whoever is new among them may be an id that was just given
    /// to somebody else.
    seen: BTreeSet<ProcessId>,
    /// As it was when the grace period was over, so that it is one piece of news.
    told: Option<Reason>,
}

/// A process that belongs to no share.
struct Suspect {
    since: Instant,
    outsider: Outsider,
    /// What it uses now.
    memory: Option<Memory>,
    is_told: bool,
}

impl Containment {
    /// Looks at the processes on a card; `daemon` is asked for only when one has to be ended.
    pub(crate) fn look(
        &mut self,
        scene: &Scene<'_>,
        users: &[ClientStatus],
        now: Instant,
        session: impl Fn() -> Option<Session>,
    ) {
        self.finish(now);
        // First, because the kubelet doesn't wait.
        self.leaving.look(scene, users, (now, &self.being_ended), &session);
        self.ended.expire(now);
        let excesses = self.look_at_sums(scene, users, now);
        self.look_for_outsiders(scene, users, now);
        if self.ending.is_some() {
            return;
        }
        let mut victims = self.over_share(scene, &excesses, now);
        victims.extend(self.outside_shares(scene, now));
        victims.retain(|victim| !self.leaving.has(&victim.id));
        // The records are on disk before a container starts, and may be newer than our plan.
        if !victims.is_empty() && scene.shares.are_still_so(scene.root, scene.gpu) {
            self.end(scene, victims, session());
        }
    }

    /// What there is to tell.
    pub(crate) fn findings(&self) -> Vec<ReasonText> {
        let over = self.over.iter().filter_map(|(holder, overrun)| {
            Some(ReasonText::about(overrun.told.as_ref()?, [holder.pod.clone()]))
        });
        let outside = self.outsiders.values().filter(|suspect| suspect.is_told);
        let outside = outside.map(|Suspect { outsider, .. }| {
            ReasonText::about(&outsider.reason, outsider.pod.clone())
        });
        over.chain(self.ended.findings()).chain(outside).take(MOST_FINDINGS).collect()
    }

    /// Whether anything goes on that the next look has to follow.
    pub(crate) fn is_busy(&self) -> bool {
        !self.over.is_empty() || !self.outsiders.is_empty() || self.ending.is_some()
    }

    /// What those use that are told to have no share.
    pub(crate) fn outside(&self) -> Memory {
        let told = self.outsiders.values().filter(|suspect| suspect.is_told);
        told.filter_map(|suspect| suspect.memory).sum()
    }

    /// When to look again, not later than in `wait`: when somebody is to leave, a grace period is
    /// over, or it is to be seen who has ended.
    pub(crate) fn next_within(&self, wait: Duration, rules: &ContainmentRules) -> Duration {
        let now = Instant::now();
        let ends = self.over.values().map(|overrun| overrun.since + rules.grace);
        let ends = ends.filter(|end| *end > now).map(|end| end - now);
        let ended = self.ending.as_ref().map(|_| ENDING_EVERY);
        self.leaving.next(now).into_iter().chain(ends).chain(ended).fold(wait, Duration::min)
    }

    fn look_at_sums(
        &mut self,
        scene: &Scene<'_>,
        users: &[ClientStatus],
        now: Instant,
    ) -> Vec<(Excess, Vec<Candidate>)> {
        let mut found = Vec::new();
        if !sums::excesses(scene.shares, users).is_empty() {
            // NVML may list a process for a moment that is gone.
            let living = candidates(scene, users);
            let users: Vec<ClientStatus> = living.iter().map(|(user, _)| user.clone()).collect();
            for excess in sums::excesses(scene.shares, &users) {
                let of = living.iter().filter(|(user, _)| excess.holder.has(user));
                let of = of.map(|(_, candidate)| candidate.clone()).collect();
                found.push((excess, of));
            }
        }
        self.over.retain(|holder, _| found.iter().any(|(excess, _)| excess.holder == *holder));
        for (excess, _) in &found {
            let overrun = self.over.entry(excess.holder.clone()).or_insert_with(|| Overrun {
                since: now,
                seen: BTreeSet::new(),
                told: None,
            });
            if overrun.told.is_none() && now.duration_since(overrun.since) >= scene.rules.grace {
                let reason = excess.reason(scene.gpu);
                warn!(%reason, "share exceeded");
                overrun.told = Some(reason);
            }
        }
        found
    }

    /// Whom to end of those that use more than their share, by the policy.
    fn over_share(
        &mut self,
        scene: &Scene<'_>,
        excesses: &[(Excess, Vec<Candidate>)],
        now: Instant,
    ) -> Vec<Victim> {
        let mut victims = Vec::new();
        for (excess, candidates) in excesses {
            let Some(overrun) = self.over.get_mut(&excess.holder) else { continue };
            let now_seen = candidates.iter().map(|candidate| candidate.id).collect();
            let known = std::mem::replace(&mut overrun.seen, now_seen);
            if now.duration_since(overrun.since) < scene.rules.grace {
                continue;
            }
            let chosen = victims::whom(scene.rules.over_share, candidates, &known, excess.share);
            for candidate in chosen {
                let reason = Reason::ProcessEvicted {
                    gpu: scene.gpu.clone(),
                    pod: excess.holder.pod.clone(),
                    pid: candidate.id.pid.get(),
                    memory: candidate.memory,
                    used: excess.used,
                    share: excess.share,
                };
                let pod = Some(excess.holder.pod.clone());
                victims.push(Victim { id: candidate.id, pod, reason });
            }
        }
        victims
    }

    fn look_for_outsiders(&mut self, scene: &Scene<'_>, users: &[ClientStatus], now: Instant) {
        let suspects = users.iter().filter(|user| Some(user.pid) != scene.server.map(Pid::get));
        let found: BTreeMap<ProcessId, Outsider> = suspects
            .filter_map(|user| outsiders::outsider(scene, user))
            .map(|outsider| (outsider.id, outsider))
            .collect();
        self.outsiders.retain(|id, _| found.contains_key(id));
        for (id, outsider) in found {
            let memory = outsider.memory;
            let suspect = self.outsiders.entry(id).or_insert_with(|| Suspect {
                since: now,
                outsider,
                memory,
                is_told: false,
            });
            suspect.memory = memory;
            if !suspect.is_told && now.duration_since(suspect.since) >= NAMED_AFTER {
                suspect.is_told = true;
                warn!(reason = %suspect.outsider.reason, "process without a share");
            }
        }
    }

    fn outside_shares(&self, scene: &Scene<'_>, now: Instant) -> Vec<Victim> {
        if scene.rules.outsiders == Outsiders::Warn {
            return Vec::new();
        }
        let due = self.outsiders.values().filter(|suspect| {
            suspect.is_told && now.duration_since(suspect.since) >= scene.rules.grace
        });
        due.map(|suspect| suspect.outsider.victim()).collect()
    }

    fn end(&mut self, scene: &Scene<'_>, victims: Vec<Victim>, session: Option<Session>) {
        for victim in victims.iter().filter(|victim| !self.stuck.contains(&victim.id)) {
            info!(gpu = %scene.gpu, pid = %victim.id, reason = victim.reason.code(), "ending a process");
        }
        let whom = victims.iter().map(|victim| victim.id).collect();
        match Ending::start(scene.host_proc.clone(), victims, session) {
            Ok(ending) => (self.ending, self.being_ended) = (Some(ending), whom),
            Err(error) => warn!(gpu = %scene.gpu, %error, "can't start a thread, trying again"),
        }
    }

    /// Notes what became of the processes that were being ended.
    fn finish(&mut self, now: Instant) {
        let Some(ending) = self.ending.take_if(|ending| ending.is_finished()) else { return };
        self.being_ended.clear();
        for (victim, fate) in ending.fates() {
            match fate {
                Fate::Ended => {
                    self.stuck.remove(&victim.id);
                    self.ended.note(victim.reason, victim.pod, now);
                }
                Fate::Stays if self.stuck.insert(victim.id) => {
                    warn!(pid = %victim.id, "process doesn't end by SIGKILL, trying again");
                }
                // Somebody else ended it, or it was said already.
                Fate::Gone | Fate::Stays => {}
            }
        }
    }
}

/// The processes that live, as whom they are.
fn candidates(scene: &Scene<'_>, users: &[ClientStatus]) -> Vec<(ClientStatus, Candidate)> {
    let identified = users.iter().filter_map(|user| {
        let id = scene.host_proc.identify(Pid::new(user.pid)?).ok()??;
        let memory = Memory::from_mib(user.memory_mib.unwrap_or(0));
        let container = user.container_id.clone();
        Some((user.clone(), Candidate { id, memory, container }))
    });
    identified.collect()
}

#[cfg(test)]
mod tests;
