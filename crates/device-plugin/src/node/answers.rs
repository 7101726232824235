//! The kubelet's questions: which ids, what for them, and whether a container may start.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use mpshare_api::status::DaemonStatus;
use mpshare_api::{GpuState, GpuStatus};
use mpshare_core::preference::{Choice, prefer};
use mpshare_core::{Cut, DeviceId, Grant, Inventory, LiveShare, Mode, Reason, ResourceName, grant};
use mpshare_kubelet::checkpoint::Entry;
use mpshare_kubelet::device_plugin::ContainerAllocateResponse;
use mpshare_telemetry::sentence;

use super::{Footing, Node, State};
use crate::control_lock::{DaemonLife, daemon_life};
use crate::gate;
use crate::handoff;
use crate::ledger::{Clients, Record};
use crate::response::{CONTROL_NODES, DaemonPaths, Surroundings, response};
use crate::view::Config;

/// A container that waits for its card looks again this often, whatever is reported.
const GATE_RECHECK: Duration = Duration::from_secs(1);

/// A call of the kubelet that is being answered.
struct Call<'a>(&'a Node);

impl<'a> Call<'a> {
    fn begin(node: &'a Node) -> Self {
        node.state().activity.begin(Instant::now());
        Self(node)
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.0.state().activity.end(Instant::now());
        self.0.changed.send_replace(());
    }
}

impl Node {
    /// Picks `size` of the `available` ids, once it is known for whom they may be; none where there
    /// is no good choice, which is legal.
    ///
    /// The kubelet's sync loop waits meanwhile, so that this is done only where it matters and not
    /// for long: units of memory are placed by a scheduler, and a unit of another card than the
    /// planned one can leave a later pod without room on its own.
    pub(crate) async fn preferred(
        &self,
        resource: &ResourceName,
        ids: (&[String], &[String]),
        size: usize,
    ) -> Vec<String> {
        let deadline = tokio::time::Instant::now() + self.options.timings.plan;
        let mut changes = self.changes();
        while !self.knows_who_asks(resource, size) {
            tokio::select! {
                () = tokio::time::sleep_until(deadline) => {
                    tracing::warn!(
                        %resource, units = size,
                        "the kubelet asks for a container of which nobody has told; no plan is followed"
                    );
                    self.state().is_untold = true;
                    break;
                }
                _ = changes.changed() => {}
            }
        }
        self.prefer(resource, ids, size)
    }

    /// Whether one of the pods that are known may be asking; always, where nobody plans or nobody
    /// tells of pods.
    fn knows_who_asks(&self, resource: &ResourceName, size: usize) -> bool {
        let mut state = self.state();
        if state.is_untold {
            return true;
        }
        let sharing = state.view.config.iter().flat_map(|config| &config.node.sharing);
        let mut of_memory = sharing.filter(|it| matches!(it.cut, Cut::Memory(_)));
        if !of_memory.any(|it| it.resource == *resource) {
            return true;
        }
        if state.checkpoint(&self.options.plugins_dir).is_none() {
            return true;
        }
        let Some(bound) = &state.view.bound else { return true };
        let awaited = handoff::awaited(bound, &state.come, resource);
        awaited.into_iter().any(|units| usize::try_from(units) == Ok(size))
    }

    fn prefer(
        &self,
        resource: &ResourceName,
        (available, required): (&[String], &[String]),
        size: usize,
    ) -> Vec<String> {
        let _call = Call::begin(self);
        let mut state = self.state();
        // Without the kubelet's books nobody knows who has come.
        let checkpoint = state.checkpoint(&self.options.plugins_dir);
        let known = state.view.bound.as_ref().zip(checkpoint);
        let slots =
            known.map(|(bound, entries)| handoff::slots(bound, &entries, &state.come, resource));
        let slots = slots.unwrap_or_default();
        let (Some(plan), Some(config)) = (&state.plan, &state.view.config) else {
            return Vec::new();
        };
        let (available, required) = (known_ids(available), known_ids(required));
        let choice = Choice { available: &available, required: &required, size, slots: &slots };
        let is_granted = |ids: &[DeviceId]| self.grant(&state, resource, ids).is_ok();
        let ids = prefer(plan, config.node.policy, choice, is_granted);
        ids.iter().map(ToString::to_string).collect()
    }

    /// Grants `ids` of `resource` to a container, and records it.
    pub(crate) fn allocate(
        &self,
        resource: &ResourceName,
        ids: &[String],
    ) -> Result<ContainerAllocateResponse, Reason> {
        let _call = Call::begin(self);
        let ids = parsed(ids)?;
        let mut state = self.state();
        if state.footing == Footing::Unknown {
            let problem = "former records are lost and the kubelet hasn't told who holds what";
            return Err(Reason::NotRecorded { problem: problem.into() });
        }
        self.learn_owners(&mut state, &ids);
        let grant = self.grant(&state, resource, &ids)?;
        let (config, inventory) = self.basis(&state)?;
        let answer = self.answer(&state, &grant, config, inventory);
        let clients = Clients::of(state.status());
        let written = state.ledger.commit(&grant, &clients, Instant::now());
        written.map_err(|error| Reason::NotRecorded { problem: sentence(&error) })?;
        state.replan();
        drop(state);
        for share in &grant.shares {
            tracing::info!(
                gpu = %share.gpu, units = share.ids.len(), memory = %share.share.memory,
                percent = %share.share.percent, "share granted"
            );
        }
        self.look.notify_one();
        Ok(answer)
    }

    /// Waits until the container that holds `ids` may start, or says why it may not yet.
    pub(crate) async fn pre_start(&self, ids: &[String]) -> Result<(), Reason> {
        let ids = parsed(ids)?;
        // What the supervisor says now, after the share was recorded: it says that it takes a
        // daemon away before it looks for shares a last time, so one of the two sees the other.
        self.refresh(Instant::now());
        let deadline = tokio::time::Instant::now() + self.options.timings.pre_start;
        let mut changes = self.changes();
        loop {
            changes.mark_unchanged();
            let Err(reason) = self.may_start(&ids) else {
                return Ok(());
            };
            let recheck = tokio::time::Instant::now() + GATE_RECHECK;
            tokio::select! {
                () = tokio::time::sleep_until(deadline) => return Err(reason),
                () = tokio::time::sleep_until(recheck) => {}
                _ = changes.changed() => {}
            }
        }
    }

    fn may_start(&self, ids: &[DeviceId]) -> Result<(), Reason> {
        let mut state = self.state();
        let entries = state.checkpoint(&self.options.plugins_dir).unwrap_or_default();
        let owners = owners(&entries, ids);
        let records: Vec<&Record> = state.ledger.records().iter().collect();
        let of_container = || records.iter().filter(|record| record.overlaps(ids));
        if let Some(id) = ids.iter().find(|id| !of_container().any(|r| r.share.ids.contains(id))) {
            // The kubelet holds it, so that a look at the holders makes the record again.
            self.look.notify_one();
            return Err(Reason::NotRecorded { problem: format!("there is no record of `{id}`") });
        }
        for record in of_container() {
            // A former owner that holds something now lives on: its ids went from one of its
            // containers to another.
            let former = record.former_pods.iter().filter(|uid| !owners.contains(uid.as_str()));
            let former: Vec<String> = former.cloned().collect();
            let status = state.gpu_status(&record.share);
            gate::check(&record.share, status, |pipe| self.life(pipe))?;
            let looked = state.view.last_look();
            gate::check_former_pods(&record.share, (record.revision, &former), status, looked)?;
        }
        // Before the container has a process: the checkpoint names its pod now, and may have
        // forgotten it when somebody else is given the ids.
        if let Some(pod_uid) = holder(&entries, ids) {
            let written = state.ledger.learn(ids, pod_uid);
            state.note_write(written);
        }
        Ok(())
    }

    /// Learns which pods held `ids` until now, while the kubelet's checkpoint still says so.
    fn learn_owners(&self, state: &mut State, ids: &[DeviceId]) {
        let records = state.ledger.records();
        if records.iter().any(|record| record.overlaps(ids) && record.pod_uid.is_none()) {
            self.take_evidence(state, None, Instant::now());
        }
    }

    /// What a request for `ids` gets now.
    fn grant(
        &self,
        state: &State,
        resource: &ResourceName,
        ids: &[DeviceId],
    ) -> Result<Grant, Reason> {
        let (config, inventory) = self.basis(state)?;
        let grant = grant(&config.node, inventory, &state.ledger.live(), resource, ids)?;
        grant.shares.iter().try_for_each(|share| self.check_card(state, share))?;
        Ok(grant)
    }

    fn basis<'a>(&self, state: &'a State) -> Result<(&'a Config, &'a Inventory), Reason> {
        let root = self.options.root();
        let config = state.view.config.as_ref();
        let config = config
            .ok_or_else(|| Reason::ConfigMissing { path: root.config().display().to_string() })?;
        let inventory = state.view.inventory.as_ref();
        let inventory = inventory
            .ok_or_else(|| Reason::StatusMissing { path: root.status().display().to_string() })?;
        Ok((config, inventory))
    }

    /// A card that is known to be broken gets no new shares, even in the moment before the
    /// kubelet learns of it. One that is being set up does: the container will wait.
    fn check_card(&self, state: &State, share: &LiveShare) -> Result<(), Reason> {
        let Some(status) = state.gpu_status(share) else {
            return Ok(());
        };
        if matches!(status.state, GpuState::Absent | GpuState::Fault) {
            return gate::check(share, Some(status), |_| DaemonLife::Unknown);
        }
        let is_dead = |daemon: &&DaemonStatus| {
            self.life(Path::new(&daemon.pipe_directory)) == DaemonLife::Dead
        };
        match state.current_daemon(share).filter(is_dead) {
            Some(daemon) => Err(gate::daemon_is_dead(share, daemon)),
            None => Ok(()),
        }
    }

    fn answer(
        &self,
        state: &State,
        grant: &Grant,
        config: &Config,
        inventory: &Inventory,
    ) -> ContainerAllocateResponse {
        let dev = &self.options.dev_root;
        let exists = |name: &&str| dev.join(name).exists();
        let control_nodes: Vec<&str> = if config.plugin.pass_device_specs {
            CONTROL_NODES.into_iter().filter(exists).collect()
        } else {
            Vec::new()
        };
        let surroundings = Surroundings {
            plugin: &config.plugin,
            cdi_kind: &self.options.cdi_kind,
            dev_root: dev,
            control_nodes: &control_nodes,
            inventory,
        };
        let shared = grant.shares.iter().find(|share| share.mode == Mode::Mps);
        let daemon = shared.map(|share| self.daemon_paths(state, share));
        response(grant, daemon.as_ref(), &surroundings)
    }

    /// Where the daemon of a share is, or will be.
    fn daemon_paths(&self, state: &State, share: &LiveShare) -> DaemonPaths {
        let paths = self.options.host_root().gpu(&share.resource, &share.gpu);
        let shared_memory = state.status().map(|status| status.shared_memory);
        DaemonPaths { pipe: paths.pipe(), shm: shared_memory.unwrap_or_default().directory(&paths) }
    }

    fn life(&self, pipe_directory: &Path) -> DaemonLife {
        daemon_life(&self.options.seen_here(pipe_directory))
    }
}

impl State {
    fn gpu_status(&self, share: &LiveShare) -> Option<&GpuStatus> {
        self.status().and_then(|status| status.gpu(share.gpu.as_str()))
    }

    /// The daemon of a card that is ready at the plan's generation.
    fn current_daemon(&self, share: &LiveShare) -> Option<&DaemonStatus> {
        let status = self.gpu_status(share)?;
        let plan = self.plan.as_ref()?.gpu(&share.gpu)?;
        let is_current =
            status.state == GpuState::Ready && status.generation == plan.generation.as_str();
        status.daemon.as_ref().filter(|_| is_current && share.mode == Mode::Mps)
    }
}

/// UIDs of the pods that hold something on the cards of `ids` by the kubelet's checkpoint. It is
/// written before a container of the pod is created.
fn owners<'a>(entries: &'a [Entry], ids: &[DeviceId]) -> BTreeSet<&'a str> {
    let is_there = |id: &String| {
        id.parse().is_ok_and(|id: DeviceId| ids.iter().any(|mine| mine.gpu() == id.gpu()))
    };
    let held = entries.iter().filter(|entry| entry.device_ids.iter().any(is_there));
    held.map(|entry| entry.pod_uid.as_str()).collect()
}

/// UID of the one pod that holds `ids` by the kubelet's checkpoint.
fn holder<'a>(entries: &'a [Entry], ids: &[DeviceId]) -> Option<&'a str> {
    let is_mine = |id: &String| id.parse().is_ok_and(|id: DeviceId| ids.contains(&id));
    let mut holders = entries.iter().filter(|entry| entry.device_ids.iter().any(is_mine));
    let first = holders.next()?;
    holders.all(|other| other.pod_uid == first.pod_uid).then_some(&first.pod_uid)
}

fn parsed(ids: &[String]) -> Result<Vec<DeviceId>, Reason> {
    let parse = |id: &String| id.parse().map_err(|_| Reason::UnknownDevice { id: id.clone() });
    ids.iter().map(parse).collect()
}

/// Those that are ours.
fn known_ids(ids: &[String]) -> Vec<DeviceId> {
    ids.iter().filter_map(|id| id.parse().ok()).collect()
}

#[cfg(test)]
mod tests;
