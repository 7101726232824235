//! etcd, API server, scheduler and controllers.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use rustix::process::Signal;

use super::Parts;
use super::host::Host;
use super::network::{self, API_SERVICE, CONTROL_PLANE, SERVICES};
use super::pki::Pki;
use crate::wait::eventually;

const API_SERVER: &str = "apiserver";
const EXTENDER: &str = "extender";
const SCHEDULER: &str = "scheduler";

/// The machine with the control plane.
#[derive(Debug)]
pub struct ControlPlane {
    host: Host,
    pki: Pki,
    dir: PathBuf,
    programs: PathBuf,
    /// Our scheduler extender's program.
    extender: PathBuf,
}

impl ControlPlane {
    /// Starts all of it and waits until the API server is ready.
    pub(super) fn start(parts: &Parts, dir: &Path) -> Result<Self> {
        let mut plane = Self::start_bare(parts, dir)?;
        plane.start_controllers()?;
        Ok(plane)
    }

    /// Starts etcd and the API server, and waits until that is ready.
    pub fn start_bare(parts: &Parts, dir: &Path) -> Result<Self> {
        let host = Host::boot("plane", &[], &parts.logs)?;
        network::set_up_control_plane(&host)?;
        let pki = Pki::create(&dir.join("pki"))?;
        let ip = |address: &str| format!("IP:{address}");
        let names = [ip("127.0.0.1"), ip(CONTROL_PLANE), ip(API_SERVICE)];
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        pki.issue("apiserver", "/CN=kube-apiserver", &names)?;
        pki.issue("admin", "/O=system:masters/CN=admin", &[])?;
        // A user of its own: it may write annotations that the administrator may not.
        pki.issue(EXTENDER, "/O=system:masters/CN=extender", &[])?;
        let programs = parts.programs.clone();
        let extender = parts.simulator.join("mpshare-scheduler-extender");
        let mut plane = Self { host, pki, dir: dir.to_owned(), programs, extender };
        plane.write_kubeconfig("admin")?;
        plane.write_kubeconfig(EXTENDER)?;
        plane.start_etcd()?;
        plane.start_api_server()?;
        Ok(plane)
    }

    /// Its machine.
    pub fn host(&self) -> &Host {
        &self.host
    }

    pub(super) fn pki(&self) -> &Pki {
        &self.pki
    }

    /// Where the keys and certificates are; the administrator's is `admin`.
    pub fn certificates(&self) -> &Path {
        self.pki.dir()
    }

    /// The administrator's kubeconfig.
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.dir.join("admin.conf")
    }

    /// The API server's URL.
    #[expect(clippy::unused_self, reason = "its address is the same for each cluster")]
    pub(super) fn server(&self) -> String {
        format!("https://{CONTROL_PLANE}:6443")
    }

    /// The certificate of who vouches for it.
    pub(super) fn authority(&self) -> PathBuf {
        self.pki.dir().join("ca.crt")
    }

    /// Writes the kubeconfig of somebody with a certificate.
    pub(super) fn write_kubeconfig(&self, user: &str) -> Result<PathBuf> {
        let text = include_str!("../../cluster/kubeconfig.yaml")
            .replace("{server}", CONTROL_PLANE)
            .replace("{pki}", &self.pki.dir().display().to_string())
            .replace("{user}", user);
        let path = self.dir.join(format!("{user}.conf"));
        fs::write(&path, text)?;
        Ok(path)
    }

    fn start_etcd(&mut self) -> Result<()> {
        let data = self.dir.join("etcd");
        let mut command = self.host.command(self.programs.join("etcd"));
        command
            .arg("--data-dir")
            .arg(data)
            .args(["--listen-client-urls", "http://127.0.0.1:2379"])
            .args(["--advertise-client-urls", "http://127.0.0.1:2379"])
            .args(["--listen-peer-urls", "http://127.0.0.1:2380", "--unsafe-no-fsync"]);
        self.host.start("etcd", &mut command)
    }

    /// Starts the API server and waits until it is ready.
    pub fn start_api_server(&mut self) -> Result<()> {
        let mut command = self.host.command(self.programs.join("kube-apiserver"));
        let pki = self.pki.dir().display();
        let arguments = format!(
            "--etcd-servers=http://127.0.0.1:2379 --bind-address=0.0.0.0 --advertise-address={CONTROL_PLANE} \
             --client-ca-file={pki}/ca.crt --tls-cert-file={pki}/apiserver.crt --tls-private-key-file={pki}/apiserver.key \
             --service-account-key-file={pki}/sa.key --service-account-signing-key-file={pki}/sa.key \
             --service-account-issuer=https://kubernetes.default.svc --service-cluster-ip-range={SERVICES} \
             --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --allow-privileged=true \
             --kubelet-preferred-address-types=InternalIP --enable-aggregator-routing=true \
             --kubelet-client-certificate={pki}/admin.crt --kubelet-client-key={pki}/admin.key"
        );
        self.host.start(API_SERVER, command.args(arguments.split_whitespace()))?;
        let kubectl = self.programs.join("kubectl");
        let kubeconfig = self.admin_kubeconfig();
        eventually("the API server is ready", Duration::from_mins(1), || {
            let mut ask = self.host.command(&kubectl);
            ask.arg("--kubeconfig").arg(&kubeconfig).args(["get", "--raw", "/readyz"]);
            Ok(ask.output()?.status.success())
        })
    }

    /// Ends the API server.
    pub fn end_api_server(&mut self) -> Result<()> {
        self.host.end(API_SERVER, Signal::KILL)
    }

    /// Starts our scheduler extender, which the scheduler asks about pods with `aliyun.com/gpu-mem`.
    pub fn start_extender(&mut self) -> Result<()> {
        let mut extender = self.host.command(&self.extender);
        extender.arg("--kubeconfig").arg(self.dir.join(format!("{EXTENDER}.conf")));
        self.host.start(EXTENDER, &mut extender)
    }

    /// Ends the extender.
    pub fn end_extender(&mut self) -> Result<()> {
        self.host.end(EXTENDER, Signal::KILL)
    }

    /// Starts kube-scheduler with a configuration in which `{kubeconfig}` stands for a file.
    pub fn start_scheduler(&mut self, config: &str) -> Result<()> {
        let file = self.dir.join("scheduler.yaml");
        let kubeconfig = self.admin_kubeconfig().display().to_string();
        fs::write(&file, config.replace("{kubeconfig}", &kubeconfig))?;
        let mut scheduler = self.host.command(self.programs.join("kube-scheduler"));
        scheduler.arg("--config").arg(file).arg("--bind-address=127.0.0.1");
        self.host.start(SCHEDULER, &mut scheduler)
    }

    /// Ends the scheduler.
    pub fn end_scheduler(&mut self) -> Result<()> {
        self.host.end(SCHEDULER, Signal::KILL)
    }

    fn start_controllers(&mut self) -> Result<()> {
        let kubeconfig = format!("--kubeconfig={}", self.admin_kubeconfig().display());
        let common = [kubeconfig.as_str(), "--leader-elect=false", "--bind-address=127.0.0.1"];
        self.start_extender()?;
        self.start_scheduler(include_str!("../../cluster/scheduler.yaml"))?;
        let pki = self.pki.dir().display();
        let mut controllers = self.host.command(self.programs.join("kube-controller-manager"));
        controllers
            .args(common)
            .arg(format!("--service-account-private-key-file={pki}/sa.key"))
            .arg(format!("--root-ca-file={pki}/ca.crt"));
        self.host.start("controllers", &mut controllers)
    }

    pub(super) fn stop(&mut self) {
        self.host.power_off();
    }
}
