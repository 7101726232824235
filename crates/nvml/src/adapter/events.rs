//! The driver's events: one set, each card registered once.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use mpshare_core::GpuUuid;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError as Code;
use nvml_wrapper::struct_wrappers::event::EventData;
use nvml_wrapper::{Device, EventSet, Nvml};

use super::device_count;
use super::refusal::{Subject, refusal};
use crate::error::NvmlError;
use crate::inventory::{EventKind, HealthEvent};

/// What the wrapper calls "unknown" is this Xid.
const UNKNOWN_XID: u64 = 999;

/// The event set, and which cards it was made for.
#[derive(Debug, Default)]
pub(super) struct Events {
    set: Option<EventSet<'static>>,
    /// The answering cards when the set was made, with or without events of their own.
    cards: BTreeSet<GpuUuid>,
    /// Events that came in one piece and are told one by one.
    pending: VecDeque<HealthEvent>,
}

impl Events {
    /// The next event before `deadline`.
    pub(super) fn next(
        &mut self,
        nvml: &'static Nvml,
        deadline: Instant,
    ) -> Result<Option<HealthEvent>, NvmlError> {
        if let Some(event) = self.pending.pop_front() {
            return Ok(Some(event));
        }
        self.renew(nvml)?;
        if let Some(event) = self.pending.pop_front() {
            return Ok(Some(event));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let Some(set) = &self.set else {
            // Nothing can report events; returning at once would make the caller spin.
            std::thread::sleep(left);
            return Ok(None);
        };
        match set.wait(milliseconds(left)) {
            Ok(data) => Ok(event(&data)),
            Err(Code::Timeout) => Ok(None),
            // It doesn't say which. The set is made anew for those that still answer, which also
            // finds out who doesn't.
            Err(Code::GpuLost) => {
                self.set = None;
                self.renew(nvml)?;
                Ok(self.pending.pop_front())
            }
            Err(code) => {
                self.set = None;
                Err(refusal(code, Subject::Driver, "wait for events"))
            }
        }
    }

    /// Makes the set anew when other cards answer than those that it was made for.
    fn renew(&mut self, nvml: &'static Nvml) -> Result<(), NvmlError> {
        let answering = answering(nvml)?;
        let cards: BTreeSet<GpuUuid> = answering.iter().map(|(uuid, _)| uuid.clone()).collect();
        if self.set.is_some() && cards == self.cards {
            return Ok(());
        }
        for gpu in self.cards.difference(&cards) {
            let (gpu, kind) = (Some(gpu.clone()), EventKind::Lost);
            self.pending.push_back(HealthEvent { gpu, kind });
        }
        self.set = register(nvml, answering)?;
        self.cards = cards;
        Ok(())
    }
}

/// The cards that answer.
fn answering(nvml: &'static Nvml) -> Result<Vec<(GpuUuid, Device<'static>)>, NvmlError> {
    let mut answering = Vec::new();
    for index in 0..device_count(nvml)? {
        let found = nvml
            .device_by_index(index)
            .and_then(|device| Ok((device.uuid()?, device.memory_info().map(|_| device)?)));
        match found {
            Ok((uuid, device)) => answering.push((uuid.parse()?, device)),
            Err(code) => {
                let error = refusal(code, Subject::Index(index), "look the card up");
                if !error.is_lost() {
                    return Err(error);
                }
            }
        }
    }
    Ok(answering)
}

/// One set with every card that can report critical Xids; `None` when none can.
///
/// A refused registration costs the whole set (the wrapper frees it), so the refused card is left
/// out and the rest is done again.
fn register(
    nvml: &'static Nvml,
    mut cards: Vec<(GpuUuid, Device<'static>)>,
) -> Result<Option<EventSet<'static>>, NvmlError> {
    cards.retain(|(gpu, device)| supports_xids(gpu, device));
    'anew: while !cards.is_empty() {
        let mut set = nvml
            .create_event_set()
            .map_err(|code| refusal(code, Subject::Driver, "create an event set"))?;
        for (place, (gpu, device)) in cards.iter().enumerate() {
            set = match device.register_events(EventTypes::CRITICAL_XID_ERROR, set) {
                Ok(set) => set,
                Err(error) => {
                    tracing::warn!(%gpu, %error, "the card reports no health events");
                    cards.remove(place);
                    continue 'anew;
                }
            };
        }
        return Ok(Some(set));
    }
    Ok(None)
}

fn supports_xids(gpu: &GpuUuid, device: &Device<'_>) -> bool {
    match device.supported_event_types() {
        Ok(types) => types.contains(EventTypes::CRITICAL_XID_ERROR),
        Err(Code::NotSupported) => false,
        Err(error) => {
            tracing::warn!(%gpu, %error, "the card doesn't tell which events it reports");
            false
        }
    }
}

/// `None` for an event that isn't about health.
fn event(data: &EventData<'_>) -> Option<HealthEvent> {
    let xid = match data.event_data.as_ref()? {
        XidError::Value(xid) => *xid,
        XidError::Unknown => UNKNOWN_XID,
    };
    let gpu = data.device.uuid().ok().and_then(|uuid| uuid.parse().ok());
    let kind = EventKind::Xid(xid);
    Some(HealthEvent { gpu, kind })
}

/// Rounded up: a wait that ends early would be taken for a full one.
fn milliseconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros().div_ceil(1000)).unwrap_or(u32::MAX)
}
