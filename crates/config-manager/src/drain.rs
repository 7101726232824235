//! Which cards people want empty, as the Node's annotation says: pure.

use mpshare_api::{DrainWish, NodeStatus};
use mpshare_core::{Drain, GpuUuid, Reason};

/// What the annotation asks for; without one no card is meant. Names are compared with the cards
/// of the supervisor's report, where there is one.
pub(crate) fn wish(
    annotation: Option<&str>,
    status: Option<&NodeStatus>,
) -> Result<DrainWish, Reason> {
    let Some(text) = annotation else { return Ok(DrainWish::default()) };
    let wish = text
        .parse::<DrainWish>()
        .map_err(|error| Reason::DrainUnreadable { problem: error.to_string() })?;
    let Some(inventory) = status.and_then(NodeStatus::inventory) else { return Ok(wish) };
    let Drain::Cards(gpus) = &wish.0 else { return Ok(wish) };
    let named: Vec<GpuUuid> =
        gpus.iter().filter(|gpu| inventory.gpu(gpu).is_none()).cloned().collect();
    if named.is_empty() || inventory.gpus.is_empty() {
        return Ok(wish);
    }
    let known = inventory.gpus.into_iter().map(|gpu| gpu.uuid).collect();
    Err(Reason::DrainUnknownCards { named, known })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn wish_of(text: &str) -> Result<Drain, String> {
        let status = testing::status("a", vec![testing::gpu("GPU-0a", 0)]);
        wish(Some(text), Some(&status)).map(|wish| wish.0).map_err(|reason| reason.to_string())
    }

    #[test]
    fn known_cards_are_drained_and_others_are_named_with_those_that_there_are() {
        let card = |uuid: &str| Drain::Cards([uuid.parse().unwrap()].into());
        assert_eq!(wish_of(r#"{"gpus":["GPU-0a"]}"#), Ok(card("GPU-0a")));
        assert_eq!(wish_of(r#"{"gpus":["*"]}"#), Ok(Drain::All));
        assert_eq!(
            wish_of(r#"{"gpus":["GPU-0a","GPU-0b"]}"#).unwrap_err(),
            "the node's annotation `mpshare.io/drain` names cards that it doesn't have (`GPU-0b`), \
             what is drained stays as it was; hint: it has `GPU-0a`"
        );
        let unknown = wish(Some(r#"{"gpus":["GPU-0b"]}"#), None).unwrap();
        assert_eq!(unknown.0, card("GPU-0b"), "no card is known yet to compare with");
    }

    #[test]
    fn what_cannot_be_read_is_told_with_where_it_is_wrong() {
        assert_eq!(
            wish_of("GPU-0a").unwrap_err(),
            "the node's annotation `mpshare.io/drain` can't be used, what is drained stays as it \
             was: expected value at line 1 column 1; hint: write it with `kubectl mpshare drain` \
             and `undrain`"
        );
    }
}
