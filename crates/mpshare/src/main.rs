//! The `mpshare` binary: one role or tool per subcommand, each in its own file.

mod cgroup;
mod cluster;
mod config_check;
mod config_manager;
mod containment;
mod device_plugin;
mod driver;
mod host_cgroups;
mod host_exec;
mod host_look;
mod launch;
mod mps_canary;
mod mps_control_daemon;
mod mps_root;
mod node;
mod options;
mod server_care;
mod uninstall;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use options::LogOptions;

/// Share NVIDIA GPUs among pods under MPS, with memory shares that hold.
#[derive(Debug, Parser)]
#[command(name = "mpshare", version, about)]
struct Args {
    #[command(flatten)]
    logs: LogOptions,
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Supervise the MPS control daemons of this node (the only role that needs privileges).
    MpsControlDaemon(mps_control_daemon::Args),
    /// Offer GPU units to the kubelet.
    DevicePlugin(device_plugin::Args),
    /// Choose the node's config from its labels and the `ConfigMap`.
    ConfigManager(config_manager::Args),
    /// Work with config files.
    Config(config_check::ConfigArgs),
    /// Look after this node by hand.
    Node(node::Args),
    /// Take mpshare off all nodes of a cluster, after its pods were deleted.
    Uninstall(uninstall::Args),
    /// Become a program of the host, from inside a container.
    #[command(hide = true)]
    HostExec(host_exec::Args),
    /// Look for programs on the host, from inside a container.
    #[command(hide = true)]
    HostLook(host_look::Args),
    /// Be a client of a card's MPS server for a moment, and say how it went.
    #[command(hide = true)]
    MpsCanary(mps_canary::Args),
    /// Remove the host's cgroups that no MPS daemon is in any more, from inside a container.
    #[command(hide = true)]
    HostCgroups(host_cgroups::Args),
}

/// Exit codes: 0 done, 1 failed, 2 wrong usage.
fn main() -> ExitCode {
    let args = Args::parse();
    args.logs.init();
    let result = match args.role {
        Role::MpsControlDaemon(args) => mps_control_daemon::run(&args),
        Role::DevicePlugin(args) => device_plugin::run(args),
        Role::ConfigManager(args) => config_manager::run(args),
        Role::Config(args) => return config_check::run(args),
        Role::Node(args) => return node::run(&args),
        Role::Uninstall(args) => uninstall::run(args),
        Role::HostExec(args) => host_exec::run(&args),
        Role::HostLook(args) => return host_look::run(&args),
        Role::MpsCanary(args) => return mps_canary::run(&args),
        Role::HostCgroups(args) => host_cgroups::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
