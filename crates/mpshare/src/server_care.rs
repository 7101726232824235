//! Options of the supervisor about MPS servers in trouble.

use std::time::Duration;

use mpshare_supervisor::CanaryRules;

#[derive(Debug, clap::Args)]
pub(crate) struct ServerOptions {
    /// Seconds within which it is found that an MPS server takes no new clients, by being one for a
    /// moment; 0: it isn't tried.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(..=86_400))]
    canary_period: u64,
    /// Seconds for which such a client of ours waits. Two in a row that wait in vain are an alarm.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=600))]
    canary_deadline: u64,
    /// Seconds that an MPS server may take to start, until it is ended and another one started. A
    /// GPU without persistence mode takes some.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(5..=3600))]
    server_start_deadline: u64,
    /// Seconds that clients hit by another one's fatal error have to end by themselves: until then
    /// their server takes nobody.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(..=3600))]
    fault_grace: u64,
}

impl ServerOptions {
    pub(crate) fn canary(&self) -> CanaryRules {
        let period = Some(self.canary_period).filter(|seconds| *seconds > 0);
        CanaryRules {
            period: period.map(Duration::from_secs),
            deadline: Duration::from_secs(self.canary_deadline),
        }
    }

    pub(crate) const fn start_deadline(&self) -> Duration {
        Duration::from_secs(self.server_start_deadline)
    }

    pub(crate) const fn fault_grace(&self) -> Duration {
        Duration::from_secs(self.fault_grace)
    }
}
