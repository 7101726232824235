//! On which cards clients may have been hurt, by what this campaign did, and when.

use std::time::{Duration, Instant};

/// For so long after a fault something may still come of it: the product has to notice it and to
/// clear up. Clients of a spared card are never excused, so nothing is lost by being generous.
const AFTERMATH: Duration = Duration::from_secs(10);

/// What was done to cards.
#[derive(Debug, Default)]
pub(super) struct Harm {
    done: Vec<Blow>,
}

#[derive(Debug)]
struct Blow {
    card: String,
    /// `None` while it lasts.
    ended: Option<Instant>,
}

impl Harm {
    /// A fault of a moment hits a card.
    pub(super) fn strike(&mut self, card: &str) {
        self.done.push(Blow { card: card.to_owned(), ended: Some(Instant::now()) });
    }

    /// A fault begins on a card.
    pub(super) fn begin(&mut self, card: &str) {
        self.done.push(Blow { card: card.to_owned(), ended: None });
    }

    /// All faults on a card are over.
    pub(super) fn end(&mut self, card: &str) {
        for blow in self.done.iter_mut().filter(|blow| blow.card == card) {
            blow.ended.get_or_insert_with(Instant::now);
        }
    }

    /// Whether a client of a card that was well at this time may have been hurt.
    pub(super) fn excuses(&self, card: &str, well: Instant) -> bool {
        let mut mine = self.done.iter().filter(|blow| blow.card == card);
        mine.any(|blow| blow.ended.is_none_or(|ended| ended + AFTERMATH > well))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blow_excuses_who_was_there_before_it_and_not_who_came_long_after_it() {
        let mut harm = Harm::default();
        let before = Instant::now();
        harm.strike("a");
        assert!(harm.excuses("a", before));
        assert!(!harm.excuses("b", before));
        assert!(!harm.excuses("a", Instant::now() + AFTERMATH));
    }

    #[test]
    fn a_fault_excuses_whoever_comes_as_long_as_it_lasts() {
        let mut harm = Harm::default();
        harm.begin("a");
        let later = Instant::now() + 10 * AFTERMATH;
        assert!(harm.excuses("a", later));
        harm.end("a");
        assert!(!harm.excuses("a", later));
    }
}
