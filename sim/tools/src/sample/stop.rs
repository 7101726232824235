//! Going at once when told to, even as PID 1 of a container (where a signal without a handler does
//! nothing) and even while the main thread waits inside the driver.

use std::process;
use std::thread;

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use super::Arguments;

/// What a shell reports for a process that SIGTERM has ended.
const TERMINATED: i32 = 128 + 15;

/// Ends the process at SIGTERM or SIGINT, or at SIGINT alone. Without a handler the signals keep their default effect,
/// which is the same but for PID 1.
pub(super) fn on_signals(arguments: &Arguments) {
    let Ok(runtime) = Builder::new_current_thread().enable_io().build() else {
        return;
    };
    let inside = runtime.enter();
    let signals = signal(SignalKind::terminate()).and_then(|terminate| {
        signal(SignalKind::interrupt()).map(|interrupt| (terminate, interrupt))
    });
    drop(inside);
    let Ok((mut terminate, mut interrupt)) = signals else {
        return;
    };
    let obeys_sigterm = !arguments.ignore_sigterm;
    thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = terminate.recv(), if obeys_sigterm => {}
                _ = interrupt.recv() => {}
            }
        });
        leave();
    });
}

#[expect(clippy::exit, reason = "the main thread may be waiting inside the driver")]
fn leave() {
    process::exit(TERMINATED);
}
