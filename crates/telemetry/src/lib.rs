//! What every long-running role does alike: logs on stderr, and a clean end on a signal.

pub mod logs;
pub mod shutdown;

pub use logs::{LogFormat, init_logs};
pub use shutdown::until_signal;
