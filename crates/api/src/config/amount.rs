//! `memoryUnit` and `reserve`: form -> units that are amounts of memory.

use mpshare_core::{Memory, MemoryUnits, ResourceName};

use super::form::Entry;
use super::mistake::Mistake;
use super::scalar::{Amount, At, Number};
use super::sharing::{refuse_mig, resource_name};
use crate::names::{GPU_RESOURCE, MEMORY_RESOURCE};

/// Below this a container needs several units for a CUDA context alone (facts/mps.md 2).
const CONTEXT: Memory = Memory::from_mib(512);

/// About as many units can be on a node: the kubelet takes lists of 4 MiB.
const MOST_UNITS: u64 = 60_000;

/// Nodes with this much memory on all their cards exist.
const LARGE_NODE: Memory = Memory::from_gib(2048);

/// The units of an entry with `memoryUnit`, and their name; `None` for one without.
pub(super) fn units(
    entry: &Entry,
    name: &At<String>,
    warnings: &mut Vec<String>,
) -> Result<Option<(ResourceName, MemoryUnits)>, Mistake> {
    let Some(unit) = &entry.memory_unit else {
        return match &entry.reserve {
            Some(reserve) => Err(Mistake::new(
                reserve.at,
                "`reserve` has no effect without `memoryUnit`",
                "add `memoryUnit: 1Gi` instead of `replicas`, or remove `reserve`",
            )),
            None => Ok(None),
        };
    };
    if entry.replicas.is_some() {
        return Err(Mistake::new(
            unit.at,
            "an entry of `resources` has both `replicas` and `memoryUnit`, which exclude each other",
            "keep `replicas` for equal parts of a card, `memoryUnit` for amounts of memory",
        ));
    }
    if let Some(rename) = &entry.rename {
        return Err(Mistake::new(
            rename.at,
            "`rename` has no use beside `memoryUnit`",
            format!("write the name that pods ask for as `name`: `{MEMORY_RESOURCE}`"),
        ));
    }
    let resource = unit_name(name, warnings)?;
    let reserve = entry.reserve.as_ref().map(|reserve| amount("reserve", reserve)).transpose()?;
    let units =
        MemoryUnits { unit: amount("memoryUnit", unit)?, reserve: reserve.unwrap_or(Memory::ZERO) };
    if units.unit == Memory::ZERO {
        return Err(Mistake::new(
            unit.at,
            format!("`memoryUnit: {}` leaves nothing to hand out", unit.value.0),
            "write `memoryUnit: 1Gi`, for example",
        ));
    }
    warn_of_small(units.unit, warnings);
    Ok(Some((resource, units)))
}

/// `name`: what pods ask for.
fn unit_name(name: &At<String>, warnings: &mut Vec<String>) -> Result<ResourceName, Mistake> {
    let short = MEMORY_RESOURCE.split_once('/').map_or("", |(_, short)| short);
    let text = if name.value == short { MEMORY_RESOURCE } else { &name.value };
    let resource = resource_name(name.at, text)?;
    refuse_mig(&resource, name.at)?;
    if resource.as_str() == GPU_RESOURCE {
        return Err(Mistake::new(
            name.at,
            format!("`{resource}` would be a unit of memory, while pods ask it for GPUs"),
            format!("write `name: {MEMORY_RESOURCE}`"),
        ));
    }
    if resource.as_str() != MEMORY_RESOURCE {
        warnings.push(format!(
            "`{resource}` is handed out on the node, but only `{MEMORY_RESOURCE}` is known to the scheduler extender and `kubectl inspect cgpu`"
        ));
    }
    Ok(resource)
}

/// As Kubernetes writes amounts, in whole MiB.
fn amount(key: &str, amount: &At<Amount>) -> Result<Memory, Mistake> {
    let At { value: Amount(value), at } = amount;
    let refuse = |what: String, hint: &str| Err(Mistake::new(*at, what, hint));
    let hint = "write whole MiB or GiB, such as `1Gi` or `256Mi`";
    let text = match value {
        Number::Whole(number) => number.to_string(),
        Number::Other(text) => text.clone(),
    };
    if text.ends_with(['G', 'M']) {
        let what = format!("`{key}: {text}` is decimal in Kubernetes and binary in MPS");
        return refuse(what, hint);
    }
    match text.parse() {
        Ok(memory) => Ok(memory),
        Err(_) => refuse(format!("`{key}` can't be `{text}`"), hint),
    }
}

fn warn_of_small(unit: Memory, warnings: &mut Vec<String>) {
    if unit < CONTEXT {
        warnings.push(format!(
            "a CUDA context alone takes up to {CONTEXT}, so that a container needs several units of {unit}"
        ));
    }
    let most = unit.times(MOST_UNITS);
    if most < LARGE_NODE {
        let gib = most.mib() / 1024;
        warnings.push(format!(
            "units of {unit} are for nodes with up to about {gib} GiB on all cards together: a kubelet takes no longer list, and larger nodes refuse the config"
        ));
    }
}
