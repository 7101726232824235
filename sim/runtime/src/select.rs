//! Which of the node's cards a container gets.

use mpshare_sim_state::SimGpu;
use thiserror::Error;

use crate::request::Cards;

/// A container names a card that the node hasn't. In the words of the real one, which people search
/// for.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("nvidia-container-cli: device error: {id}: unknown device: unknown")]
pub(crate) struct UnknownDevice {
    id: String,
}

/// The cards in the node's order, each once.
pub(crate) fn cards<'a>(
    all: &'a [SimGpu],
    wanted: &Cards,
) -> Result<Vec<&'a SimGpu>, UnknownDevice> {
    let Cards::Named(ids) = wanted else {
        return Ok(all.iter().collect());
    };
    let mut positions = Vec::new();
    for id in ids {
        let position = position(all, id).ok_or_else(|| UnknownDevice { id: id.clone() })?;
        positions.push(position);
    }
    let chosen = all.iter().enumerate().filter(|(position, _)| positions.contains(position));
    Ok(chosen.map(|(_, gpu)| gpu).collect())
}

/// By index, by UUID or the start of one, or by PCI address.
fn position(all: &[SimGpu], id: &str) -> Option<usize> {
    if let Ok(index) = id.parse::<usize>() {
        return (index < all.len()).then_some(index);
    }
    let matches = |gpu: &SimGpu| {
        let is_start = id.len() > "GPU-".len()
            && gpu.uuid.to_ascii_lowercase().starts_with(&id.to_ascii_lowercase());
        is_start || gpu.pci_bus_id.eq_ignore_ascii_case(id)
    };
    all.iter().position(matches)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(wanted: &[&str], expected: Result<&[&str], &str>) {
        let gpu = |index, uuid| SimGpu::of_model("t4", index, uuid).unwrap();
        let all = [gpu(0, "GPU-aa11"), gpu(1, "GPU-bb22")];
        let wanted = Cards::Named(wanted.iter().map(|id| (*id).to_owned()).collect());
        let found = cards(&all, &wanted).map_err(|error| error.id);
        let found = found.map(|gpus| gpus.iter().map(|gpu| gpu.uuid.as_str()).collect::<Vec<_>>());
        assert_eq!(found, expected.map(<[&str]>::to_vec).map_err(str::to_owned));
    }

    #[test]
    fn a_card_has_an_index_a_uuid_a_short_uuid_and_an_address() {
        check(&["1"], Ok(&["GPU-bb22"]));
        check(&["GPU-bb22"], Ok(&["GPU-bb22"]));
        check(&["GPU-bb"], Ok(&["GPU-bb22"]));
        check(&["00000000:00:08.0"], Ok(&["GPU-bb22"]));
    }

    #[test]
    fn cards_come_once_and_in_the_nodes_order() {
        check(&["GPU-bb22", "0", "1"], Ok(&["GPU-aa11", "GPU-bb22"]));
        check(&[], Ok(&[]));
    }

    #[test]
    fn an_id_that_names_no_card_is_an_error() {
        check(&["0", "GPU-cc"], Err("GPU-cc"));
        check(&["2"], Err("2"));
        check(&["GPU-"], Err("GPU-"));
        check(&["no-gpu-has-10MiB-to-run"], Err("no-gpu-has-10MiB-to-run"));
    }
}
