//! What a config means, in sentences for its author.

use mpshare_core::config::DeviceRef;
use mpshare_core::{
    AllocationPolicy, Cut, DeviceSelector, LargeRequests, Memory, MemoryUnits, NodeConfig,
    ResourceName, SharedResource,
};

/// One sentence per group of cards, then the rules for requests where there are any.
pub(super) fn sentences(node: &NodeConfig) -> Vec<String> {
    let mut sentences: Vec<String> = node.sharing.iter().map(|entry| group(node, entry)).collect();
    let whole = &node.exclusive_resource;
    if node.sharing.is_empty() {
        sentences.push(format!("all GPUs: whole, as `{whole}`"));
    } else if !node.sharing.iter().any(takes_all) {
        sentences.push(format!("all other GPUs: whole, as `{whole}`"));
    }
    if node.sharing.iter().any(SharedResource::is_shared) {
        sentences.extend(rules(node));
    }
    sentences
}

fn takes_all(entry: &SharedResource) -> bool {
    entry.devices == DeviceSelector::All
}

fn group(node: &NodeConfig, entry: &SharedResource) -> String {
    let cards = cards(node, &entry.devices);
    let SharedResource { resource, cut, .. } = entry;
    match cut {
        Cut::Replicas(1) => format!("{cards}: whole, as `{resource}`"),
        Cut::Replicas(replicas) => format!(
            "{cards}: {replicas} units of `{resource}` each, 1/{replicas} of memory and threads"
        ),
        Cut::Memory(units) => format!("{cards}: {}", amounts(resource, *units)),
    }
}

fn amounts(resource: &ResourceName, units: MemoryUnits) -> String {
    let MemoryUnits { unit, reserve } = units;
    let rest = if reserve == Memory::ZERO {
        String::new()
    } else {
        format!("; {reserve} of each GPU are in no unit")
    };
    format!("as many units of `{resource}` as fit, {unit} of memory and all threads each{rest}")
}

fn cards(node: &NodeConfig, devices: &DeviceSelector) -> String {
    match devices {
        DeviceSelector::All if node.sharing.len() > 1 => "all other GPUs".to_owned(),
        DeviceSelector::All => "all GPUs".to_owned(),
        DeviceSelector::Count(1) => "1 GPU".to_owned(),
        DeviceSelector::Count(count) => format!("{count} GPUs"),
        DeviceSelector::Listed(list) => list.iter().map(card).collect::<Vec<_>>().join(", "),
    }
}

fn card(device: &DeviceRef) -> String {
    match device {
        DeviceRef::Index(index) => format!("GPU {index}"),
        DeviceRef::Uuid(uuid) => uuid.to_string(),
    }
}

fn rules(node: &NodeConfig) -> Vec<String> {
    let is_memory = |entry: &SharedResource| matches!(entry.cut, Cut::Memory(_));
    let has_parts = node.sharing.iter().any(|entry| entry.is_shared() && !is_memory(entry));
    let several = match node.large_requests {
        LargeRequests::Refuse if has_parts && node.sharing.iter().any(is_memory) => {
            "a container may ask for 1 unit only, but for several units of memory of one GPU"
        }
        LargeRequests::Refuse if has_parts => "a container may ask for 1 unit only",
        LargeRequests::Allow | LargeRequests::Refuse => {
            "a container may ask for several units, which come from one GPU and add up"
        }
    };
    let first = match node.policy {
        AllocationPolicy::Distributed => "the GPU with the most free units is used first",
        AllocationPolicy::Packed => "the fullest GPU that fits is used first",
    };
    vec![several.to_owned(), first.to_owned()]
}

#[cfg(test)]
mod tests {
    fn meaning(resources: &str) -> Vec<String> {
        let text = format!("sharing: {{mps: {{resources: {resources}}}}}");
        crate::config::parse("test", &text).unwrap().meaning()
    }

    #[test]
    fn halves_of_all_cards_are_said_with_their_size() {
        assert_eq!(
            meaning("[{name: gpu, replicas: 2}]")[0],
            "all GPUs: 2 units of `nvidia.com/gpu` each, 1/2 of memory and threads"
        );
    }

    #[test]
    fn amounts_of_memory_are_said_with_what_is_in_none_of_them() {
        assert_eq!(
            meaning("[{name: gpu-mem, memoryUnit: 1Gi, reserve: 512Mi}]")[..2],
            [
                "all GPUs: as many units of `aliyun.com/gpu-mem` as fit, 1 GiB of memory and all \
                 threads each; 512 MiB of each GPU are in no unit",
                "a container may ask for several units, which come from one GPU and add up"
            ]
        );
    }

    #[test]
    fn cards_that_no_entry_takes_are_said_to_stay_whole() {
        assert_eq!(
            meaning("[{name: gpu, rename: gpu.half, devices: [0, GPU-ab], replicas: 2}]")[..2],
            [
                "GPU 0, GPU-ab: 2 units of `nvidia.com/gpu.half` each, 1/2 of memory and threads",
                "all other GPUs: whole, as `nvidia.com/gpu`"
            ]
        );
    }

    #[test]
    fn whole_cards_have_no_rules_for_units() {
        let whole = ["all GPUs: whole, as `nvidia.com/gpu`"];
        assert_eq!(meaning("[{name: gpu, replicas: 1}]"), whole);
    }
}
