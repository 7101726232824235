//! Listening, for the programs of a cluster.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::{Context as _, Result};
use tokio::net::TcpListener;

/// On every address of the machine where that is what was asked for: a kernel without IPv6 doesn't
/// know `[::]`.
pub(crate) async fn listen_on(address: SocketAddr) -> Result<TcpListener> {
    let mut listener = TcpListener::bind(address).await;
    if listener.is_err() && address.ip() == Ipv6Addr::UNSPECIFIED {
        listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await;
    }
    let listener = listener.with_context(|| format!("can't listen on `{address}`"))?;
    tracing::info!(address = %listener.local_addr().unwrap_or(address), "listening");
    Ok(listener)
}
