//! The kinds of objects that the server knows: names, scope and the rules that differ by kind.
//!
//! A kind that isn't in the table is added with [`ResourceType::custom`]. Schemas are not known
//! here: an object of any shape is accepted, apart from the checks in `validation`.

/// Whether objects of a kind live in namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Objects belong to a namespace.
    Namespaced,
    /// Objects belong to the cluster.
    Cluster,
}

/// What a write to the `status` subresource may change besides the status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusRule {
    /// There is no status subresource: status is written with the rest.
    Absent,
    /// Labels and annotations may change with the status, as for pods and nodes.
    MetadataWritable,
    /// Only the status may change, as for custom resources.
    MetadataFrozen,
}

/// Whether `metadata.generation` counts changes of the spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generation {
    /// It does.
    Tracked,
    /// The kind has no generation.
    Untracked,
}

/// Who defines a kind; the server treats them differently in a few places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Part of Kubernetes: takes strategic merge patches.
    BuiltIn,
    /// From a `CustomResourceDefinition`: strategic merge patches get 415.
    Custom,
}

/// One kind of object at one API version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceType {
    /// API group; empty for the core group.
    pub group: String,
    /// API version within the group.
    pub version: String,
    /// The plural, lower-case name in paths.
    pub plural: String,
    /// The kind in objects.
    pub kind: String,
    /// Whether objects live in namespaces.
    pub scope: Scope,
    /// Abbreviations for kubectl.
    pub short_names: Vec<String>,
    /// Groups of kinds that kubectl can ask for, such as `all`.
    pub categories: Vec<String>,
    /// What the status subresource may change.
    pub status: StatusRule,
    /// Whether a generation is kept.
    pub generation: Generation,
    /// Who defines the kind.
    pub origin: Origin,
}

impl ResourceType {
    /// A kind as a `CustomResourceDefinition` with a status subresource would define it.
    pub fn custom(group: &str, version: &str, plural: &str, kind: &str, scope: Scope) -> Self {
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: plural.to_owned(),
            kind: kind.to_owned(),
            scope,
            short_names: Vec::new(),
            categories: Vec::new(),
            status: StatusRule::MetadataFrozen,
            generation: Generation::Tracked,
            origin: Origin::Custom,
        }
    }

    /// `group/version`, or the version alone in the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// `plural.group`, or the plural alone in the core group, as messages have it.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.plural.clone()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// Where objects are kept: events of both API groups are the same objects.
    pub(crate) fn storage(&self) -> String {
        if self.is_new_style_event() { "events".to_owned() } else { self.qualified() }
    }

    pub(crate) fn is_new_style_event(&self) -> bool {
        self.group == "events.k8s.io" && self.plural == "events"
    }

    pub(crate) fn is_core(&self, plural: &str) -> bool {
        self.group.is_empty() && self.plural == plural
    }

    /// A PUT must carry a resourceVersion (no unconditional update).
    pub(crate) fn needs_version_to_update(&self) -> bool {
        self.origin == Origin::Custom || self.plural == "leases"
    }

    /// Subresources besides `status`, with the group, version and kind of their bodies.
    pub(crate) fn extra_subresources(
        &self,
    ) -> &'static [(&'static str, &'static str, &'static str)] {
        if self.is_core("pods") {
            &[
                ("binding", "v1", "Binding"),
                ("eviction", "policy/v1", "Eviction"),
                ("log", "v1", "Pod"),
            ]
        } else {
            &[]
        }
    }
}
