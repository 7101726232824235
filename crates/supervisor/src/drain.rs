//! What is reported of a card that is to be emptied: pure.
//!
//! Such a card is never Ready, since nobody new may come. Containers that have shares of it may be
//! started again as long as it is [`Reason::CardDraining`], so nothing else is called that.

use mpshare_api::status::ReasonText;
use mpshare_api::{GpuState, GpuStatus};
use mpshare_core::{GpuPlan, Reason, Unit};

/// Corrects the report on a card whose plan is to be emptied.
pub(crate) fn tell(plan: &GpuPlan, status: &mut GpuStatus) {
    if !plan.is_drained {
        return;
    }
    let is_held = plan.units.iter().any(Unit::is_held);
    let reason = match status.state {
        GpuState::Ready => plan.reason.clone(),
        // Its daemon is about to end.
        GpuState::Starting if !is_held => Some(Reason::CardEmptied { gpu: plan.gpu.clone() }),
        GpuState::Absent
        | GpuState::Starting
        | GpuState::Draining
        | GpuState::Fault
        | GpuState::Refused => return,
    };
    status.state = GpuState::Draining;
    status.reason = reason.as_ref().map(ReasonText::from);
}
