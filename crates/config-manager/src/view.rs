//! All that is known now, and the decision about it.

use std::collections::BTreeMap;

use mpshare_api::config::{AcceptedConfig, ConfigError};
use mpshare_api::status::ReasonText;
use mpshare_api::{
    Allocations, BoundPods, ChosenConfig, DrainWish, GpuStatus, Holdings, NodeStatus, PluginStatus,
};
use mpshare_core::{LiveShare, Reason, SharedResource};

use crate::choice::{Choice, Defaults, choose};
use crate::drain;
use crate::handoff::NodePod;
use crate::options::Options;
use crate::pods::{NodePods, PodName};
use crate::published::Sight;

/// A fact that replaces the former one of its kind.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fact {
    /// The Node object; `None` when there is none.
    Node(Option<NodeFacts>),
    /// The available configs; `None` when their source doesn't exist.
    Configs(Option<BTreeMap<String, String>>),
    /// The documents below the MPS root; `None` for one that is absent or damaged.
    Files {
        /// The supervisor's report.
        status: Option<NodeStatus>,
        /// The device plugin's report; it is there only when something is wrong.
        plugin: Option<PluginStatus>,
        /// What the device plugin has handed out.
        allocations: Option<Allocations>,
        /// Who holds what of it.
        holdings: Option<Holdings>,
        /// What the device plugin is told of pods.
        bound: Option<BoundPods>,
        /// What `config.yaml` holds.
        config: Option<ChosenConfig>,
    },
    /// The node's pods.
    Pods(NodePods),
}

/// What is needed of the Node object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeFacts {
    pub(crate) uid: String,
    pub(crate) labels: BTreeMap<String, String>,
    /// Which cards people want empty, in their words.
    pub(crate) drain: Option<String>,
    /// A resource of the node that qGPU manages, if it has one.
    pub(crate) qgpu: Option<String>,
    /// What of ours it had when it changed last; `None` where that can't be read.
    pub(crate) sight: Option<Sight>,
}

/// What is known of the configs.
#[derive(Debug, Default)]
enum Configs {
    #[default]
    Unread,
    Missing,
    Available(BTreeMap<String, String>),
}

/// All that is known; a field is `None` before its first fact.
#[derive(Debug, Default)]
pub(crate) struct View {
    pub(crate) node: Option<NodeFacts>,
    configs: Configs,
    pub(crate) status: Option<NodeStatus>,
    /// What keeps the device plugin from serving.
    pub(crate) plugin: Vec<ReasonText>,
    /// What containers hold of the cards.
    pub(crate) live: Vec<LiveShare>,
    /// Who holds what of them.
    pub(crate) holdings: Option<Holdings>,
    /// What the device plugin is told of pods.
    pub(crate) bound: Option<BoundPods>,
    /// The node's pods that ask for units, in the order of their creation.
    pub(crate) pods: Option<Vec<NodePod>>,
    /// What all of its pods are called.
    pub(crate) names: BTreeMap<String, PodName>,
    /// What `config.yaml` holds, as far as it can be used.
    pub(crate) in_force: Option<Config>,
    pub(crate) has_read_files: bool,
}

/// A config and its meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) chosen: ChosenConfig,
    pub(crate) accepted: AcceptedConfig,
}

impl Config {
    fn of(chosen: ChosenConfig) -> Result<Self, ConfigError> {
        let accepted = chosen.accept()?;
        Ok(Self { chosen, accepted })
    }

    /// The same config with these cards to be emptied.
    fn drained(mut self, drain: DrainWish) -> Self {
        self.accepted.node.drain = drain.0.clone();
        self.chosen.drain = drain;
        self
    }

    /// Whether both differ in nothing but in which cards are to be emptied.
    pub(crate) fn is_same_choice(&self, other: &Self) -> bool {
        self.clone().drained(DrainWish::default()) == other.clone().drained(DrainWish::default())
    }
}

impl View {
    /// Takes a fact in.
    pub(crate) fn apply(&mut self, fact: Fact) {
        match fact {
            Fact::Node(node) => self.node = node,
            Fact::Configs(configs) => {
                self.configs = configs.map_or(Configs::Missing, Configs::Available);
            }
            Fact::Pods(NodePods { asking, names }) => {
                self.pods = Some(asking);
                self.names = names;
            }
            Fact::Files { status, plugin, allocations, holdings, bound, config } => {
                self.status = status;
                self.plugin = plugin.map(|plugin| plugin.reasons).unwrap_or_default();
                self.live = allocations.unwrap_or_default().live();
                self.holdings = holdings;
                self.bound = bound;
                self.in_force = config.and_then(|chosen| Config::of(chosen).ok());
                self.has_read_files = true;
            }
        }
    }

    /// Reasons that say nothing of a card's state, what processes on cards do among them. Those about
    /// configs are this role's own to tell.
    pub(crate) fn others(&self) -> Vec<ReasonText> {
        let of_node = self.status.iter().flat_map(|status| &status.reasons);
        let of_node = of_node.filter(|reason| !reason.code.starts_with("Config"));
        let cards = self.status.iter().flat_map(|status| &status.gpus);
        // What is the reason of a card's state is told with that.
        let is_reason = |gpu: &GpuStatus, finding: &ReasonText| {
            gpu.reason.as_ref().is_some_and(|reason| reason.message == finding.message)
        };
        let findings =
            cards.flat_map(|gpu| gpu.findings.iter().filter(|finding| !is_reason(gpu, finding)));
        let troubles = self.troubles();
        troubles.iter().chain(of_node).chain(findings).cloned().collect()
    }

    /// What keeps the node from being as it was asked to be, apart from its config and its cards.
    pub(crate) fn troubles(&self) -> Vec<ReasonText> {
        let drain = self.drain_wish().err();
        self.plugin.iter().cloned().chain(drain.as_ref().map(ReasonText::from)).collect()
    }

    fn drain_wish(&self) -> Result<DrainWish, Reason> {
        let annotation = self.node.as_ref().and_then(|node| node.drain.as_deref());
        drain::wish(annotation, self.status.as_ref())
    }

    /// The cards to be emptied: a wish that makes no sense changes nothing.
    fn drain(&self) -> DrainWish {
        let before = || self.in_force.as_ref().map(|config| config.chosen.drain.clone());
        self.drain_wish().unwrap_or_else(|_| before().unwrap_or_default())
    }

    /// The config in force with the cards to be emptied now; for when no other can be chosen.
    pub(crate) fn kept(&self) -> Option<Config> {
        Some(self.in_force.clone()?.drained(self.drain()))
    }

    /// The config that should be in force; `None` while too little is known to say.
    pub(crate) fn decide(&self, options: &Options) -> Option<Result<Config, Reason>> {
        if !self.has_read_files {
            return None;
        }
        let NodeFacts { labels, qgpu, .. } = self.node.as_ref()?;
        let none = BTreeMap::new();
        let configs = match &self.configs {
            Configs::Unread => return None,
            Configs::Missing => &none,
            Configs::Available(configs) => configs,
        };
        let defaults =
            Defaults { config: options.default_config.as_deref(), fallbacks: &options.fallbacks };
        let choice = choose(labels, configs, defaults);
        let config = choice.map_err(|reason| self.source_missing(reason, options));
        let config = config.and_then(validate);
        let config = config.and_then(|config| beside_qgpu(config, qgpu.as_ref()));
        Some(config.map(|config| config.drained(self.drain())))
    }

    /// Where there are no configs at all, that is what to tell.
    fn source_missing(&self, reason: Reason, options: &Options) -> Reason {
        let is_about_configs =
            matches!(reason, Reason::ConfigUnknown { .. } | Reason::ConfigNotChosen { .. });
        if is_about_configs && matches!(self.configs, Configs::Missing) {
            let source_of_configs = options.source.to_string();
            return Reason::ConfigSourceMissing { source_of_configs };
        }
        reason
    }
}

/// qGPU and MPS both manage the cards of a node (TKE document, Q3). Whole cards are left to whom they
/// belong by their resource.
fn beside_qgpu(config: Config, qgpu: Option<&String>) -> Result<Config, Reason> {
    let shares = config.accepted.node.sharing.iter().any(SharedResource::is_shared);
    match qgpu.filter(|_| shares) {
        Some(resource) => {
            Err(Reason::QgpuPresent { name: config.chosen.name, resource: resource.clone() })
        }
        None => Ok(config),
    }
}

fn validate(choice: Choice) -> Result<Config, Reason> {
    let Choice { name, why, text } = choice;
    let (version, drain) = (ChosenConfig::VERSION, DrainWish::default());
    let chosen = ChosenConfig { version, name: name.clone(), why, text, drain };
    Config::of(chosen).map_err(|error| Reason::ConfigInvalid { name, problem: error.sentence() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::ConfigSource;
    use mpshare_api::MpsRoot;
    use mpshare_api::names::CONFIG_LABEL;

    fn options() -> Options {
        Options {
            node: "n1".to_owned(),
            root: MpsRoot::new("/nonexistent"),
            source: ConfigSource::default(),
            default_config: None,
            fallbacks: Vec::new(),
        }
    }

    fn node(config: &str) -> Fact {
        Fact::Node(Some(NodeFacts {
            uid: "u".to_owned(),
            labels: BTreeMap::from([(CONFIG_LABEL.to_owned(), config.to_owned())]),
            drain: None,
            qgpu: None,
            sight: None,
        }))
    }

    fn no_files() -> Fact {
        Fact::Files {
            status: None,
            plugin: None,
            allocations: None,
            holdings: None,
            bound: None,
            config: None,
        }
    }

    fn configs(text: &str) -> Fact {
        Fact::Configs(Some(BTreeMap::from([("a".to_owned(), text.to_owned())])))
    }

    #[test]
    fn nothing_is_decided_before_node_configs_and_files_are_known() {
        let mut view = View::default();
        assert_eq!(view.decide(&options()), None);
        view.apply(node("a"));
        assert_eq!(view.decide(&options()), None);
        view.apply(configs("version: v1"));
        assert_eq!(view.decide(&options()), None);
        view.apply(no_files());
        let config = view.decide(&options()).unwrap().unwrap();
        assert_eq!(config.chosen.name, "a");
        view.apply(Fact::Node(None));
        assert_eq!(view.decide(&options()), None);
    }

    #[test]
    fn an_invalid_config_is_refused_with_line_and_column() {
        let mut view = View::default();
        view.apply(node("a"));
        view.apply(configs("version: v1\nmps: {}\n"));
        view.apply(no_files());
        let reason = view.decide(&options()).unwrap().unwrap_err();
        assert_eq!(
            reason.to_string(),
            "config `a` can't be used, the last good one stays in force: line 2, column 1: \
             unknown key `mps` at the top level; hint: `mps` belongs below `sharing`"
        );
    }

    #[test]
    fn a_node_of_qgpu_gets_whole_cards_and_no_shares() {
        let decided = |replicas: u32| {
            let mut view = View::default();
            let Fact::Node(Some(facts)) = node("a") else { unreachable!() };
            let qgpu = Some("tke.cloud.tencent.com/qgpu-core".to_owned());
            view.apply(Fact::Node(Some(NodeFacts { qgpu, ..facts })));
            view.apply(configs(&format!(
                "sharing: {{mps: {{resources: [{{name: nvidia.com/gpu, replicas: {replicas}}}]}}}}"
            )));
            view.apply(no_files());
            view.decide(&options()).unwrap()
        };
        assert!(decided(1).is_ok());
        assert_eq!(
            decided(2).unwrap_err().to_string(),
            "config `a` isn't put in force: qGPU manages the GPUs of this node (it has \
             `tke.cloud.tencent.com/qgpu-core`), which excludes MPS; hint: take qGPU off the node, \
             or choose a config without `sharing`"
        );
    }

    #[test]
    fn a_missing_config_map_is_named() {
        let mut view = View::default();
        view.apply(node("a"));
        view.apply(Fact::Configs(None));
        view.apply(no_files());
        let reason = view.decide(&options()).unwrap().unwrap_err();
        assert!(
            reason
                .to_string()
                .starts_with("there is no ConfigMap `kube-system/nvidia-device-plugin-configs`"),
            "{reason}"
        );
    }
}
