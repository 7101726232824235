//! HTTP/1.1 over TLS as an API server speaks it to a webhook: on a connection that is kept, trusting
//! the CA bundle of the webhook configuration only.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A connection.
pub(super) struct Connection(BufReader<TlsStream<TcpStream>>);

/// What a client trusts.
pub(super) fn connector(bundle: &[u8]) -> Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle) {
        roots.add(certificate?)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

impl Connection {
    /// Connects to `<address>:<port>`, whose certificate has this name.
    pub(super) async fn open(connector: &TlsConnector, to: &str, name: &str) -> Result<Self> {
        let stream = TcpStream::connect(to).await.with_context(|| format!("no way to {to}"))?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(name.to_owned())?;
        Ok(Self(BufReader::new(connector.connect(name, stream).await?)))
    }

    /// Sends a body and returns the answer's; an error unless its code says success.
    pub(super) async fn post(&mut self, path: &str, body: &str) -> Result<Vec<u8>> {
        let length = body.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: hook\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        );
        self.0.get_mut().write_all(request.as_bytes()).await?;
        self.0.get_mut().flush().await?;
        let status = self.line().await?;
        let mut length = 0;
        loop {
            let line = self.line().await?.to_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
        }
        let mut answer = vec![0; length];
        self.0.read_exact(&mut answer).await?;
        let is_success = status.split(' ').nth(1).is_some_and(|code| code.starts_with('2'));
        ensure!(is_success, "{path}: {status}: {}", String::from_utf8_lossy(&answer));
        Ok(answer)
    }

    async fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        ensure!(self.0.read_line(&mut line).await? > 0, "the connection was closed");
        Ok(line.trim_end().to_owned())
    }
}
