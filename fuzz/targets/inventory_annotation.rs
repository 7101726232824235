//! Any text as a node's inventory of cards: what the ledger and admission make of it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mpshare_api::inventory_annotation::{NodeGpus, fleet_node, node_facts};
use mpshare_api::names::NODE_GPUS;

fuzz_target!(|text: &str| {
    let annotations = [(NODE_GPUS.to_owned(), text.to_owned())].into();
    let facts = node_facts(&annotations, &[].into());
    let fleet = fleet_node(&annotations, &[].into());
    let Ok(gpus) = text.parse::<NodeGpus>() else {
        assert!(facts.cards.is_err() && fleet.cards.is_empty());
        return;
    };
    assert_eq!(gpus.to_annotation().parse::<NodeGpus>().unwrap(), gpus);
    assert!(fleet.cards.len() <= facts.cards.unwrap().len());
});
