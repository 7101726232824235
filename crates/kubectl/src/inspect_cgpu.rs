//! `kubectl inspect cgpu`: how much GPU memory each node has, and which pods have it.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, ValueEnum};
use mpshare_api::names::MEMORY_RESOURCE;

use crate::cluster::{Cluster, ClusterError, ClusterOptions};
use crate::completion::{self, Shell};
use crate::report::{Report, report};
use crate::{json, objects, text};

/// The program's name; kubectl finds the plugin by it.
const PROGRAM: &str = "kubectl-inspect-cgpu";

/// Show how much GPU memory each node has, and which pods have it
///
/// Exit codes: 0 done, 1 the cluster can't tell, 2 wrong usage, 3 no node of this name.
#[derive(Debug, Parser)]
#[command(name = PROGRAM, bin_name = "kubectl inspect cgpu", version)]
struct Args {
    /// Only this node
    node: Option<String>,
    /// Show each pod
    #[arg(short, long)]
    details: bool,
    /// Form of the answer, instead of one row per node
    #[arg(short, long, value_enum)]
    output: Option<Output>,
    #[command(flatten)]
    cluster: ClusterOptions,
    /// Print a completion script
    #[arg(long, value_enum, value_name = "SHELL")]
    completion: Option<Shell>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For programs; has all details
    Json,
    /// One row per GPU, with used memory, health and reason
    Wide,
}

/// Runs the program; exit codes as in its help.
pub fn main() -> ExitCode {
    let mut words = std::env::args_os();
    let program = words.next().unwrap_or_default();
    if completion::is_asked_by_kubectl(&program) {
        return complete(words);
    }
    let args = Args::parse();
    let done = match args.completion {
        Some(shell) => Ok(completion::script::<Args>(shell, PROGRAM)),
        None => run(inspect(&args)),
    };
    match done.map_err(anyhow::Error::from).and_then(|text| Ok(io::stdout().write_all(&text)?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure(&error),
    }
}

fn failure(error: &anyhow::Error) -> ExitCode {
    if let Some(io) = error.downcast_ref::<io::Error>()
        && io.kind() == io::ErrorKind::BrokenPipe
    {
        // The reader of a pipe has seen enough.
        return ExitCode::SUCCESS;
    }
    let Some(InspectError::Cluster(cluster)) = error.downcast_ref() else {
        say(&format!("error: {error:#}"));
        return ExitCode::FAILURE;
    };
    // Its sentence has the causes in it, before the hint.
    say(&format!("error: {cluster}"));
    match cluster {
        ClusterError::NoSuchNode(_) => ExitCode::from(3),
        _ => ExitCode::FAILURE,
    }
}

/// Talk goes to stderr; when even that can't be written, nothing is left to be done.
fn say(line: &str) {
    drop(writeln!(io::stderr(), "{line}"));
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
enum InspectError {
    /// The cluster doesn't tell.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// No runtime for requests.
    #[error("can't ask")]
    Runtime(#[source] io::Error),
    /// No JSON can be made of the report.
    #[error("can't write JSON")]
    Json(#[from] serde_json::Error),
}

fn run<T>(work: impl Future<Output = Result<T, InspectError>>) -> Result<T, InspectError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(InspectError::Runtime)?.block_on(work)
}

async fn inspect(args: &Args) -> Result<Vec<u8>, InspectError> {
    let cluster = args.cluster.connect().await?;
    let report = ask(&cluster, args.node.as_deref()).await?;
    for node in &report.nodes {
        for problem in node.problems.iter().filter(|_| args.output.is_none()) {
            say(&format!("warning: node `{}`: {problem}", node.name));
        }
    }
    if report.nodes.is_empty() {
        let gpu_mem = MEMORY_RESOURCE;
        say(&match &args.node {
            Some(node) => format!("node `{node}` has no `{gpu_mem}`"),
            None => format!("no node has `{gpu_mem}`"),
        });
    }
    let text = match (args.output, args.details) {
        (Some(Output::Json), _) => json::json(&report)?,
        (Some(Output::Wide), false) => text::wide(&report),
        (Some(Output::Wide), true) => text::wide(&report) + &text::wide_pods(&report),
        (None, false) => text::summary(&report),
        (None, true) => text::details(&report),
    };
    Ok(text.into_bytes())
}

/// Nodes and pods are asked for at the same time: a big cluster takes a while to list them.
async fn ask(cluster: &Cluster, node: Option<&str>) -> Result<Report, ClusterError> {
    let client = &cluster.client;
    let nodes = async {
        match node {
            None => {
                let nodes = objects::nodes(client).await;
                nodes.map_err(|error| cluster.explain("list", "nodes", error))
            }
            Some(name) => {
                let node = objects::node(client, name).await;
                let node = node.map_err(|error| cluster.explain("get", "nodes", error))?;
                Ok(vec![node.ok_or_else(|| ClusterError::NoSuchNode(name.to_owned()))?])
            }
        }
    };
    let pods = async {
        let pods = objects::pods(client, node).await;
        pods.map_err(|error| cluster.explain("list", "pods", error))
    };
    let (nodes, pods) = tokio::try_join!(nodes, pods)?;
    Ok(report(&nodes, &pods))
}

/// Answers kubectl; a cluster that can't be asked has no candidates.
fn complete(words: impl Iterator<Item = OsString>) -> ExitCode {
    let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    let nodes = run(async {
        let cluster = ClusterOptions::default().connect().await?;
        Ok(ask(&cluster, None).await?.nodes.into_iter().map(|node| node.name).collect::<Vec<_>>())
    });
    let text = completion::candidates(&Args::command(), &words, &nodes.unwrap_or_default());
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
