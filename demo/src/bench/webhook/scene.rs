//! A cluster in memory, and the real webhook as a process beside it.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mpshare_testkit::fakekube::FakeKube;
use mpshare_testkit::simnode::built;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::tls::{Connection, connector};
use crate::bench::extender::scene::{free_port, node, node_name};
use crate::story::PATIENCE;

/// The name by which API servers call, from the program's defaults.
const NAME: &str = "mpshare-webhook.kube-system.svc";

/// Both kinds of configuration.
const KINDS: [&str; 2] = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];

/// API server and webhook.
pub(super) struct Scene {
    /// How many nodes there are.
    pub(super) nodes: usize,
    /// Where it answers reviews.
    address: String,
    /// Where it says how it is.
    status: String,
    connector: TlsConnector,
    child: Child,
    _kube: FakeKube,
    _dir: tempfile::TempDir,
}

impl Scene {
    /// A cluster of so many nodes; the webhook knows all of them, and the API server its CA.
    pub(super) async fn start(nodes: usize) -> Result<Self> {
        let kube = FakeKube::start().await?;
        for at in 0..nodes {
            kube.create(node(at, &node_name(at))).await?;
        }
        for kind in KINDS {
            kube.create(json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
                "metadata": {"name": "mpshare"},
                "webhooks": [{"name": "enforce.mpshare.io", "clientConfig": {}}],
            }))
            .await?;
        }
        let dir = tempfile::tempdir()?;
        let kubeconfig = kube.kubeconfig(dir.path())?;
        let [address, status] =
            [free_port()?, free_port()?].map(|port| format!("127.0.0.1:{port}"));
        // It ends with this process, however that ends.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(built().join("mpshare-webhook"))
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["--listen", &address, "--status-listen", &status])
            .args(["--scheduler-name", "gpu-scheduler"])
            .stdin(Stdio::null())
            .spawn()
            .context("can't run setpriv (util-linux)")?;
        let connector = connector(&published(&kube).await?)?;
        let scene = Self { nodes, address, status, connector, child, _kube: kube, _dir: dir };
        scene.await_ready().await?;
        Ok(scene)
    }

    /// The webhook's process.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A connection to the webhook.
    pub(super) async fn connect(&self) -> Result<Connection> {
        Connection::open(&self.connector, &self.address, NAME).await
    }

    async fn await_ready(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !self.is_ready().await.unwrap_or_default() {
            ensure!(Instant::now() < deadline, "the webhook isn't ready");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    async fn is_ready(&self) -> Result<bool> {
        let mut stream = TcpStream::connect(&self.status).await?;
        let request = b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer.starts_with("HTTP/1.1 200"))
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The CA bundle, once it is in both configurations.
async fn published(kube: &FakeKube) -> Result<Vec<u8>> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = KINDS.map(|kind| {
            let all = kube.list(&format!("{}s", kind.to_lowercase()));
            let bundle = all.first()?.pointer("/webhooks/0/clientConfig/caBundle")?;
            bundle.as_str().map(str::to_owned)
        });
        if let [Some(first), Some(second)] = &found
            && first == second
        {
            return Ok(STANDARD.decode(first)?);
        }
        ensure!(Instant::now() < deadline, "the webhook publishes no CA");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
