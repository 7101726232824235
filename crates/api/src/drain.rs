//! The node annotation [`DRAIN`](crate::names::DRAIN): which of a node's cards people want empty.
//!
//! Written by people, with `kubectl mpshare drain`; config-manager copies it into
//! [`ChosenConfig`](crate::ChosenConfig), so that supervisor and device plugin read it together
//! with the config. Cards are named by UUID alone: an index is another card after a repair.

use std::collections::BTreeSet;
use std::str::FromStr;

use mpshare_core::{Drain, GpuUuid};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Stands for all cards of the node.
const ALL: &str = "*";

/// More cards than any machine has.
const MOST_CARDS: usize = 1024;

/// The form of the wish: `{"gpus":["*"]}` or `{"gpus":["GPU-<uuid>", ...]}`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "Form", into = "Form")]
pub struct DrainWish(pub Drain);

#[derive(Serialize, Deserialize)]
struct Form {
    gpus: Vec<String>,
}

/// Why a text is no such wish.
#[derive(Debug, Error)]
pub enum DrainError {
    /// Not the JSON that it should be.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// Something else than the UUID of a card.
    #[error("`{0}` is neither `*` nor the UUID of a GPU")]
    Name(String),
    /// More cards than there can be.
    #[error("it names {0} cards")]
    TooMany(usize),
}

impl DrainWish {
    /// Whether no card is meant.
    pub fn is_nothing(&self) -> bool {
        self.0 == Drain::Nothing
    }

    /// The annotation's text.
    pub fn to_annotation(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl FromStr for DrainWish {
    type Err = DrainError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::try_from(serde_json::from_str::<Form>(text)?)
    }
}

impl TryFrom<Form> for DrainWish {
    type Error = DrainError;

    fn try_from(form: Form) -> Result<Self, Self::Error> {
        if form.gpus.len() > MOST_CARDS {
            return Err(DrainError::TooMany(form.gpus.len()));
        }
        let (all, names): (Vec<String>, Vec<String>) =
            form.gpus.into_iter().partition(|name| name == ALL);
        let uuid = |name: String| name.parse::<GpuUuid>().map_err(|_| DrainError::Name(name));
        let gpus = names.into_iter().map(uuid).collect::<Result<BTreeSet<_>, _>>()?;
        Ok(Self(match (all.is_empty(), gpus.is_empty()) {
            (false, _) => Drain::All,
            (true, true) => Drain::Nothing,
            (true, false) => Drain::Cards(gpus),
        }))
    }
}

impl From<DrainWish> for Form {
    fn from(DrainWish(drain): DrainWish) -> Self {
        let gpus = match drain {
            Drain::Nothing => Vec::new(),
            Drain::All => vec![ALL.to_owned()],
            Drain::Cards(gpus) => gpus.iter().map(ToString::to_string).collect(),
        };
        Self { gpus }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_wish_reads_back_from_what_it_is_written_as() {
        for text in [r#"{"gpus":[]}"#, r#"{"gpus":["*"]}"#, r#"{"gpus":["GPU-0a","GPU-0b"]}"#] {
            assert_eq!(text.parse::<DrainWish>().unwrap().to_annotation(), text);
        }
        let more = r#"{"gpus":["GPU-0a"],"since":"later releases may say more"}"#;
        assert_eq!(
            more.parse::<DrainWish>().unwrap().0,
            Drain::Cards(["GPU-0a".parse().unwrap()].into())
        );
    }

    #[test]
    fn what_names_no_card_is_refused_by_name() {
        let problem = |text: &str| text.parse::<DrainWish>().unwrap_err().to_string();
        assert_eq!(problem(r#"{"gpus":["0"]}"#), "`0` is neither `*` nor the UUID of a GPU");
        assert!(problem(r#"{"gpu":[]}"#).contains("gpus"));
        assert!(problem("*").contains("line 1"));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in ".*") {
            drop(text.parse::<DrainWish>());
        }
    }
}
