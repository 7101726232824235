//! The files that the supervisor obeys: the config, the records of live shares, and which pods are
//! being deleted.
//!
//! All are read tolerantly. A config that can't be used leaves the last good one in force;
//! records that can't be read leave the last ones that could.

use std::collections::BTreeSet;
use std::time::Duration;

use mpshare_api::{Allocations, BoundPods, ChosenConfig, DocumentError, MpsRoot, read_versioned};
use mpshare_core::{LiveShare, NodeConfig, Reason};
use tracing::warn;

use crate::containment::KnownShares;
use crate::farewell::EndingPods;

/// What the files say now.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Inputs {
    /// Name and content of the config in force.
    pub config: Option<(String, NodeConfig)>,
    /// Why the config that is chosen isn't the one in force.
    pub problem: Option<Reason>,
    /// The shares that containers hold.
    pub live: Vec<LiveShare>,
    /// Whose they are, while that can be read.
    pub shares: KnownShares,
    /// Pods that are being deleted.
    pub ending: EndingPods,
    /// UIDs of pods that held units before.
    pub former: BTreeSet<String>,
    /// The revision of the records.
    pub revision: u64,
    /// Why their records can't be read; they are the last ones that could be.
    records_problem: Option<String>,
}

impl Inputs {
    /// Reads all files again, starting from what they said before.
    pub(crate) fn refreshed(&self, root: &MpsRoot) -> Self {
        let (config, problem) = match read_config(root) {
            Ok(config) => (Some(config), None),
            Err(reason) => (self.config.clone(), Some(reason)),
        };
        let ending = read_ending(root).unwrap_or_else(|| self.ending.clone());
        let before = Self { config, problem, ending, records_problem: None, ..self.clone() };
        match read_versioned::<Allocations>(&root.allocations()) {
            Ok(allocations) => Self {
                shares: KnownShares::of(allocations.as_ref()),
                ..before.with_records(&allocations.unwrap_or_default())
            },
            Err(error) => Self {
                shares: KnownShares::Unknown,
                records_problem: Some(self.records_unreadable(&error)),
                ..before
            },
        }
    }

    fn with_records(self, allocations: &Allocations) -> Self {
        let former = allocations.records.iter().flat_map(|record| &record.former_pods);
        Self {
            live: allocations.live(),
            former: former.cloned().collect(),
            revision: allocations.revision,
            ..self
        }
    }

    /// Said once, however often the file is looked at.
    fn records_unreadable(&self, error: &DocumentError) -> String {
        let problem = error.to_string();
        if self.records_problem.as_ref() != Some(&problem) {
            warn!(%problem, "records of live shares can't be read, keeping the last ones");
        }
        problem
    }
}

/// `None` where that can't be read: its writer replaces it.
fn read_ending(root: &MpsRoot) -> Option<EndingPods> {
    let bound = read_versioned::<BoundPods>(&root.bound_pods()).ok()?.unwrap_or_default();
    let ending = bound
        .pods
        .into_iter()
        .filter_map(|pod| Some((pod.uid, Duration::from_secs(pod.ending?.grace_seconds))));
    Some(ending.collect())
}

fn read_config(root: &MpsRoot) -> Result<(String, NodeConfig), Reason> {
    let path = root.config();
    let missing = || Reason::ConfigMissing { path: path.display().to_string() };
    let unreadable = |error: DocumentError| Reason::ConfigInvalid {
        name: path.display().to_string(),
        problem: format!("{error}; hint: the config-manager writes it again, see its log"),
    };
    let chosen: ChosenConfig = read_versioned(&path).map_err(unreadable)?.ok_or_else(missing)?;
    match chosen.accept() {
        Ok(accepted) => Ok((chosen.name, accepted.node)),
        Err(error) => Err(Reason::ConfigInvalid { name: chosen.name, problem: error.message }),
    }
}
