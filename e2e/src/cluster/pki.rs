//! The cluster's certificates, made by openssl.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::host::output_of;

/// A directory with a certificate authority, and keys and certificates signed by it.
#[derive(Debug)]
pub(super) struct Pki {
    dir: PathBuf,
}

impl Pki {
    /// Makes the authority and the key that signs service account tokens.
    pub(super) fn create(dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("can't make `{}`", dir.display()))?;
        let pki = Self { dir: dir.to_owned() };
        pki.key("ca")?;
        pki.openssl("req -x509 -new -key ca.key -out ca.crt -subj /CN=mpshare-e2e -days 30")?;
        pki.key("sa")?;
        Ok(pki)
    }

    /// Where the files are.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes `name.key` and `name.crt` for a subject, with alternative names.
    pub(super) fn issue(&self, name: &str, subject: &str, names: &[&str]) -> Result<()> {
        let names = std::iter::once("DNS:localhost").chain(names.iter().copied());
        let names = names.collect::<Vec<_>>().join(",");
        fs::write(self.dir.join(format!("{name}.ext")), format!("subjectAltName={names}\n"))?;
        self.key(name)?;
        self.openssl(&format!("req -new -key {name}.key -out {name}.csr -subj {subject}"))?;
        self.openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out {name}.crt -days 30 -extfile {name}.ext"
        ))
    }

    fn key(&self, name: &str) -> Result<()> {
        // In the form "EC PRIVATE KEY": the API server finds the public key of tokens in no other.
        self.openssl(&format!("ecparam -genkey -name prime256v1 -noout -out {name}.key"))
    }

    fn openssl(&self, arguments: &str) -> Result<()> {
        let mut command = Command::new("openssl");
        output_of(command.args(arguments.split(' ')).current_dir(&self.dir)).map(drop)
    }
}
