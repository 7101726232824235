//! What a card is when a look at it failed.

use std::time::{Duration, Instant};

use mpshare_api::status::ReasonText;
use mpshare_api::{GpuState, GpuStatus};
use mpshare_core::{GpuPlan, Hosting};
use tracing::{info, warn};

use super::{MAX_BACKOFF, MIN_BACKOFF, Worker};
use crate::card::CardError;
use crate::clients;
use crate::silence::Silence;

impl Worker {
    pub(super) fn failed(
        &mut self,
        error: &CardError,
        plan: &GpuPlan,
        status: &mut GpuStatus,
    ) -> Duration {
        if let Some(borne) = self.silent(error) {
            *status = borne;
            return self.options.busy_interval;
        }
        let gpu = self.card.gpu.uuid.clone();
        let reason = error.reason(&gpu);
        if self.state.failures == 0 {
            warn!(%gpu, %reason, "card isn't usable, retrying");
        }
        let backoff = MIN_BACKOFF.saturating_mul(1 << self.state.failures.min(7));
        self.state.failures = self.state.failures.saturating_add(1);
        match &self.state.reported {
            Some(before) if error.is_passing() => {
                *status = before.clone();
                if self.card.verified.is_none() {
                    narrow(status, plan);
                }
            }
            // Nothing is known of a daemon that nobody could ask yet, nothing bad either.
            None if error.is_passing() => status.state = GpuState::Starting,
            Some(_) | None => status.state = GpuState::Fault,
        }
        status.reason = Some(ReasonText::from(&reason));
        backoff.min(MAX_BACKOFF)
    }

    /// What to report of a card whose daemon was silent, while that is borne.
    fn silent(&mut self, error: &CardError) -> Option<GpuStatus> {
        let daemon = self.card.silent_daemon(error)?;
        self.card.servers.ask_next();
        let now = Instant::now();
        let silence = Silence::of(daemon, self.state.silence, now);
        self.state.silence = Some(silence);
        let mut borne = silence.borne(self.state.reported.as_ref()?, now)?;
        let gpu = &self.card.gpu.uuid;
        if silence.is_new() {
            warn!(
                %gpu, pid = %daemon, %error,
                "MPS daemon doesn't answer but lives, new containers wait for it"
            );
        }
        // The driver tells of them, not the daemon.
        if let (Some(daemon), Some(clients)) =
            (&mut borne.daemon, clients::of_card(&self.card.ports, gpu))
        {
            daemon.clients = clients;
        }
        Some(borne)
    }

    /// Nothing that was asked stayed without an answer.
    pub(super) fn answered(&mut self) {
        let Some(silence) = self.state.silence.take() else { return };
        let Silence { daemon, .. } = silence;
        // A dead one doesn't answer either.
        if self.card.ports.host_proc.identify(daemon.pid).is_ok_and(|found| found == Some(daemon)) {
            let silent = silence.lasts(Instant::now());
            info!(gpu = %self.card.gpu.uuid, pid = %daemon, ?silent, "MPS daemon answers again");
        }
    }
}

/// While limits are on their way to a daemon, only what both the old and the new ones let through
/// is sure to get through.
fn narrow(status: &mut GpuStatus, plan: &GpuPlan) {
    let limits = status.daemon.as_mut().and_then(|daemon| daemon.limits.as_mut());
    if let (Some(limits), Hosting::Mps { limits: wanted, .. }) = (limits, &plan.hosting) {
        limits.memory_mib = limits.memory_mib.min(wanted.memory.mib());
        limits.percent_tenths = limits.percent_tenths.min(wanted.percent.tenths());
    }
}
