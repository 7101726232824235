//! What becomes of findings.

use std::str::FromStr;

/// What becomes of findings in a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// They refuse the pod.
    Enforce,
    /// They are shown to who creates it.
    Warn,
    /// They are Events and metrics only.
    Audit,
}

impl Mode {
    /// As it is written in paths, labels and metrics.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Warn => "warn",
            Self::Audit => "audit",
        }
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Enforce, Self::Warn, Self::Audit]
            .into_iter()
            .find(|mode| mode.name() == text)
            .ok_or_else(|| format!("`{text}` is no mode; hint: `enforce`, `warn` or `audit`"))
    }
}
