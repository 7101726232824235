//! The connection to a server that is up: one question at a time.

use std::io;
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

use mpshare_sim_state::mps::{AttachRequest, ServerCommand, ServerReply};
use mpshare_sim_state::wire::Packets;

/// See the module.
#[derive(Debug)]
pub(super) struct Link {
    connection: Mutex<Packets>,
}

impl Link {
    pub(super) fn new(connection: Packets) -> Self {
        Self { connection: Mutex::new(connection) }
    }

    /// Asks and waits. `None`: the server died.
    pub(super) fn ask(&self, command: &ServerCommand) -> Option<ServerReply> {
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        connection.send(command).ok()?;
        connection.receive().ok()?
    }

    /// Hands a client over.
    pub(super) fn hand_over(&self, client: &Packets, request: &AttachRequest) -> io::Result<()> {
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        connection.send_with(&ServerCommand::Client(request.clone()), client.as_fd())
    }

    /// Asks the server to go after its last client.
    pub(super) fn leave(&self) -> io::Result<()> {
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        connection.send(&ServerCommand::Leave)
    }
}
