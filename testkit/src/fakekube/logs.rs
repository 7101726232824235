//! The seam for `pods/log`: whoever runs the containers serves their output.

use axum::body::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;

use super::error::ApiError;

/// One request for a container's output, as `kubectl logs` makes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRequest {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// The pod's UID.
    pub uid: String,
    /// The container; the pod's only one where the client named none.
    pub container: String,
    /// Whether to go on until the container ends.
    pub follow: Follow,
    /// At most this many of the last lines.
    pub tail_lines: Option<usize>,
}

/// Whether a log stream ends at the present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follow {
    /// It ends with what has been written so far.
    UntilNow,
    /// It goes on until the container ends.
    UntilEnd,
}

/// A provider of container output.
pub trait PodLogs: Send + Sync + 'static {
    /// Opens the output; the stream may be unbounded when the request follows.
    fn open(
        &self,
        request: LogRequest,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Bytes>, ApiError>>;
}
