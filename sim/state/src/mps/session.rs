//! An attached client.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::error::code;
use super::{
    Accepted, AttachError, AttachRequest, Event, Hello, PinnedLimit, Refusal, Reply,
    effective_limits,
};
use crate::ProcId;
use crate::mps::Percent;
use crate::wire::{Packets, Polled};

/// How a session stands. All but `Live` are for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionStatus {
    /// Works.
    Live,
    /// The server is gone: 806.
    ServerDied,
    /// `terminate_client` named this process: 810.
    Terminated,
    /// A fatal fault hit the GPUs that this client shares: this CUDA error.
    Faulted(i32),
}

impl SessionStatus {
    /// The CUDA error that every further call returns.
    pub fn cuda_error(self) -> Option<i32> {
        match self {
            Self::Live => None,
            Self::ServerDied => Some(code::RPC_FAILURE),
            Self::Terminated => Some(code::TERMINATED),
            Self::Faulted(error) => Some(error),
        }
    }
}

/// A card as an attached client sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionDevice {
    /// Its UUID.
    pub uuid: String,
    /// The most that this process may hold on it, contexts included; `None` is unlimited.
    pub limit_mib: Option<u64>,
}

/// An open connection to an MPS server. Dropping it detaches the client.
#[derive(Debug)]
pub struct Session {
    connection: Packets,
    server: i32,
    client: i32,
    percent_tenths: u32,
    daemon_devices: Vec<String>,
    devices: Vec<SessionDevice>,
    status: Mutex<SessionStatus>,
}

/// Becomes a client of the MPS whose sockets are in `pipe_dir`. Waits as long as a server takes.
pub fn attach(pipe_dir: &Path, request: &AttachRequest) -> Result<Session, AttachError> {
    let path = pipe_dir.join("control");
    // The real client looks first whether anybody is there; the daemon logs that
    // (facts/mps.md 6.16).
    Packets::connect(&path).map(drop).map_err(AttachError::NoDaemon)?;
    let connection = Packets::connect(&path).map_err(AttachError::NoDaemon)?;
    let failed = |_| AttachError::ConnectionFailed;
    connection.send(&Hello::Client(request.clone())).map_err(failed)?;
    match connection.receive().map_err(failed)? {
        Some(Reply::Accepted(accepted)) => Ok(Session::new(connection, &accepted, request)),
        Some(Reply::Refused(refusal)) => Err(refusal.into()),
        None => Err(AttachError::ConnectionFailed),
    }
}

impl From<Refusal> for AttachError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotPermitted => Self::NotPermitted,
            Refusal::ConnectionFailed => Self::ConnectionFailed,
            Refusal::ServerNotReady => Self::ServerNotReady,
            Refusal::MaxClients => Self::MaxClients,
        }
    }
}

impl Session {
    fn new(connection: Packets, accepted: &Accepted, request: &AttachRequest) -> Self {
        let daemon_devices: Vec<String> =
            accepted.devices.iter().map(|device| device.uuid.clone()).collect();
        let seen = request.sees(&daemon_devices);
        let served: Vec<(String, Option<PinnedLimit>)> = seen
            .into_iter()
            .map(|uuid| {
                let device = accepted.devices.iter().find(|device| device.uuid == uuid);
                let bytes = device.and_then(|device| device.limit_bytes);
                (uuid, bytes.and_then(PinnedLimit::from_bytes))
            })
            .collect();
        let limits = effective_limits(&served, request.memory_limit.as_deref());
        let devices = served
            .into_iter()
            .zip(limits)
            .map(|((uuid, _), limit)| SessionDevice {
                uuid,
                limit_mib: limit.map(PinnedLimit::mib),
            })
            .collect();
        Self {
            connection,
            server: accepted.server,
            client: accepted.client,
            percent_tenths: lower_percent(accepted.percent, request.thread_percentage.as_deref()),
            daemon_devices,
            devices,
            status: Mutex::new(SessionStatus::Live),
        }
    }

    /// PID of the server.
    pub fn server(&self) -> i32 {
        self.server
    }

    /// PID of this process as the server sees it; 0 when the server can't see it.
    pub fn client(&self) -> i32 {
        self.client
    }

    /// This process under the PID that the server sees: what a client in a container must register
    /// its contexts under, for readers outside of it.
    pub fn process(&self) -> ProcId {
        let me = ProcId::current();
        match self.client {
            0 => me,
            pid => ProcId { pid, ..me },
        }
    }

    /// The active thread percentage in force, in tenths (1000 = 100 %).
    pub fn percent_tenths(&self) -> u32 {
        self.percent_tenths
    }

    /// UUIDs of the daemon's cards in its order, before this client's own `CUDA_VISIBLE_DEVICES`.
    pub fn daemon_devices(&self) -> &[String] {
        &self.daemon_devices
    }

    /// The cards that this client sees, in its order, with the limits in force.
    pub fn devices(&self) -> &[SessionDevice] {
        &self.devices
    }

    /// The most that this process may hold on a card in MiB; `None` is unlimited.
    pub fn limit_mib(&self, uuid: &str) -> Option<u64> {
        self.devices.iter().find(|device| device.uuid == uuid)?.limit_mib
    }

    /// How the session stands now. Doesn't wait.
    pub fn status(&self) -> SessionStatus {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        while *status == SessionStatus::Live {
            *status = match self.connection.poll() {
                Ok(Polled::Nothing) => return SessionStatus::Live,
                Ok(Polled::Message(Event::Terminated)) => SessionStatus::Terminated,
                Ok(Polled::Message(Event::Sticky(error))) => SessionStatus::Faulted(error),
                Ok(Polled::Closed) | Err(_) => SessionStatus::ServerDied,
            };
        }
        *status
    }

    /// The CUDA error that every call of this process gets from now on, if any.
    pub fn error(&self) -> Option<i32> {
        self.status().cuda_error()
    }
}

/// The environment may only lower the percentage; an invalid one says nothing.
fn lower_percent(served: f64, variable: Option<&str>) -> u32 {
    let served = Percent::parse(&served.to_string()).unwrap_or(Percent::FULL).tenths();
    let asked = variable.and_then(Percent::parse).map_or(served, Percent::tenths);
    served.min(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_only_lowers_the_percentage() {
        assert_eq!(lower_percent(50.0, None), 500);
        assert_eq!(lower_percent(50.0, Some("25")), 250);
        assert_eq!(lower_percent(50.0, Some("75")), 500);
        assert_eq!(lower_percent(50.0, Some("none")), 500);
    }
}
