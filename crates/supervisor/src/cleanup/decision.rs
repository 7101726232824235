//! What to do next for one card that is being cleaned up: pure.
//!
//! As in [`crate::steps`], the card is looked at anew before each step, so it makes no difference
//! after which step an earlier cleanup was killed.

use std::path::PathBuf;

/// What is seen of a card before each step.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Seen {
    /// The card's directories, those on disk and those that processes were started with.
    pub directories: Vec<DirectorySeen>,
    /// All MPS clients of the card; only asked for where daemon or servers can't be.
    pub clients_of_card: Vec<i32>,
    /// Whether a compute mode found earlier waits to be restored.
    pub has_mode_to_restore: bool,
}

/// What is seen of one directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DirectorySeen {
    /// The parent of `pipe`.
    pub path: PathBuf,
    /// Whether it is on disk.
    pub exists: bool,
    /// Who holds the lock in it.
    pub holder: Holder,
    /// Daemons and servers that were started with it and that nobody can talk to any more.
    pub unreachable: usize,
}

/// Who holds a directory's lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Holder {
    /// Nobody.
    Nobody,
    /// A daemon of ours, and its clients.
    Ours {
        /// The daemon.
        pid: i32,
        /// PIDs of its clients.
        clients: Vec<i32>,
    },
    /// Something else.
    Foreign(i32),
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Leave everything as it is: somebody else's process is in the directory.
    LeaveForeign(i32),
    /// Leave everything as it is: these clients live.
    Leave(Vec<i32>),
    /// End the daemon of this directory.
    Quit(PathBuf),
    /// End what can't be reached in this directory.
    EndUnreachable(PathBuf),
    /// Restore the journalled compute mode.
    RestoreComputeMode,
    /// Remove the directories that are on disk.
    RemoveDirectories(Vec<PathBuf>),
    /// Nothing is left.
    Done,
}

/// The next step. As long as one client of the card lives, nothing of the card is touched.
pub(super) fn next_step(seen: &Seen) -> Step {
    let directories = || seen.directories.iter();
    let foreign = directories().find_map(|directory| match directory.holder {
        Holder::Foreign(pid) => Some(pid),
        Holder::Nobody | Holder::Ours { .. } => None,
    });
    if let Some(pid) = foreign {
        return Step::LeaveForeign(pid);
    }
    let clients = clients(seen);
    if !clients.is_empty() {
        return Step::Leave(clients);
    }
    let is_ours = |directory: &&DirectorySeen| matches!(directory.holder, Holder::Ours { .. });
    if let Some(directory) = directories().find(is_ours) {
        return Step::Quit(directory.path.clone());
    }
    if let Some(directory) = directories().find(|directory| directory.unreachable > 0) {
        return Step::EndUnreachable(directory.path.clone());
    }
    if seen.has_mode_to_restore {
        return Step::RestoreComputeMode;
    }
    let on_disk = directories().filter(|directory| directory.exists);
    let on_disk: Vec<PathBuf> = on_disk.map(|directory| directory.path.clone()).collect();
    if on_disk.is_empty() { Step::Done } else { Step::RemoveDirectories(on_disk) }
}

fn clients(seen: &Seen) -> Vec<i32> {
    let of_daemons = seen.directories.iter().flat_map(|directory| match &directory.holder {
        Holder::Ours { clients, .. } => clients.as_slice(),
        Holder::Nobody | Holder::Foreign(_) => &[],
    });
    let mut clients: Vec<i32> = of_daemons.chain(&seen.clients_of_card).copied().collect();
    clients.sort_unstable();
    clients.dedup();
    clients
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(holder: Holder) -> DirectorySeen {
        DirectorySeen { path: "/m/r/GPU-ab".into(), exists: true, holder, unreachable: 0 }
    }

    fn daemon(clients: &[i32]) -> DirectorySeen {
        directory(Holder::Ours { pid: 7, clients: clients.to_vec() })
    }

    fn card(directories: Vec<DirectorySeen>) -> Seen {
        Seen { directories, clients_of_card: Vec::new(), has_mode_to_restore: true }
    }

    #[test]
    fn daemon_then_compute_mode_then_directories_go() {
        let mut seen = card(vec![daemon(&[])]);
        assert_eq!(next_step(&seen), Step::Quit("/m/r/GPU-ab".into()));
        seen.directories = vec![directory(Holder::Nobody)];
        assert_eq!(next_step(&seen), Step::RestoreComputeMode);
        seen.has_mode_to_restore = false;
        assert_eq!(next_step(&seen), Step::RemoveDirectories(vec!["/m/r/GPU-ab".into()]));
        seen.directories.clear();
        assert_eq!(next_step(&seen), Step::Done);
    }

    #[test]
    fn one_client_keeps_everything_of_its_card() {
        let seen = card(vec![daemon(&[]), daemon(&[9, 8])]);
        assert_eq!(next_step(&seen), Step::Leave(vec![8, 9]));
    }

    #[test]
    fn clients_of_a_daemon_that_cannot_be_asked_count_too() {
        let lost = DirectorySeen { exists: false, unreachable: 1, ..directory(Holder::Nobody) };
        let mut seen = Seen { clients_of_card: vec![9], ..card(vec![lost]) };
        assert_eq!(next_step(&seen), Step::Leave(vec![9]));
        seen.clients_of_card.clear();
        assert_eq!(next_step(&seen), Step::EndUnreachable("/m/r/GPU-ab".into()));
    }

    #[test]
    fn a_foreign_daemon_in_a_directory_of_the_card_is_named_and_nothing_is_touched() {
        let seen = card(vec![daemon(&[]), directory(Holder::Foreign(6))]);
        assert_eq!(next_step(&seen), Step::LeaveForeign(6));
    }

    #[test]
    fn a_compute_mode_is_restored_also_where_nothing_else_is_left() {
        assert_eq!(next_step(&card(Vec::new())), Step::RestoreComputeMode);
    }
}
