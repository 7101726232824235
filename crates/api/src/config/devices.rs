//! `devices`: which cards an entry of `resources` means, and that no two entries mean the same.
//!
//! An index and a UUID can mean the same card, which only the node knows:
//! [`mpshare_core::Reason::SelectedTwice`].

use mpshare_core::DeviceSelector;
use mpshare_core::config::DeviceRef;

use super::form::Entry;
use super::mistake::{Mistake, Position};
use super::scalar::{At, Devices, Number, OneOrMany};

/// Which cards an entry means.
pub(super) fn selector(devices: &At<Devices>) -> Result<DeviceSelector, Mistake> {
    let At { value, at } = devices;
    let refuse = |text: &str| {
        Mistake::new(
            *at,
            format!("`devices` can't be `{text}`"),
            "it is `all`, a count from 1 on, or a list of indexes and UUIDs such as `[0, GPU-cb1213a3]`",
        )
    };
    match &value.0 {
        OneOrMany::One(Number::Other(text)) if text == "all" => Ok(DeviceSelector::All),
        OneOrMany::One(number) => match number {
            Number::Whole(1..) => count(number).ok_or_else(|| refuse(&number.to_string())),
            Number::Whole(_) | Number::Other(_) => Err(refuse(&number.to_string())),
        },
        OneOrMany::Many(list) if list.is_empty() => Err(refuse("[]")),
        OneOrMany::Many(list) => {
            list.iter().map(device).collect::<Result<Vec<_>, _>>().map(DeviceSelector::Listed)
        }
    }
}

fn count(number: &Number) -> Option<DeviceSelector> {
    number.to_string().parse().ok().map(DeviceSelector::Count)
}

/// A card in a list; NVIDIA's plugin takes indexes with and without quotes.
fn device(item: &At<Number>) -> Result<DeviceRef, Mistake> {
    let text = item.value.to_string();
    if let Ok(index) = text.parse() {
        return Ok(DeviceRef::Index(index));
    }
    let is_pair =
        |(gpu, slice): (&str, &str)| gpu.parse::<u32>().is_ok() && slice.parse::<u32>().is_ok();
    if text.starts_with("MIG-") || text.split_once(':').is_some_and(is_pair) {
        return Err(Mistake::new(
            item.at,
            format!("`{text}` is a MIG device, and MIG and MPS exclude each other on a card"),
            "name whole cards by index or UUID (`nvidia-smi -L`)",
        ));
    }
    text.parse().map(DeviceRef::Uuid).map_err(|_| {
        Mistake::new(
            item.at,
            format!("`{text}` names no card"),
            "name cards by index (`0`) or UUID (`GPU-...`, from `nvidia-smi -L`)",
        )
    })
}

/// Which cards the entries so far have taken.
#[derive(Debug, Default)]
pub(super) struct Taken {
    all: Option<Position>,
    listed: Vec<(DeviceRef, Position)>,
}

impl Taken {
    /// Takes the cards of one more entry.
    pub(super) fn add(&mut self, entry: &Entry, at: Position) -> Result<(), Mistake> {
        let Some(devices) = &entry.devices else {
            return self.add_all(at);
        };
        match &devices.value.0 {
            OneOrMany::One(Number::Other(text)) if text == "all" => self.add_all(devices.at),
            OneOrMany::One(_) => Ok(()),
            OneOrMany::Many(list) => list.iter().try_for_each(|item| self.add_one(item)),
        }
    }

    fn add_all(&mut self, at: Position) -> Result<(), Mistake> {
        match self.all.replace(at) {
            Some(first) => Err(Mistake::new(
                at,
                format!("two entries take all cards; the first is in line {}", first.line),
                "give one of them `devices`, a count or a list",
            )),
            None => Ok(()),
        }
    }

    fn add_one(&mut self, item: &At<Number>) -> Result<(), Mistake> {
        let device = device(item)?;
        if let Some((_, first)) = self.listed.iter().find(|(other, _)| *other == device) {
            return Err(Mistake::new(
                item.at,
                format!("card `{}` is listed twice; first in line {}", item.value, first.line),
                "list each card once",
            ));
        }
        self.listed.push((device, item.at));
        Ok(())
    }
}
