//! A client as an API server is one: HTTP/1.1 over TLS, trusting the bundle that it was given only.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A connection that is kept.
pub(crate) struct Connection(TlsStream<TcpStream>);

/// An HTTP answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Connection {
    /// Connects, and fails unless the certificate is for this name and by a CA of the bundle.
    pub(crate) async fn open(to: SocketAddr, name: &str, bundle: &[u8]) -> io::Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(bundle) {
            roots.add(certificate.map_err(io::Error::other)?).map_err(io::Error::other)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
        let stream = TcpStream::connect(to).await?;
        Ok(Self(TlsConnector::from(Arc::new(config)).connect(name, stream).await?))
    }

    /// The answer to a POST.
    pub(crate) async fn post(&mut self, path: &str, body: &[u8]) -> io::Result<Answer> {
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: hook\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n"
        );
        self.0.write_all(&[head.as_bytes(), body].concat()).await?;
        self.0.flush().await?;
        self.answer().await
    }

    async fn answer(&mut self) -> io::Result<Answer> {
        let mut text = Vec::new();
        let end = loop {
            if let Some(end) = text.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            self.more(&mut text).await?;
        };
        let head = String::from_utf8_lossy(&text[..end]).to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.unwrap_or("0").trim().parse().map_err(io::Error::other)?;
        while text.len() < end + length {
            self.more(&mut text).await?;
        }
        let code = head.split(' ').nth(1).unwrap_or_default().parse().map_err(io::Error::other)?;
        let body = String::from_utf8_lossy(&text[end..]).into_owned();
        Ok(Answer { code, head, body })
    }

    async fn more(&mut self, text: &mut Vec<u8>) -> io::Result<()> {
        if self.0.read_buf(text).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }
}
