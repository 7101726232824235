//! The plan of a card that is to be emptied.
//!
//! Its live shares keep size, limits and daemon; nothing new is granted, so the daemon's limits
//! needn't let through more than those shares. The ids that nobody holds stay in the list without
//! being on offer, as on a card that is full: a kubelet that is handing one out at that moment
//! keeps its footing, and the node's capacity says what is there.

use super::{GpuPlan, Hosting, Unit, UnitState};
use crate::{LiveShare, Reason};

/// The plan once nobody new may come.
pub(super) fn of(open: GpuPlan, held: &[&LiveShare]) -> GpuPlan {
    let gpu = open.gpu.clone();
    let withdrawn = |unit: Unit| match unit.state {
        UnitState::Free => Unit { state: UnitState::Unbacked, ..unit },
        UnitState::Held | UnitState::Unbacked => unit,
    };
    GpuPlan {
        generation: open.generation.drained(),
        hosting: hosting(&open, held),
        units: open.units.into_iter().map(withdrawn).collect(),
        free: 0,
        is_drained: true,
        reason: Some(match held.len() {
            0 => Reason::CardDrained { gpu },
            shares => Reason::CardDraining { gpu, shares },
        }),
        ..open
    }
}

fn hosting(open: &GpuPlan, held: &[&LiveShare]) -> Hosting {
    match open.hosting {
        Hosting::Mps { .. } => super::mps_for(held.iter().map(|it| (&it.resource, &it.share))),
        Hosting::Exclusive if held.is_empty() => Hosting::Nothing,
        Hosting::Exclusive | Hosting::Nothing => open.hosting.clone(),
    }
}
