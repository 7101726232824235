//! Signals kill the real programs without a word (facts/mps.md 4.2); Rust's runtime would survive
//! the first SEGV or BUS that somebody sends.

/// Lets every signal do what the kernel does by default.
#[expect(unsafe_code, reason = "the runtime's handlers can't be removed in another way")]
pub(crate) fn restore_defaults() {
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: the default action is no function, so nothing runs at a bad moment.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
        }
    }
}
