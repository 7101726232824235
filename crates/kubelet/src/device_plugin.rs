//! Device plugin API `v1beta1`: generated messages, client and server, the constants that the
//! kubelet compares by value, and the one call that a plugin makes itself, `Register`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::socket::{ConnectError, connect};

/// Encoding and decoding of the messages.
pub use prost::Message;

pub use crate::generated::device_plugin::device_plugin_client::DevicePluginClient;
pub use crate::generated::device_plugin::device_plugin_server::{DevicePlugin, DevicePluginServer};
pub use crate::generated::device_plugin::registration_client::RegistrationClient;
pub use crate::generated::device_plugin::registration_server::{Registration, RegistrationServer};
pub use crate::generated::device_plugin::{
    AllocateRequest, AllocateResponse, CdiDevice, ContainerAllocateRequest,
    ContainerAllocateResponse, ContainerPreferredAllocationRequest,
    ContainerPreferredAllocationResponse, Device, DevicePluginOptions, DeviceSpec, Empty,
    ListAndWatchResponse, Mount, NumaNode, PreStartContainerRequest, PreStartContainerResponse,
    PreferredAllocationRequest, PreferredAllocationResponse, RegisterRequest, TopologyInfo,
};

/// The only version that kubelets accept in [`RegisterRequest`].
pub const VERSION: &str = "v1beta1";
/// Health of a device that can be allocated. The kubelet compares the exact string.
pub const HEALTHY: &str = "Healthy";
/// Health of a device that counts as capacity but can't be allocated.
pub const UNHEALTHY: &str = "Unhealthy";
/// File name of the kubelet's registration socket in the directory of the plugins' sockets.
pub const KUBELET_SOCKET_NAME: &str = "kubelet.sock";
/// Most bytes that the kubelet takes in one message (grpc-go's default receive limit).
pub const MAX_MESSAGE_BYTES: usize = 4 * 1024 * 1024;

/// A registration didn't succeed.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// The kubelet's socket couldn't be dialled.
    #[error("the kubelet's registration socket cannot be reached")]
    Connect(#[from] ConnectError),
    /// The kubelet refused: wrong version or name, or it couldn't dial the plugin back.
    #[error("the kubelet refused to register `{resource}`")]
    Refused {
        /// The resource.
        resource: String,
        /// The kubelet's answer. Boxed because a status is large.
        source: Box<tonic::Status>,
    },
    /// The kubelet didn't answer in time.
    #[error("the kubelet did not answer a registration at `{}` within {deadline:?}", socket.display())]
    Deadline {
        /// The kubelet's registration socket.
        socket: PathBuf,
        /// The time allowed.
        deadline: Duration,
    },
}

/// Registers a plugin with the kubelet whose registration socket is `kubelet_socket`, within
/// `deadline` for dial and answer together.
///
/// The plugin has to serve already: the kubelet dials it back before it answers. A former
/// `ListAndWatch` stream of the same resource has to be closed first: when it ends later,
/// kubelets before 1.37 disconnect the new registration (`facts/kubernetes.md` 1.3).
pub async fn register(
    kubelet_socket: &Path,
    request: RegisterRequest,
    deadline: Duration,
) -> Result<(), RegisterError> {
    let resource = request.resource_name.clone();
    let call = async {
        let channel = connect(kubelet_socket, deadline).await?;
        let answer = RegistrationClient::new(channel).register(request).await;
        match answer {
            Ok(_) => Ok(()),
            Err(status) => Err(RegisterError::Refused { resource, source: Box::new(status) }),
        }
    };
    tokio::time::timeout(deadline, call).await.unwrap_or_else(|_| {
        Err(RegisterError::Deadline { socket: kubelet_socket.to_owned(), deadline })
    })
}

#[cfg(test)]
mod tests;
