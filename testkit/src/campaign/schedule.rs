//! What is done to a node, one beat after the other, as a function of a seed and a round's number
//! alone.
//!
//! An action that is about something that may or may not be there, such as "the fifth pod", holds
//! a number; which pod that is (modulo their count) depends on how far the node is by then.

use fastrand::Rng;

use super::action::{Action, Beat, Cut, Damage, File, Lasting, Load, Removal, Strike, Xid};
use crate::simnode::Role;

/// Beats of a round.
pub(super) const BEATS: usize = 40;

/// Most milliseconds after a beat: short, because a fault should hit everything at some time.
const LONGEST_PAUSE: u64 = 250;

/// Longest that a fault lasts, in beats.
const LONGEST_FAULT: usize = 12;

/// One round: what is left in peace during it, and its beats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Round {
    /// The card on which nothing is done that may hurt a client: whatever happens, its clients go on.
    pub spared_card: usize,
    /// The process of the product that isn't ended, so that what it leaks adds up.
    pub spared_role: Role,
    /// What is done.
    pub beats: Vec<Beat>,
}

/// The round of this number.
pub(super) fn round(seed: u64, number: usize, cards: usize) -> Round {
    let stream = u64::try_from(number).unwrap_or(0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut dice = Dice {
        random: Rng::with_seed(seed.wrapping_add(stream)),
        cards,
        spared_card: number % cards.max(1),
        // The same one for some rounds.
        spared_role: pick(&Role::ALL, number / 3),
    };
    let beats = (0..BEATS).map(|_| dice.beat()).collect();
    Round { spared_card: dice.spared_card, spared_role: dice.spared_role, beats }
}

fn pick<T: Copy>(from: &[T; 3], at: usize) -> T {
    let [first, second, third] = *from;
    match at % 3 {
        0 => first,
        1 => second,
        _ => third,
    }
}

struct Dice {
    random: Rng,
    cards: usize,
    spared_card: usize,
    spared_role: Role,
}

impl Dice {
    fn beat(&mut self) -> Beat {
        let action = match self.random.u8(0..100) {
            0..22 => Action::Add(self.load()),
            22..30 => Action::Remove { pod: self.random.usize(..), way: self.removal() },
            30..37 => Action::Switch(self.cut()),
            37..72 => Action::Strike(self.strike()),
            _ => {
                let beats = self.random.usize(1..=LONGEST_FAULT);
                Action::Begin { fault: self.lasting(), beats }
            }
        };
        Beat { action, pause_ms: self.random.u64(0..LONGEST_PAUSE) }
    }

    fn load(&mut self) -> Load {
        match self.random.u8(0..20) {
            0..9 => Load::Small { units: if self.random.u8(0..4) == 0 { 2 } else { 1 } },
            9..12 => Load::Full,
            12..14 => Load::Several,
            14 => Load::Unlimited,
            15 => Load::Faulting,
            16 => Load::Crashing,
            17 => Load::Bypassing,
            18 => Load::PlainOutsider,
            _ => Load::MpsOutsider { card: self.any_card() },
        }
    }

    fn removal(&mut self) -> Removal {
        if self.random.bool() { Removal::Graceful } else { Removal::Forced }
    }

    fn cut(&mut self) -> Cut {
        match self.random.u8(0..12) {
            0..10 => Cut::Replicas(self.random.usize(1..=4)),
            10 => Cut::Memory,
            _ => Cut::Unknown,
        }
    }

    fn strike(&mut self) -> Strike {
        match self.random.u8(0..36) {
            0..10 => Strike::Kill(self.role()),
            10..12 => Strike::Terminate { roles: self.roles() },
            12 => Strike::KillDaemon { card: self.card() },
            13..15 => Strike::KillServer { card: self.card() },
            15 => Strike::FaultServer { card: self.card() },
            16 => Strike::FaultClient,
            17..19 => Strike::Raise { card: self.any_card(), xid: self.xid() },
            19..25 => Strike::Damage { file: self.file(), how: self.damage() },
            25 => Strike::StaleFiles { card: self.any_card() },
            26..29 => Strike::FailRequests {
                count: self.random.usize(1..=8),
                code: [409, 429, 500, 503, 504]
                    .get(self.random.usize(0..5))
                    .copied()
                    .unwrap_or(500),
            },
            29..31 => Strike::CloseWatches,
            31..33 => Strike::BreakWatches,
            33 => Strike::CompactHistory,
            34 => Strike::TenantSetsLimits { card: self.any_card() },
            _ => Strike::RestartKubelet,
        }
    }

    fn lasting(&mut self) -> Lasting {
        match self.random.u8(0..22) {
            0 => Lasting::ServersHang,
            1 => Lasting::ServersFail,
            2 => Lasting::ServersDelay { ms: self.random.u64(100..3000) },
            3 => Lasting::SlowUi { ms: self.random.u64(50..1500) },
            4 => Lasting::NoDriver,
            5 => Lasting::ComputeModeDenied,
            6 => Lasting::LimitsIgnored,
            7..9 => Lasting::CardLost { card: self.card() },
            9..11 => Lasting::DaemonStopped { card: self.any_card() },
            11 => Lasting::ServerStopped { card: self.card() },
            12 => Lasting::RoleStopped(
                // The kubelet waits for the device plugin, and so it would be the fault of this.
                if self.random.bool() { Role::Supervisor } else { Role::ConfigManager },
            ),
            13 => Lasting::SessionOpen { card: self.any_card() },
            14 => Lasting::ForeignDaemon { card: self.any_card() },
            15 => Lasting::DiskFull(self.file()),
            16 => Lasting::LogDiskFull { card: self.card() },
            17 => Lasting::ApiAway,
            18 => Lasting::ApiSlow { ms: self.random.u64(50..2000) },
            19 => Lasting::ServerWedged { card: self.card() },
            20 => Lasting::TenantQuits { card: self.any_card() },
            _ => Lasting::ApiStale,
        }
    }

    fn any_card(&mut self) -> usize {
        self.random.usize(0..self.cards)
    }

    /// A card that isn't spared.
    fn card(&mut self) -> usize {
        let step = self.random.usize(1..self.cards);
        (self.spared_card + step) % self.cards
    }

    /// A role that isn't spared.
    fn role(&mut self) -> Role {
        let mut others = Role::ALL.into_iter().filter(|role| *role != self.spared_role);
        let first = others.next().unwrap_or(self.spared_role);
        let second = others.next().unwrap_or(first);
        if self.random.bool() { first } else { second }
    }

    fn roles(&mut self) -> Vec<Role> {
        let others = Role::ALL.into_iter().filter(|role| *role != self.spared_role);
        let chosen: Vec<Role> = others.filter(|_| self.random.u8(0..3) > 0).collect();
        if chosen.is_empty() { vec![self.role()] } else { chosen }
    }

    fn xid(&mut self) -> Xid {
        if self.random.bool() { Xid::Critical } else { Xid::OfProgram }
    }

    fn file(&mut self) -> File {
        let at = self.random.usize(0..File::ALL.len());
        File::ALL.get(at).copied().unwrap_or(File::Status)
    }

    fn damage(&mut self) -> Damage {
        let at = self.random.usize(0..Damage::ALL.len());
        Damage::ALL.get(at).copied().unwrap_or(Damage::Gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_a_function_of_seed_and_number() {
        assert_eq!(round(7, 3, 3), round(7, 3, 3));
        assert_ne!(round(7, 3, 3), round(7, 4, 3));
        assert_ne!(round(7, 3, 3), round(8, 3, 3));
    }

    #[test]
    fn nothing_that_hurts_clients_is_done_to_the_spared_card() {
        for number in 0..300 {
            let round = round(1, number, 3);
            for beat in &round.beats {
                assert_ne!(beat.action.hurts(), Some(round.spared_card), "{beat:?}");
            }
        }
    }

    #[test]
    fn the_spared_role_is_not_ended() {
        for number in 0..300 {
            let round = round(1, number, 3);
            for beat in &round.beats {
                let ended = match &beat.action {
                    Action::Strike(Strike::Kill(role)) => vec![*role],
                    Action::Strike(Strike::Terminate { roles }) => roles.clone(),
                    _ => Vec::new(),
                };
                assert!(!ended.contains(&round.spared_role), "{beat:?}");
            }
        }
    }

    #[test]
    fn every_kind_of_fault_comes() {
        let mut kinds = std::collections::BTreeSet::new();
        for number in 0..100 {
            kinds.extend(round(1, number, 3).beats.iter().filter_map(|beat| beat.action.fault()));
        }
        assert_eq!(kinds.len(), 15 + 20, "{kinds:?}");
    }
}
