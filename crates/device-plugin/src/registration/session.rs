//! One registration, from its listener to its end.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mpshare_core::Reason;
use mpshare_kubelet::device_plugin::{
    DevicePluginServer, RegisterError, RegisterRequest, VERSION, register,
};
use mpshare_telemetry::sentence;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;

use super::socket::Predecessor;
use super::{Kubelet, PREDECESSOR_PAUSE, Resource, rival, socket};
use crate::server::{OPTIONS, Service, Streams};
use mpshare_watch::{Identity, identity};

/// The kubelet gets this long to read the empty list before its stream ends.
const LAST_LIST: Duration = Duration::from_millis(200);

/// Calls under way get this long to be answered.
const CLOSING: Duration = Duration::from_secs(1);

/// How a registration ended.
#[derive(Debug)]
pub(super) enum End {
    /// The role ends.
    Shutdown,
    /// The kubelet closed the device list's stream.
    Dropped,
    /// It stood until this happened.
    Over(&'static str),
    /// It didn't come about.
    Failed(String),
}

/// A server on a listener of its own.
pub(super) struct Session {
    socket: PathBuf,
    identity: Option<Identity>,
    streams: watch::Receiver<Streams>,
    close: CancellationToken,
    server: JoinHandle<Result<(), tonic::transport::Error>>,
    predecessor: Predecessor,
}

impl Session {
    /// Serves and registers with `kubelet`, and returns when that has ended.
    pub(super) async fn open(resource: &mut Resource, kubelet: Kubelet) -> End {
        let directory = &resource.node.options().plugins_dir;
        let name = socket::file_name(directory, &resource.name);
        let mut session = match Self::serve(resource, directory.join(&name)) {
            Ok(session) => session,
            Err(error) => return End::Failed(sentence(&error)),
        };
        if session.predecessor == Predecessor::Left {
            resource.pause(PREDECESSOR_PAUSE).await;
        }
        let end = match session.register(resource, name).await {
            Ok(()) => session.until_over(resource, kubelet).await,
            Err(end) => end,
        };
        session.shut_down().await;
        end
    }

    fn serve(resource: &Resource, path: PathBuf) -> std::io::Result<Self> {
        let (listener, predecessor) = socket::listen(&path)?;
        let (counter, streams) = watch::channel(Streams::default());
        let close = CancellationToken::new();
        let service = DevicePluginServer::new(Service {
            node: Arc::clone(&resource.node),
            resource: resource.name.clone(),
            devices: resource.devices.clone(),
            streams: counter,
            close: close.clone(),
        });
        let server = Server::builder().add_service(service);
        let incoming = UnixListenerStream::new(listener);
        let closed = close.clone().cancelled_owned();
        Ok(Self {
            identity: identity(&path).ok(),
            socket: path,
            predecessor,
            streams,
            close,
            server: tokio::spawn(server.serve_with_incoming_shutdown(incoming, closed)),
        })
    }

    async fn register(&mut self, resource: &mut Resource, endpoint: String) -> Result<(), End> {
        let request = RegisterRequest {
            version: VERSION.into(),
            endpoint,
            resource_name: resource.name.to_string(),
            options: Some(OPTIONS),
        };
        let deadline = resource.node.options().timings.call;
        let kubelet_socket = resource.kubelet_socket();
        let shutdown = resource.shutdown.clone();
        let answer = register(&kubelet_socket, request, deadline);
        let answer: Result<(), RegisterError> = tokio::select! {
            answer = answer => answer,
            () = shutdown.cancelled() => return Err(End::Shutdown),
            // The kubelet deletes our socket and then waits for somebody to listen there.
            () = self.socket_gone(resource) => {
                return Err(End::Failed("the socket was deleted while registering".into()));
            }
        };
        answer.map_err(|error| End::Failed(sentence(&error)))?;
        let units = resource.devices.borrow().len();
        tracing::info!(resource = %resource.name, units, "registered with the kubelet");
        Ok(())
    }

    async fn socket_gone(&self, resource: &mut Resource) {
        while self.owns_socket() {
            if resource.sockets.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    fn owns_socket(&self) -> bool {
        self.identity.is_some() && identity(&self.socket).ok() == self.identity
    }

    async fn until_over(&mut self, resource: &mut Resource, kubelet: Kubelet) -> End {
        let first_stream = tokio::time::sleep(resource.node.options().timings.call);
        tokio::pin!(first_stream);
        let mut has_rival = false;
        loop {
            let streams = *self.streams.borrow_and_update();
            if streams.opened > 0 && streams.open == 0 {
                return End::Dropped;
            }
            if identity(&resource.kubelet_socket()).ok() != Some(kubelet) {
                return End::Over("the kubelet's socket is gone or new");
            }
            if !self.owns_socket() {
                return End::Over("the plugin's socket was deleted");
            }
            if resource.devices.borrow_and_update().is_empty() {
                tokio::time::sleep(LAST_LIST).await;
                return End::Over("no units are left");
            }
            match self.rival(resource).await {
                // Both are registered now. Our end would take the other one's place at the kubelet
                // away as well, so that nothing is gained by it.
                Some(reason) => {
                    resource.node.problems.set(&resource.name, Some(reason));
                    has_rival = true;
                }
                None if has_rival => return End::Over("the other plugin of the resource is gone"),
                None if resource.drops.are_over(Instant::now()) => {
                    resource.node.problems.set(&resource.name, None);
                }
                None => {}
            }
            tokio::select! {
                () = resource.shutdown.cancelled() => return End::Shutdown,
                changed = resource.devices.changed() => if changed.is_err() {
                    return End::Shutdown;
                },
                _ = resource.sockets.changed() => {}
                _ = self.streams.changed() => {}
                () = &mut first_stream, if streams.opened == 0 => {
                    return End::Over("the kubelet opened no stream for the device list");
                }
                ended = &mut self.server => {
                    return End::Failed(match ended {
                        Ok(Ok(())) => "the server ended".into(),
                        Ok(Err(error)) => sentence(&error),
                        Err(error) => sentence(&error),
                    });
                }
            }
        }
    }

    async fn rival(&self, resource: &Resource) -> Option<Reason> {
        let directory = &resource.node.options().plugins_dir;
        let socket = rival::answering(directory, &resource.name).await?;
        Some(rival::reason(&resource.name, &socket))
    }

    async fn shut_down(mut self) {
        self.close.cancel();
        if !self.server.is_finished()
            && tokio::time::timeout(CLOSING, &mut self.server).await.is_err()
        {
            tracing::debug!("calls of the kubelet were cut off");
        }
        if self.owns_socket() {
            // What can't be removed is replaced by the next listener.
            drop(socket::remove(&self.socket));
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.close.cancel();
        self.server.abort();
    }
}
