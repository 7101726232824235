//! The records and their file.

use std::fmt;
use std::path::PathBuf;
use std::time::{Instant, SystemTime};

use mpshare_api::{AllocationRecord, Allocations, DocumentError, read_versioned, write_document};
use mpshare_core::{DeviceId, Grant, LiveShare};
use mpshare_telemetry::sentence;

use super::{Clients, Record, granted};

/// The records in memory, and whether the file says the same.
#[derive(Debug)]
pub(crate) struct Ledger {
    path: PathBuf,
    records: Vec<Record>,
    /// Of the last grant, or of the last pod that let go of its share.
    revision: u64,
    file: FileState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileState {
    Current,
    Behind,
}

/// What became of the file of a former process.
#[derive(Debug)]
pub(crate) enum Origin {
    /// It was read.
    File,
    /// There is none: the node was restarted, or the file was lost.
    Nothing,
    /// It can't be used.
    Damaged(DocumentError),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File => f.write_str("read"),
            Self::Nothing => f.write_str("none"),
            Self::Damaged(error) => write!(f, "damaged, {}", sentence(error)),
        }
    }
}

impl Ledger {
    /// Takes over what a former process recorded.
    pub(crate) fn load(path: PathBuf, now: Instant) -> (Self, Origin) {
        let (document, origin) = match read_versioned::<Allocations>(&path) {
            Ok(Some(document)) => (document, Origin::File),
            Ok(None) => (Allocations::default(), Origin::Nothing),
            Err(error) => (Allocations::default(), Origin::Damaged(error)),
        };
        let revision = document.revision;
        let records = document.records.into_iter();
        let ledger = Self {
            records: records.filter_map(|wire| from_wire(wire, revision, now)).collect(),
            revision,
            file: FileState::Current,
            path,
        };
        (ledger, origin)
    }

    /// All records.
    pub(crate) fn records(&self) -> &[Record] {
        &self.records
    }

    /// The shares of all records.
    pub(crate) fn live(&self) -> Vec<LiveShare> {
        self.records.iter().map(|record| record.share.clone()).collect()
    }

    /// Of the next change that the supervisor has to answer. One more, and never less than what a
    /// ledger whose file is lost had reached: it counts on from the time of day, in milliseconds.
    pub(crate) fn next_revision(&self) -> u64 {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        self.revision.saturating_add(1).max(now)
    }

    /// Puts a grant in force, on disk first. After an error nothing has changed.
    pub(crate) fn commit(
        &mut self,
        grant: &Grant,
        clients: &Clients,
        now: Instant,
    ) -> Result<(), DocumentError> {
        let revision = self.next_revision();
        let records = granted(&self.records, grant, clients, (revision, now));
        write_document(&self.path, &to_wire(&records, revision))?;
        self.records = records;
        self.revision = revision;
        self.file = FileState::Current;
        Ok(())
    }

    /// Notes whose the records of `ids` are, where that isn't known.
    pub(crate) fn learn(&mut self, ids: &[DeviceId], pod_uid: &str) -> Result<(), DocumentError> {
        let mut records = self.records.clone();
        for record in records.iter_mut().filter(|record| record.overlaps(ids)) {
            let uid = record.pod_uid.get_or_insert_with(|| pod_uid.to_owned());
            record.former_pods.retain(|former| former != uid);
        }
        if records == self.records { Ok(()) } else { self.replace(records) }
    }

    /// Replaces the records by what was found out about them. A failed write is made up for by
    /// [`Self::keep_file`]; until then the file names shares that have ended, or lacks ones that
    /// were found again.
    pub(crate) fn replace(&mut self, records: Vec<Record>) -> Result<(), DocumentError> {
        if to_wire(&records, 0) != to_wire(&self.records, 0) {
            self.file = FileState::Behind;
        }
        self.revision = records.iter().map(|record| record.revision).fold(self.revision, u64::max);
        self.records = records;
        self.keep_file()
    }

    /// Writes the file where there is none, also without a record: only then can others say that
    /// somebody holds nothing. For a ledger that is known to be complete.
    pub(crate) fn establish(&mut self) -> Result<(), DocumentError> {
        if self.path.exists() {
            return Ok(());
        }
        self.file = FileState::Behind;
        self.keep_file()
    }

    /// Writes the file where it is behind, gone or damaged: the supervisor, too, takes the sizes of
    /// live shares from it.
    pub(crate) fn keep_file(&mut self) -> Result<(), DocumentError> {
        let is_lost = || !matches!(read_versioned::<Allocations>(&self.path), Ok(Some(_)));
        if self.file == FileState::Current && (self.records.is_empty() || !is_lost()) {
            return Ok(());
        }
        self.file = FileState::Behind;
        write_document(&self.path, &to_wire(&self.records, self.revision))?;
        self.file = FileState::Current;
        Ok(())
    }
}

fn to_wire(records: &[Record], revision: u64) -> Allocations {
    let wire = |record: &Record| AllocationRecord {
        pod_uid: record.pod_uid.clone(),
        former_pods: record.former_pods.clone(),
        ..AllocationRecord::of(&record.share)
    };
    let records = records.iter().map(wire).collect();
    Allocations { version: Allocations::VERSION, revision, records }
}

fn from_wire(wire: AllocationRecord, revision: u64, now: Instant) -> Option<Record> {
    let share = wire.live()?;
    Some(Record {
        pod_uid: wire.pod_uid,
        former_pods: wire.former_pods,
        revision,
        ..Record::new(share, now)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{inventory, node_config, resource, unit};
    use mpshare_core::grant;
    use std::fs;

    fn one_unit(ledger: &Ledger, n: u32) -> Grant {
        let gpu = resource("nvidia.com/gpu");
        let live = ledger.live();
        grant(&node_config(4), &inventory(1), &live, &gpu, &[unit(0, n)]).unwrap()
    }

    #[test]
    fn a_grant_is_on_disk_when_it_is_in_force() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("allocations.json");
        let now = Instant::now();
        let (mut ledger, origin) = Ledger::load(path.clone(), now);
        assert!(matches!(origin, Origin::Nothing));
        let grant = one_unit(&ledger, 3);
        ledger.commit(&grant, &Clients::default(), now).unwrap();
        let (again, origin) = Ledger::load(path, now);
        assert!(matches!(origin, Origin::File));
        assert_eq!(again.records(), ledger.records());
        assert_eq!(again.live(), grant.live);
    }

    #[test]
    fn a_grant_that_cannot_be_written_is_not_in_force() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("allocations.json");
        fs::create_dir(&path).unwrap();
        let (mut ledger, origin) = Ledger::load(path, Instant::now());
        assert!(matches!(origin, Origin::Damaged(_)));
        let grant = one_unit(&ledger, 0);
        assert!(ledger.commit(&grant, &Clients::default(), Instant::now()).is_err());
        assert_eq!(ledger.records(), []);
    }

    #[test]
    fn a_ledger_without_records_has_a_file_once_it_is_complete() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("allocations.json");
        let (mut ledger, _) = Ledger::load(path.clone(), Instant::now());
        ledger.keep_file().unwrap();
        assert!(!path.exists());
        ledger.establish().unwrap();
        assert!(matches!(Ledger::load(path, Instant::now()).1, Origin::File));
    }

    #[test]
    fn a_file_that_was_deleted_or_damaged_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("allocations.json");
        let (mut ledger, _) = Ledger::load(path.clone(), Instant::now());
        let grant = one_unit(&ledger, 0);
        ledger.commit(&grant, &Clients::default(), Instant::now()).unwrap();
        fs::remove_file(&path).unwrap();
        ledger.keep_file().unwrap();
        assert_eq!(Ledger::load(path.clone(), Instant::now()).0.live(), grant.live);
        fs::write(&path, "{\"version\": 1, \"rec").unwrap();
        ledger.keep_file().unwrap();
        assert_eq!(Ledger::load(path, Instant::now()).0.live(), grant.live);
    }
}
