//! `cuInit`: to MPS if a control daemon answers, else silently without.

use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use mpshare_sim_state::mps::{AttachRequest, DEFAULT_PIPE_DIR, Session, attach, visible_devices};
use mpshare_sim_state::{Health, ProcId, SimState, Store, nodes};

use crate::context::Contexts;
use crate::launch::Functions;
use crate::memory::Memory;
use crate::runtime::{self, Runtime};
use crate::shared_memory;
use crate::status::Status;

/// Held through an attachment, which may wait for ever; calls that need no initialisation go on.
static INITIALIZING: Mutex<()> = Mutex::new(());

/// Initialises the process once.
pub(crate) fn init() -> Result<(), Status> {
    let _one_at_a_time = INITIALIZING.lock().unwrap_or_else(PoisonError::into_inner);
    if runtime::lock().is_some() {
        return Ok(());
    }
    let runtime = start()?;
    *runtime::lock() = Some(runtime);
    Ok(())
}

fn start() -> Result<Runtime, Status> {
    let arguments = arguments();
    // A driver without cards attaches all the same, and gets 805 if a daemon is there
    // (facts/mps.md 7).
    let store = Store::from_env();
    let state = store.read().map(nodes::openable);
    let session = connect(&arguments.join(" "), state.as_ref().ok())?;
    let state = state.map_err(|_| Status::NO_DEVICE)?;
    let devices = devices(&state, session.as_ref());
    if devices.is_empty() || state.faults.driver_not_loaded {
        return Err(Status::NO_DEVICE);
    }
    Ok(Runtime {
        store,
        id: session.as_ref().map_or_else(ProcId::current, Session::process),
        name: arguments.into_iter().next().unwrap_or_default(),
        session,
        devices,
        contexts: Contexts::default(),
        functions: Functions::default(),
        memory: Memory::default(),
        sticky: None,
    })
}

/// Becomes a client of the MPS that the environment names, on the cards of `state`.
fn connect(command: &str, state: Option<&SimState>) -> Result<Option<Session>, Status> {
    let pipe_dir = std::env::var_os("CUDA_MPS_PIPE_DIRECTORY")
        .map_or_else(|| PathBuf::from(DEFAULT_PIPE_DIR), PathBuf::from);
    let request = AttachRequest { openable: state.map(uuids), ..AttachRequest::from_env(command) };
    match attach(&pipe_dir, &request) {
        Ok(session) => {
            shared_memory::meet(session.server())?;
            Ok(Some(session))
        }
        Err(error) => error.cuda_error().map_or(Ok(None), |code| Err(Status(code))),
    }
}

/// The visible cards in order: the server's under MPS, which the daemon has already restricted and
/// renumbered, else those that can be opened. `CUDA_VISIBLE_DEVICES` of this process has its say in both.
fn devices(state: &SimState, session: Option<&Session>) -> Vec<String> {
    let of_session =
        |session: &Session| session.devices().iter().map(|device| device.uuid.clone()).collect();
    let of_node =
        || visible_devices(&uuids(state), std::env::var("CUDA_VISIBLE_DEVICES").ok().as_deref());
    let seen: Vec<String> = session.map_or_else(of_node, of_session);
    let answers =
        |uuid: &String| state.gpus.iter().any(|gpu| gpu.uuid == *uuid && gpu.health == Health::Ok);
    seen.into_iter().filter(answers).collect()
}

fn uuids(state: &SimState) -> Vec<String> {
    state.gpus.iter().map(|gpu| gpu.uuid.clone()).collect()
}

/// The command line, of which other programs show the first word.
fn arguments() -> Vec<String> {
    let line = fs::read("/proc/self/cmdline").unwrap_or_default();
    let words = line.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}
