//! The loop: a fact comes in, the decision is made again, and what differs is written, published
//! and announced.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use futures::{FutureExt as _, StreamExt as _};
use kube::Client;
use mpshare_api::inventory_annotation::NodeGpus;
use mpshare_api::{BoundPods, DocumentError, write_derived, write_document};
use mpshare_core::Reason;
use mpshare_core::ledger::{PodFacts, PodUid};
use mpshare_telemetry::{Failures, sentence};
use mpshare_watch::{Removed, sole};
use thiserror::Error;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::announcement::{Announcement, Announcer, Severity};
use crate::condition::condition;
use crate::handoff::{self, Correction, NodePod, Plans};
use crate::inventory::{Annotations, UseOfCards, annotations};
use crate::options::Options;
use crate::pod_events::{PodAnnouncement, PodAnnouncer};
use crate::publish::{self, NodeReport};
use crate::sources;
use crate::usage::Usage;
use crate::view::{Config, View};

/// Events that wait for the API; more are dropped. Those on pods wait by themselves.
const WAITING_EVENTS: usize = 32;

/// How long to wait after a failed write.
const WRITE_RETRY: Duration = Duration::from_secs(1);

/// Why the role can't go on.
#[derive(Debug, Error)]
pub enum RunError {
    /// Without its directory there is nothing to do.
    #[error("can't create the MPS root directory `{path}`")]
    Root {
        /// The directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A directory that it works in was removed under its mount.
    #[error(transparent)]
    Removed(#[from] Removed),
}

/// Runs the role until `shutdown`.
pub async fn run(
    client: Client,
    options: Options,
    shutdown: CancellationToken,
) -> Result<(), RunError> {
    std::fs::create_dir_all(options.root.path())
        .map_err(|source| RunError::Root { path: options.root.path().to_owned(), source })?;
    // Two, such as those of two releases, would each undo what the other one writes. Nothing is
    // said to the API before it is this one's turn.
    let lock = options.root.config_manager_lock();
    let turn = sole::turn(&lock, "waiting for another config-manager of this node to end");
    let Some(_turn) = shutdown.run_until_cancelled(turn).await else {
        return Ok(());
    };
    tracing::info!(node = options.node, source = %options.source, "choosing this node's config");
    let (conditions, condition) = watch::channel(None);
    let (events, announcements) = mpsc::channel(WAITING_EVENTS);
    let (pod_events, pod_announcements) = mpsc::channel(WAITING_EVENTS);
    let (corrections, corrected) = watch::channel(Vec::new());
    let node = options.node.clone();
    let publishing = futures::future::join4(
        publish::conditions(client.clone(), node.clone(), condition),
        publish::events(client.clone(), node.clone(), announcements),
        publish::pod_events(client.clone(), node, pod_announcements),
        publish::corrections(client.clone(), corrected),
    );
    let reconciler = Reconciler {
        view: View::default(),
        announcer: Announcer::default(),
        pod_announcer: PodAnnouncer::default(),
        conditions,
        events,
        pod_events,
        corrections,
        bound_failures: Failures::new("bound pods can't be told to the device plugin"),
        usage: Usage::default(),
        plans: Plans::new(),
        options,
    };
    tokio::select! {
        () = shutdown.cancelled() => Ok(()),
        ended = reconciler.run(&client) => Ok(ended?),
        ((), (), (), ()) = publishing => Ok(()),
    }
}

struct Reconciler {
    view: View,
    announcer: Announcer,
    pod_announcer: PodAnnouncer,
    conditions: watch::Sender<Option<NodeReport>>,
    events: mpsc::Sender<NodeAnnouncement>,
    pod_events: mpsc::Sender<PodAnnouncement>,
    corrections: watch::Sender<Vec<Correction>>,
    bound_failures: Failures,
    usage: Usage,
    plans: Plans,
    options: Options,
}

/// An Event and the UID of the Node that it's about.
pub(crate) type NodeAnnouncement = (String, Announcement);

impl Reconciler {
    async fn run(mut self, client: &Client) -> Result<(), Removed> {
        let mut facts = sources::facts(client, &self.options);
        let mut is_written = true;
        loop {
            tokio::select! {
                fact = facts.next() => match fact {
                    Some(fact) => self.view.apply(fact?),
                    None => return Ok(()),
                },
                () = tokio::time::sleep(WRITE_RETRY), if !is_written => {}
            }
            // Facts that came together are one change.
            while let Some(Some(fact)) = facts.next().now_or_never() {
                self.view.apply(fact?);
            }
            // Nobody should be told that a file can't be written where it's the directory.
            Removed::look(self.options.root.path()).await?;
            is_written = self.reconcile();
        }
    }

    /// Whether what was decided could be done.
    fn reconcile(&mut self) -> bool {
        // First, because a kubelet may be waiting for it.
        let is_told = self.tell_bound_pods();
        self.announce_to_pods(Instant::now());
        self.reconcile_config() && is_told
    }

    /// Writes down which pods are bound unless it's there already.
    fn tell_bound_pods(&mut self) -> bool {
        match self.write_bound_pods() {
            Ok(()) => {
                self.bound_failures.over();
                true
            }
            Err(error) => {
                self.bound_failures.failed(&sentence(&error));
                false
            }
        }
    }

    fn write_bound_pods(&mut self) -> Result<(), DocumentError> {
        let (Some(pods), true) = (&self.view.pods, self.view.has_read_files) else {
            return Ok(());
        };
        let sight = self.view.node.as_ref().and_then(|node| node.sight.as_ref());
        let gpus = sight.and_then(|sight| sight.annotations.gpus());
        self.plans = handoff::plans(&self.plans, pods, self.view.holdings.as_ref(), gpus.as_ref());
        let planned = |pod: &NodePod| {
            let claim = self.plans.get(&pod.facts.uid).unwrap_or(&pod.facts.claim).clone();
            let uid = PodUid(pod.kubelet_uid.clone());
            PodFacts { uid, claim, ..pod.facts.clone() }
        };
        let mut wanted = BoundPods::of(&pods.iter().map(planned).collect::<Vec<_>>());
        for (told, pod) in wanted.pods.iter_mut().zip(pods) {
            told.ending = pod.ending;
        }
        if self.view.bound.as_ref() == Some(&wanted) {
            return Ok(());
        }
        write_derived(&self.options.root.bound_pods(), &wanted)?;
        self.view.bound = Some(wanted);
        Ok(())
    }

    fn reconcile_config(&mut self) -> bool {
        let Some(decision) = self.view.decide(&self.options) else {
            return true;
        };
        let refused = self.follow(decision).err();
        if let Some(announcement) = self.announcer.refused(refused.as_ref()) {
            self.announce(announcement);
        }
        if let Some(status) = &self.view.status {
            for announcement in self.announcer.gpus(status) {
                self.announce(announcement);
            }
        }
        for announcement in self.announcer.others(&self.view.others()) {
            self.announce(announcement);
        }
        self.usage.update(self.view.status.as_ref(), Instant::now());
        self.publish(refused.as_ref());
        !matches!(refused, Some(Reason::ConfigNotWritten { .. }))
    }

    /// Where no config can be chosen, the last good one stays, and its cards can be emptied all the
    /// same.
    fn follow(&mut self, decision: Result<Config, Reason>) -> Result<(), Reason> {
        let refused = match decision {
            Ok(config) => return self.put_in_force(config),
            Err(reason) => reason,
        };
        if let Some(kept) = self.view.kept() {
            self.put_in_force(kept)?;
        }
        Err(refused)
    }

    /// Writes the config unless it's there already.
    fn put_in_force(&mut self, config: Config) -> Result<(), Reason> {
        if self.view.in_force.as_ref() == Some(&config) {
            return Ok(());
        }
        let not_written = |problem| {
            let name = config.chosen.name.clone();
            Reason::ConfigNotWritten { name, problem }
        };
        // Somebody may have removed the directory since the start.
        std::fs::create_dir_all(self.options.root.path())
            .map_err(|error| not_written(error.to_string()))?;
        write_document(&self.options.root.config(), &config.chosen)
            .map_err(|error| not_written(sentence(&error)))?;
        if !self.view.in_force.as_ref().is_some_and(|before| before.is_same_choice(&config)) {
            self.announce(Announcer::applied(&config));
        }
        self.view.in_force = Some(config);
        Ok(())
    }

    fn publish(&self, refused: Option<&Reason>) {
        let Some(node) = &self.view.node else {
            return;
        };
        let status_path = self.options.root.status();
        let pods = self.view.pods.as_deref().zip(self.view.holdings.as_ref());
        let held = pods.map(|(pods, holdings)| handoff::held(pods, holdings));
        let next = NodeReport {
            uid: node.uid.clone(),
            condition: condition(
                refused,
                self.view.in_force.as_ref(),
                self.view.status.as_ref(),
                &self.view.troubles(),
                &status_path.display().to_string(),
            ),
            annotations: annotations(
                self.view.in_force.as_ref(),
                self.view.status.as_ref(),
                &self.view.live,
                UseOfCards { held: held.as_ref(), usage: &self.usage },
            ),
            sight: node.sight.clone(),
        };
        self.correct_pods(next.annotations.as_ref().and_then(Annotations::gpus).as_ref());
        self.conditions.send_if_modified(|last| {
            let differs = last.as_ref() != Some(&next);
            *last = Some(next);
            differs
        });
    }

    fn correct_pods(&self, gpus: Option<&NodeGpus>) {
        let (Some(pods), Some(holdings)) = (&self.view.pods, &self.view.holdings) else {
            return;
        };
        let next = handoff::corrections(pods, &self.plans, holdings, gpus);
        self.corrections.send_if_modified(|last| {
            let differs = *last != next;
            *last = next;
            differs
        });
    }

    fn announce_to_pods(&mut self, now: Instant) {
        self.pod_announcer.update(&self.view.names, now);
        let Some(status) = &self.view.status else { return };
        for event in self.pod_announcer.news(status, now) {
            if self.pod_events.try_send(event).is_err() {
                tracing::debug!("an Event on a pod was dropped: too many wait for the API");
            }
        }
    }

    fn announce(&self, announcement: Announcement) {
        log(&announcement);
        let uid = self.view.node.as_ref().map(|node| node.uid.clone());
        let event = (uid.unwrap_or_default(), announcement);
        if self.events.try_send(event).is_err() {
            tracing::debug!("an Event was dropped: too many wait for the API");
        }
    }
}

fn log(announcement: &Announcement) {
    let Announcement { reason, message, .. } = announcement;
    match announcement.severity {
        Severity::Normal => tracing::info!(reason, "{message}"),
        Severity::Warning => tracing::warn!(reason, "{message}"),
    }
}
