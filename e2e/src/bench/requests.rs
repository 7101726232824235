//! Requests to the API server by curl: many at once, without a client's limits.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::cluster::ControlPlane;

const SERVER: &str = "https://127.0.0.1:6443";

/// How many requests are in flight at a time.
const PARALLEL: &str = "8";

/// The way to one API server, as its administrator.
pub(super) struct Requests {
    machine: i32,
    certificates: PathBuf,
}

impl Requests {
    pub(super) fn of(plane: &ControlPlane) -> Self {
        Self { machine: plane.host().pid(), certificates: plane.certificates().to_owned() }
    }

    /// Creates objects, each at its path.
    pub(super) fn create(&self, objects: &[(&str, Value)]) -> Result<()> {
        let mut config = String::new();
        for (at, (path, object)) in objects.iter().enumerate() {
            let next = if at == 0 { "" } else { "next\n" };
            let body = object.to_string().replace('\\', "\\\\").replace('"', "\\\"");
            writeln!(
                config,
                "{next}{}url = \"{SERVER}{path}\"\nheader = \"Content-Type: application/json\"\ndata = \"{body}\"\noutput = \"/dev/null\"\nfail",
                self.credentials()
            )?;
        }
        let mut curl = self.plain_curl();
        curl.args([
            "-sS",
            "--no-progress-meter",
            "--parallel",
            "--parallel-max",
            PARALLEL,
            "--fail-early",
            "-K",
            "-",
        ]);
        let mut curl = curl.stdin(Stdio::piped()).spawn().context("can't run curl")?;
        curl.stdin.take().context("no input")?.write_all(config.as_bytes())?;
        let status = curl.wait()?;
        ensure!(status.success(), "objects can't be created: curl ended with {status}");
        Ok(())
    }

    /// Deletes all pods at once.
    pub(super) fn delete_pods(&self) -> Result<()> {
        let path = "/api/v1/namespaces/default/pods?gracePeriodSeconds=0";
        let output = self.curl(path).args(["-X", "DELETE", "-o", "/dev/null"]).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// A command that follows the pods without a node from a version on, one event per line.
    pub(super) fn waiting_pods(&self, version: &str) -> Command {
        let path = "/api/v1/pods?watch=1&timeoutSeconds=30&fieldSelector=spec.nodeName%3D";
        let mut curl = self.curl(&format!("{path}&resourceVersion={version}"));
        let form = "Accept: application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        curl.args(["-N", "-H", form]);
        curl
    }

    fn curl(&self, path: &str) -> Command {
        let mut curl = self.plain_curl();
        let file = |name: &str| self.certificates.join(name);
        curl.args(["-sS", "--fail", "--cacert"]).arg(file("ca.crt"));
        curl.arg("--cert").arg(file("admin.crt")).arg("--key").arg(file("admin.key"));
        curl.arg(format!("{SERVER}{path}"));
        curl
    }

    /// In the machine's network only: as a direct child, so that it can be ended.
    fn plain_curl(&self) -> Command {
        let mut curl = Command::new("nsenter");
        curl.args(["-t", &self.machine.to_string(), "-n", "--", "curl"]);
        curl.stdin(Stdio::null());
        curl
    }

    fn credentials(&self) -> String {
        let pki = self.certificates.display();
        format!(
            "cacert = \"{pki}/ca.crt\"\ncert = \"{pki}/admin.crt\"\nkey = \"{pki}/admin.key\"\n"
        )
    }
}
