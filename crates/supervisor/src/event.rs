//! What the supervisor's main thread waits for.

use std::fs::File;

use mpshare_api::GpuStatus;
use mpshare_core::{GpuUuid, Inventory};
use mpshare_nvml::{Answer, HealthEvent, NvmlError};
use mpshare_watch::Removed;

/// Something happened.
#[derive(Debug)]
pub enum Event {
    /// A file below the MPS root may have changed.
    FilesChanged,
    /// The report was written, by us or by somebody who shouldn't, or removed.
    ReportTouched,
    /// The MPS root was removed under its mount.
    RootRemoved(Removed),
    /// A worker has news of its card.
    Report(Box<GpuStatus>),
    /// A worker is about to disrupt its card, once that is known to everybody.
    Withdraw(GpuUuid),
    /// The driver reported something.
    Health(HealthEvent),
    /// The driver listed its cards, or couldn't.
    Cards(Result<Inventory, NvmlError>),
    /// A card was asked whether it is there.
    Probed(GpuUuid, Answer),
    /// The predecessor has ended, and this is its lock.
    Locked(std::io::Result<File>),
    /// The process should end; daemons and clients stay.
    Stop,
}
