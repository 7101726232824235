//! Which config a node gets: a label, else the default, else a fallback.

use std::collections::BTreeMap;
use std::str::FromStr;

use mpshare_api::names::{CONFIG_LABEL, MEMORY_CONFIG, SCHEDULE_LABEL};
use mpshare_core::Reason;
use thiserror::Error;

/// The value of [`SCHEDULE_LABEL`] that concerns us; others belong to other systems.
const SCHEDULE_BY_MPS: &str = "mps";

/// The name that [`Fallback::Named`] looks for.
const NAMED: &str = "default";

/// What is tried when neither label nor default names a config (NVIDIA's `fallbackStrategies`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fallback {
    /// The config named `default`, if there is one.
    Named,
    /// The only config, if there is just one.
    Single,
    /// No config at all: whole cards.
    Empty,
}

/// A word that names no [`Fallback`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is no fallback strategy; it must be `named`, `single` or `empty`")]
pub struct ParseFallbackError(String);

impl FromStr for Fallback {
    type Err = ParseFallbackError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "named" => Ok(Self::Named),
            "single" => Ok(Self::Single),
            "empty" => Ok(Self::Empty),
            other => Err(ParseFallbackError(other.to_owned())),
        }
    }
}

/// A config that was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Its name.
    pub name: String,
    /// What it was chosen by.
    pub why: String,
    /// Its text.
    pub text: String,
}

/// What is chosen by when no label speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Defaults<'a> {
    /// The config of a node without label.
    pub config: Option<&'a str>,
    /// What is tried after that.
    pub fallbacks: &'a [Fallback],
}

/// Chooses the config of a node with these labels among the available ones.
///
/// A name that isn't available is a reason, never a silent default: whoever labels a node wants
/// that config and no other.
pub fn choose(
    labels: &BTreeMap<String, String>,
    available: &BTreeMap<String, String>,
    defaults: Defaults<'_>,
) -> Result<Choice, Reason> {
    if let Some((name, why)) = labelled(labels)? {
        return named(available, name, why);
    }
    if let Some(name) = defaults.config {
        return named(available, name, "the default config".to_owned());
    }
    let fallback = |fallback: &Fallback| fall_back(available, *fallback);
    defaults
        .fallbacks
        .iter()
        .find_map(fallback)
        .ok_or_else(|| Reason::ConfigNotChosen { known: available.keys().cloned().collect() })
}

/// The name that the labels ask for. An empty value counts as no label, as in NVIDIA's plugin.
fn labelled(labels: &BTreeMap<String, String>) -> Result<Option<(&str, String)>, Reason> {
    let value = |label: &str| labels.get(label).filter(|value| !value.is_empty());
    let schedule = value(SCHEDULE_LABEL).filter(|value| *value == SCHEDULE_BY_MPS);
    match (value(CONFIG_LABEL), schedule) {
        (Some(config), Some(schedule)) if config != MEMORY_CONFIG => {
            Err(Reason::LabelsDisagree { config: config.clone(), schedule: schedule.clone() })
        }
        (Some(config), _) => Ok(Some((config, format!("node label {CONFIG_LABEL}={config}")))),
        (None, Some(schedule)) => {
            let why = format!("node label {SCHEDULE_LABEL}={schedule}");
            Ok(Some((MEMORY_CONFIG, why)))
        }
        (None, None) => Ok(None),
    }
}

fn named(available: &BTreeMap<String, String>, name: &str, why: String) -> Result<Choice, Reason> {
    let text = available.get(name).ok_or_else(|| Reason::ConfigUnknown {
        name: name.to_owned(),
        known: available.keys().cloned().collect(),
    })?;
    Ok(Choice { name: name.to_owned(), why, text: text.clone() })
}

fn fall_back(available: &BTreeMap<String, String>, fallback: Fallback) -> Option<Choice> {
    let (name, text, why) = match fallback {
        Fallback::Named => (NAMED, available.get(NAMED)?.as_str(), "its name"),
        Fallback::Single => {
            let (name, text) = available.first_key_value()?;
            if available.len() > 1 {
                return None;
            }
            (name.as_str(), text.as_str(), "the only config there is")
        }
        Fallback::Empty => ("empty", "", "nothing else"),
    };
    Some(Choice {
        name: name.to_owned(),
        why: format!("{why}, no label and no default config"),
        text: text.to_owned(),
    })
}

#[cfg(test)]
mod tests;
