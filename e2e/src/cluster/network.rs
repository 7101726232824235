//! The network between the machines: one cable from the control plane to each node, in network
//! namespaces of the cluster's own. Addresses are of the ranges for documentation and benchmarks
//! (RFC 5737, RFC 2544); nothing leads out.

use anyhow::Result;

use super::host::{Host, output_of};

/// The control plane's address.
pub(super) const CONTROL_PLANE: &str = "198.51.100.1";
/// Addresses of Services, and the API server's among them.
pub(super) const SERVICES: &str = "198.19.0.0/24";
pub(super) const API_SERVICE: &str = "198.19.0.1";

/// A node's address.
pub(super) fn address(index: u8) -> String {
    format!("198.51.100.{}", u32::from(index) * 4 + 2)
}

/// Addresses of a node's pods.
pub(super) fn pods(index: u8) -> String {
    format!("198.18.{index}.0/24")
}

/// Gives the control plane an address that isn't loopback: one end of a cable whose other end is
/// there too, since the kernel may have no dummy device.
pub(super) fn set_up_control_plane(host: &Host) -> Result<()> {
    ip(host, "link set lo up")?;
    ip(host, "link add plane0 type veth peer name plane1")?;
    ip(host, "link set plane1 up")?;
    ip(host, &format!("addr add {CONTROL_PLANE}/32 dev plane0"))?;
    ip(host, "link set plane0 up")?;
    ip(host, "route add default dev plane0")?;
    forward(host)
}

/// Connects a node with the control plane.
pub(super) fn connect(plane: &Host, node: &Host, index: u8) -> Result<()> {
    let here = format!("198.51.100.{}", u32::from(index) * 4 + 1);
    let (there, cable) = (address(index), format!("to{index}"));
    let pid = node.pid().to_string();
    ip(node, "link set lo up")?;
    let mut command = std::process::Command::new("nsenter");
    command.args(["-t", &plane.pid().to_string(), "-n", "--", "ip", "link", "add", &cable]);
    output_of(command.args(["type", "veth", "peer", "name", "up0", "netns", &pid]))?;
    ip(plane, &format!("addr add {here}/30 dev {cable}"))?;
    ip(plane, &format!("link set {cable} up"))?;
    ip(node, &format!("addr add {there}/30 dev up0"))?;
    ip(node, "link set up0 up")?;
    ip(node, &format!("route add default via {here}"))?;
    ip(plane, &format!("route add {} via {there}", pods(index)))?;
    forward(node)
}

fn forward(host: &Host) -> Result<()> {
    host.run("sysctl", &["-qw", "net.ipv4.ip_forward=1"]).map(drop)
}

fn ip(host: &Host, arguments: &str) -> Result<()> {
    let arguments: Vec<&str> = arguments.split(' ').collect();
    host.run("ip", &arguments).map(drop)
}
