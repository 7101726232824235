//! What differs between driver versions (facts/mps.md 1.2, 1.3, 3).

use mpshare_sim_state::Store;

/// Names the driver version when there is no simulated node.
const DRIVER_ENV: &str = "MPSHARE_SIM_DRIVER";

/// A driver version as far as the MPS programs differ by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Profile {
    major: u32,
}

impl Profile {
    pub(crate) const R550: Self = Self { major: 550 };
    pub(crate) const R555: Self = Self { major: 555 };
    pub(crate) const R580: Self = Self { major: 580 };
    pub(crate) const R590: Self = Self { major: 590 };
    pub(crate) const R610: Self = Self { major: 610 };
    pub(crate) const R615: Self = Self { major: 615 };

    /// The profile of the simulated node, else of the environment, else 555.
    pub(crate) fn current() -> Self {
        let of_node = Store::from_env().read().ok().map(|state| state.driver.version);
        let version = of_node.or_else(|| std::env::var(DRIVER_ENV).ok());
        version.and_then(|version| Self::of_driver(&version)).unwrap_or(Self::R555)
    }

    /// The profile of a driver version such as `550.163.01` or `550`.
    pub(crate) fn of_driver(version: &str) -> Option<Self> {
        let major = version.split('.').next()?.parse().ok()?;
        Some(Self { major })
    }

    /// Since 550.
    pub(crate) fn writes_pid_file(self) -> bool {
        self >= Self::R550
    }

    /// Whether a limit for a card named by UUID works: older drivers take it and do nothing.
    pub(crate) fn knows_limits_by_uuid(self) -> bool {
        self >= Self::R555
    }

    /// `Binary version`, which the daemon logs since 580.
    pub(crate) fn binary_version(self) -> Option<u32> {
        match self {
            _ if self >= Self::R615 => Some(13040),
            _ if self >= Self::R610 => Some(13030),
            _ if self >= Self::R590 => Some(13010),
            _ if self >= Self::R580 => Some(13000),
            _ => None,
        }
    }

    /// Whether the control program has that command.
    pub(crate) fn has_command(self, name: &str) -> bool {
        match name {
            "get_server_status" => self >= Self::R550,
            "device_query" | "lspart" | "sm_partition" => self >= Self::R590,
            _ => true,
        }
    }

    /// How many client contexts a card of this capability takes. Volta is 7.0.
    pub(crate) fn most_clients(self, capability: (u32, u32)) -> usize {
        match capability.0 {
            ..7 => 16,
            _ if self >= Self::R590 => 60,
            _ => 48,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_caps_follow_capability_and_driver() {
        let caps = |driver, capability| {
            Profile::of_driver(driver).map(|profile: Profile| profile.most_clients(capability))
        };
        assert_eq!(caps("535.261.03", (6, 1)), Some(16));
        assert_eq!(caps("580.65.06", (7, 0)), Some(48));
        assert_eq!(caps("590.44", (7, 5)), Some(60));
    }
}
