//! Figures with the goal that they are held against.

use std::fmt;

use serde::Serialize;

/// One measured thing.
#[derive(Debug, Serialize)]
pub(super) struct Goal {
    /// What was measured.
    pub name: String,
    /// In which unit.
    pub unit: &'static str,
    /// All figures, ascending.
    pub values: Vec<f64>,
    /// Which of them counts: 1.0 is the largest.
    pub quantile: f64,
    /// It must stay below this.
    pub below: f64,
    /// The peer's figure, if it has one.
    pub peer: Option<f64>,
}

impl Goal {
    pub(super) fn of(name: impl Into<String>, unit: &'static str, mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self { name: name.into(), unit, values, quantile: 1.0, below: f64::INFINITY, peer: None }
    }

    pub(super) fn at(mut self, quantile: f64) -> Self {
        self.quantile = quantile;
        self
    }

    pub(super) fn below(mut self, limit: f64) -> Self {
        self.below = limit;
        self
    }

    pub(super) fn peer(mut self, figure: f64) -> Self {
        self.peer = Some(figure);
        self
    }

    fn value(&self, quantile: f64) -> f64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "an index into a few hundred figures"
        )]
        let index = ((self.values.len() as f64 * quantile).ceil() as usize).saturating_sub(1);
        self.values.get(index).copied().unwrap_or(f64::NAN)
    }

    pub(super) fn is_met(&self) -> bool {
        self.value(self.quantile) < self.below
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.is_met() {
            true if self.below.is_infinite() => "      ",
            true => "met   ",
            false => "MISSED",
        };
        let (unit, count) = (self.unit, self.values.len());
        write!(f, "{verdict} {}: ", self.name)?;
        if count == 1 {
            write!(f, "{} {unit}", Figure(self.value(1.0)))?;
        } else {
            let [median, p99, max] = [0.5, 0.99, 1.0].map(|at| Figure(self.value(at)));
            write!(f, "median {median}, p99 {p99}, max {max} {unit} of {count}")?;
        }
        if self.below.is_finite() {
            write!(f, "; goal < {} {unit}", self.below)?;
        }
        if let Some(peer) = self.peer {
            let ratio = self.value(self.quantile) / peer;
            write!(f, "; peer {peer} {unit}, ratio {ratio:.3}")?;
        }
        Ok(())
    }
}

/// A figure with as many decimals as it needs to be told from others.
struct Figure(f64);

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = if self.0 < 10.0 { 3 } else { 1 };
        write!(f, "{:.decimals$}", self.0)
    }
}
