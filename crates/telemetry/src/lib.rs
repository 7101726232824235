//! What every long-running role does alike: logs on stderr, errors in one line, and metrics
//! pages, and a clean end on a signal.

pub mod causes;
pub mod failures;
pub mod logs;
pub mod prometheus;
pub mod shutdown;

pub use causes::sentence;
pub use failures::Failures;
pub use logs::{LogFormat, init_logs};
pub use prometheus::Page;
pub use shutdown::until_signal;
