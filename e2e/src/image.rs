//! Container images without docker: a `docker-archive`, as `ctr image import` takes it.
//!
//! An image has one layer with just what its programs need: the programs, the shared libraries that
//! they name and the loader, and no distribution. [`catalogue`] is what the scenarios use.

mod archive;
pub mod catalogue;
mod libraries;

use std::path::PathBuf;

pub use archive::pack;
pub use libraries::{Library, libraries};

/// What goes into an image.
#[derive(Debug, Clone)]
pub struct Image {
    /// For example `docker.io/library/mpshare:dev`.
    pub name: String,
    /// In any order; packed sorted by path, with the directories that they need.
    pub entries: Vec<Entry>,
    /// `NAME=value`.
    pub env: Vec<String>,
    /// What runs before the container's arguments.
    pub entrypoint: Vec<String>,
    /// What runs unless the container says otherwise.
    pub cmd: Vec<String>,
    /// `uid[:gid]` or a name of the image's `/etc/passwd`; root without one.
    pub user: Option<String>,
}

/// One file of an image.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Absolute.
    pub path: PathBuf,
    /// What it is.
    pub content: Content,
}

/// What an entry is.
#[derive(Debug, Clone)]
pub enum Content {
    /// A copy of a file on disk.
    File {
        /// Where it is.
        source: PathBuf,
        /// Permissions in the image.
        mode: u32,
    },
    /// A file with these bytes.
    Bytes {
        /// Its content.
        bytes: Vec<u8>,
        /// Permissions in the image.
        mode: u32,
    },
    /// A directory, where its permissions matter.
    Directory {
        /// Permissions in the image.
        mode: u32,
    },
    /// A symbolic link.
    Link {
        /// What it points to.
        target: PathBuf,
    },
}

impl Image {
    /// An image with nothing in it but the links that make `/bin`, `/lib` and so on parts of `/usr`,
    /// as on Debian.
    pub fn new(name: impl Into<String>) -> Self {
        let image = Self {
            name: name.into(),
            entries: Vec::new(),
            env: vec![
                "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned(),
            ],
            entrypoint: Vec::new(),
            cmd: Vec::new(),
            user: None,
        };
        ["bin", "lib", "lib64", "sbin"].into_iter().fold(image, |image, name| {
            image
                .directory(format!("/usr/{name}"), 0o755)
                .link(format!("/{name}"), format!("usr/{name}"))
        })
    }

    /// Adds a copy of the file `source`.
    #[must_use]
    pub fn file(self, path: impl Into<PathBuf>, source: impl Into<PathBuf>, mode: u32) -> Self {
        self.entry(path, Content::File { source: source.into(), mode })
    }

    /// Adds a file with these bytes.
    #[must_use]
    pub fn bytes(self, path: impl Into<PathBuf>, bytes: impl Into<Vec<u8>>, mode: u32) -> Self {
        self.entry(path, Content::Bytes { bytes: bytes.into(), mode })
    }

    /// Adds a directory.
    #[must_use]
    pub fn directory(self, path: impl Into<PathBuf>, mode: u32) -> Self {
        self.entry(path, Content::Directory { mode })
    }

    /// Adds a symbolic link.
    #[must_use]
    pub fn link(self, path: impl Into<PathBuf>, target: impl Into<PathBuf>) -> Self {
        self.entry(path, Content::Link { target: target.into() })
    }

    /// Adds a variable to the environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push(format!("{name}={value}"));
        self
    }

    /// Sets what runs before the container's arguments.
    #[must_use]
    pub fn entrypoint(mut self, words: &[&str]) -> Self {
        self.entrypoint = words.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// Sets what runs unless the container says otherwise.
    #[must_use]
    pub fn cmd(mut self, words: &[&str]) -> Self {
        self.cmd = words.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// Sets the user.
    #[must_use]
    pub fn user(mut self, user: &str) -> Self {
        self.user = Some(user.to_owned());
        self
    }

    fn entry(mut self, path: impl Into<PathBuf>, content: Content) -> Self {
        self.entries.push(Entry { path: path.into(), content });
        self
    }
}
