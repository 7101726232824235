//! Who is at the other end of a unix socket.
//!
//! Not rustix: its PID can't be 0, which is what the kernel says of a process outside of the
//! reader's PID namespace.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::wire::Peer;

/// Asks the kernel for the peer's credentials.
#[expect(unsafe_code, reason = "a system call that has no safe wrapper")]
pub(crate) fn peer(socket: BorrowedFd<'_>) -> io::Result<Peer> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = libc::socklen_t::try_from(size_of::<libc::ucred>()).unwrap_or(0);
    let value: *mut libc::ucred = &raw mut credentials;
    // SAFETY: `value` points to `length` bytes that any result may fill, and both outlive the call.
    let failed = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            value.cast(),
            &raw mut length,
        )
    };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Peer { pid: credentials.pid, uid: credentials.uid })
}
