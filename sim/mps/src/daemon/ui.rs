//! The front-end's session, of which there is one at a time.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mpshare_sim_state::mps::UiReply;
use mpshare_sim_state::wire::{Packets, Peer};

use super::Daemon;
use super::command::Outcome;
use super::state::{Life, UiSlot};

/// Makes the choices of a busy daemon repeatable.
const SEED_ENV: &str = "MPSHARE_SIM_MPS_SEED";

/// The real daemon's timing, as dice.
#[derive(Debug)]
pub(super) struct Dice {
    state: AtomicU64,
}

impl Dice {
    /// Seeded by the environment, else by the PID.
    pub(super) fn from_env() -> Self {
        let seed = std::env::var(SEED_ENV).ok().and_then(|seed| seed.parse().ok());
        Self::seeded(seed.unwrap_or_else(|| u64::from(std::process::id())))
    }

    fn seeded(seed: u64) -> Self {
        Self { state: AtomicU64::new(seed) }
    }

    /// A number below `sides` (`SplitMix64`).
    pub(super) fn roll(&self, sides: u64) -> u64 {
        let step = 0x9e37_79b9_7f4a_7c15;
        let mut value = self.state.fetch_add(step, Ordering::Relaxed).wrapping_add(step);
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (value ^ (value >> 31)) % sides
    }

    /// How a front-end ends that finds another one open (facts/mps.md 1.2): about half with the
    /// error, about half with nothing and 0, a few with nothing and 1.
    fn busy(&self) -> UiReply {
        match self.roll(100) {
            ..46 => UiReply::Busy {
                message: Some("Cannot send command to MPS control daemon process".to_owned()),
                code: 1,
            },
            46..54 => UiReply::Busy { message: None, code: 1 },
            _ => UiReply::Busy { message: None, code: 0 },
        }
    }
}

impl Daemon {
    pub(super) fn open_ui(self: &Arc<Self>, connection: &Packets, peer: Peer) {
        if !self.take_ui() {
            drop(connection.send(&self.dice.busy()));
            return;
        }
        self.log.say("NEW UI");
        // A front-end that went away ends its session, whatever it was doing.
        drop(self.converse(connection, peer));
        self.log.say("UI closed");
        let mut state = self.lock();
        match state.life {
            Life::Serving => state.ui = UiSlot::Free,
            Life::Quitting | Life::Over(_) => {}
        }
    }

    fn take_ui(&self) -> bool {
        let mut state = self.lock();
        let free = state.ui == UiSlot::Free;
        state.ui = UiSlot::Taken;
        free
    }

    fn converse(self: &Arc<Self>, connection: &Packets, peer: Peer) -> io::Result<()> {
        connection.send(&UiReply::Welcome)?;
        while let Some(line) = connection.receive::<String>()? {
            self.log.say(format!("Cmd:{line}"));
            self.delay();
            match self.execute(peer, &line) {
                Outcome::Text(text) => {
                    for line in text.lines() {
                        self.log.say(line);
                    }
                    connection.send(&UiReply::Text(text))?;
                }
                Outcome::Quit(timeout) => match self.quit(peer, timeout) {
                    Err(refusal) => connection.send(&UiReply::Text(refusal))?,
                    Ok(code) => {
                        let sent = connection.send(&UiReply::Leaving { code });
                        self.end();
                        return sent;
                    }
                },
            }
        }
        Ok(())
    }

    /// The injected slowness of the front-end.
    fn delay(&self) {
        let milliseconds = self.store.read().map_or(0, |state| state.faults.ui_delay_ms);
        if milliseconds > 0 {
            std::thread::sleep(Duration::from_millis(milliseconds));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_the_choices_and_all_three_happen() {
        let choices = || -> Vec<UiReply> {
            let dice = Dice::seeded(7);
            (0..100).map(|_| dice.busy()).collect()
        };
        assert_eq!(choices(), choices());
        let count = |code, message| {
            let is = |reply: &&UiReply| {
                matches!(reply, UiReply::Busy { message: text, code: of }
                    if *of == code && text.is_some() == message)
            };
            choices().iter().filter(is).count()
        };
        assert!(count(1, true) > 20 && count(0, false) > 20 && count(1, false) > 0);
    }
}
