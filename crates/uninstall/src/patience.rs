//! Asking the API server again until it answers, or until a deadline.
//!
//! One failed request says little about a node that is looked at for minutes: an API server
//! restarts, a connection breaks. What it refuses for good is told at once. A request that may
//! have had its effect is repeated too, so whoever asks says what a second one means.

use std::time::Duration;

use thiserror::Error;
use tokio::time::Instant;

/// The longest that one request may take.
const REQUEST: Duration = Duration::from_secs(10);

/// HTTP codes below 500 by which a server asks to come back: timeout, too many requests.
const COME_BACK: [u16; 2] = [408, 429];

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum AskError {
    /// The server refuses, or can't be reached.
    #[error("the API server refuses, or can't be reached")]
    Api(#[source] kube::Error),
    /// It doesn't answer.
    #[error("the API server hasn't answered for {} s", REQUEST.as_secs())]
    Silent,
}

/// For how long, and how often, it is asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// Nothing is begun after it.
    deadline: Instant,
    pause: Duration,
}

impl Patience {
    /// Until the time has passed, with these pauses.
    pub(crate) fn lasting(time: Duration, pause: Duration) -> Self {
        Self { deadline: Instant::now() + time, pause }
    }

    /// Whether the deadline has passed.
    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Waits before the next look.
    pub(crate) async fn pause(&self) {
        tokio::time::sleep(self.pause).await;
    }

    /// The first answer; after the deadline the last failure.
    pub(crate) async fn ask<T, F>(&self, mut request: impl FnMut() -> F) -> Result<T, AskError>
    where
        F: Future<Output = Result<T, kube::Error>>,
    {
        loop {
            let error = match tokio::time::timeout(REQUEST, request()).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) if !is_passing(&error) => return Err(AskError::Api(error)),
                Ok(Err(error)) => AskError::Api(error),
                Err(_) => AskError::Silent,
            };
            if self.is_over() {
                return Err(error);
            }
            tracing::debug!(%error, "asking again");
            self.pause().await;
        }
    }
}

/// Whether the next request may do better.
fn is_passing(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code >= 500 || COME_BACK.contains(&status.code),
        kube::Error::Service(_) | kube::Error::HyperError(_) => true,
        _ => false,
    }
}
