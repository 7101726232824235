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

#[cfg(test)]
mod tests {
    use mpshare_api::config::parse;
    use mpshare_core::{
        DeviceId, Drain, Gpu, GpuUuid, Inventory, LiveShare, Memory, Mode, Share, ThreadPercent,
        plan,
    };

    use super::*;
    use crate::testing::t4;

    fn card() -> Gpu {
        t4("GPU-0a")
    }

    fn share() -> LiveShare {
        let gpu: GpuUuid = card().uuid;
        let share = Share { memory: Memory::from_mib(7680), percent: ThreadPercent::FULL };
        let resource = "nvidia.com/gpu".parse().unwrap();
        LiveShare {
            ids: vec![DeviceId::replica(gpu.clone(), 0)],
            gpu,
            resource,
            mode: Mode::Mps,
            share,
        }
    }

    /// State and reason's code that are told for a card in this state.
    fn told(drain: Drain, live: &[LiveShare], state: GpuState) -> (GpuState, Option<String>) {
        let text = "sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}";
        let mut config = parse("a", text).unwrap().node;
        config.drain = drain;
        let inventory = Inventory { driver: "555.58.02".parse().unwrap(), gpus: vec![card()] };
        let plan = plan(&config, &inventory, live).gpus.remove(0);
        let mut status = GpuStatus { state, ..GpuStatus::starting(&card()) };
        tell(&plan, &mut status);
        (status.state, status.reason.map(|reason| reason.code))
    }

    #[test]
    fn a_card_is_called_empty_only_once_nothing_is_left_to_do() {
        let some = |code: &str| (GpuState::Draining, Some(code.to_owned()));
        assert_eq!(told(Drain::All, &[share()], GpuState::Ready), some("CardDraining"));
        assert_eq!(told(Drain::All, &[], GpuState::Starting), some("CardEmptied"));
        assert_eq!(told(Drain::All, &[], GpuState::Ready), some("CardDrained"));
    }

    #[test]
    fn what_is_wrong_with_a_card_is_told_all_the_same() {
        for state in [GpuState::Fault, GpuState::Absent, GpuState::Refused, GpuState::Draining] {
            assert_eq!(told(Drain::All, &[share()], state), (state, None));
        }
        let starting = told(Drain::All, &[share()], GpuState::Starting);
        assert_eq!(starting, (GpuState::Starting, None), "no container may start now");
        assert_eq!(told(Drain::Nothing, &[], GpuState::Ready), (GpuState::Ready, None));
    }
}
