//! The annotations with which a pod is bound: [`ALLOCATION`](crate::names::ALLOCATION), which is
//! the authority, and Aliyun's two kinds, which other tools read.
//!
//! The form of the authority is `{"<container>":{"<GPU UUID>":<units>}}`.

use std::collections::BTreeMap;

use mpshare_core::ledger::{Allocation, Card, Claim, Demand, Stage, Wish};
use serde_json::{Map, Value};

use crate::names;

/// What an annotation claims; a text that can't be read claims nothing that counts.
pub fn claim(annotation: Option<&str>) -> Claim {
    match annotation.map(read) {
        None => Claim::Absent,
        Some(Some(allocation)) => Claim::Of(allocation),
        Some(None) => Claim::Unreadable,
    }
}

/// The allocation that an annotation names; `None` when it isn't one.
pub fn read(text: &str) -> Option<Allocation> {
    let value: BTreeMap<String, BTreeMap<String, u64>> = serde_json::from_str(text).ok()?;
    let mut allocation = Allocation::default();
    for (container, gpus) in value {
        let gpus = gpus.into_iter().map(|(uuid, units)| Some((uuid.parse().ok()?, units)));
        allocation.0.insert(container, gpus.collect::<Option<_>>()?);
    }
    Some(allocation)
}

/// The authority's text.
pub fn text(allocation: &Allocation) -> String {
    let containers = allocation.0.iter().map(|(container, gpus)| {
        let gpus = gpus.iter().map(|(uuid, units)| (uuid.to_string(), Value::from(*units)));
        (container.clone(), Value::Object(gpus.collect()))
    });
    Value::Object(containers.collect()).to_string()
}

/// All annotations of a pod that gets this allocation on these cards, decided at `unix_nanos`.
///
/// Aliyun's first kind knows one GPU per pod, so that its index is left out where containers have
/// several; its second kind knows no init containers; both are of units of memory.
pub fn annotations(
    allocation: &Allocation,
    demand: &Demand,
    cards: &[Card],
    unix_nanos: u128,
) -> BTreeMap<&'static str, String> {
    let time = unix_nanos.to_string();
    let is_memory = |wish: &Wish| wish.resource.as_str() == names::MEMORY_RESOURCE;
    if !demand.wishes().iter().any(is_memory) {
        return [(names::ALLOCATION, text(allocation))].into();
    }
    let mut all = BTreeMap::from([
        (names::ALLOCATION, text(allocation)),
        (names::V1_POD, demand.peak().to_string()),
        (names::V1_ASSIGNED, "false".to_owned()),
        (names::V1_ASSUME_TIME, time.clone()),
        (names::V2_ALLOCATION, second_kind(allocation, demand, cards).to_string()),
        (names::V2_ASSIGNED, "false".to_owned()),
        (names::V2_ASSUME_TIME, time),
    ]);
    let used: Vec<&Card> = cards.iter().filter(|card| allocation.names(&card.uuid)).collect();
    if let [card] = used.as_slice() {
        all.insert(names::V1_INDEX, card.index.to_string());
        all.insert(names::V1_DEVICE, card.units.to_string());
    }
    all
}

fn second_kind(allocation: &Allocation, demand: &Demand, cards: &[Card]) -> Value {
    let mut containers = Map::new();
    for wish in demand.wishes().iter().filter(|wish| wish.stage == Stage::Main) {
        let Some(gpus) = allocation.0.get(&wish.container) else { continue };
        let units = cards.iter().filter_map(|card| {
            gpus.get(&card.uuid).map(|units| (card.index.to_string(), Value::from(*units)))
        });
        containers.insert(wish.position.to_string(), Value::Object(units.collect()));
    }
    Value::Object(containers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpshare_core::Memory;
    use proptest::prelude::*;

    fn card(index: u32) -> Card {
        Card {
            uuid: format!("GPU-0{index}").parse().unwrap(),
            index,
            resource: names::MEMORY_RESOURCE.parse().unwrap(),
            unit: Memory::from_gib(1),
            units: 15,
            not_ready: None,
            client_cap: 48,
            held: None,
            outside: Memory::ZERO,
            withheld: Memory::ZERO,
        }
    }

    fn wish(container: &str, position: usize, units: u64) -> Wish {
        Wish {
            container: container.to_owned(),
            position,
            stage: Stage::Main,
            resource: names::MEMORY_RESOURCE.parse().unwrap(),
            units,
        }
    }

    #[test]
    fn an_allocation_is_told_in_all_three_forms() {
        let allocation = read(r#"{"b":{"GPU-01":7},"c":{"GPU-01":1}}"#).unwrap();
        let demand = Demand::new(vec![wish("b", 1, 7), wish("c", 2, 1)]);
        let all = annotations(&allocation, &demand, &[card(0), card(1)], 1_610_364_333_371_132_383);
        let form: Vec<String> = all.iter().map(|(name, value)| format!("{name}={value}")).collect();
        insta::assert_snapshot!(form.join("\n"), @r#"
        ALIYUN_COM_GPU_MEM_ASSIGNED=false
        ALIYUN_COM_GPU_MEM_ASSUME_TIME=1610364333371132383
        ALIYUN_COM_GPU_MEM_DEV=15
        ALIYUN_COM_GPU_MEM_IDX=1
        ALIYUN_COM_GPU_MEM_POD=8
        mpshare.io/allocation={"b":{"GPU-01":7},"c":{"GPU-01":1}}
        scheduler.framework.gpushare.allocation={"1":{"1":7},"2":{"1":1}}
        scheduler.framework.gpushare.assigned=false
        scheduler.framework.gpushare.assume-time=1610364333371132383
        "#);
    }

    #[test]
    fn what_is_no_allocation_claims_nothing() {
        for text in ["", "null", "[]", "{\"a\":1}", "{\"a\":{\"0\":1}}", "{\"a\":{\"GPU-0\":-1}}"] {
            assert_eq!(claim(Some(text)), Claim::Unreadable, "{text}");
        }
        assert_eq!(claim(None), Claim::Absent);
        assert!(read("{\"a\":{\"GPU-0\":99999999999999999999999}}").is_none());
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in ".*") {
            drop(read(&text));
        }
    }
}
