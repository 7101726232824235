//! NVIDIA's config format, read strictly.

use mpshare_core::NodeConfig;

/// A config that was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptedConfig {
    /// What it asks for.
    pub node: NodeConfig,
    /// Things to tell its author, one sentence each.
    pub warnings: Vec<String>,
}

/// A config that was refused: position, what is wrong, and the whole report with the offending
/// line, a caret and a hint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{report}")]
pub struct ConfigError {
    /// 1-based line; 0 when no line is to blame.
    pub line: usize,
    /// 1-based column.
    pub column: usize,
    /// One line: what is wrong, with its hint.
    pub message: String,
    /// Several lines, for a terminal.
    pub report: String,
}
