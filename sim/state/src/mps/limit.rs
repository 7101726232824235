//! Which cards a process sees, and which limits hold for it: pure functions over names and texts.

use super::PinnedLimit;

/// Applies a `CUDA_VISIBLE_DEVICES` to a list of UUIDs: it restricts and renumbers. The first entry
/// that names no card ends the list, as in CUDA.
pub fn visible_devices(all: &[String], variable: Option<&str>) -> Vec<String> {
    let Some(variable) = variable else {
        return all.to_vec();
    };
    variable.split(',').map_while(|entry| device(all, entry.trim()).cloned()).collect()
}

/// The card that an ordinal or a UUID (or the start of one) names.
fn device<'a>(all: &'a [String], entry: &str) -> Option<&'a String> {
    if let Ok(index) = entry.parse::<usize>() {
        return all.get(index);
    }
    if !entry.starts_with("GPU-") {
        return None;
    }
    all.iter().find(|uuid| uuid.starts_with(entry))
}

/// The limits in force for a client, card by card, in its visible order.
///
/// `served` are the server's limits for the cards that the client sees; `variable` is the client's
/// `CUDA_MPS_PINNED_DEVICE_MEM_LIMIT`, which may only lower them. The trap (facts/mps.md 2): an entry
/// that names a card the client can't see drops every limit, the server's included. An entry
/// without a device says nothing.
pub fn effective_limits(
    served: &[(String, Option<PinnedLimit>)],
    variable: Option<&str>,
) -> Vec<Option<PinnedLimit>> {
    let uuids: Vec<String> = served.iter().map(|(uuid, _)| uuid.clone()).collect();
    let mut limits: Vec<_> = served.iter().map(|(_, limit)| *limit).collect();
    for entry in variable.unwrap_or_default().split(',') {
        let Some((name, amount)) = entry.split_once('=') else {
            continue;
        };
        let Some(named) = device(&uuids, name.trim()) else {
            return vec![None; served.len()];
        };
        let asked = PinnedLimit::parse(amount);
        for (limit, _) in limits.iter_mut().zip(&uuids).filter(|(_, uuid)| *uuid == named) {
            *limit = lower(*limit, asked);
        }
    }
    limits
}

fn lower(one: Option<PinnedLimit>, other: Option<PinnedLimit>) -> Option<PinnedLimit> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(defaults: &[Option<&str>], variable: &str) -> Vec<Option<u64>> {
        let served: Vec<_> = defaults
            .iter()
            .enumerate()
            .map(|(index, limit)| (format!("GPU-{index}aa"), limit.and_then(PinnedLimit::parse)))
            .collect();
        let limits = effective_limits(&served, Some(variable));
        limits.into_iter().map(|limit| limit.map(PinnedLimit::mib)).collect()
    }

    #[test]
    fn the_environment_only_lowers() {
        assert_eq!(limits(&[Some("4G")], "0=1G"), [Some(1024)]);
        assert_eq!(limits(&[Some("4G")], "0=8G"), [Some(4096)]);
        assert_eq!(limits(&[None, Some("512M")], "0=1G,1=100M"), [Some(1024), Some(100)]);
        assert_eq!(limits(&[Some("4G"), None], "GPU-1aa=2G"), [Some(4096), Some(2048)]);
    }

    #[test]
    fn an_entry_for_an_unseen_card_drops_every_limit() {
        assert_eq!(limits(&[Some("4G")], "0=2G,1=4G"), [None]);
        assert_eq!(limits(&[Some("4G")], "GPU-other=1G"), [None]);
    }

    #[test]
    fn an_entry_without_a_device_says_nothing() {
        assert_eq!(limits(&[Some("4G")], "4294967296"), [Some(4096)]);
        assert_eq!(limits(&[None], "2G"), [None]);
    }

    #[test]
    fn visible_devices_restrict_and_renumber_up_to_the_first_stranger() {
        let all: Vec<String> = ["GPU-0aa", "GPU-1bb", "GPU-2cc"].map(str::to_owned).to_vec();
        assert_eq!(visible_devices(&all, None), all);
        assert_eq!(visible_devices(&all, Some("2,0")), ["GPU-2cc", "GPU-0aa"]);
        assert_eq!(visible_devices(&all, Some("GPU-1bb")), ["GPU-1bb"]);
        assert_eq!(visible_devices(&all, Some("1,7,0")), ["GPU-1bb"]);
        assert_eq!(visible_devices(&all, Some("")), Vec::<String>::new());
    }
}
