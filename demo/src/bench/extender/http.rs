//! HTTP as kube-scheduler speaks it to an extender: POST on a connection that is kept.
//!
//! By hand, so that what is measured is the extender and not a client.

use anyhow::{Context as _, Result, ensure};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

/// A connection.
pub(super) struct Connection {
    stream: BufReader<TcpStream>,
    host: String,
}

impl Connection {
    /// Connects to `<address>:<port>`.
    pub(super) async fn to(host: &str) -> Result<Self> {
        let stream = TcpStream::connect(host).await.with_context(|| format!("no way to {host}"))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::with_capacity(256 * 1024, stream), host: host.to_owned() })
    }

    /// Sends a body and returns the answer's; an error unless its code says success.
    pub(super) async fn post(&mut self, path: &str, body: &str) -> Result<Vec<u8>> {
        self.send("POST", path, body).await
    }

    /// Asks for a page.
    pub(super) async fn get(&mut self, path: &str) -> Result<Vec<u8>> {
        self.send("GET", path, "").await
    }

    async fn send(&mut self, method: &str, path: &str, body: &str) -> Result<Vec<u8>> {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.host,
            body.len()
        );
        self.stream.get_mut().write_all(request.as_bytes()).await?;
        let status = self.line().await?;
        let mut length = None;
        loop {
            let line = self.line().await?;
            if line.is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = Some(value.trim().parse::<usize>()?);
            }
        }
        let mut answer = vec![0; length.context("an answer without a length")?];
        self.stream.read_exact(&mut answer).await?;
        let is_success = status.split(' ').nth(1).is_some_and(|code| code.starts_with('2'));
        ensure!(is_success, "{path}: {status}: {}", String::from_utf8_lossy(&answer));
        Ok(answer)
    }

    async fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        ensure!(self.stream.read_line(&mut line).await? > 0, "the connection was closed");
        Ok(line.trim_end().to_owned())
    }
}
