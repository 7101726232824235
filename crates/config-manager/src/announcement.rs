//! What has changed since last time, as Events for the Node and lines of the log.

use std::collections::{BTreeMap, BTreeSet};

use mpshare_api::status::ReasonText;
use mpshare_api::{GpuState, GpuStatus, NodeStatus};
use mpshare_core::Reason;

use crate::view::Config;

/// One Event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Announcement {
    pub(crate) severity: Severity,
    /// A code in CamelCase.
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// The `type` of an Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    Normal,
    Warning,
}

/// What was said last, so that nothing is said twice.
#[derive(Debug, Default)]
pub(crate) struct Announcer {
    refused: Option<Reason>,
    gpus: Option<BTreeMap<String, Said>>,
    others: BTreeSet<Identity>,
}

/// Amounts in a reason change often and make no new Event; its code does.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Said {
    state: GpuState,
    code: Option<String>,
}

/// What makes a reason that is about no card another one than last time: two of them may have one
/// code. What only counts (`4 times`, `60 s`) grows while the reason stays; other numbers name
/// something, such as a process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity {
    code: String,
    words: Vec<String>,
}

/// What follows a number that only counts.
const COUNTED: [&str; 4] = ["times", "ms", "s", "min"];

impl Identity {
    pub(crate) fn of(reason: &ReasonText) -> Self {
        let words: Vec<&str> = reason.message.split_whitespace().collect();
        let counts = |word: &str, next: Option<&&str>| {
            let next = next.map(|next| next.trim_matches(|it: char| it.is_ascii_punctuation()));
            word.parse::<u64>().is_ok() && next.is_some_and(|next| COUNTED.contains(&next))
        };
        let following = words.iter().skip(1).map(Some).chain([None]);
        let lasting = words.iter().zip(following).filter(|(word, next)| !counts(word, *next));
        let words = lasting.map(|(word, _)| (*word).to_owned()).collect();
        Self { code: reason.code.clone(), words }
    }
}

impl Announcer {
    /// A config was written.
    pub(crate) fn applied(config: &Config) -> Announcement {
        let mut message = format!(
            "config `{}` applied ({}): {}",
            config.chosen.name,
            config.chosen.why,
            config.accepted.meaning().join("; ")
        );
        for warning in &config.accepted.warnings {
            message.push_str("; warning: ");
            message.push_str(warning);
        }
        Announcement { severity: Severity::Normal, reason: "ConfigApplied".to_owned(), message }
    }

    /// A decision was a refusal, or no longer is one.
    pub(crate) fn refused(&mut self, refused: Option<&Reason>) -> Option<Announcement> {
        if self.refused.as_ref() == refused {
            return None;
        }
        self.refused = refused.cloned();
        refused.map(|reason| Announcement {
            severity: Severity::Warning,
            reason: reason.code().to_owned(),
            message: reason.to_string(),
        })
    }

    /// What concerns the node as a whole, or its device plugin, and didn't last time.
    pub(crate) fn others(&mut self, reasons: &[ReasonText]) -> Vec<Announcement> {
        let now = reasons.iter().map(Identity::of).collect();
        let before = std::mem::replace(&mut self.others, now);
        let news = reasons.iter().filter(|reason| !before.contains(&Identity::of(reason)));
        let announce = |reason: &ReasonText| Announcement {
            severity: Severity::Warning,
            reason: reason.code.clone(),
            message: reason.message.clone(),
        };
        news.map(announce).collect()
    }

    /// Cards whose state is another than last time. What was so before our start is no news,
    /// unless it needs somebody.
    pub(crate) fn gpus(&mut self, status: &NodeStatus) -> Vec<Announcement> {
        let before = self.gpus.take();
        let said = |gpu: &GpuStatus| Said {
            state: gpu.state,
            code: gpu.reason.as_ref().map(|reason| reason.code.clone()),
        };
        let is_news = |gpu: &&GpuStatus| match before.as_ref().map(|all| all.get(&gpu.uuid)) {
            Some(Some(last)) => *last != said(gpu),
            Some(None) | None => gpu.reason.is_some() || severity(gpu.state) == Severity::Warning,
        };
        // A start that goes well is a moment between two states that are news.
        let is_passing = |gpu: &&GpuStatus| gpu.state == GpuState::Starting && gpu.reason.is_none();
        let news = status
            .gpus
            .iter()
            .filter(|gpu| is_news(gpu) && !is_passing(gpu))
            .map(state_of)
            .collect();
        let all = status.gpus.iter().map(|gpu| (gpu.uuid.clone(), said(gpu)));
        self.gpus = Some(all.collect());
        news
    }
}

const fn severity(state: GpuState) -> Severity {
    match state {
        GpuState::Absent | GpuState::Fault | GpuState::Refused => Severity::Warning,
        GpuState::Starting | GpuState::Ready | GpuState::Draining => Severity::Normal,
    }
}

fn state_of(gpu: &GpuStatus) -> Announcement {
    let GpuStatus { uuid, state, .. } = gpu;
    let (reason, message) = match &gpu.reason {
        Some(reason) => (reason.code.clone(), format!("`{uuid}` is {state}: {}", reason.message)),
        None => (format!("Gpu{state}"), format!("`{uuid}` is {state} ({})", gpu.generation)),
    };
    Announcement { severity: severity(*state), reason, message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use mpshare_api::status::ReasonText;

    fn gpu(state: GpuState, code: Option<&str>) -> GpuStatus {
        let reason = code.map(|code| ReasonText {
            code: code.to_owned(),
            message: "m".to_owned(),
            pods: Vec::new(),
        });
        GpuStatus { state, reason, ..testing::gpu("GPU-1", 0) }
    }

    fn news(announcer: &mut Announcer, gpu: GpuStatus) -> Vec<String> {
        let status = testing::status("", vec![gpu]);
        let news = announcer.gpus(&status);
        news.into_iter().map(|event| event.reason).collect()
    }

    #[test]
    fn a_healthy_start_is_no_news_and_a_fault_is() {
        let none: Vec<String> = Vec::new();
        assert_eq!(news(&mut Announcer::default(), gpu(GpuState::Ready, None)), none);
        assert_eq!(news(&mut Announcer::default(), gpu(GpuState::Fault, Some("Xid"))), ["Xid"]);
    }

    #[test]
    fn each_change_of_state_or_code_is_said_once() {
        let mut announcer = Announcer::default();
        let mut said = Vec::new();
        for (state, code) in [
            (GpuState::Ready, None),
            (GpuState::Fault, Some("ServerFault")),
            (GpuState::Fault, Some("ServerFault")),
            (GpuState::Ready, None),
            (GpuState::Ready, None),
            (GpuState::Ready, Some("UnitsNotBacked")),
        ] {
            said.extend(news(&mut announcer, gpu(state, code)));
        }
        assert_eq!(said, ["ServerFault", "GpuReady", "UnitsNotBacked"]);
    }

    #[test]
    fn a_reason_whose_count_grows_is_said_once_and_one_about_another_process_is_news() {
        let mut announcer = Announcer::default();
        let mut said = |messages: &[&str]| {
            let reason = |message: &&str| ReasonText {
                code: "AnotherPlugin".to_owned(),
                message: (*message).to_owned(),
                pods: Vec::new(),
            };
            let reasons: Vec<ReasonText> = messages.iter().map(reason).collect();
            announcer.others(&reasons).len()
        };
        assert_eq!(said(&["closed 3 times within 60 s; hint: x"]), 1);
        assert_eq!(said(&["closed 4 times within 61 s; hint: x"]), 0);
        assert_eq!(said(&["daemon 7 is here", "closed 5 times within 60 s; hint: x"]), 1);
        assert_eq!(said(&["daemon 8 is here", "daemon 7 is here"]), 1);
        assert_eq!(said(&["closed 3 times within 60 s; hint: x"]), 1, "it was over");
    }

    #[test]
    fn a_refusal_is_said_once_and_again_after_it_was_gone() {
        let reason = Reason::ConfigNotChosen { known: Vec::new() };
        let mut announcer = Announcer::default();
        let said = |announcement: Option<Announcement>| announcement.is_some();
        assert!(said(announcer.refused(Some(&reason))));
        assert!(!said(announcer.refused(Some(&reason))));
        assert!(!said(announcer.refused(None)));
        assert!(said(announcer.refused(Some(&reason))));
    }
}
