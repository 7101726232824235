//! A certificate that somebody else keeps up to date, as `tls.crt` and `tls.key` in a directory: a
//! mounted Secret of cert-manager's.
//!
//! The files are read again and again: mounted ones are replaced by a link that changes, and that
//! both are of one version shows by their fitting each other.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mpshare_telemetry::{Failures, sentence};
use thiserror::Error;

use super::inspect::{PairError, pair};
use super::issue::Pair;
use crate::serving::Serving;

#[derive(Debug, Error)]
enum MountedError {
    #[error("can't read `{0}`")]
    Read(PathBuf, #[source] io::Error),
    #[error("no certificate in `{0}`")]
    Pair(PathBuf, #[source] PairError),
}

/// Serves what the directory holds, without end. That it holds nothing good is said once.
pub(crate) async fn run(directory: &Path, look_every: Duration, serving: &Serving) {
    let mut failures = Failures::new("can't read the certificate, the one in use stays; retrying");
    let mut served = None;
    loop {
        match look(directory, &mut served, serving).await {
            Ok(()) => failures.over(),
            Err(error) => failures.failed(&sentence(&error)),
        }
        tokio::time::sleep(look_every).await;
    }
}

async fn look(
    directory: &Path,
    served: &mut Option<Pair>,
    serving: &Serving,
) -> Result<(), MountedError> {
    let (certificate, key) = (read(directory, "tls.crt").await?, read(directory, "tls.key").await?);
    let found = Some(Pair { certificate, key });
    if found == *served {
        return Ok(());
    }
    if let Some(Pair { certificate, key }) = &found {
        let (key, span) =
            pair(certificate, key).map_err(|error| MountedError::Pair(directory.into(), error))?;
        serving.set(key, span.not_after);
        tracing::info!(valid_until = span.not_after, "serving certificate in use");
    }
    *served = found;
    Ok(())
}

async fn read(directory: &Path, name: &str) -> Result<String, MountedError> {
    let path = directory.join(name);
    match tokio::fs::read_to_string(&path).await {
        Ok(text) => Ok(text),
        Err(error) => Err(MountedError::Read(path, error)),
    }
}
