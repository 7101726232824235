use super::*;
use crate::testing::{self, gpu};
use mpshare_api::ChosenConfig;
use mpshare_api::config::parse;

const TEXT: &str = "sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}";
const UUIDS: [&str; 2] = ["GPU-aaaaaaaa-1111", "GPU-bbbbbbbb-2222"];

fn config() -> Config {
    Config {
        chosen: ChosenConfig {
            version: 1,
            name: "mps-2x".to_owned(),
            why: "node label".to_owned(),
            text: TEXT.to_owned(),
            drain: mpshare_api::DrainWish::default(),
        },
        accepted: parse("mps-2x", TEXT).unwrap(),
    }
}

fn status() -> NodeStatus {
    testing::status("mps-2x", vec![gpu(UUIDS[0], 0), gpu(UUIDS[1], 1)])
}

fn check(status: &NodeStatus) -> Condition {
    condition(None, Some(&config()), Some(status), &[], "/s")
}

#[test]
fn all_cards_ready_at_their_generation_is_true_and_says_what_is_in_force() {
    let condition = check(&status());
    assert_eq!(condition.state, ConditionState::True);
    assert_eq!(condition.reason, "Ready");
    assert_eq!(
        condition.message,
        "config `mps-2x` (node label) is in force; \
         all GPUs: 2 units of `nvidia.com/gpu` each, 1/2 of memory and threads; \
         a container may ask for several units, which come from one GPU and add up; \
         the GPU with the most free units is used first; 2 GPUs are ready"
    );
}

#[test]
fn a_card_at_another_generation_is_being_switched() {
    let mut status = status();
    status.gpus[1].generation = "mps/nvidia.com/gpu/4x3840M@25.0".to_owned();
    let condition = check(&status);
    assert_eq!(condition.state, ConditionState::False);
    assert_eq!(condition.reason, "Reconfiguring");
    assert_eq!(condition.message, "`GPU-bbbbbbbb-2222` is being switched to config `mps-2x`");
}

#[test]
fn each_card_that_waits_is_listed_with_its_reason() {
    let mut status = status();
    status.gpus[0].state = GpuState::Starting;
    status.gpus[1].reason = Some(ReasonText {
        code: "WaitingForShares".to_owned(),
        message: "`GPU-b` keeps 2 shares".to_owned(),
        pods: Vec::new(),
    });
    let condition = check(&status);
    assert_eq!(condition.reason, "GpuNotReady");
    assert_eq!(condition.message, "`GPU-aaaaaaaa-1111` is Starting; `GPU-b` keeps 2 shares");
}

#[test]
fn a_refused_config_comes_before_the_state_of_cards() {
    let refused = Reason::ConfigNotChosen { known: Vec::new() };
    let condition = condition(Some(&refused), Some(&config()), Some(&status()), &[], "/s");
    assert_eq!(condition.state, ConditionState::False);
    assert_eq!(condition.reason, "ConfigNotChosen");
}

#[test]
fn without_a_report_nothing_is_known() {
    let condition = condition(None, Some(&config()), None, &[], "/run/x/status.json");
    assert_eq!(condition.state, ConditionState::Unknown);
    assert_eq!(condition.reason, "StatusMissing");
    assert!(condition.message.contains("`/run/x/status.json`"));
}

#[test]
fn a_message_stays_within_its_limit_and_counts_the_rest() {
    let sentences: Vec<String> = (0..100).map(|n| format!("sentence number {n:03}")).collect();
    let text = bounded(&sentences);
    assert!(text.len() <= MESSAGE_LIMIT, "{}", text.len());
    assert!(text.len() > 900);
    let listed = text.matches("sentence").count();
    assert!(text.ends_with(&format!("; and {} more", 100 - listed)), "{text}");
    let long = ["é".repeat(2000)];
    assert!(bounded(&long).len() <= MESSAGE_LIMIT);
}
