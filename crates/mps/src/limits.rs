//! Limits as MPS takes them, and what reading them back can prove.
//!
//! MPS validates next to nothing: `0G` means no limit, `100K` means 100 MiB, a bad percentage
//! leaves the old one (facts/mps.md 1.2). So limits are values that can't be wrong, and a limit
//! counts only once it was read back.

use std::fmt;

use mpshare_core::{Limits, Memory, ThreadPercent};
use thiserror::Error;

/// A pinned memory limit: at least 1 MiB, since 0 would mean no limit at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PinnedLimit(Memory);

/// A limit that MPS would take for "no limit".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum LimitError {
    /// Zero memory.
    #[error("a pinned memory limit of 0 MiB would mean no limit")]
    Zero,
    /// More bytes than the daemon can count.
    #[error("a pinned memory limit of {0} is more than MPS can count")]
    TooLarge(Memory),
}

impl PinnedLimit {
    /// Checks an amount.
    pub fn new(memory: Memory) -> Result<Self, LimitError> {
        if memory == Memory::ZERO {
            return Err(LimitError::Zero);
        }
        if memory.bytes() == u64::MAX {
            return Err(LimitError::TooLarge(memory));
        }
        Ok(Self(memory))
    }

    /// The amount.
    pub const fn memory(self) -> Memory {
        self.0
    }

    /// What `get_default_device_pinned_mem_limit` shows for it: whole GiB from 1 GiB on, the rest
    /// cut off.
    pub fn display(self) -> MemoryDisplay {
        let mib = self.0.mib();
        if mib >= 1024 { MemoryDisplay::Gib(mib / 1024) } else { MemoryDisplay::Mib(mib) }
    }
}

impl fmt::Display for PinnedLimit {
    /// As a command takes it: whole MiB with `M`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}M", self.0.mib())
    }
}

/// A memory limit as the daemon shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryDisplay {
    /// `512M`.
    Mib(u64),
    /// `7G`: at least that, and less than one more.
    Gib(u64),
}

impl fmt::Display for MemoryDisplay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mib(n) => write!(f, "{n}M"),
            Self::Gib(n) => write!(f, "{n}G"),
        }
    }
}

/// A percentage as the daemon shows it: with one decimal, the rest cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PercentDisplay {
    /// `33.5`.
    Tenths(ThreadPercent),
    /// `0.0`: less than a tenth. We never set that, but somebody with a shell may.
    BelowATenth,
}

impl fmt::Display for PercentDisplay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tenths(percent) => percent.fmt(f),
            Self::BelowATenth => f.write_str("0.0"),
        }
    }
}

/// What a client without limits of its own gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DaemonLimits {
    /// Pinned memory of a client process.
    pub memory: PinnedLimit,
    /// Active thread percentage of a client process.
    pub percent: ThreadPercent,
}

impl TryFrom<Limits> for DaemonLimits {
    type Error = LimitError;

    fn try_from(limits: Limits) -> Result<Self, LimitError> {
        Ok(Self { memory: PinnedLimit::new(limits.memory)?, percent: limits.percent })
    }
}

impl From<DaemonLimits> for Limits {
    fn from(limits: DaemonLimits) -> Self {
        Self { memory: limits.memory.memory(), percent: limits.percent }
    }
}

/// The defaults that a daemon says are in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Defaults {
    /// The default percentage.
    pub percent: PercentDisplay,
    /// The default memory limit of device 0; `None` means there is none.
    pub memory: Option<MemoryDisplay>,
}

impl Defaults {
    /// Whether this is what the daemon shows when `limits` are in force. Memory from 1 GiB on is
    /// known to a whole GiB only.
    pub fn shows(self, limits: DaemonLimits) -> bool {
        self.percent == PercentDisplay::Tenths(limits.percent)
            && self.memory == Some(limits.memory.display())
    }
}

impl fmt::Display for Defaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.memory {
            Some(memory) => write!(f, "{memory} and {} %", self.percent),
            None => write!(f, "no memory limit and {} %", self.percent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(mib: u64) -> PinnedLimit {
        PinnedLimit::new(Memory::from_mib(mib)).unwrap()
    }

    #[test]
    fn zero_is_no_limit() {
        assert_eq!(PinnedLimit::new(Memory::ZERO), Err(LimitError::Zero));
        let too_large = Memory::from_mib(u64::MAX);
        assert_eq!(PinnedLimit::new(too_large), Err(LimitError::TooLarge(too_large)));
    }

    #[test]
    fn a_limit_is_written_in_mib_and_shown_cut_to_gib() {
        for (mib, written, shown) in [
            (1, "1M", "1M"),
            (512, "512M", "512M"),
            (1023, "1023M", "1023M"),
            (1024, "1024M", "1G"),
            (1025, "1025M", "1G"),
            (3000, "3000M", "2G"),
            (7680, "7680M", "7G"),
        ] {
            assert_eq!(limit(mib).to_string(), written);
            assert_eq!(limit(mib).display().to_string(), shown);
        }
    }

    #[test]
    fn an_unset_default_shows_no_limits() {
        let limits = DaemonLimits { memory: limit(7680), percent: ThreadPercent::FULL };
        let shown = Defaults { percent: PercentDisplay::Tenths(ThreadPercent::FULL), memory: None };
        assert!(!shown.shows(limits));
        let memory = Some(MemoryDisplay::Gib(7));
        assert!(Defaults { memory, ..shown }.shows(limits));
        let memory = Some(MemoryDisplay::Gib(0));
        assert!(!Defaults { memory, ..shown }.shows(limits));
    }
}
