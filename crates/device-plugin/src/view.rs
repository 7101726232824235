//! What the plugin knows of the node: the config in force, the supervisor's report, and the
//! inventory in it. Read from files that others write, at any moment, so damaged is absent.
//!
//! What was good once stays: the last good config, because a config that goes missing is no wish
//! to take cards away, and the last inventory, because without it no unit could be told unhealthy.

use mpshare_api::config::PluginOptions;
use mpshare_api::status::FormerPods;
use mpshare_api::{BoundPods, ChosenConfig, MpsRoot, NodeStatus, read_versioned};
use mpshare_core::{Inventory, NodeConfig, Reason};

/// A config that was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Config {
    /// Its key in the `ConfigMap`.
    pub(crate) name: String,
    /// Which cards are shared how.
    pub(crate) node: NodeConfig,
    /// How devices get into containers.
    pub(crate) plugin: PluginOptions,
}

/// What is known of the node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct View {
    /// The document that was read last, accepted or not, so that it is parsed once.
    chosen: Option<ChosenConfig>,
    /// The last good config.
    pub(crate) config: Option<Config>,
    /// Why the newest config isn't in force.
    pub(crate) config_problem: Option<Reason>,
    /// The supervisor's report.
    pub(crate) status: Option<NodeStatus>,
    /// The last inventory that was reported.
    pub(crate) inventory: Option<Inventory>,
    /// Where a report is missing.
    pub(crate) status_problem: Option<Reason>,
    /// The pods that are bound to the node; `None` where nobody tells of them.
    pub(crate) bound: Option<BoundPods>,
}

impl View {
    /// Reads the files below `root`, falling back on what `former` knew.
    pub(crate) fn read(root: &MpsRoot, former: &Self) -> Self {
        let mut view = former.clone();
        view.take_config(root);
        view.take_status(root);
        view.bound = read_versioned(&root.bound_pods()).ok().flatten();
        view
    }

    /// The supervisor's last look for processes of former owners.
    pub(crate) fn last_look(&self) -> Option<&FormerPods> {
        self.status.as_ref().map(|status| &status.former_pods)
    }

    /// The first thing that keeps the node from having a plan, or its newest config from being
    /// in force.
    pub(crate) fn problems(&self) -> impl Iterator<Item = &Reason> {
        self.config_problem.iter().chain(&self.status_problem)
    }

    fn take_config(&mut self, root: &MpsRoot) {
        let path = root.config();
        let Ok(Some(chosen)) = read_versioned::<ChosenConfig>(&path) else {
            self.chosen = None;
            self.config_problem = Some(Reason::ConfigMissing { path: path.display().to_string() });
            return;
        };
        if self.chosen.as_ref() == Some(&chosen) {
            return;
        }
        match chosen.accept() {
            Ok(accepted) => {
                self.config = Some(Config {
                    name: chosen.name.clone(),
                    node: accepted.node,
                    plugin: accepted.plugin,
                });
                self.config_problem = None;
            }
            Err(error) => {
                self.config_problem = Some(Reason::ConfigInvalid {
                    name: chosen.name.clone(),
                    problem: error.message,
                });
            }
        }
        self.chosen = Some(chosen);
    }

    fn take_status(&mut self, root: &MpsRoot) {
        let path = root.status();
        let status = read_versioned::<NodeStatus>(&path).ok().flatten();
        let inventory = status.as_ref().and_then(NodeStatus::inventory);
        // A report whose inventory makes no sense is damaged as a whole.
        self.status = status.filter(|_| inventory.is_some());
        self.status_problem = self
            .status
            .is_none()
            .then(|| Reason::StatusMissing { path: path.display().to_string() });
        self.inventory = inventory.or_else(|| self.inventory.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ready, shared_config, status, write_config};
    use std::fs;

    fn root(dir: &tempfile::TempDir) -> MpsRoot {
        MpsRoot::new(dir.path())
    }

    #[test]
    fn the_last_good_config_survives_damage_and_absence_and_the_reason_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let root = root(&dir);
        write_config(&root, "mps-2x", &shared_config(2));
        let good = View::read(&root, &View::default());
        assert_eq!(good.config.as_ref().unwrap().name, "mps-2x");
        assert_eq!(good.config_problem, None);

        fs::write(root.config(), "{").unwrap();
        let damaged = View::read(&root, &good);
        assert_eq!(damaged.config, good.config);
        assert!(matches!(damaged.config_problem, Some(Reason::ConfigMissing { .. })));

        write_config(&root, "typo", "sharing: {mps: {resource: []}}");
        let refused = View::read(&root, &damaged);
        assert_eq!(refused.config, good.config);
        assert!(matches!(refused.config_problem, Some(Reason::ConfigInvalid { .. })));

        write_config(&root, "mps-4x", &shared_config(4));
        let next = View::read(&root, &refused);
        assert_eq!(next.config.unwrap().name, "mps-4x");
        assert_eq!(next.config_problem, None);
    }

    #[test]
    fn a_damaged_report_is_absent_and_its_inventory_stays() {
        let dir = tempfile::tempdir().unwrap();
        let root = root(&dir);
        let report = status(vec![ready(0, "mps/nvidia.com/gpu/2x7680M@50.0")]);
        mpshare_api::write_document(&root.status(), &report).unwrap();
        let good = View::read(&root, &View::default());
        assert_eq!(good.status.as_ref(), Some(&report));

        let mut nonsense = report;
        nonsense.driver = String::new();
        mpshare_api::write_document(&root.status(), &nonsense).unwrap();
        let damaged = View::read(&root, &good);
        assert_eq!(damaged.status, None);
        assert!(matches!(damaged.status_problem, Some(Reason::StatusMissing { .. })));
        assert_eq!(damaged.inventory, good.inventory);
    }
}
