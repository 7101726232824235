//! Clients that connect: handed over at once, or queued until a server of their user is up.

use std::sync::Arc;

use mpshare_sim_state::mps::{AttachRequest, Refusal, Reply};
use mpshare_sim_state::wire::{Packets, Peer};

use super::state::{Cause, Life, Server, Stage, State, Stay};
use super::{Daemon, privilege};

/// How often a server is started for one waiting client (facts/mps.md 4.2).
const ATTEMPTS: u32 = 6;

/// A client that waits in `cuInit`. Nobody looks whether it still lives: one that died makes the
/// daemon start a server for its user all the same (facts/mps.md 3).
#[derive(Debug)]
pub(super) struct Pending {
    connection: Packets,
    request: AttachRequest,
    uid: u32,
    failed_starts: u32,
}

impl Pending {
    pub(super) fn uid(&self) -> u32 {
        self.uid
    }

    /// Ends the wait with an error. Dead clients don't mind.
    fn refuse(&self, refusal: Refusal) {
        drop(self.connection.send(&Reply::Refused(refusal)));
    }
}

impl Daemon {
    pub(super) fn new_client(
        self: &Arc<Self>,
        connection: Packets,
        peer: Peer,
        request: AttachRequest,
    ) {
        let uid = self.counted_uid(peer);
        let client = Pending { connection, request, uid, failed_starts: 0 };
        let mut state = self.lock();
        let ready = matches!(
            &state.server,
            Some(Server { uid: of, stage: Stage::Up(_), stay: Stay::ForEver, .. }) if *of == uid
        );
        let outcome = if ready {
            "Server already exists"
        } else {
            "Server is not ready, push client to pending list"
        };
        self.log.say(format!("NEW CLIENT {} from user {uid}: {outcome}", peer.pid));
        if !Self::can_serve(uid) {
            client.refuse(Refusal::NotPermitted);
            return;
        }
        state.pending.push_back(client);
        self.schedule(&mut state);
    }

    /// Only a daemon of root starts servers for others.
    fn can_serve(uid: u32) -> bool {
        privilege::owner() == 0 || privilege::owner() == uid
    }

    /// Does what the queue makes necessary: the one place that starts servers and hands over.
    pub(super) fn schedule(self: &Arc<Self>, state: &mut State) {
        if state.life != Life::Serving {
            return;
        }
        if state.server.is_none() {
            if let Some(client) = state.pending.front() {
                let uid = client.uid();
                self.start_server(state, uid, Cause::Client);
            } else if let Some(uid) = state.wanted.pop_front() {
                self.start_server(state, uid, Cause::Command);
            }
            return;
        }
        Self::serve_queue(state);
    }

    /// Gives the server the clients of its user up to the first of another, who makes it leave.
    fn serve_queue(state: &mut State) {
        let Some(server) = &mut state.server else {
            return;
        };
        let Some(link) = server.link() else {
            return;
        };
        if server.stay == Stay::UntilLastClient {
            return;
        }
        while let Some(client) = state.pending.pop_front_if(|client| client.uid == server.uid) {
            if link.hand_over(&client.connection, &client.request).is_err() {
                // The server is dying: once it is reaped, the client gets the next one.
                state.pending.push_front(client);
                return;
            }
        }
        while state.wanted.front() == Some(&server.uid) {
            state.wanted.pop_front();
        }
        if !state.pending.is_empty() || !state.wanted.is_empty() {
            server.stay = Stay::UntilLastClient;
            drop(link.leave());
        }
    }

    /// Counts a failed start against the client that it was for; after the last attempt the client
    /// gets 805.
    pub(super) fn count_failure(state: &mut State, cause: Cause) {
        if cause != Cause::Client {
            return;
        }
        if let Some(client) = state.pending.front_mut() {
            client.failed_starts += 1;
            if client.failed_starts >= ATTEMPTS {
                client.refuse(Refusal::ConnectionFailed);
                state.pending.pop_front();
            }
        }
    }
}
