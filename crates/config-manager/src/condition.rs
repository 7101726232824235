//! The node condition `MPSShareReady`: is what was asked of this node in force?

use mpshare_api::status::ReasonText;
use mpshare_api::{GpuState, GpuStatus, NodeStatus};
use mpshare_core::{NodePlan, Reason, plan};

use crate::view::Config;

/// The longest message, in bytes; the rest is counted.
const MESSAGE_LIMIT: usize = 1024;

/// What the condition says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) state: ConditionState,
    /// A code in CamelCase.
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// The value of the condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConditionState {
    True,
    False,
    Unknown,
}

impl ConditionState {
    /// As the API writes it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// What the condition has to say about the decision, the config in force and the supervisor's
/// report. `troubles` are what else is in the way, of the device plugin's serving for example, `status_path` where the supervisor's
/// report should be.
pub(crate) fn condition(
    refused: Option<&Reason>,
    in_force: Option<&Config>,
    status: Option<&NodeStatus>,
    troubles: &[ReasonText],
    status_path: &str,
) -> Condition {
    let mut pending: Vec<ReasonText> = refused.map(ReasonText::from).into_iter().collect();
    pending.extend(troubles.iter().cloned());
    let Some(status) = status else {
        let missing = Reason::StatusMissing { path: status_path.to_owned() };
        let state =
            if pending.is_empty() { ConditionState::Unknown } else { ConditionState::False };
        pending.push((&missing).into());
        return summary(state, &pending);
    };
    pending.extend(pending_in(status, in_force));
    if pending.is_empty() {
        return ready(in_force, status);
    }
    summary(ConditionState::False, &pending)
}

fn pending_in(status: &NodeStatus, in_force: Option<&Config>) -> Vec<ReasonText> {
    let inventory = status.inventory();
    // Generations don't depend on live shares, so none have to be known here.
    let plan = in_force
        .zip(inventory.as_ref())
        .map(|(config, inventory)| plan(&config.accepted.node, inventory, &[]));
    let name = in_force.map_or("?", |config| config.chosen.name.as_str());
    let gpus = status.gpus.iter().filter_map(|gpu| pending_on(gpu, plan.as_ref(), name));
    status.reasons.iter().cloned().chain(gpus).collect()
}

/// What a card still waits for.
fn pending_on(gpu: &GpuStatus, plan: Option<&NodePlan>, config: &str) -> Option<ReasonText> {
    if let Some(reason) = &gpu.reason {
        return Some(reason.clone());
    }
    if gpu.state != GpuState::Ready {
        return Some(ReasonText {
            code: "GpuNotReady".to_owned(),
            message: format!("`{}` is {}", gpu.uuid, gpu.state),
            pods: Vec::new(),
        });
    }
    let uuid = gpu.uuid.parse().ok();
    let wanted = plan.zip(uuid.as_ref()).and_then(|(plan, uuid)| plan.gpu(uuid));
    let follows = wanted.is_some_and(|wanted| wanted.generation.as_str() == gpu.generation);
    (!follows).then(|| ReasonText {
        code: "Reconfiguring".to_owned(),
        message: format!("`{}` is being switched to config `{config}`", gpu.uuid),
        pods: Vec::new(),
    })
}

fn ready(in_force: Option<&Config>, status: &NodeStatus) -> Condition {
    let mut sentences = match in_force {
        Some(Config { chosen, accepted }) => {
            let mut sentences =
                vec![format!("config `{}` ({}) is in force", chosen.name, chosen.why)];
            sentences.extend(accepted.meaning());
            sentences
        }
        None => Vec::new(),
    };
    sentences.push(format!("{} GPUs are ready", status.gpus.len()));
    Condition {
        state: ConditionState::True,
        reason: "Ready".to_owned(),
        message: bounded(&sentences),
    }
}

fn summary(state: ConditionState, pending: &[ReasonText]) -> Condition {
    let messages: Vec<String> = pending.iter().map(|reason| reason.message.clone()).collect();
    Condition {
        state,
        reason: pending.first().map_or_else(String::new, |reason| reason.code.clone()),
        message: bounded(&messages),
    }
}

/// As many sentences as fit, and how many didn't.
pub(crate) fn bounded(sentences: &[String]) -> String {
    // Room for "; and 4294967295 more".
    const REST: usize = 24;
    let mut text = String::new();
    for (n, sentence) in sentences.iter().enumerate() {
        let separator = if n == 0 { "" } else { "; " };
        if n > 0 && text.len() + separator.len() + sentence.len() > MESSAGE_LIMIT - REST {
            return format!("{text}; and {} more", sentences.len() - n);
        }
        text.push_str(separator);
        text.push_str(cut(sentence, MESSAGE_LIMIT - REST));
    }
    text
}

/// At most `limit` bytes, in whole characters.
pub(crate) fn cut(text: &str, limit: usize) -> &str {
    text.get(..text.floor_char_boundary(limit)).unwrap_or(text)
}

#[cfg(test)]
mod tests;
