//! Events on the Node, de-duplicated and limited in rate.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::api::{PostParams, Request};
use kube::{Client, Resource as _};
use mpshare_api::names::FIELD_MANAGER;
use serde::de::IgnoredAny;
use serde_json::json;
use tokio::time::Instant;

use crate::announcement::{Announcement, Severity};
use crate::condition::cut;

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

/// Whether an announcement becomes an Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Keep,
    Drop,
}

/// Creates Events, and remembers them.
pub(super) struct Clerk {
    client: Client,
    node: String,
    limiter: Limiter,
    created: u64,
}

impl Clerk {
    pub(super) fn new(client: Client, node: String) -> Self {
        Self { client, node, limiter: Limiter::new(Instant::now()), created: 0 }
    }

    pub(super) fn judge(&mut self, announcement: &Announcement, now: Instant) -> Verdict {
        self.limiter.judge(&announcement.message, now)
    }

    pub(super) async fn create(
        &mut self,
        uid: &str,
        announcement: &Announcement,
    ) -> Result<(), kube::Error> {
        self.created += 1;
        let event = self.event(uid, announcement, Timestamp::now());
        let body = serde_json::to_vec(&event).map_err(kube::Error::SerdeError)?;
        let parameters =
            PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let request = Request::new(Event::url_path(&(), Some(NAMESPACE)))
            .create(&parameters, body)
            .map_err(kube::Error::BuildRequest)?;
        self.client.request::<IgnoredAny>(request).await?;
        Ok(())
    }

    fn event(&self, uid: &str, said: &Announcement, now: Timestamp) -> serde_json::Value {
        let time = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        // As client-go names them; the number keeps two of one moment apart.
        let unique = format!("{:x}.{:x}", now.as_nanosecond(), self.created);
        json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": format!("{}.{unique}", cut(&self.node, 200)),
                "namespace": NAMESPACE,
            },
            "involvedObject": {
                "apiVersion": "v1", "kind": "Node", "name": self.node, "uid": uid,
            },
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
struct Limiter {
    last: Option<(String, Instant)>,
    tokens: u32,
    refilled: Instant,
    dropped: u64,
}

impl Limiter {
    const fn new(now: Instant) -> Self {
        Self { last: None, tokens: BURST, refilled: now, dropped: 0 }
    }

    fn judge(&mut self, message: &str, now: Instant) -> Verdict {
        while self.tokens < BURST && now.duration_since(self.refilled) >= REFILL {
            self.refilled += REFILL;
            self.tokens += 1;
        }
        if self.tokens == BURST {
            self.refilled = now;
        }
        if self.tokens == 0 {
            self.dropped += 1;
            tracing::debug!(dropped = self.dropped, "an Event was dropped: too many of them");
            return Verdict::Drop;
        }
        let is_repeated = self
            .last
            .as_ref()
            .is_some_and(|(said, at)| said == message && now.duration_since(*at) < REPEAT_AFTER);
        if is_repeated {
            return Verdict::Drop;
        }
        self.last = Some((message.to_owned(), now));
        self.tokens -= 1;
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
