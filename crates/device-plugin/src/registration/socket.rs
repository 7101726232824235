//! The socket file of one resource.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use mpshare_core::ResourceName;
use tokio::net::UnixListener;

/// A socket's path holds 107 bytes and an end mark.
const LONGEST_PATH: usize = 107;

/// What all our socket files begin with.
pub(crate) const PREFIX: &str = "mpshare-";

/// The file name of a resource's socket: `mpshare-nvidia.com_gpu.sock`, or a digest of the name
/// where the path would be too long for a socket.
pub(super) fn file_name(directory: &Path, resource: &ResourceName) -> String {
    let name = format!("{PREFIX}{}_{}.sock", resource.domain(), resource.name());
    if directory.as_os_str().len() + 1 + name.len() <= LONGEST_PATH {
        return name;
    }
    let mut hasher = DefaultHasher::new();
    resource.hash(&mut hasher);
    format!("{PREFIX}{:016x}.sock", hasher.finish())
}

/// Whether a process that was killed has left its socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Predecessor {
    /// It has: the kubelet may just be noticing its end.
    Left,
    /// There was none, or it cleaned up behind itself.
    None,
}

/// Listens on `path`, in place of a socket that a former process left.
pub(super) fn listen(path: &Path) -> io::Result<(UnixListener, Predecessor)> {
    let predecessor = remove(path)?;
    Ok((UnixListener::bind(path)?, predecessor))
}

/// Removes a socket, and nothing but a socket.
pub(super) fn remove(path: &Path) -> io::Result<Predecessor> {
    match std::fs::symlink_metadata(path) {
        Ok(meta) if meta.file_type().is_socket() => {
            std::fs::remove_file(path)?;
            Ok(Predecessor::Left)
        }
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            format!("`{}` is in the way and is no socket", path.display()),
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Predecessor::None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::resource;

    #[test]
    fn a_socket_is_named_after_its_resource_within_the_length_of_a_socket_path() {
        let directory = Path::new("/var/lib/kubelet/device-plugins");
        let name = file_name(directory, &resource("nvidia.com/gpu.shared"));
        assert_eq!(name, "mpshare-nvidia.com_gpu.shared.sock");
        let long = resource(&format!("nvidia.com/{}", "g".repeat(52)));
        let bounded = file_name(directory, &long);
        assert!(directory.join(&bounded).as_os_str().len() <= LONGEST_PATH, "{bounded}");
        let other = resource(&format!("nvidia.com/{}h", "g".repeat(51)));
        assert_ne!(file_name(directory, &other), bounded);
    }

    #[test]
    fn what_is_no_socket_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "kept").unwrap();
        assert!(remove(&path).is_err());
        assert!(path.exists());
    }
}
