//! What the supervisor's main thread waits for.

use mpshare_api::GpuStatus;
use mpshare_nvml::HealthEvent;

/// Something happened.
#[derive(Debug)]
pub enum Event {
    /// A file below the MPS root may have changed.
    FilesChanged,
    /// A worker has news of its card.
    Report(Box<GpuStatus>),
    /// The driver reported something.
    Health(HealthEvent),
    /// The process should end; daemons and clients stay.
    Stop,
}
