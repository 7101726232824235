//! What the supervisor's main thread waits for.

use mpshare_api::GpuStatus;
use mpshare_core::GpuUuid;
use mpshare_nvml::HealthEvent;

/// Something happened.
#[derive(Debug)]
pub enum Event {
    /// A file below the MPS root may have changed.
    FilesChanged,
    /// A worker has news of its card.
    Report(Box<GpuStatus>),
    /// A worker is about to disrupt its card, once that is known to everybody.
    Withdraw(GpuUuid),
    /// The driver reported something.
    Health(HealthEvent),
    /// The process should end; daemons and clients stay.
    Stop,
}
