//! The checks, in the order in which they are tried: first what the others stand on.

use std::time::Duration;

use anyhow::Result;

use crate::rig::{Measured, Rig};

mod bypass;
mod contract;
mod drain;
mod faults;
mod limits;
mod supervisor;
mod threads;

/// One thing that the product relies on.
pub(crate) struct Check {
    /// Its name.
    pub(crate) name: &'static str,
    /// For how long it may go on.
    pub(crate) limit: Duration,
    /// What it takes for granted about hardware though nobody of us has seen it: read its numbers
    /// before you believe its failure.
    pub(crate) guesses: &'static [&'static str],
    /// Tries it.
    pub(crate) work: fn(&Rig, &Measured) -> Result<Verdict>,
}

/// What came of a check that didn't fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// All assertions held.
    Passed,
    /// It can't be tried here.
    Skipped(String),
}

/// All checks.
pub(crate) fn all() -> Vec<Check> {
    [
        contract::checks(),
        limits::checks(),
        threads::checks(),
        bypass::checks(),
        drain::checks(),
        faults::checks(),
        supervisor::checks(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_check_has_a_name_of_its_own() {
        let names: BTreeSet<_> = all().iter().map(|check| check.name).collect();
        assert_eq!(names.len(), all().len());
    }
}
