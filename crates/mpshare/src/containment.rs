//! Options of the supervisor about processes that use more of a card than they were given.

use std::time::Duration;

use clap::ValueEnum;
use mpshare_supervisor::{ContainmentRules, Outsiders, OverShare};

#[derive(Debug, clap::Args)]
pub(crate) struct ContainmentOptions {
    /// What is done about processes of a pod that use more than its share together.
    #[arg(long, value_enum, default_value = "warn")]
    over_share: OverSharePolicy,
    /// Seconds for which that may last, and for which a process without a share is left alone.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    over_share_grace: u64,
    /// What is done about processes on a card that belong to no share of it.
    #[arg(long, value_enum, default_value = "warn")]
    outsiders: OutsiderPolicy,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum OverSharePolicy {
    /// It is told.
    Warn,
    /// The newest processes are ended until the others fit.
    EvictProcess,
    /// All processes of the container are ended whose process is the newest.
    EvictContainer,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum OutsiderPolicy {
    /// It is told.
    Warn,
    /// They are ended.
    Kill,
}

impl ContainmentOptions {
    /// As the supervisor takes them.
    pub(crate) fn rules(&self) -> ContainmentRules {
        ContainmentRules {
            over_share: match self.over_share {
                OverSharePolicy::Warn => OverShare::Warn,
                OverSharePolicy::EvictProcess => OverShare::EvictProcess,
                OverSharePolicy::EvictContainer => OverShare::EvictContainer,
            },
            outsiders: match self.outsiders {
                OutsiderPolicy::Warn => Outsiders::Warn,
                OutsiderPolicy::Kill => Outsiders::Kill,
            },
            grace: Duration::from_secs(self.over_share_grace),
        }
    }
}
