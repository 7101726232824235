//! Decides the device lists again whenever something changed, and hands each to the server of its
//! resource.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use mpshare_core::ResourceName;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::node::Node;
use crate::registration::{Drops, Resource};
use crate::server::Devices;
use crate::units::{Health, Offers, UnitList, devices};

/// The lists and their servers.
pub(crate) struct Publisher {
    node: Arc<Node>,
    sockets: watch::Receiver<()>,
    shutdown: CancellationToken,
    lists: BTreeMap<ResourceName, watch::Sender<Devices>>,
    servers: JoinSet<()>,
}

/// Whether a list is sent although it says nothing new.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Resend {
    Yes,
    No,
}

impl Publisher {
    /// A publisher that has nothing to offer yet.
    pub(crate) fn new(
        node: Arc<Node>,
        sockets: watch::Receiver<()>,
        shutdown: CancellationToken,
    ) -> Self {
        Self { node, sockets, shutdown, lists: BTreeMap::new(), servers: JoinSet::new() }
    }

    /// Publishes until the end of the role, and waits for the servers to end.
    pub(crate) async fn run(mut self, resend: Arc<Notify>) {
        let mut changes = self.node.changes();
        let mut offers = Offers::default();
        let mut next = Resend::No;
        let start = Instant::now();
        let patience = start + self.node.options().timings.first_status;
        loop {
            changes.mark_unchanged();
            let decision = self.node.decide(&offers, Instant::now());
            log_changes(&offers, &decision.offers);
            offers = decision.offers;
            let is_started = !self.lists.is_empty();
            let may_start =
                is_started || self.node.all_judged(&offers) || Instant::now() >= patience;
            if may_start {
                self.publish(&offers, next);
            }
            let wait = (!may_start).then_some(patience);
            let again = decision.again.into_iter().chain(wait).min();
            next = tokio::select! {
                () = self.shutdown.cancelled() => break,
                _ = changes.changed() => Resend::No,
                () = resend.notified() => Resend::Yes,
                () = until(again) => Resend::No,
            };
        }
        while self.servers.join_next().await.is_some() {}
    }

    fn publish(&mut self, offers: &Offers, resend: Resend) {
        for (resource, list) in offers.lists() {
            let new = Arc::new(devices(list));
            if let Some(sender) = self.lists.get(resource) {
                sender.send_if_modified(|current| {
                    let is_news = *current != new || resend == Resend::Yes;
                    *current = new;
                    is_news
                });
            } else if !list.is_empty() {
                self.serve(resource.clone(), new);
            }
        }
    }

    fn serve(&mut self, name: ResourceName, list: Devices) {
        let (sender, devices) = watch::channel(list);
        let resource = Resource {
            node: Arc::clone(&self.node),
            name: name.clone(),
            devices,
            sockets: self.sockets.clone(),
            drops: Drops::default(),
            shutdown: self.shutdown.clone(),
        };
        self.servers.spawn(resource.keep_registered());
        self.lists.insert(name, sender);
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}

fn log_changes(former: &Offers, offers: &Offers) {
    let healthy = |list: &UnitList| {
        let units = list.values();
        units.filter(|unit| unit.health == Health::Healthy).count()
    };
    for (resource, list) in offers.lists() {
        let before = former.lists().get(resource);
        let counts = |list: &UnitList| (list.len(), healthy(list));
        if before.map(counts) != Some(counts(list)) {
            let (units, healthy) = counts(list);
            tracing::info!(%resource, units, healthy, "units offered");
        }
    }
}
