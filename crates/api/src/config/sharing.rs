//! `sharing`: form -> which cards are cut into how many units under which name.

use mpshare_core::{Cut, DeviceSelector, LargeRequests, ResourceName, SharedResource};

use super::amount;
use super::devices::{Taken, selector};
use super::form::{Entry, Replicated, Sharing};
use super::mistake::{Mistake, Position};
use super::scalar::{At, Number};
use crate::names::GPU_RESOURCE;

/// The most clients that a card of any driver takes (r590 and newer, facts/mps.md 3).
const MOST_REPLICAS: u32 = 60;

/// The most clients before r590.
const MOST_REPLICAS_BEFORE_R590: u32 = 48;

const PREFIX: &str = "nvidia.com/";

/// What a config shares.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) exclusive: ResourceName,
    pub(super) entries: Vec<SharedResource>,
    pub(super) large_requests: LargeRequests,
}

/// Interprets the section.
pub(super) fn interpret(
    sharing: Option<&Sharing>,
    text: &str,
    warnings: &mut Vec<String>,
) -> Result<Shared, Mistake> {
    let exclusive = resource_name(Position::UNKNOWN, GPU_RESOURCE)?;
    let mut shared =
        Shared { exclusive, entries: Vec::new(), large_requests: LargeRequests::Allow };
    let Some(sharing) = sharing else {
        return Ok(shared);
    };
    refuse_time_slicing(sharing).map_err(|mistake| mistake.at_key("timeSlicing", text))?;
    let Some(mps) = &sharing.mps else {
        return Ok(shared);
    };
    if mps.value.fail_requests_greater_than_one == Some(true) {
        shared.large_requests = LargeRequests::Refuse;
    }
    let entries = mps.value.resources.as_deref().unwrap_or_default();
    if entries.is_empty() {
        return Err(Mistake::new(
            mps.at,
            "`sharing.mps` has no `resources`",
            "add `resources:` with a `name` and `replicas`, or remove `mps` for whole cards",
        )
        .at_key("mps", text));
    }
    let mut taken = Taken::default();
    for entry in entries {
        taken.add(&entry.value, entry.at)?;
        shared.entries.push(interpret_entry(entry, &mps.value, warnings)?);
    }
    if let Some(name) = mixed_sizes(&shared) {
        warnings.push(format!(
            "`{name}` means units of different sizes on one node, and a pod can't choose; `rename` tells them apart"
        ));
    }
    Ok(shared)
}

fn refuse_time_slicing(sharing: &Sharing) -> Result<(), Mistake> {
    let Some(slicing) = &sharing.time_slicing else {
        return Ok(());
    };
    if slicing.value.resources.as_ref().is_none_or(Vec::is_empty) {
        return Ok(());
    }
    let (what, hint) = if sharing.mps.is_some() {
        ("`sharing` has both `timeSlicing` and `mps`, which exclude each other", "keep `mps`")
    } else {
        (
            "`sharing.timeSlicing` isn't supported: it isolates no memory",
            "rename it to `mps`; its entries have the same form",
        )
    };
    Err(Mistake::new(slicing.at, what, hint))
}

fn interpret_entry(
    entry: &At<Entry>,
    mps: &Replicated,
    warnings: &mut Vec<String>,
) -> Result<SharedResource, Mistake> {
    let At { value: entry, at } = entry;
    let missing = |key: &str, hint: &str| {
        Mistake::new(*at, format!("an entry of `resources` has no `{key}`"), hint)
    };
    let name = entry.name.as_ref();
    let name = name.ok_or_else(|| missing("name", "add `name: nvidia.com/gpu`"))?;
    let devices = match &entry.devices {
        Some(devices) => selector(devices)?,
        None => DeviceSelector::All,
    };
    if let Some((resource, units)) = amount::units(entry, name, warnings)? {
        return Ok(SharedResource { resource, cut: Cut::Memory(units), devices });
    }
    let original = original_name(name)?;
    let replicas = entry.replicas.as_ref();
    let replicas = replicas.ok_or_else(|| missing("replicas", "add `replicas: 2`, for example"))?;
    let replicas = replica_count(replicas, warnings)?;
    let resource = match &entry.rename {
        Some(rename) => new_name(rename)?,
        // Whole cards aren't shared, whatever the name for shared ones is.
        None if mps.rename_by_default == Some(true) && replicas > 1 => {
            resource_name(name.at, &format!("{original}.shared"))?
        }
        None => original,
    };
    Ok(SharedResource { resource, cut: Cut::Replicas(replicas), devices })
}

/// `name`: the only devices there are to share.
fn original_name(name: &At<String>) -> Result<ResourceName, Mistake> {
    let resource = resource_name(name.at, &name.value)?;
    refuse_mig(&resource, name.at)?;
    if resource.as_str() == GPU_RESOURCE {
        return Ok(resource);
    }
    let what = format!("`{resource}` matches no device of any node");
    let hint = if resource.name().starts_with("gpu.") {
        format!("`name` is the name before `rename`; write `name: {GPU_RESOURCE}`")
    } else {
        format!("did you mean `{GPU_RESOURCE}`?")
    };
    Err(Mistake::new(name.at, what, hint))
}

fn new_name(rename: &At<String>) -> Result<ResourceName, Mistake> {
    let resource = resource_name(rename.at, &rename.value)?;
    refuse_mig(&resource, rename.at)?;
    Ok(resource)
}

pub(super) fn refuse_mig(resource: &ResourceName, at: Position) -> Result<(), Mistake> {
    if resource.domain() == "nvidia.com" && resource.name().starts_with("mig-") {
        return Err(Mistake::new(
            at,
            format!("`{resource}` is a MIG device, and MIG and MPS exclude each other on a card"),
            format!("share whole cards: `name: {GPU_RESOURCE}`"),
        ));
    }
    Ok(())
}

/// A name, with NVIDIA's domain where it has none.
pub(super) fn resource_name(at: Position, text: &str) -> Result<ResourceName, Mistake> {
    let full = if text.contains('/') { text.to_owned() } else { format!("{PREFIX}{text}") };
    full.parse().map_err(|error: mpshare_core::resource::ParseResourceError| {
        Mistake::new(at, error.to_string(), format!("write `{GPU_RESOURCE}`, for example"))
    })
}

fn replica_count(replicas: &At<Number>, warnings: &mut Vec<String>) -> Result<u32, Mistake> {
    let At { value, at } = replicas;
    let Number::Whole(number) = value else {
        return Err(Mistake::new(
            *at,
            format!("`replicas` must be a whole number, not `{value}`"),
            "write a number without quotes, unit or fraction, such as `replicas: 2`",
        ));
    };
    let count = u32::try_from(*number).unwrap_or(0);
    if *number < 1 {
        return Err(Mistake::new(
            *at,
            format!("`replicas: {number}` leaves nothing to hand out"),
            "1 means whole cards, 2 means half a card per unit",
        ));
    }
    if count == 0 || count > MOST_REPLICAS {
        return Err(Mistake::new(
            *at,
            format!(
                "`replicas: {number}` is more than the {MOST_REPLICAS} clients that a card takes under MPS"
            ),
            format!(
                "at most {MOST_REPLICAS} from driver 590 on, {MOST_REPLICAS_BEFORE_R590} before, 16 before Volta"
            ),
        ));
    }
    if count > MOST_REPLICAS_BEFORE_R590 {
        warnings.push(format!(
            "`replicas: {count}` needs driver 590 or newer; with an older one the cards are refused, since they take {MOST_REPLICAS_BEFORE_R590} clients"
        ));
    }
    Ok(count)
}

/// A name under which units of different sizes are offered, as far as the config alone tells.
fn mixed_sizes(shared: &Shared) -> Option<&ResourceName> {
    let first_with_other_size = shared.entries.iter().find_map(|entry| {
        let other =
            |other: &&SharedResource| other.resource == entry.resource && other.cut != entry.cut;
        shared.entries.iter().find(other).map(|_| &entry.resource)
    });
    let leaves_whole_cards = !shared.entries.iter().any(|e| e.devices == DeviceSelector::All);
    let beside_whole_cards = || {
        let same = |e: &&SharedResource| e.resource == shared.exclusive && e.is_shared();
        shared.entries.iter().find(same).map(|entry| &entry.resource)
    };
    first_with_other_size.or_else(|| leaves_whole_cards.then(beside_whole_cards).flatten())
}
