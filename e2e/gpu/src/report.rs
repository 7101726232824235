//! What came of a run: a document for programs, a table for people.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The measured number on which evictions stand or fall: what NVML charges a client at its limit is
/// this much below the limit.
pub(crate) const EVICTION_MARGIN: &str = "eviction_margin_mib";

/// What came of a check, or of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    /// All assertions held.
    Passed,
    /// One didn't.
    Failed,
    /// It couldn't be tried here.
    Skipped,
}

/// One check.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CheckReport {
    /// Its name.
    pub(crate) name: String,
    /// What came of it.
    pub(crate) outcome: Outcome,
    /// How long it took.
    pub(crate) milliseconds: u64,
    /// Why it failed or was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
    /// What was measured.
    pub(crate) measured: Map<String, Value>,
    /// What it takes for granted about hardware though nobody has seen it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(crate) guesses: Vec<String>,
}

/// The machine.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// The driver's version.
    pub(crate) driver: String,
    /// The card's product name.
    pub(crate) gpu: String,
    /// The card's UUID.
    pub(crate) uuid: String,
    /// Its memory.
    pub(crate) memory_mib: u64,
    /// CUDA compute capability.
    pub(crate) compute_capability: String,
    /// The compute mode that was found, and is restored.
    pub(crate) compute_mode: Option<String>,
    /// How many cards the machine has.
    pub(crate) cards: usize,
}

/// What the worker tells the keeper, a line of JSON each.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum News {
    /// Nothing can be tried here.
    Skipped(String),
    /// Nothing is tried here, though it could be.
    Refused(String),
    /// What there is.
    Machine(Machine),
    /// A check begins.
    Begun(String),
    /// A check is over.
    Check(CheckReport),
    /// All are over.
    Finished,
}

/// All of a run.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Report {
    /// Form of this document.
    pub(crate) version: u32,
    /// Whether the card was simulated.
    pub(crate) simulated: bool,
    /// What came of all.
    pub(crate) outcome: Outcome,
    /// Why it was skipped, refused or broken off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
    /// The machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) machine: Option<Machine>,
    /// How long it took.
    pub(crate) milliseconds: u64,
    /// The checks in their order.
    pub(crate) checks: Vec<CheckReport>,
}

impl Report {
    /// The form that this program writes.
    pub(crate) const VERSION: u32 = 1;

    /// The outcome that follows from the checks.
    pub(crate) fn judge(&mut self) {
        let failed = self.checks.iter().any(|check| check.outcome == Outcome::Failed);
        if failed {
            self.outcome = Outcome::Failed;
        }
    }

    /// For people.
    pub(crate) fn table(&self) -> String {
        let mut text = String::new();
        if let Some(machine) = &self.machine {
            line(&mut text, &machine_line(machine));
        }
        let width = self.checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
        for check in &self.checks {
            line(&mut text, &check_line(check, width));
            if let Some(why) = &check.why {
                line(&mut text, &format!("         {}", why.replace('\n', "\n         ")));
            }
        }
        let margin = |check: &CheckReport| check.measured.get(EVICTION_MARGIN)?.as_i64();
        if let Some(margin) = self.checks.iter().find_map(margin) {
            line(&mut text, &margin_line(margin));
        }
        let count = |outcome| self.checks.iter().filter(|check| check.outcome == outcome).count();
        let sum = format!(
            "{} passed, {} failed, {} skipped in {:.1} s",
            count(Outcome::Passed),
            count(Outcome::Failed),
            count(Outcome::Skipped),
            std::time::Duration::from_millis(self.milliseconds).as_secs_f64(),
        );
        line(&mut text, &sum);
        text
    }
}

fn line(text: &mut String, more: &str) {
    text.push_str(more);
    text.push('\n');
}

fn machine_line(machine: &Machine) -> String {
    format!(
        "{} ({} MiB, compute capability {}), driver {}, {} card(s)",
        machine.gpu, machine.memory_mib, machine.compute_capability, machine.driver, machine.cards
    )
}

fn margin_line(margin: i64) -> String {
    let (distance, side, verdict) = match margin {
        0.. => (margin, "below", "no client that keeps its limit is evicted"),
        _ => (-margin, "ABOVE", "evictions hit clients that keep their limit"),
    };
    format!("a client at its limit: charged {distance} MiB {side} it by NVML, so {verdict}")
}

fn check_line(check: &CheckReport, width: usize) -> String {
    let outcome = match check.outcome {
        Outcome::Passed => "passed",
        Outcome::Failed => "FAILED",
        Outcome::Skipped => "skipped",
    };
    let numbers: Vec<String> =
        check.measured.iter().map(|(name, value)| format!("{name}={}", shown(value))).collect();
    let (name, ms, numbers) = (&check.name, check.milliseconds, numbers.join(" "));
    format!("{outcome:<8} {name:<width$} {ms:>6} ms  {numbers}").trim_end().to_owned()
}

fn shown(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), |text| format!("`{}`", text.replace('\n', " | ")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(outcome: Outcome, why: Option<&str>) -> CheckReport {
        let measured = json!({"overhead_mib": 312, "text": "a b"});
        CheckReport {
            name: "limits.memory".to_owned(),
            outcome,
            milliseconds: 1234,
            why: why.map(str::to_owned),
            measured: measured.as_object().unwrap().clone(),
            guesses: Vec::new(),
        }
    }

    fn report(checks: Vec<CheckReport>) -> Report {
        let outcome = Outcome::Passed;
        let (version, simulated, milliseconds) = (Report::VERSION, false, 2500);
        Report { version, simulated, outcome, why: None, machine: None, milliseconds, checks }
    }

    #[test]
    fn one_failed_check_fails_the_run() {
        let passed = check(Outcome::Passed, None);
        let mut all = report(vec![passed.clone(), check(Outcome::Skipped, Some("x")), passed]);
        all.judge();
        assert_eq!(all.outcome, Outcome::Passed);
        all.checks.push(check(Outcome::Failed, Some("x")));
        all.judge();
        assert_eq!(all.outcome, Outcome::Failed);
    }

    #[test]
    fn the_number_that_decides_about_evictions_has_a_line_of_its_own() {
        let mut measured = check(Outcome::Passed, None);
        measured.measured.insert(EVICTION_MARGIN.to_owned(), json!(-24));
        let table = report(vec![measured]).table();
        assert!(table.contains("charged 24 MiB ABOVE it by NVML"), "{table}");
    }

    #[test]
    fn the_table_has_each_check_with_its_numbers_and_its_reason() {
        let all = report(vec![check(Outcome::Failed, Some("two\nlines"))]);
        let expected = "FAILED   limits.memory   1234 ms  overhead_mib=312 text=`a b`\n         two\n         \
                        lines\n0 passed, 1 failed, 0 skipped in 2.5 s\n";
        assert_eq!(all.table(), expected);
    }
}
