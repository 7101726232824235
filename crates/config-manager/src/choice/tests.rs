use super::*;

const MPS_2X: &str = "replicas: 2";

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    pairs.iter().map(owned).collect()
}

fn configs() -> BTreeMap<String, String> {
    map(&[("gpu-mem", "memory"), ("mps-1x", "one"), ("mps-2x", MPS_2X)])
}

const NOTHING: Defaults<'_> = Defaults { config: None, fallbacks: &[] };

fn chosen(labels: &[(&str, &str)], defaults: Defaults<'_>) -> Result<String, Reason> {
    choose(&map(labels), &configs(), defaults).map(|choice| choice.name)
}

#[test]
fn the_config_label_wins_over_the_default() {
    let defaults = Defaults { config: Some("mps-1x"), ..NOTHING };
    let labels = map(&[(CONFIG_LABEL, "mps-2x")]);
    let choice = choose(&labels, &configs(), defaults).unwrap();
    assert_eq!(choice.name, "mps-2x");
    assert_eq!(choice.text, MPS_2X);
    assert_eq!(choice.why, "node label nvidia.com/device-plugin.config=mps-2x");
}

#[test]
fn the_schedule_label_means_the_memory_config() {
    assert_eq!(chosen(&[(SCHEDULE_LABEL, "mps")], NOTHING), Ok("gpu-mem".to_owned()));
}

#[test]
fn both_labels_may_say_the_same() {
    let labels = [(SCHEDULE_LABEL, "mps"), (CONFIG_LABEL, "gpu-mem")];
    assert_eq!(chosen(&labels, NOTHING), Ok("gpu-mem".to_owned()));
}

#[test]
fn labels_that_disagree_choose_nothing_even_with_a_default() {
    let labels = [(SCHEDULE_LABEL, "mps"), (CONFIG_LABEL, "mps-2x")];
    let defaults = Defaults { config: Some("mps-1x"), ..NOTHING };
    assert_eq!(
        chosen(&labels, defaults),
        Err(Reason::LabelsDisagree { config: "mps-2x".to_owned(), schedule: "mps".to_owned() })
    );
}

#[test]
fn schedule_labels_of_other_systems_say_nothing() {
    let labels = [(SCHEDULE_LABEL, "cgpu"), (CONFIG_LABEL, "mps-2x")];
    assert_eq!(chosen(&labels, NOTHING), Ok("mps-2x".to_owned()));
    let defaults = Defaults { config: Some("mps-1x"), ..NOTHING };
    assert_eq!(chosen(&[(SCHEDULE_LABEL, "topology")], defaults), Ok("mps-1x".to_owned()));
}

#[test]
fn an_empty_label_counts_as_none() {
    let defaults = Defaults { config: Some("mps-1x"), ..NOTHING };
    assert_eq!(chosen(&[(CONFIG_LABEL, "")], defaults), Ok("mps-1x".to_owned()));
}

#[test]
fn an_unknown_name_is_never_replaced_by_the_default() {
    let defaults = Defaults { config: Some("mps-1x"), fallbacks: &[Fallback::Empty] };
    let reason = chosen(&[(CONFIG_LABEL, "mps-3x")], defaults).unwrap_err();
    assert_eq!(
        reason.to_string(),
        "the ConfigMap has no config `mps-3x` (it has `gpu-mem`, `mps-1x`, `mps-2x`); \
         hint: correct the node label or add the key"
    );
}

#[test]
fn fallbacks_are_tried_in_their_order() {
    let all = [Fallback::Named, Fallback::Single, Fallback::Empty];
    let defaults = Defaults { config: None, fallbacks: &all };
    let name = |configs: &[(&str, &str)], defaults| {
        choose(&map(&[]), &map(configs), defaults).map(|choice| choice.name)
    };
    assert_eq!(name(&[("default", ""), ("a", "")], defaults), Ok("default".to_owned()));
    assert_eq!(name(&[("a", "")], defaults), Ok("a".to_owned()));
    assert_eq!(name(&[("a", ""), ("b", "")], defaults), Ok("empty".to_owned()));
    assert_eq!(name(&[], defaults), Ok("empty".to_owned()));
    let no_empty = Defaults { config: None, fallbacks: &all[..2] };
    assert!(matches!(
        name(&[("a", ""), ("b", "")], no_empty),
        Err(Reason::ConfigNotChosen { known }) if known == ["a", "b"]
    ));
}
