//! What became of each card, in sentences.

use std::fmt;
use std::path::PathBuf;

use mpshare_core::GpuUuid;
use mpshare_nvml::ComputeMode;

use super::Intent;

/// What became of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Its cards, in the order of their names.
    pub cards: Vec<CardReport>,
    /// What is in the MPS root and isn't ours.
    pub left: Vec<PathBuf>,
}

/// What became of a card; displays itself as one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardReport {
    /// The card; of one that nobody knows in full, the first 12 characters.
    pub gpu: GpuUuid,
    /// Whether it was done or only rehearsed.
    pub intent: Intent,
    /// What was done, in this order.
    pub deeds: Vec<Deed>,
    /// How far it got.
    pub end: End,
}

/// One thing that was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deed {
    /// A daemon of ours was ended, and its server with it.
    EndedDaemon(i32),
    /// Daemons or servers that nobody could talk to any more were ended.
    EndedUnreachable,
    /// The compute mode from before mpshare was set.
    RestoredComputeMode(ComputeMode),
    /// Its directories were removed.
    RemovedDirectories,
}

/// How far a cleanup got with a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Nothing of ours is left.
    Clean,
    /// Clients live on, and with them all that they need.
    ClientsLive {
        /// Their daemon, where it can be reached.
        daemon: Option<i32>,
        /// They.
        clients: Vec<Client>,
    },
    /// This process, no daemon of ours, is in the card's directory.
    Foreign(i32),
    /// Something failed.
    Failed(String),
}

/// A process that uses a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// Its PID on the host.
    pub pid: i32,
    /// UID of its pod.
    pub pod_uid: Option<String>,
}

impl Report {
    /// Whether nothing of ours is left on any card.
    pub fn is_clean(&self) -> bool {
        self.cards.iter().all(|card| card.end == End::Clean)
    }

    /// Whether something failed, or is in the way, that no waiting changes.
    pub fn has_failed(&self) -> bool {
        self.cards.iter().any(|card| matches!(card.end, End::Failed(_) | End::Foreign(_)))
    }

    /// All clients that live on.
    pub fn clients(&self) -> impl Iterator<Item = &Client> {
        self.cards.iter().flat_map(|card| match &card.end {
            End::ClientsLive { clients, .. } => clients.as_slice(),
            End::Clean | End::Foreign(_) | End::Failed(_) => &[],
        })
    }

    /// Takes a later report over, with what was done before it.
    pub(super) fn follow(&mut self, later: Self) {
        let before = std::mem::replace(self, later);
        for card in before.cards {
            match self.cards.iter_mut().find(|it| it.gpu == card.gpu) {
                Some(now) => {
                    now.deeds.splice(0..0, card.deeds);
                }
                // All traces of it are gone.
                None => self.cards.push(CardReport { end: End::Clean, ..card }),
            }
        }
        self.cards.sort_by(|a, b| a.gpu.cmp(&b.gpu));
    }
}

impl fmt::Display for CardReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: ", self.gpu)?;
        match &self.end {
            End::Clean if self.deeds.is_empty() => {
                return f.write_str("nothing of mpshare is left");
            }
            End::Clean if self.intent == Intent::Rehearse => f.write_str("would be cleaned")?,
            End::Clean => f.write_str("clean")?,
            End::ClientsLive { daemon, clients } => write_clients(f, *daemon, clients)?,
            End::Foreign(pid) => write!(
                f,
                "process {pid}, no daemon of ours, holds its MPS directory, so nothing is touched; hint: stop it, then run this again"
            )?,
            End::Failed(problem) => {
                write!(f, "not finished: {problem}; hint: correct that, then run this again")?;
            }
        }
        let deeds: Vec<String> = self.deeds.iter().map(|deed| deed.sentence(self.intent)).collect();
        if deeds.is_empty() { Ok(()) } else { write!(f, " ({})", deeds.join(", ")) }
    }
}

fn write_clients(
    f: &mut fmt::Formatter<'_>,
    daemon: Option<i32>,
    clients: &[Client],
) -> fmt::Result {
    let count = clients.len();
    let them: Vec<String> = clients.iter().map(ToString::to_string).collect();
    let plural = if count == 1 { "client lives" } else { "clients live" };
    write!(f, "{count} {plural} on ({})", them.join(", "))?;
    if let Some(pid) = daemon {
        write!(f, ", and MPS daemon {pid} with them")?;
    }
    f.write_str("; hint: run this again when they have ended")
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pod_uid {
            Some(uid) => write!(f, "process {} of pod {uid}", self.pid),
            None => write!(f, "process {} of no pod", self.pid),
        }
    }
}

impl Deed {
    fn sentence(&self, intent: Intent) -> String {
        let (ended, restored, removed) = match intent {
            Intent::Do => ("ended", "restored", "removed"),
            Intent::Rehearse => ("to be ended", "to be restored", "to be removed"),
        };
        match self {
            Self::EndedDaemon(pid) => format!("MPS daemon {pid} {ended}"),
            Self::EndedUnreachable => format!("unreachable MPS processes {ended}"),
            Self::RestoredComputeMode(mode) => format!("compute mode {mode} {restored}"),
            Self::RemovedDirectories => format!("directories {removed}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(intent: Intent, deeds: Vec<Deed>, end: End) -> String {
        CardReport { gpu: "GPU-ab".parse().unwrap(), intent, deeds, end }.to_string()
    }

    #[test]
    fn each_end_is_one_plain_line() {
        let all = || {
            vec![
                Deed::EndedDaemon(7),
                Deed::RestoredComputeMode(ComputeMode::Default),
                Deed::RemovedDirectories,
            ]
        };
        assert_eq!(
            card(Intent::Do, all(), End::Clean),
            "`GPU-ab`: clean (MPS daemon 7 ended, compute mode DEFAULT restored, directories removed)"
        );
        assert_eq!(
            card(Intent::Rehearse, all(), End::Clean),
            "`GPU-ab`: would be cleaned (MPS daemon 7 to be ended, compute mode DEFAULT to be restored, directories to be removed)"
        );
        assert_eq!(
            card(Intent::Do, Vec::new(), End::Clean),
            "`GPU-ab`: nothing of mpshare is left"
        );
        let clients = vec![
            Client { pid: 8, pod_uid: Some("0b5e".to_owned()) },
            Client { pid: 9, pod_uid: None },
        ];
        assert_eq!(
            card(Intent::Do, Vec::new(), End::ClientsLive { daemon: Some(7), clients }),
            "`GPU-ab`: 2 clients live on (process 8 of pod 0b5e, process 9 of no pod), and MPS daemon 7 with them; hint: run this again when they have ended"
        );
        assert_eq!(
            card(Intent::Do, vec![Deed::EndedDaemon(7)], End::Failed("no permission".to_owned())),
            "`GPU-ab`: not finished: no permission; hint: correct that, then run this again (MPS daemon 7 ended)"
        );
    }

    #[test]
    fn a_later_look_keeps_what_was_done_before_it() {
        let report = |deeds, end| Report {
            cards: vec![CardReport {
                gpu: "GPU-ab".parse().unwrap(),
                intent: Intent::Do,
                deeds,
                end,
            }],
            left: Vec::new(),
        };
        let live = End::ClientsLive { daemon: None, clients: Vec::new() };
        let mut first = report(vec![Deed::EndedDaemon(7)], live);
        first.follow(report(vec![Deed::RemovedDirectories], End::Clean));
        let both = vec![Deed::EndedDaemon(7), Deed::RemovedDirectories];
        assert_eq!(first, report(both, End::Clean));
        first.follow(Report::default());
        assert!(first.is_clean());
    }
}
