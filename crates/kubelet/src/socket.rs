//! gRPC channels over unix sockets. Nothing here knows what is spoken over them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tonic::codegen::http::Uri;
use tonic::transport::{Channel, Endpoint};

/// What the kubelet's own clients send as `:authority` (`facts/kubernetes.md` 1.2). Without it
/// some servers are sent a socket path, which others refuse.
const AUTHORITY: &str = "http://localhost";

/// A unix socket couldn't be dialled.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The path isn't UTF-8, so it can't be named to the gRPC transport.
    #[error("socket path `{}` is not UTF-8", .0.display())]
    NotUtf8(PathBuf),
    /// Nobody listens there, or the file isn't a socket.
    #[error("cannot connect to socket `{}`", socket.display())]
    Dial {
        /// The socket.
        socket: PathBuf,
        /// What the transport said.
        source: tonic::transport::Error,
    },
    /// The connection wasn't up in time.
    #[error("no connection to socket `{}` within {deadline:?}", socket.display())]
    Deadline {
        /// The socket.
        socket: PathBuf,
        /// The time allowed.
        deadline: Duration,
    },
}

/// Connects to the unix socket at `socket` within `deadline`.
pub async fn connect(socket: &Path, deadline: Duration) -> Result<Channel, ConnectError> {
    let dialled = tokio::time::timeout(deadline, endpoint(socket)?.connect()).await;
    match dialled {
        Ok(Ok(channel)) => Ok(channel),
        Ok(Err(source)) => Err(ConnectError::Dial { socket: socket.to_owned(), source }),
        Err(_) => Err(ConnectError::Deadline { socket: socket.to_owned(), deadline }),
    }
}

/// A channel that dials at its first call and again after the connection is lost: for a socket
/// that comes and goes with its server, as the kubelet's do. Has to be called inside a tokio
/// runtime.
pub fn connect_lazy(socket: &Path) -> Result<Channel, ConnectError> {
    Ok(endpoint(socket)?.connect_lazy())
}

fn endpoint(socket: &Path) -> Result<Endpoint, ConnectError> {
    let path = socket.to_str().ok_or_else(|| ConnectError::NotUtf8(socket.to_owned()))?;
    let endpoint = Endpoint::from_shared(format!("unix://{path}"))
        .map_err(|source| ConnectError::Dial { socket: socket.to_owned(), source })?;
    Ok(endpoint.origin(Uri::from_static(AUTHORITY)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(5);

    #[tokio::test]
    async fn a_missing_socket_is_named_in_the_error() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("nobody.sock");
        let error = connect(&socket, SOON).await.unwrap_err();
        assert!(error.to_string().contains("nobody.sock"), "{error}");
    }

    #[tokio::test]
    async fn a_server_that_never_answers_meets_the_deadline() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("mute.sock");
        // Bound and never accepted from: the kernel completes the connection, nobody speaks.
        let _listener = tokio::net::UnixListener::bind(&socket).unwrap();
        let request = crate::device_plugin::RegisterRequest::default();
        let error = crate::device_plugin::register(&socket, request, Duration::from_millis(50))
            .await
            .unwrap_err();
        assert!(error.to_string().contains("50ms"), "{error}");
    }
}
