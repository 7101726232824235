//! Packets of JSON over a unix SEQPACKET socket: how the fake MPS programs talk to each other.
//!
//! One packet is one message, and may carry one file descriptor. The format is private to the
//! simulator (a manager of MPS never sees it); the kind of socket is the real one's.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The largest packet; a client list of a full server is far below it.
const LARGEST: usize = 128 * 1024;

/// Who is at the other end, as the kernel says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// PID in the reader's PID namespace; 0 when the peer isn't visible there.
    pub pid: i32,
    /// User id.
    pub uid: u32,
}

/// What a look without waiting found.
#[derive(Debug, PartialEq, Eq)]
pub enum Polled<T> {
    /// Nothing yet.
    Nothing,
    /// A message.
    Message(T),
    /// The other end is gone.
    Closed,
}

/// One connection.
#[derive(Debug)]
pub struct Packets {
    socket: OwnedFd,
}

impl Packets {
    /// Connects to the listening socket at `path`.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let address = SocketAddrUnix::new(path)?;
        let socket = unbound()?;
        rustix::net::connect(&socket, &address)?;
        Ok(Self { socket })
    }

    /// Takes over an open connection.
    pub fn from_socket(socket: OwnedFd) -> Self {
        Self { socket }
    }

    /// Sends one message.
    pub fn send(&self, message: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_vec(message)?;
        rustix::net::send(&self.socket, &text, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Sends one message together with a descriptor.
    pub fn send_with(&self, message: &impl Serialize, fd: BorrowedFd<'_>) -> io::Result<()> {
        let text = serde_json::to_vec(message)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fds = [fd];
        if !ancillary.push(SendAncillaryMessage::ScmRights(&fds)) {
            return Err(io::Error::other("no room for a descriptor"));
        }
        let parts = [IoSlice::new(&text)];
        rustix::net::sendmsg(&self.socket, &parts, &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Waits for the next message; `None` when the other end is gone.
    pub fn receive<T: DeserializeOwned>(&self) -> io::Result<Option<T>> {
        Ok(self.receive_with()?.map(|(message, _)| message))
    }

    /// Waits for the next message and the descriptor that came with it.
    pub fn receive_with<T: DeserializeOwned>(&self) -> io::Result<Option<(T, Option<OwnedFd>)>> {
        match self.read(RecvFlags::CMSG_CLOEXEC) {
            Ok((text, _)) if text.is_empty() => Ok(None),
            Ok((text, fd)) => Ok(Some((serde_json::from_slice(&text)?, fd))),
            // The other end died with something unread.
            Err(Errno::CONNRESET) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Looks for a message without waiting.
    pub fn poll<T: DeserializeOwned>(&self) -> io::Result<Polled<T>> {
        match self.read(RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT) {
            Ok((text, _)) if text.is_empty() => Ok(Polled::Closed),
            Ok((text, _)) => Ok(Polled::Message(serde_json::from_slice(&text)?)),
            Err(Errno::AGAIN) => Ok(Polled::Nothing),
            Err(Errno::CONNRESET | Errno::PIPE) => Ok(Polled::Closed),
            Err(error) => Err(error.into()),
        }
    }

    /// Ends the connection for every holder of it, readers that wait included.
    pub fn shut(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both)?)
    }

    /// The process at the other end.
    pub fn peer(&self) -> io::Result<Peer> {
        crate::peer::peer(self.socket.as_fd())
    }

    /// A second handle on the same connection.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { socket: self.socket.try_clone()? })
    }

    fn read(&self, flags: RecvFlags) -> Result<(Vec<u8>, Option<OwnedFd>), Errno> {
        let mut text = vec![0; LARGEST];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let mut parts = [IoSliceMut::new(&mut text)];
            match rustix::net::recvmsg(&self.socket, &mut parts, &mut ancillary, flags) {
                Err(Errno::INTR) => {}
                other => break other?,
            }
        };
        text.truncate(received.bytes);
        let mut fd = None;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                fd = fds.last();
            }
        }
        Ok((text, fd))
    }
}

impl AsFd for Packets {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A SEQPACKET socket without an address yet.
pub fn unbound() -> io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    Ok(socket)
}
