//! Event sets: which cards a set listens to, and the wait for their next Xid.
//!
//! A wait really blocks (a plugin of NVIDIA's calls it for ever: facts/nvml.md) and costs nothing
//! meanwhile: inotify tells when the state was replaced. No lock is held while it sleeps.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mpshare_sim_state::{Health, SimState};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;

use crate::abi::Handle;
use crate::device::{self, Device};
use crate::session;
use crate::status::Status;

/// `nvmlEventTypeXidCriticalError`.
pub(crate) const XID: u64 = 8;
/// ECC errors, P-state, Xid and clock: what a data-centre card lists.
pub(crate) const SUPPORTED: u64 = 0x1f;

/// How often the state is looked at where inotify isn't to be had.
const WITHOUT_INOTIFY: Duration = Duration::from_millis(50);

static SETS: Mutex<Sets> = Mutex::new(Sets { next: 1, by_number: BTreeMap::new() });

struct Sets {
    next: usize,
    by_number: BTreeMap<usize, BTreeMap<usize, Registration>>,
}

/// One card in one set.
struct Registration {
    types: u64,
    /// Events up to here belong to the time before the registration or were delivered.
    seen: u64,
}

/// An Xid of a card.
pub(crate) struct XidEvent {
    pub(crate) device: Handle,
    pub(crate) xid: u32,
}

/// Makes an empty set.
pub(crate) fn create() -> Result<Handle, Status> {
    session::store()?;
    let mut sets = sets();
    let number = sets.next;
    sets.next += 1;
    sets.by_number.insert(number, BTreeMap::new());
    Ok(Handle::from_number(number))
}

/// Forgets a set; a wait on it that is under way ends with an error.
pub(crate) fn free(set: Handle) -> Result<(), Status> {
    session::store()?;
    let removed = sets().by_number.remove(&set.number());
    removed.map(|_| ()).ok_or(Status::INVALID_ARGUMENT)
}

/// Adds event types of one card to a set; only events after this moment are delivered.
pub(crate) fn register(handle: Handle, types: u64, set: Handle) -> Result<(), Status> {
    let device = Device::of(handle)?;
    if types & !SUPPORTED != 0 {
        return Err(Status::NOT_SUPPORTED);
    }
    let seen = device.gpu()?.xids.iter().map(|xid| xid.sequence).max().unwrap_or(0);
    let index = device::index_of(handle).ok_or(Status::INVALID_ARGUMENT)?;
    let mut sets = sets();
    let cards = sets.by_number.get_mut(&set.number()).ok_or(Status::INVALID_ARGUMENT)?;
    let card = cards.entry(index).or_insert(Registration { types: 0, seen });
    card.types |= types;
    Ok(())
}

/// Waits for the next Xid of the set's cards, for at most `timeout`.
pub(crate) fn wait(set: Handle, timeout: Duration) -> Result<XidEvent, Status> {
    let store = session::store()?;
    let deadline = Instant::now() + timeout;
    let watch = watch(store.dir());
    loop {
        if let Some(event) = take(set, &session::state()?)? {
            return Ok(event);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Status::TIMEOUT);
        }
        sleep_until_changed(watch.as_ref(), left);
    }
}

/// Takes the oldest event that the set hasn't delivered. A lost card among the set's is an error,
/// but only once its last Xid is out.
fn take(set: Handle, state: &SimState) -> Result<Option<XidEvent>, Status> {
    let mut sets = sets();
    let cards = sets.by_number.get_mut(&set.number()).ok_or(Status::INVALID_ARGUMENT)?;
    let pending = cards.iter().filter_map(|(index, card)| {
        let wanted = card.types & XID != 0;
        let xids = state.gpus.get(*index).filter(|_| wanted)?.xids.iter();
        let next = xids.filter(|xid| xid.sequence > card.seen).min_by_key(|xid| xid.sequence)?;
        Some((*index, *next))
    });
    if let Some((index, xid)) = pending.min_by_key(|(_, xid)| xid.sequence) {
        if let Some(card) = cards.get_mut(&index) {
            card.seen = xid.sequence;
        }
        return Ok(Some(XidEvent { device: device::handle_of(index), xid: xid.xid }));
    }
    let is_lost =
        |index: &usize| state.gpus.get(*index).map(|gpu| gpu.health) == Some(Health::Lost);
    if cards.keys().any(is_lost) { Err(Status::GPU_IS_LOST) } else { Ok(None) }
}

fn sets() -> MutexGuard<'static, Sets> {
    SETS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells when the state has been replaced; `None` when the user's inotify instances are used up.
fn watch(dir: &Path) -> Option<OwnedFd> {
    let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
    let watch = inotify::init(flags).ok()?;
    inotify::add_watch(&watch, dir, inotify::WatchFlags::MOVED_TO).ok()?;
    Some(watch)
}

fn sleep_until_changed(watch: Option<&OwnedFd>, left: Duration) {
    let Some(watch) = watch else {
        std::thread::sleep(left.min(WITHOUT_INOTIFY));
        return;
    };
    let timeout = Timespec::try_from(left).ok();
    let changed = poll(&mut [PollFd::new(watch, PollFlags::IN)], timeout.as_ref());
    if matches!(changed, Ok(1..)) {
        let mut notices = [0; 4096];
        // What they say doesn't matter: the caller looks at the state.
        while rustix::io::read(watch, &mut notices).is_ok_and(|length| length > 0) {}
    }
}
