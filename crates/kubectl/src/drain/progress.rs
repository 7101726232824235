//! How far the node says that its cards are.

use std::collections::BTreeMap;

use mpshare_api::inventory_annotation::{NodeGpu, NodeGpus};
use mpshare_api::names::NODE_GPUS;
use mpshare_core::Reason;

use super::target::Cards;
use crate::objects::Node;

/// What the node says of the cards that are meant, by index.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress(BTreeMap<u32, Card>);

#[derive(Debug, PartialEq, Eq)]
struct Card {
    uuid: String,
    state: String,
    code: Option<String>,
    /// The sentence without its hint.
    sentence: Option<String>,
}

impl Progress {
    /// What the node says now.
    pub(crate) fn of(node: &Node, cards: &Cards) -> Self {
        let text = node.metadata.annotation(NODE_GPUS);
        let gpus = text.and_then(|text| text.parse::<NodeGpus>().ok()).unwrap_or_default();
        let meant = gpus.0.into_iter().filter(|gpu| cards.contains(&gpu.uuid));
        Self(meant.map(|gpu| (gpu.index, Card::of(gpu))).collect())
    }

    /// Whether all of them are empty.
    pub(crate) fn is_done(&self) -> bool {
        !self.0.is_empty() && self.0.values().all(Card::is_drained)
    }

    /// Whether nothing of it shows that the node knows of the wish.
    pub(crate) fn is_unnoticed(&self) -> bool {
        !self.0.values().any(|card| card.is_drained() || card.state == "Draining")
    }

    /// What is another than last time, a line per card.
    pub(crate) fn news(&self, before: &Self) -> Vec<String> {
        let is_news = |(index, card): &(&u32, &Card)| before.0.get(index) != Some(card);
        self.0.iter().filter(is_news).map(|(index, card)| format!("GPU {index}: {card}")).collect()
    }

    /// The cards that aren't empty.
    pub(crate) fn left(&self) -> String {
        let left = self.0.iter().filter(|(_, card)| !card.is_drained());
        let left: Vec<String> = left.map(|(index, card)| format!("GPU {index}: {card}")).collect();
        if left.is_empty() { "the node tells of no GPUs".to_owned() } else { left.join("; ") }
    }
}

impl Card {
    fn of(gpu: NodeGpu) -> Self {
        let sentence = gpu.reason.map(|reason| match reason.split_once("; hint:") {
            Some((sentence, _)) => sentence.to_owned(),
            None => reason,
        });
        Self { uuid: gpu.uuid, state: gpu.state, code: gpu.reason_code, sentence }
    }

    fn is_drained(&self) -> bool {
        self.code.as_deref() == Some(Reason::CARD_DRAINED)
    }
}

impl std::fmt::Display for Card {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.sentence {
            Some(sentence) => f.write_str(sentence),
            None => write!(f, "`{}` is {}", self.uuid, self.state),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(cards: &[(&str, Option<Reason>)]) -> Node {
        let card = |(index, (state, reason)): (usize, &(&str, Option<Reason>))| {
            json!({"uuid": format!("GPU-0{index}"), "index": index, "model": "Tesla T4",
                "memoryMiB": 15360, "unitMiB": 1024, "units": 15, "state": state,
                "reason": reason.as_ref().map(ToString::to_string),
                "reasonCode": reason.as_ref().map(Reason::code)})
        };
        let gpus: Vec<_> = cards.iter().enumerate().map(card).collect();
        let annotations = json!({NODE_GPUS: json!(gpus).to_string()});
        serde_json::from_value(json!({"metadata": {"annotations": annotations}})).unwrap()
    }

    fn draining(shares: usize) -> Reason {
        Reason::CardDraining { gpu: "GPU-00".parse().unwrap(), shares }
    }

    fn drained() -> Reason {
        Reason::CardDrained { gpu: "GPU-00".parse().unwrap() }
    }

    #[test]
    fn each_change_of_a_card_is_a_line_without_the_hint() {
        let of = |cards: &[(&str, Option<Reason>)]| Progress::of(&node(cards), &Cards::All);
        let first = of(&[("Ready", None), ("Draining", Some(draining(2)))]);
        assert_eq!(
            first.news(&Progress::default()),
            [
                "GPU 0: `GPU-00` is Ready",
                "GPU 1: `GPU-00` is being drained and takes no new pods, 2 shares of it are still held"
            ]
        );
        let next = of(&[("Ready", None), ("Draining", Some(draining(1)))]);
        assert_eq!(
            next.news(&first),
            ["GPU 1: `GPU-00` is being drained and takes no new pods, 1 share of it is still held"]
        );
        assert!(next.news(&next).is_empty());
    }

    #[test]
    fn it_is_done_when_each_card_that_is_meant_is_empty() {
        let of =
            |cards: &[(&str, Option<Reason>)], meant: &Cards| Progress::of(&node(cards), meant);
        let first = Cards::One { uuid: "GPU-00".parse().unwrap(), index: 0 };
        let half = &[("Draining", Some(drained())), ("Draining", Some(draining(1)))];
        assert!(!of(half, &Cards::All).is_done());
        assert!(of(half, &first).is_done());
        assert!(!of(&[], &Cards::All).is_done(), "a node that tells of no card isn't empty");
    }

    #[test]
    fn what_is_left_is_named() {
        let progress =
            Progress::of(&node(&[("Draining", Some(drained())), ("Fault", None)]), &Cards::All);
        assert_eq!(progress.left(), "GPU 1: `GPU-01` is Fault");
        assert!(!progress.is_unnoticed());
        assert!(Progress::of(&node(&[("Ready", None)]), &Cards::All).is_unnoticed());
    }
}
