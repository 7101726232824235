//! Which cards there are, and whether they answer.
//!
//! In a thread of its own: a driver that hangs must not keep the main thread from reporting what
//! it knows, from letting workers of other cards go on, or from ending.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use mpshare_core::{GpuUuid, Inventory};
use mpshare_nvml::{Answer, GpuInventory};

use crate::event::Event;
use crate::options::Ports;

/// How often cards are looked for anew, and all known ones probed.
pub(crate) const EVERY: Duration = Duration::from_secs(10);

/// Starts the thread. `known` are cards that a predecessor saw: the driver leaves a lost one out
/// of its list.
pub(crate) fn watch_cards(
    ports: &Ports,
    known: Option<&Inventory>,
    events: Sender<Event>,
) -> std::io::Result<()> {
    let inventory = Arc::clone(&ports.inventory);
    let mut known: BTreeSet<GpuUuid> =
        known.iter().flat_map(|known| &known.gpus).map(|gpu| gpu.uuid.clone()).collect();
    thread::Builder::new().name("cards".to_owned()).spawn(move || {
        loop {
            let found = inventory.inventory();
            let gpus = found.iter().flat_map(|found| &found.gpus);
            known.extend(gpus.map(|gpu| gpu.uuid.clone()));
            if events.send(Event::Cards(found)).is_err() {
                return;
            }
            for gpu in &known {
                if let Some(answer) = probe(inventory.as_ref(), gpu)
                    && events.send(Event::Probed(gpu.clone(), answer)).is_err()
                {
                    return;
                }
            }
            thread::park_timeout(EVERY);
        }
    })?;
    Ok(())
}

/// `None` when the driver as a whole gives no answer, which says nothing about a card.
fn probe(inventory: &dyn GpuInventory, gpu: &GpuUuid) -> Option<Answer> {
    match inventory.probe(gpu) {
        Ok(()) => Some(Answer::Given),
        Err(error) if error.is_lost() => Some(Answer::None),
        Err(_) => None,
    }
}
