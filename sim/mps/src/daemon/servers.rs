//! Starting servers, their registration, and their end.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::thread;

use mpshare_sim_state::mps::ServerReply;
use mpshare_sim_state::wire::{Packets, Peer};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::set_thread_uid;

use super::link::Link;
use super::state::{Cause, Server, Stage, Starts, State, Stay};
use super::{Daemon, privilege};
use crate::daemonize::PRIVATE_ENV;

/// Found through the daemon's own PATH, and argv[0] is just this.
const SERVER: &str = "nvidia-cuda-mps-server";

impl Daemon {
    /// Starts a server for `uid`. One that can't even be run counts as one that failed.
    pub(super) fn start_server(self: &Arc<Self>, state: &mut State, uid: u32, cause: Cause) {
        let Ok(mut child) = self.spawn(uid) else {
            // The real program forks before it fails to exec, so the child has a PID.
            self.log.say(format!("Starting new server {} for user {uid}", std::process::id()));
            self.log.say(format!("Server {} exited with status 1", std::process::id()));
            state.starts = Starts::OneFailed;
            Self::count_failure(state, cause);
            self.schedule(state);
            return;
        };
        let pid = i32::try_from(child.id()).unwrap_or_default();
        self.log.say(format!("Starting new server {pid} for user {uid}"));
        let stay = Stay::ForEver;
        state.server = Some(Server { pid, uid, cause, stage: Stage::Initializing, stay });
        let daemon = Arc::clone(self);
        thread::spawn(move || {
            let status = child.wait().ok();
            daemon.server_gone(pid, status);
        });
    }

    fn spawn(&self, uid: u32) -> std::io::Result<Child> {
        let mut command = Command::new(SERVER);
        command.env_remove(PRIVATE_ENV);
        command.env("CUDA_MPS_PIPE_DIRECTORY", &self.options.dirs.pipe);
        command.env("CUDA_MPS_LOG_DIRECTORY", &self.options.dirs.log);
        if privilege::owner() == 0 && uid != 0 {
            become_user(&mut command, uid);
        }
        command.spawn()
    }

    /// A server that is up far enough to ask for its settings.
    pub(super) fn register_server(self: &Arc<Self>, connection: Packets, peer: Peer) {
        let settings = {
            let state = self.lock();
            if state.server(peer.pid).is_none() {
                return;
            }
            state.defaults.settings(self.options.users)
        };
        let ready = connection.send(&settings).and_then(|()| connection.receive());
        if !matches!(ready, Ok(Some(ServerReply::Ready))) {
            return;
        }
        let mut state = self.lock();
        let Some(server) = state.server.as_mut().filter(|server| server.pid == peer.pid) else {
            return;
        };
        let link = Arc::new(Link::new(connection));
        if server.stay == Stay::UntilLastClient {
            drop(link.leave());
        }
        server.stage = Stage::Up(link);
        self.log.say(format!("NEW SERVER {}: Ready", peer.pid));
        self.schedule(&mut state);
    }

    fn server_gone(self: &Arc<Self>, pid: i32, status: Option<ExitStatus>) {
        let mut state = self.lock();
        let Some(server) = state.server.take_if(|server| server.pid == pid) else {
            return;
        };
        // One that a signal killed is logged as status 0 (facts/mps.md 4.2).
        let code = status.and_then(|status| status.code()).unwrap_or(0);
        if code != 0 {
            self.log.say("Server encountered a fatal exception. Shutting down");
            state.starts = Starts::OneFailed;
        }
        self.log.say(format!("Server {pid} exited with status {code}"));
        self.log.say("Removed Shm file at ");
        if matches!(server.stage, Stage::Initializing) {
            Self::count_failure(&mut state, server.cause);
        }
        self.schedule(&mut state);
        self.changed.notify_all();
    }

    /// Ends a server at once.
    pub(super) fn kill_server(pid: i32) {
        if let Some(pid) = Pid::from_raw(pid) {
            // Gone already is what was wanted.
            kill_process(pid, Signal::KILL).ok();
        }
    }
}

/// Only the user changes: the real daemon leaves group 0 and root's supplementary groups to the
/// server (facts/mps.md 1.1), while `CommandExt::uid` would drop the groups.
#[expect(unsafe_code, reason = "the standard library has no way to set the user alone")]
fn become_user(command: &mut Command, uid: u32) {
    let become_uid = move || Ok(set_thread_uid(rustix::process::Uid::from_raw(uid))?);
    // SAFETY: between fork and exec this makes one system call and touches nothing else.
    unsafe {
        command.pre_exec(become_uid);
    }
}
