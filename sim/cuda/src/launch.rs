//! Modules, functions and launches: nothing is computed, but time passes.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use crate::runtime::{self, Runtime};
use crate::status::Status;
use crate::{context, fault};

/// How long a function without a time in its name keeps the whole card busy.
const SHORT: Duration = Duration::from_millis(1);

/// Synchronising looks this often whether the context has been lost meanwhile.
const LOOK: Duration = Duration::from_millis(10);

/// The modules and functions that the program has asked for, by number.
#[derive(Debug, Default)]
pub(crate) struct Functions {
    modules: BTreeSet<usize>,
    /// How long each function keeps the whole card busy.
    durations: BTreeMap<usize, Duration>,
    made: usize,
}

/// Loads any image.
pub(crate) fn load_module(runtime: &mut Runtime) -> Result<usize, Status> {
    context::current(runtime)?;
    let functions = &mut runtime.functions;
    functions.made += 1;
    functions.modules.insert(functions.made);
    Ok(functions.made)
}

/// Forgets a module.
pub(crate) fn unload_module(runtime: &mut Runtime, module: usize) -> Result<(), Status> {
    let known = runtime.functions.modules.remove(&module);
    if known { Ok(()) } else { Err(Status::INVALID_HANDLE) }
}

/// Finds any function; its name may say how long it runs.
pub(crate) fn function(runtime: &mut Runtime, module: usize, name: &str) -> Result<usize, Status> {
    let functions = &mut runtime.functions;
    if !functions.modules.contains(&module) {
        return Err(Status::INVALID_HANDLE);
    }
    functions.made += 1;
    functions.durations.insert(functions.made, duration(name));
    Ok(functions.made)
}

/// Queues a function in the current context.
pub(crate) fn launch(runtime: &mut Runtime, function: usize) -> Result<(), Status> {
    let context = context::current(runtime)?;
    let whole = runtime.functions.durations.get(&function).ok_or(Status::INVALID_HANDLE)?;
    let work = *whole * 1000 / runtime.percent_tenths().max(1);
    runtime.contexts.queue(context, work)
}

/// Waits until the current context has done its work, or can't.
pub(crate) fn synchronize() -> Result<(), Status> {
    loop {
        let busy_until = runtime::with_healthy(|runtime| {
            fault::notice_loss(runtime)?;
            runtime.contexts.busy_until(context::current(runtime)?)
        })?;
        let left = busy_until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(LOOK));
    }
}

fn duration(name: &str) -> Duration {
    let milliseconds = name.strip_prefix("spin_ms_").and_then(|number| number.parse().ok());
    milliseconds.map_or(SHORT, Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_say_how_long_a_function_runs() {
        assert_eq!(duration("spin_ms_250"), Duration::from_millis(250));
        assert_eq!(duration("_Z6vecAddPfS_S_"), SHORT);
    }
}
