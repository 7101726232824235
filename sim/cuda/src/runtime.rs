//! What the process has of CUDA between two calls: its link to MPS, its cards, contexts, memory.

use std::sync::{Mutex, MutexGuard, PoisonError};

use mpshare_sim_state::mps::Session;
use mpshare_sim_state::{ProcId, ProcessKind, SimGpu, SimState, Store};

use crate::context::Contexts;
use crate::launch::Functions;
use crate::memory::Memory;
use crate::status::Status;

static RUNTIME: Mutex<Option<Runtime>> = Mutex::new(None);

/// The initialised driver of this process.
pub(crate) struct Runtime {
    /// The simulated node.
    pub(crate) store: Store,
    /// This process.
    pub(crate) id: ProcId,
    /// `argv[0]`, which `nvidia-smi` shows.
    pub(crate) name: String,
    /// The server that this process is a client of; `None` runs without MPS and without limits.
    pub(crate) session: Option<Session>,
    /// UUIDs of the visible cards; a `CUdevice` is an index.
    pub(crate) devices: Vec<String>,
    pub(crate) contexts: Contexts,
    pub(crate) functions: Functions,
    pub(crate) memory: Memory,
    /// The error that every further call gets.
    pub(crate) sticky: Option<Status>,
}

impl Runtime {
    /// UUID of a visible card.
    pub(crate) fn device(&self, ordinal: i32) -> Result<&str, Status> {
        let index = usize::try_from(ordinal).map_err(|_| Status::INVALID_DEVICE)?;
        self.devices.get(index).map(String::as_str).ok_or(Status::INVALID_DEVICE)
    }

    /// The state of a visible card.
    pub(crate) fn gpu(&self, ordinal: i32) -> Result<SimGpu, Status> {
        let uuid = self.device(ordinal)?;
        let state = self.state()?;
        state.gpus.into_iter().find(|gpu| gpu.uuid == uuid).ok_or(Status::INVALID_DEVICE)
    }

    /// The node as it is now.
    pub(crate) fn state(&self) -> Result<SimState, Status> {
        self.store.read().map_err(|_| Status::UNKNOWN)
    }

    /// How this process reaches its cards.
    pub(crate) fn kind(&self) -> ProcessKind {
        self.session.as_ref().map_or(ProcessKind::Plain, |session| ProcessKind::MpsClient {
            server: session.server(),
        })
    }

    /// The active thread percentage in tenths.
    pub(crate) fn percent_tenths(&self) -> u32 {
        self.session.as_ref().map_or(1000, Session::percent_tenths)
    }

    /// The pinned memory limit on a card in MiB.
    pub(crate) fn limit_mib(&self, uuid: &str) -> Option<u64> {
        self.session.as_ref().and_then(|session| session.limit_mib(uuid))
    }

    /// Fails with the sticky error, after a look at whether the server has one for us.
    pub(crate) fn healthy(&mut self) -> Result<(), Status> {
        if self.sticky.is_none() {
            self.sticky = self.session.as_ref().and_then(Session::error).map(Status);
        }
        self.sticky.map_or(Ok(()), Err)
    }
}

/// The initialised runtime, for as long as the guard lives: never across a wait.
pub(crate) fn lock() -> MutexGuard<'static, Option<Runtime>> {
    RUNTIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls `act` on the initialised runtime.
pub(crate) fn with<T>(act: impl FnOnce(&mut Runtime) -> Result<T, Status>) -> Result<T, Status> {
    act(lock().as_mut().ok_or(Status::NOT_INITIALIZED)?)
}

/// Calls `act` on a runtime without a sticky error.
pub(crate) fn with_healthy<T>(
    act: impl FnOnce(&mut Runtime) -> Result<T, Status>,
) -> Result<T, Status> {
    with(|runtime| {
        runtime.healthy()?;
        act(runtime)
    })
}
