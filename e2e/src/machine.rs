//! What this machine has to have.

use anyhow::{Result, bail};

/// Programs beside Kubernetes' own, with the Debian packages that have them.
const PROGRAMS: [(&str, &str); 14] = [
    ("containerd", "containerd"),
    ("ctr", "containerd"),
    ("runc", "runc"),
    ("ip", "iproute2"),
    ("nft", "nftables"),
    ("iptables", "iptables"),
    ("conntrack", "conntrack"),
    ("openssl", "openssl"),
    ("busybox", "busybox-static"),
    ("curl", "curl"),
    ("ps", "procps"),
    ("sysctl", "procps"),
    ("nsenter", "util-linux"),
    ("setpriv", "util-linux"),
];

/// Where the CNI plugins of Debian's package are.
const CNI_PLUGIN: &str = "/usr/lib/cni/ptp";

/// Fails with the list of what is missing.
pub fn check() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("nodes need root: containers, mounts and network namespaces are made");
    }
    let is_there = |program: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
    };
    let mut missing: Vec<&str> = PROGRAMS
        .iter()
        .filter_map(|(program, package)| (!is_there(program)).then_some(*package))
        .collect();
    if !std::path::Path::new(CNI_PLUGIN).is_file() {
        missing.push("containernetworking-plugins");
    }
    missing.dedup();
    if !missing.is_empty() {
        bail!("missing; hint: apt-get install -y --no-install-recommends {}", missing.join(" "));
    }
    Ok(())
}
