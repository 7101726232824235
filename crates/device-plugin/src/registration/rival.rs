//! Another device plugin that serves the same resource.
//!
//! The kubelet knows one plugin per resource: the later registration replaces the earlier one, and
//! the end of either takes both away (facts/kubernetes.md 1.3). NVIDIA's plugin is told by its
//! socket, which is named after the resource.

use std::path::{Path, PathBuf};
use std::time::Duration;

use mpshare_core::{Reason, ResourceName};
use tokio::net::UnixStream;
use tokio::time::Instant;

/// A listener that is there answers at once.
const ANSWER: Duration = Duration::from_millis(500);

/// So often within [`WITHIN`] the kubelet drops a stream only when somebody else is in its place.
const DROPS: usize = 3;
const WITHIN: Duration = Duration::from_mins(1);

/// The socket of NVIDIA's plugin for this resource, if somebody listens there.
pub(super) async fn answering(directory: &Path, resource: &ResourceName) -> Option<PathBuf> {
    let path = directory.join(file_name(resource)?);
    // One that was killed leaves its socket, which refuses.
    let connected = tokio::time::timeout(ANSWER, UnixStream::connect(&path)).await;
    connected.is_ok_and(|connected| connected.is_ok()).then_some(path)
}

/// `nvidia-gpu.sock`, `nvidia-gpu.shared.sock` (facts/nvidia-device-plugin.md 3).
fn file_name(resource: &ResourceName) -> Option<String> {
    (resource.domain() == "nvidia.com").then(|| format!("nvidia-{}.sock", resource.name()))
}

/// What is told of a rival's socket.
pub(super) fn reason(resource: &ResourceName, socket: &Path) -> Reason {
    Reason::AnotherPlugin {
        resource: resource.clone(),
        evidence: format!("something answers on `{}`", socket.display()),
    }
}

/// Streams that one and the same kubelet closed although nothing else was wrong.
#[derive(Debug, Default)]
pub(crate) struct Drops(Vec<Instant>);

impl Drops {
    /// Takes one in; a reason when there have been too many of late.
    pub(super) fn add(&mut self, resource: &ResourceName, now: Instant) -> Option<Reason> {
        self.0.retain(|at| now.duration_since(*at) < WITHIN);
        self.0.push(now);
        (self.0.len() >= DROPS).then(|| Reason::AnotherPlugin {
            resource: resource.clone(),
            evidence: format!(
                "the kubelet closed the device list's stream {} times within {} s",
                self.0.len(),
                WITHIN.as_secs()
            ),
        })
    }

    /// Whether the last one was so long ago that it is over.
    pub(super) fn are_over(&self, now: Instant) -> bool {
        self.0.last().is_none_or(|at| now.duration_since(*at) >= WITHIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::resource;

    #[test]
    fn only_nvidias_resources_have_a_socket_of_nvidias_plugin() {
        let name = |text| file_name(&resource(text));
        assert_eq!(name("nvidia.com/gpu.shared").as_deref(), Some("nvidia-gpu.shared.sock"));
        assert_eq!(name("aliyun.com/gpu-mem"), None);
    }

    #[test]
    fn a_stream_that_is_dropped_again_and_again_is_somebody_elses_doing() {
        let (gpu, start) = (resource("nvidia.com/gpu"), Instant::now());
        let mut drops = Drops::default();
        assert_eq!(drops.add(&gpu, start), None);
        assert_eq!(drops.add(&gpu, start + WITHIN / 2), None);
        assert_eq!(drops.add(&gpu, start + WITHIN), None, "the first one is too old");
        assert!(drops.add(&gpu, start + WITHIN).is_some());
        assert!(!drops.are_over(start + WITHIN) && drops.are_over(start + WITHIN * 2));
    }
}
