//! Events on the Node, de-duplicated and limited in rate, and on its pods.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::api::{PostParams, Request};
use kube::{Client, Resource as _};
use mpshare_api::names::FIELD_MANAGER;
use serde::de::IgnoredAny;
use serde_json::json;

use crate::allowance::Allowance;
use crate::announcement::{Announcement, Severity};
use crate::condition::cut;
use crate::pods::PodName;

/// Who says it.
const COMPONENT: &str = "mpshare-config-manager";

/// Events of Nodes, which have no namespace, live here.
const NAMESPACE: &str = "default";

/// A sentence that was the last one said isn't repeated within this time.
const REPEAT_AFTER: Duration = Duration::from_mins(10);

/// So many at once, and then one per [`REFILL`].
const BURST: u32 = 12;
const REFILL: Duration = Duration::from_secs(10);

/// The longest message that the API takes in an Event.
const MESSAGE_LIMIT: usize = 1024;

/// What an Event is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Subject {
    /// The Node of this UID.
    Node(String),
    /// A pod.
    Pod {
        name: PodName,
        /// The kubelet's, also for the image of a static pod: that is what its own Events name, and
        /// what `kubectl describe` looks for.
        uid: String,
    },
}

/// Whether an announcement becomes an Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Keep,
    Drop,
}

/// Creates Events.
pub(super) struct Clerk {
    client: Client,
    node: String,
    created: u64,
}

impl Subject {
    fn namespace(&self) -> &str {
        match self {
            Self::Node(_) => NAMESPACE,
            Self::Pod { name, .. } => &name.namespace,
        }
    }
}

impl Clerk {
    pub(super) fn new(client: Client, node: String) -> Self {
        Self { client, node, created: 0 }
    }

    pub(super) async fn create(
        &mut self,
        subject: &Subject,
        announcement: &Announcement,
    ) -> Result<(), kube::Error> {
        self.created += 1;
        let event = self.event(subject, announcement, Timestamp::now());
        let body = serde_json::to_vec(&event).map_err(kube::Error::SerdeError)?;
        let parameters =
            PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let request = Request::new(Event::url_path(&(), Some(subject.namespace())))
            .create(&parameters, body)
            .map_err(kube::Error::BuildRequest)?;
        self.client.request::<IgnoredAny>(request).await?;
        Ok(())
    }

    fn event(&self, subject: &Subject, said: &Announcement, now: Timestamp) -> serde_json::Value {
        let time = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        // As client-go names them; the number keeps two of one moment apart.
        let unique = format!("{:x}.{:x}", now.as_nanosecond(), self.created);
        let (name, involved) = match subject {
            Subject::Node(uid) => {
                let node = &self.node;
                (node, json!({"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}))
            }
            Subject::Pod { name: PodName { namespace, name }, uid } => {
                let pod = json!({"apiVersion": "v1", "kind": "Pod", "namespace": namespace,
                    "name": name, "uid": uid});
                (name, pod)
            }
        };
        json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": format!("{}.{unique}", cut(name, 200)),
                "namespace": subject.namespace(),
            },
            "involvedObject": involved,
            "type": match said.severity {
                Severity::Normal => "Normal",
                Severity::Warning => "Warning",
            },
            "reason": said.reason,
            "message": cut(&said.message, MESSAGE_LIMIT),
            "source": {"component": COMPONENT, "host": self.node},
            "reportingComponent": COMPONENT,
            "reportingInstance": self.node,
            "firstTimestamp": time,
            "lastTimestamp": time,
            "count": 1,
        })
    }
}

/// Lets few sentences through at a time, and none twice in a row within [`REPEAT_AFTER`].
///
/// What was said before the last one may be said again at once: a config that comes back, or a
/// card that is ready again, is news.
pub(super) struct Limiter {
    last: Option<(String, Instant)>,
    allowance: Allowance,
    dropped: u64,
}

impl Limiter {
    pub(super) const fn new(now: Instant) -> Self {
        Self { last: None, allowance: Allowance::new(BURST, REFILL, now), dropped: 0 }
    }

    pub(super) fn judge(&mut self, message: &str, now: Instant) -> Verdict {
        let is_repeated = self
            .last
            .as_ref()
            .is_some_and(|(said, at)| said == message && now.duration_since(*at) < REPEAT_AFTER);
        if is_repeated {
            return Verdict::Drop;
        }
        if self.allowance.take(now).is_none() {
            self.dropped += 1;
            tracing::debug!(dropped = self.dropped, "an Event was dropped: too many of them");
            return Verdict::Drop;
        }
        self.last = Some((message.to_owned(), now));
        Verdict::Keep
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_is_not_said_twice_in_a_row_but_again_when_things_have_changed_back() {
        let start = Instant::now();
        let mut limiter = Limiter::new(start);
        assert_eq!(limiter.judge("a", start), Verdict::Keep);
        assert_eq!(limiter.judge("a", start), Verdict::Drop);
        assert_eq!(limiter.judge("b", start), Verdict::Keep);
        assert_eq!(limiter.judge("a", start), Verdict::Keep);
        assert_eq!(limiter.judge("a", start + REPEAT_AFTER), Verdict::Keep);
    }

    #[test]
    fn a_storm_of_sentences_is_cut_and_recovers_slowly() {
        let start = Instant::now();
        let mut limiter = Limiter::new(start);
        let kept = |limiter: &mut Limiter, from: u32, at: Instant| {
            let verdicts = (from..from + 100).map(|n| limiter.judge(&n.to_string(), at));
            verdicts.filter(|verdict| *verdict == Verdict::Keep).count()
        };
        assert_eq!(kept(&mut limiter, 0, start), 12);
        assert_eq!(kept(&mut limiter, 100, start + REFILL * 2), 2);
    }
}
