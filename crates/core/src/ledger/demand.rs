//! What a pod asks for, container by container.

use crate::ResourceName;

/// When a container runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Before the ones after it, and over when they start.
    Init,
    /// From its start to the pod's end (an init container that is restarted always).
    Sidecar,
    /// After all init containers.
    Main,
}

/// What one container asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// Its name.
    pub container: String,
    /// Its position in its list of the pod's spec.
    pub position: usize,
    /// When it runs.
    pub stage: Stage,
    /// The resource.
    pub resource: ResourceName,
    /// How many units; one that can't be read is more than any card has.
    pub units: u64,
}

/// What a pod's containers ask for, in the order of their start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Demand {
    wishes: Vec<Wish>,
    gpu_count: Option<String>,
}

impl Demand {
    /// The wishes in the order of their start; one for nothing is no wish.
    pub fn new(mut wishes: Vec<Wish>) -> Self {
        wishes.retain(|wish| wish.units > 0);
        Self { wishes, gpu_count: None }
    }

    /// With the number of GPUs that the pod wants for each container, as its label has it.
    #[must_use]
    pub fn with_gpu_count(mut self, label: Option<String>) -> Self {
        self.gpu_count = label;
        self
    }

    /// The wishes.
    pub fn wishes(&self) -> &[Wish] {
        &self.wishes
    }

    /// The number of GPUs per container that was asked for, unless that is one.
    pub fn several_gpus(&self) -> Option<&str> {
        self.gpu_count.as_deref().filter(|count| *count != "1")
    }

    /// Whether it asks for nothing.
    pub fn is_empty(&self) -> bool {
        self.wishes.is_empty()
    }

    /// The most units that are held at a time, as scheduler and kubelet count them
    /// (facts/kubernetes.md 3).
    pub fn peak(&self) -> u64 {
        peak(&self.wishes)
    }

    /// What has to be on one card each. The kubelet gives an init container's units to the
    /// containers after it, whatever card was planned for those (facts/kubernetes.md 3), so that a
    /// pod with one is kept together.
    pub(crate) fn groups(&self) -> Vec<Vec<&Wish>> {
        if self.wishes.iter().any(|wish| wish.stage == Stage::Init) {
            return vec![self.wishes.iter().collect()];
        }
        self.wishes.iter().map(|wish| vec![wish]).collect()
    }
}

/// The most units that these containers of one pod hold at a time.
pub(crate) fn peak<'a, I: IntoIterator<Item = &'a Wish>>(wishes: I) -> u64 {
    let (mut most, mut lasting) = (0_u64, 0_u64);
    for wish in wishes {
        let now = lasting.saturating_add(wish.units);
        most = most.max(now);
        if wish.stage != Stage::Init {
            lasting = now;
        }
    }
    most
}

/// How many of these containers run at a time; each has at least one process.
pub(crate) fn clients<'a, I: IntoIterator<Item = &'a Wish>>(wishes: I) -> u64 {
    let (mut most, mut lasting) = (0_u64, 0_u64);
    for wish in wishes {
        most = most.max(lasting.saturating_add(1));
        if wish.stage != Stage::Init {
            lasting = lasting.saturating_add(1);
        }
    }
    most
}
