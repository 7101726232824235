//! Contexts: made, retained as primary, destroyed. Each takes its overhead of the card's memory.

use std::collections::BTreeMap;
use std::time::Instant;

use mpshare_sim_state::mps::CONTEXT_MIB;

use crate::runtime::Runtime;
use crate::status::Status;
use crate::{account, current};

/// The contexts of the process, by number.
#[derive(Debug, Default)]
pub(crate) struct Contexts {
    by_number: BTreeMap<usize, Context>,
    /// The primary context of each card, with how often it is retained.
    primary: BTreeMap<i32, (usize, u32)>,
    made: usize,
}

/// One context.
#[derive(Debug)]
struct Context {
    device: i32,
    /// When the work that was launched in it is done.
    busy_until: Instant,
}

impl Contexts {
    /// The card of a context.
    pub(crate) fn device(&self, context: usize) -> Result<i32, Status> {
        let found = self.by_number.get(&context);
        found.map(|context| context.device).ok_or(Status::INVALID_CONTEXT)
    }

    /// When the work of a context is done.
    pub(crate) fn busy_until(&self, context: usize) -> Result<Instant, Status> {
        let found = self.by_number.get(&context);
        found.map(|context| context.busy_until).ok_or(Status::INVALID_CONTEXT)
    }

    /// Adds work: it starts when the work before it is done.
    pub(crate) fn queue(
        &mut self,
        context: usize,
        work: std::time::Duration,
    ) -> Result<(), Status> {
        let context = self.by_number.get_mut(&context).ok_or(Status::INVALID_CONTEXT)?;
        context.busy_until = context.busy_until.max(Instant::now()) + work;
        Ok(())
    }

    fn count(&self, device: i32) -> u64 {
        let on_card = self.by_number.values().filter(|context| context.device == device);
        on_card.map(|_| 1).sum()
    }
}

/// The current context of this thread, if it still exists.
pub(crate) fn current(runtime: &Runtime) -> Result<usize, Status> {
    let context = current::get();
    runtime.contexts.device(context).map(|_| context)
}

/// The card of the current context.
pub(crate) fn current_device(runtime: &Runtime) -> Result<i32, Status> {
    runtime.contexts.device(current::get())
}

/// Makes a context and makes it current.
pub(crate) fn create(runtime: &mut Runtime, device: i32) -> Result<usize, Status> {
    let context = open(runtime, device)?;
    current::push(context)?;
    Ok(context)
}

/// Destroys a context, and what is allocated on a card with its last one.
pub(crate) fn destroy(runtime: &mut Runtime, context: usize) -> Result<(), Status> {
    let device = runtime.contexts.device(context)?;
    runtime.contexts.by_number.remove(&context);
    if current::get() == context {
        current::pop()?;
    }
    let uuid = runtime.device(device)?.to_owned();
    if runtime.contexts.count(device) == 0 {
        runtime.memory.remove_all(device);
        return account::close(runtime, &uuid);
    }
    account::shrink(runtime, &uuid, held_mib(runtime, device))
}

/// The primary context of a card, made when nobody holds it yet.
pub(crate) fn retain_primary(runtime: &mut Runtime, device: i32) -> Result<usize, Status> {
    if let Some((context, holders)) = runtime.contexts.primary.get_mut(&device) {
        *holders += 1;
        return Ok(*context);
    }
    let context = open(runtime, device)?;
    runtime.contexts.primary.insert(device, (context, 1));
    Ok(context)
}

/// Gives the primary context back; the last holder destroys it.
pub(crate) fn release_primary(runtime: &mut Runtime, device: i32) -> Result<(), Status> {
    runtime.device(device)?;
    let primary = runtime.contexts.primary.get_mut(&device).ok_or(Status::INVALID_CONTEXT)?;
    primary.1 -= 1;
    if primary.1 > 0 {
        return Ok(());
    }
    let context = primary.0;
    runtime.contexts.primary.remove(&device);
    destroy(runtime, context)
}

/// What the process holds on a card in MiB, its contexts included.
pub(crate) fn held_mib(runtime: &Runtime, device: i32) -> u64 {
    runtime.memory.mib(device) + runtime.contexts.count(device) * CONTEXT_MIB
}

fn open(runtime: &mut Runtime, device: i32) -> Result<usize, Status> {
    let uuid = runtime.device(device)?.to_owned();
    account::grow(runtime, &uuid, held_mib(runtime, device) + CONTEXT_MIB)?;
    runtime.contexts.made += 1;
    let number = runtime.contexts.made;
    let context = Context { device, busy_until: Instant::now() };
    runtime.contexts.by_number.insert(number, context);
    Ok(number)
}
