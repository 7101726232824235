//! What a device plugin must never do to a kubelet. The real one would panic, hang or lose the
//! plugin; the fake one notes it, so that the test that caused it fails.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// A call from the kubelet to the plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rpc {
    /// `GetDevicePluginOptions`, inside `Register`.
    Options,
    /// `ListAndWatch`.
    ListAndWatch,
    /// `GetPreferredAllocation`, inside pod admission.
    PreferredAllocation,
    /// `Allocate`, inside pod admission.
    Allocate,
    /// `PreStartContainer`, before a container starts.
    PreStart,
}

impl fmt::Display for Rpc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Options => "GetDevicePluginOptions",
            Self::ListAndWatch => "ListAndWatch",
            Self::PreferredAllocation => "GetPreferredAllocation",
            Self::Allocate => "Allocate",
            Self::PreStart => "PreStartContainer",
        })
    }
}

/// Something that would have broken a real kubelet, or that it would have let break the pod.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// An id left the list while the kubelet was handing it out (`facts/kubernetes.md` 1.3).
    #[error(
        "kubelet would panic: nil device: `{device}` of `{resource}` left the list during {during}"
    )]
    DeviceVanished {
        /// The resource.
        resource: String,
        /// The id that isn't in the list any more.
        device: String,
        /// The call that was under way.
        during: Rpc,
    },
    /// Two registrations of one resource overlapped and the older stream ended: kubelets before
    /// 1.37 then disconnect the newer client (`facts/kubernetes.md` 1.3).
    #[error(
        "registrations of `{resource}` overlapped: the end of the older stream disconnected the newer client"
    )]
    NewerClientDisconnected {
        /// The resource.
        resource: String,
    },
    /// A call without a deadline took long: meanwhile no pod of the node was handled
    /// (`facts/kubernetes.md` 1.6).
    #[error(
        "{rpc} for `{resource}` took longer than {limit:?}: the kubelet's sync loop stood still"
    )]
    SlowRpc {
        /// The call.
        rpc: Rpc,
        /// The resource.
        resource: String,
        /// The time that the test allows.
        limit: Duration,
    },
    /// The plugin registered and nobody served on its endpoint within the dial timeout.
    #[error("plugin of `{resource}` registered before it served on `{endpoint}`")]
    NotServing {
        /// The resource.
        resource: String,
        /// The endpoint's file name.
        endpoint: String,
    },
    /// A message passed gRPC's receive limit of 4 MiB, on either side.
    #[error("a {rpc} message for `{resource}` is larger than 4 MiB")]
    MessageTooLarge {
        /// The call.
        rpc: Rpc,
        /// The resource.
        resource: String,
    },
    /// A mount's source didn't exist. The container runtime made a directory of it, which is not
    /// what the plugin meant if it should be a socket or a pipe.
    #[error("mount source `{}` for `{container_path}` did not exist and became a directory", path.display())]
    MountSourceMissing {
        /// Path on the host.
        path: PathBuf,
        /// Path in the container.
        container_path: String,
    },
}
