//! What the role knows, and the kubelet's questions answered from it.
//!
//! Everything is in memory behind one lock that is never held across a wait, because `Allocate`
//! and `GetPreferredAllocation` run in the kubelet's only sync loop (facts/kubernetes.md 1.6).
//! The one effect in between is the record's write, which has to come before the answer.

mod answers;
mod start;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use mpshare_api::{FileStamp, Holdings, NodeStatus, write_derived};
use mpshare_core::{LiveShare, NodePlan, UnitState, plan};
use mpshare_kubelet::checkpoint::{self, CheckpointError, Entry};
use mpshare_telemetry::sentence;
use tokio::sync::{Notify, watch};

use crate::Options;
use crate::activity::Activity;
use crate::handoff::{self, Come};
use crate::ledger::{Clients, Evidence, Ledger, Listing, Outcome, Record, reconcile};
use crate::problems::Problems;
use crate::units::{Decision, Inputs, Offers, decide};
use crate::view::View;
use mpshare_telemetry::Failures;

/// The node, shared by all tasks of the role.
pub(crate) struct Node {
    options: Options,
    state: Mutex<State>,
    changed: watch::Sender<()>,
    /// Holders should be looked at soon: a share was granted, or the config has changed.
    pub(crate) look: Notify,
    /// What keeps resources from being served.
    pub(crate) problems: Problems,
}

struct State {
    view: View,
    plan: Option<NodePlan>,
    ledger: Ledger,
    footing: Footing,
    activity: Activity,
    ledger_failures: Failures,
    checkpoint_failures: Failures,
    /// What `holdings.json` says, and the file that says it; `None` where that isn't known.
    told: Option<(Holdings, Option<FileStamp>)>,
    /// Nobody has told of the pod that the kubelet asked for last: until there is news it isn't
    /// waited for again.
    is_untold: bool,
    come: Come,
    holdings_failures: Failures,
}

/// Whether the records can be trusted to be all that there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Footing {
    /// They come from their file, or the kubelet was asked.
    Sound,
    /// The file was lost and the kubelet hasn't told yet.
    Unknown,
}

/// Whether something about the shares is about to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Look again soon.
    Pending,
    /// Nothing is.
    Idle,
}

/// What a look at the holders showed.
#[derive(Debug)]
pub(crate) struct Seen {
    /// When to look again.
    pub(crate) pace: Pace,
    /// Ids that only the kubelet's checkpoint has.
    pub(crate) checkpoint_only: BTreeSet<String>,
}

impl Node {
    /// Where files are and how long things take.
    pub(crate) const fn options(&self) -> &Options {
        &self.options
    }

    /// Fires whenever an answer could be different from before.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Decides what to offer now.
    pub(crate) fn decide(&self, former: &Offers, now: Instant) -> Decision {
        let state = self.state();
        let live = state.ledger.live();
        let is_sound = state.footing == Footing::Sound;
        let inputs = Inputs {
            plan: state.plan.as_ref(),
            // On an unknown footing nothing may be handed out, as without a report.
            status: state.view.status.as_ref().filter(|_| is_sound),
            live: &live,
            activity: state.activity,
            settle: self.options.timings.settle,
            leaving: self.options.timings.leaving,
        };
        decide(former, &inputs, now)
    }

    /// Whether the supervisor has judged every card of the plan.
    pub(crate) fn all_judged(&self, offers: &Offers) -> bool {
        offers.all_judged(self.state().view.status.as_ref())
    }

    /// Reads what other processes write.
    pub(crate) fn refresh(&self, now: Instant) {
        let mut state = self.state();
        let former = state.view.clone();
        let view = View::read(&self.options.root(), &former);
        state.keep_file();
        if view == former {
            return;
        }
        log_changes(&former, &view);
        if former.config != view.config {
            // What is held decides what the new config can offer: ask now, and more often.
            self.look.notify_one();
        }
        if former.last_look() != view.last_look() {
            // Shares of pods that are found gone are over.
            self.look.notify_one();
        }
        if former.bound != view.bound {
            state.is_untold = false;
        }
        // Records that were lost couldn't be made again before the cards were known.
        let first_inventory = former.inventory.is_none() && view.inventory.is_some();
        state.view = view;
        if first_inventory {
            self.take_evidence(&mut state, None, now);
        }
        state.replan();
        drop(state);
        self.changed.send_replace(());
    }

    /// Compares the records with what the kubelet says.
    pub(crate) fn reconcile(&self, listing: Option<Listing<'_>>, now: Instant) -> Seen {
        let mut state = self.state();
        let before = state.ledger.records().to_vec();
        let footing = state.footing;
        let checkpoint = state.checkpoint(&self.options.plugins_dir);
        let outcome = self.weigh(&mut state, (listing, checkpoint.as_deref()), now);
        let held = handoff::holdings(checkpoint.as_deref(), listing.map(|listing| listing.held));
        if checkpoint.is_some() || listing.is_some() {
            state.tell(&self.options.root().holdings(), held);
        }
        if state.ledger.records() != before || state.footing != footing {
            self.changed.send_replace(());
        }
        Seen { pace: state.pace(&self.options, now), checkpoint_only: outcome.checkpoint_only }
    }

    fn take_evidence(
        &self,
        state: &mut State,
        listing: Option<Listing<'_>>,
        now: Instant,
    ) -> Outcome {
        let checkpoint = state.checkpoint(&self.options.plugins_dir);
        self.weigh(state, (listing, checkpoint.as_deref()), now)
    }

    fn weigh(
        &self,
        state: &mut State,
        (listing, checkpoint): (Option<Listing<'_>>, Option<&[Entry]>),
        now: Instant,
    ) -> Outcome {
        let clients = Clients::of(state.view.status.as_ref());
        let evidence = Evidence {
            listing,
            checkpoint,
            clients: &clients,
            revision: state.ledger.next_revision(),
            inventory: state.view.inventory.as_ref(),
            admission: self.options.timings.admission,
        };
        let outcome = reconcile(state.ledger.records(), &evidence, now);
        log_ended(&outcome.ended);
        log_rebuilt(&outcome.rebuilt);
        if checkpoint.is_some() || listing.is_some() {
            state.footing = Footing::Sound;
        }
        let is_complete = state.footing == Footing::Sound && evidence.inventory.is_some();
        let written = state.ledger.replace(outcome.records.clone());
        state.note_write(written);
        if is_complete {
            let written = state.ledger.establish();
            state.note_write(written);
        }
        state.replan();
        outcome
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic in another task doesn't make the values wrong: each is replaced as a whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn replan(&mut self) {
        let (config, inventory) = (self.view.config.as_ref(), self.view.inventory.as_ref());
        self.plan = config
            .zip(inventory)
            .map(|(config, inventory)| plan(&config.node, inventory, &self.ledger.live()));
    }

    fn status(&self) -> Option<&NodeStatus> {
        self.view.status.as_ref()
    }

    fn pace(&self, options: &Options, now: Instant) -> Pace {
        let records = self.ledger.records();
        let is_young = records
            .iter()
            .any(|record| now.saturating_duration_since(record.since) < options.timings.admission);
        let waits_for_shares = self.plan.iter().flat_map(|plan| &plan.gpus).any(|gpu| {
            let states = || gpu.units.iter().map(|unit| unit.state);
            let lacks_room = || states().any(|state| state == UnitState::Unbacked);
            // Nobody's end changes what a drained card without shares offers.
            (lacks_room() && !gpu.is_drained)
                || (gpu.reason.is_some() && states().any(|state| state == UnitState::Held))
        });
        if is_young || waits_for_shares { Pace::Pending } else { Pace::Idle }
    }

    /// The kubelet's checkpoint; empty where there is none, `None` where it can't be read.
    fn checkpoint(&mut self, plugins_dir: &Path) -> Option<Vec<Entry>> {
        let entries = match checkpoint::read(plugins_dir) {
            Err(CheckpointError::Read { source, .. })
                if source.kind() == std::io::ErrorKind::NotFound =>
            {
                Ok(Vec::new())
            }
            read => read,
        };
        match entries {
            Ok(entries) => {
                self.checkpoint_failures.over();
                if let Some(bound) = &self.view.bound {
                    self.come.note(bound, &entries);
                }
                Some(entries)
            }
            Err(error) => {
                self.checkpoint_failures.failed(&sentence(&error));
                None
            }
        }
    }

    fn keep_file(&mut self) {
        let written = self.ledger.keep_file();
        self.note_write(written);
    }

    /// Writes who holds what unless the file says so already.
    fn tell(&mut self, path: &Path, held: Holdings) {
        let is_told = |(told, file): &(Holdings, Option<FileStamp>)| {
            *told == held && file.is_some() && *file == FileStamp::of(path)
        };
        if self.told.as_ref().is_some_and(is_told) {
            return;
        }
        match write_derived(path, &held) {
            Ok(()) => {
                self.told = Some((held, FileStamp::of(path)));
                self.holdings_failures.over();
            }
            Err(error) => {
                self.told = None;
                self.holdings_failures.failed(&sentence(&error));
            }
        }
    }

    fn note_write(&mut self, written: Result<(), mpshare_api::DocumentError>) {
        match written {
            Ok(()) => self.ledger_failures.over(),
            Err(error) => self.ledger_failures.failed(&sentence(&error)),
        }
    }
}

fn log_ended(shares: &[LiveShare]) {
    for share in shares {
        tracing::info!(gpu = %share.gpu, memory = %share.share.memory, "share ended");
    }
}

fn log_rebuilt(records: &[Record]) {
    for record in records {
        let (gpu, memory) = (&record.share.gpu, record.share.share.memory);
        let basis = record.basis;
        tracing::warn!(%gpu, %memory, ?basis, "lost record of a share was made again");
    }
}

fn log_changes(former: &View, view: &View) {
    if let Some(config) = &view.config
        && former.config.as_ref() != Some(config)
    {
        tracing::info!(config = config.name, "config taken over");
    }
    log_problems(former, view);
}

fn log_problems(former: &View, view: &View) {
    for problem in view.problems() {
        if !former.problems().any(|known| known == problem) {
            tracing::warn!(reason = problem.code(), "{problem}");
        }
    }
}
