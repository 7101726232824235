//! The certificate that new connections get. It changes while connections live.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// The certificate in use.
#[derive(Debug, Default)]
pub(crate) struct Serving(RwLock<Option<Current>>);

#[derive(Debug)]
struct Current {
    key: Arc<CertifiedKey>,
    /// Seconds since 1970.
    expiry: u64,
}

impl Serving {
    /// Uses this certificate for connections from now on.
    pub(crate) fn set(&self, key: CertifiedKey, expiry: u64) {
        let current = Current { key: Arc::new(key), expiry };
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(current);
    }

    /// Whether there is one.
    pub(crate) fn is_set(&self) -> bool {
        self.look(|_| ()).is_some()
    }

    /// Until when it is valid, in seconds since 1970.
    pub(crate) fn expiry(&self) -> Option<u64> {
        self.look(|current| current.expiry)
    }

    fn look<R>(&self, look: impl FnOnce(&Current) -> R) -> Option<R> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(look)
    }
}

impl ResolvesServerCert for Serving {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.look(|current| Arc::clone(&current.key))
    }
}

/// TLS with whatever certificate there is at a connection's beginning.
///
/// No session is resumed, so that every connection has the present one.
pub(crate) fn server_config(serving: &Arc<Serving>) -> Result<ServerConfig, rustls::Error> {
    let resolver: Arc<dyn ResolvesServerCert> = Arc::<Serving>::clone(serving);
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(resolver);
    // API servers call webhooks with HTTP/1.1 (facts/kubernetes.md 8.2).
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    Ok(config)
}
