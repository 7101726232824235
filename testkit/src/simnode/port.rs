//! A TCP port that stays ours while the program that listens on it is started again and again.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;

/// A port of the loopback, bound and not listened on. Linux lets another socket bind it too and
/// listen, as both allow it (`SO_REUSEADDR`), but gives it to nobody who asks for any free port.
#[derive(Debug)]
pub(super) struct Port {
    socket: TcpSocket,
}

impl Port {
    pub(super) fn reserve() -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        Ok(Self { socket })
    }

    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_after_the_other_can_listen_on_a_reserved_port() {
        let port = Port::reserve().unwrap();
        let address = port.address().unwrap();
        for _ in 0..3 {
            let listener = tokio::net::TcpListener::bind(address).await.unwrap();
            let (client, server) =
                tokio::join!(tokio::net::TcpStream::connect(address), listener.accept());
            drop((client.unwrap(), server.unwrap()));
        }
    }
}
