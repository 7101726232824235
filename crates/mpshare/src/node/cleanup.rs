//! `mpshare node cleanup`: takes mpshare off a node.

use std::ffi::OsStr;
use std::fmt;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context as _, Result};
use mpshare_supervisor::cleanup::{End, Intent, Options, Report, clean_up};

use crate::driver::DriverOptions;
use crate::launch::CGROUP;
use crate::mps_root::RootOptions;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    root: RootOptions,
    #[command(flatten)]
    driver: DriverOptions,
    /// Seconds to wait for clients to end.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    wait: u64,
    /// Change nothing, only say what would be done.
    #[arg(long)]
    dry_run: bool,
    /// Where the kubelet keeps the logs of pods, whose names are read from it; without it
    /// `/var/log/pods` of the host.
    #[arg(long)]
    pod_logs: Option<PathBuf>,
    /// Write what is told to this file too, as much as Kubernetes takes of it.
    #[arg(long)]
    termination_log: Option<PathBuf>,
}

/// What Kubernetes takes of a termination log, in bytes.
const TERMINATION_LOG_LIMIT: usize = 4096;

/// The exit code that says that clients live on.
const CLIENTS_LIVE: u8 = 3;

/// Runs the command; exit codes as in its help.
pub(crate) fn run(args: &Args) -> ExitCode {
    match clean(args) {
        Ok(code) => code,
        Err(error) => {
            // Nothing is left to be done when even this can't be written.
            drop(writeln!(io::stderr(), "{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn clean(args: &Args) -> Result<ExitCode> {
    let options = Options {
        root: args.root.root(),
        intent: if args.dry_run { Intent::Rehearse } else { Intent::Do },
        wait: Duration::from_secs(args.wait),
    };
    let report = clean_up(&options, &args.driver.ports())?;
    let names = |uid: &str| pod_name(&args.pod_logs(), uid);
    let mut text = String::new();
    write(&mut text, &report, names)?;
    io::stdout().lock().write_all(text.as_bytes())?;
    if let Some(path) = &args.termination_log {
        std::fs::write(path, beginning(&text))
            .with_context(|| format!("termination log `{}`", path.display()))?;
    }
    if let Some(namespace) = args.driver.launch.host_mount_namespace()
        && options.intent == Intent::Do
    {
        remove_cgroups(namespace)?;
    }
    Ok(if report.has_failed() {
        ExitCode::FAILURE
    } else if report.is_clean() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(CLIENTS_LIVE)
    })
}

impl Args {
    /// The host's root is beside its mount namespace in `/proc`, whatever link leads there.
    fn pod_logs(&self) -> PathBuf {
        let below_host = || {
            let namespace = self.driver.launch.host_mount_namespace()?;
            let link = std::fs::read_link(namespace).ok().filter(|link| link.is_absolute());
            let process = link.as_deref().unwrap_or(namespace).parent()?.parent()?.to_owned();
            Some(process.join("root/var/log/pods"))
        };
        self.pod_logs.clone().or_else(below_host).unwrap_or_else(|| "/var/log/pods".into())
    }
}

/// What a termination log takes of a text, in whole characters: the kubelet puts it into JSON.
fn beginning(text: &str) -> &str {
    text.get(..text.floor_char_boundary(TERMINATION_LOG_LIMIT)).unwrap_or(text)
}

/// One line per card, and what else is to be said.
fn write(
    out: &mut impl fmt::Write,
    report: &Report,
    pod_name: impl Fn(&str) -> Option<String>,
) -> fmt::Result {
    for card in &report.cards {
        let mut card = card.clone();
        if let End::ClientsLive { clients, .. } = &mut card.end {
            for uid in clients.iter_mut().filter_map(|client| client.pod_uid.as_mut()) {
                if let Some(name) = pod_name(uid) {
                    *uid = format!("`{name}` ({uid})");
                }
            }
        }
        writeln!(out, "{card}")?;
    }
    if report.cards.is_empty() {
        writeln!(out, "nothing of mpshare is left on this node")?;
    }
    for path in &report.left {
        writeln!(out, "`{}` isn't a file of mpshare and stays", path.display())?;
    }
    Ok(())
}

/// `namespace/name` of a pod: the kubelet names its directory of logs `namespace_name_uid`.
fn pod_name(logs: &Path, uid: &str) -> Option<String> {
    let entries = std::fs::read_dir(logs).ok()?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut found = names.filter_map(|name| {
        let rest = name.strip_suffix(uid)?.strip_suffix('_')?;
        Some(rest.replacen('_', "/", 1))
    });
    found.next()
}

fn remove_cgroups(namespace: &Path) -> Result<()> {
    let arguments = [OsStr::new("host-cgroups"), OsStr::new("--cgroup"), OsStr::new(CGROUP)];
    let status = Command::new("/proc/self/exe")
        .args(arguments)
        .arg("--mount-namespace")
        .arg(namespace)
        .status()
        .context("can't look after the host's cgroups")?;
    anyhow::ensure!(status.success(), "the host's cgroups `{CGROUP}` weren't removed");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_termination_log_ends_with_a_whole_character() {
        let text = format!("{}\u{e4}", "a".repeat(TERMINATION_LOG_LIMIT - 1));
        assert_eq!(beginning(&text).len(), TERMINATION_LOG_LIMIT - 1);
        assert_eq!(beginning("short"), "short");
    }

    #[test]
    fn a_pod_is_named_by_its_directory_of_logs() {
        let dir = std::env::temp_dir().join(format!("mpshare-pod-logs-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("team-a_trainer-0_0b5e-77")).unwrap();
        assert_eq!(pod_name(&dir, "0b5e-77").as_deref(), Some("team-a/trainer-0"));
        assert_eq!(pod_name(&dir, "77"), None);
        std::fs::remove_dir_all(dir).unwrap();
    }
}
