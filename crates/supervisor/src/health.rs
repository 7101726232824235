//! What the driver tells of by itself: Xids, and cards that are lost.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use tracing::warn;

use crate::event::Event;
use crate::options::Ports;

/// The thread that waits for the driver's events.
pub(crate) fn watch_health(ports: &Ports, events: Sender<Event>) -> std::io::Result<()> {
    const WAIT: Duration = Duration::from_mins(1);
    const RETRY: Duration = Duration::from_secs(5);
    let inventory = Arc::clone(&ports.inventory);
    thread::Builder::new().name("health".to_owned()).spawn(move || {
        let mut has_complained = false;
        loop {
            match inventory.wait_for_event(WAIT) {
                Ok(None) => has_complained = false,
                Ok(Some(event)) => {
                    if events.send(Event::Health(event)).is_err() {
                        return;
                    }
                }
                Err(error) => {
                    if !has_complained {
                        warn!(%error, "driver events can't be read, retrying");
                        has_complained = true;
                    }
                    thread::park_timeout(RETRY);
                }
            }
        }
    })?;
    Ok(())
}
