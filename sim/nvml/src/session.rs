//! Counted initialisation, and the state behind every call. Not where devices are looked up.

use std::sync::atomic::{AtomicU32, Ordering};

use mpshare_sim_state::{SimState, Store, nodes};

use crate::status::Status;

/// How often the process has initialised the library and not shut it down again.
static OPEN: AtomicU32 = AtomicU32::new(0);

/// Counts one initialisation, if a driver answers.
pub(crate) fn open() -> Result<(), Status> {
    // A node without a state has no driver at all.
    let state = Store::from_env().read().map_err(|_| Status::DRIVER_NOT_LOADED)?;
    if state.faults.driver_not_loaded {
        return Err(Status::DRIVER_NOT_LOADED);
    }
    OPEN.fetch_add(1, Ordering::SeqCst);
    Ok(())
}

/// Takes one initialisation back.
pub(crate) fn close() -> Result<(), Status> {
    OPEN.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |open| open.checked_sub(1))
        .map(|_| ())
        .map_err(|_| Status::UNINITIALIZED)
}

/// The store of an initialised library.
pub(crate) fn store() -> Result<Store, Status> {
    if OPEN.load(Ordering::SeqCst) == 0 {
        return Err(Status::UNINITIALIZED);
    }
    Ok(Store::from_env())
}

/// The node as it is now, with the cards that this process can open.
pub(crate) fn state() -> Result<SimState, Status> {
    let store = store()?;
    crate::meter::measured(&store, || {
        store.read().map(nodes::openable).map_err(|_| Status::UNKNOWN)
    })
}

/// The driver's version; works before the initialisation.
pub(crate) fn driver_version() -> String {
    Store::from_env().read().unwrap_or_default().driver.version
}

/// NVML's own version, for example `12.555.58.02`; works before the initialisation.
pub(crate) fn library_version() -> String {
    let driver = Store::from_env().read().unwrap_or_default().driver;
    let major = driver.cuda.split('.').next().unwrap_or_default();
    format!("{major}.{}", driver.version)
}

/// CUDA's version as NVML counts it: 12.5 is 12050.
pub(crate) fn cuda_version(state: &SimState) -> i32 {
    let (major, minor) = state.driver.cuda.split_once('.').unwrap_or((&state.driver.cuda, "0"));
    let number = |text: &str| text.parse::<i32>().unwrap_or(0);
    number(major) * 1000 + number(minor) * 10
}
