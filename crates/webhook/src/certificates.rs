//! Where the serving certificate comes from: made and rotated by the webhook itself, or read from
//! files that somebody else (cert-manager) keeps up to date.
//!
//! | module | idea |
//! |---|---|
//! | `plan` | what there is + now -> the next step; pure |
//! | `issue` | keys and certificates |
//! | `inspect` | what a certificate is good for |
//! | `bundle` | what the Secret holds, and each step made with it |
//! | `configurations` | the CA bundle where API servers read it |
//! | `keeper` | looks, steps, serves, publishes |
//! | `mounted` | certificates from files |

mod bundle;
mod configurations;
mod inspect;
mod issue;
mod keeper;
mod mounted;
mod plan;

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kube::Client;

use crate::serving::Serving;
use std::sync::Arc;

/// Where certificates come from.
#[derive(Debug, Clone)]
pub enum CertificateSource {
    /// The webhook makes them.
    SelfMade(SelfMade),
    /// `tls.crt` and `tls.key` in a directory.
    Mounted {
        /// The directory.
        directory: PathBuf,
        /// How often they are read.
        look_every: Duration,
    },
}

/// How certificates are made.
#[derive(Debug, Clone)]
pub struct SelfMade {
    /// The namespace of the Secret and the Service: the webhook's own.
    pub namespace: String,
    /// The Secret's name.
    pub secret: String,
    /// The name of the Service by which API servers call.
    pub service: String,
    /// The name of both the mutating and the validating configuration.
    pub configuration: String,
    /// How long certificates are valid.
    pub lives: Lives,
    /// How long API servers may take to see a changed configuration.
    pub settle: Duration,
    /// How often the Secret and the configurations are looked at.
    pub look_every: Duration,
}

/// How long certificates are valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lives {
    /// The CA.
    pub authority: Duration,
    /// What connections get.
    pub serving: Duration,
}

impl Default for Lives {
    /// Ten years and 90 days.
    fn default() -> Self {
        let days = |days: u64| Duration::from_secs(days * 24 * 3600);
        Self { authority: days(3650), serving: days(90) }
    }
}

impl SelfMade {
    /// The name that API servers expect in the certificate (facts/kubernetes.md 8.2).
    fn dns_name(&self) -> String {
        format!("{}.{}.svc", self.service, self.namespace)
    }
}

/// Keeps the certificate good, without end.
pub(crate) async fn run(client: &Client, source: &CertificateSource, serving: &Arc<Serving>) {
    match source {
        CertificateSource::SelfMade(options) => keeper::run(client, options, serving).await,
        CertificateSource::Mounted { directory, look_every } => {
            mounted::run(directory, *look_every, serving).await;
        }
    }
}

/// Seconds since 1970; 0 before it.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
