//! `kubectl mpshare drain` and `undrain`: which cards of a node are to be emptied.
//!
//! All that is asked of the node is an annotation that people write with their own rights; what the
//! node makes of it is read from another one. So it makes no difference whether the program goes on
//! to wait, and two people who drain cards of one node don't undo each other's wish.
//!
//! | module | idea |
//! |---|---|
//! | `target` | `NODE[/GPU]` and the card that it names (pure) |
//! | `wish` | one wish and another make one annotation (pure), and its write |
//! | `progress` | how far the node says that its cards are (pure) |
//! | `holders` | which pods hold shares of them, and which of these may be evicted (pure) |
//! | `evict` | a round of evictions |

mod evict;
mod holders;
mod patience;
mod progress;
mod target;
mod wish;

use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::cluster::{Cluster, ClusterError};
use crate::objects::{self, Node};
use evict::Evictions;
use patience::Patience;
use progress::Progress;
use target::{Cards, Target, TargetError};
use wish::WishError;

/// How often the node is looked at.
const EVERY: Duration = Duration::from_millis(500);

/// From here on it is said that nobody on the node has taken notice.
const UNNOTICED: Duration = Duration::from_secs(15);

/// Have a node's GPUs emptied: no new pods, and nothing of MPS once those that are there have ended
///
/// Pods that hold shares keep them until they end. The GPUs stay out of service, also when this
/// program has ended, until `kubectl mpshare undrain`.
#[derive(Debug, clap::Args)]
pub(crate) struct Drain {
    /// The node, or one GPU of it by index or by the beginning of its UUID
    #[arg(value_name = "NODE[/GPU]")]
    target: Target,
    /// Evict the pods that hold shares, as far as their disruption budgets allow it
    #[arg(long)]
    evict: bool,
    /// Say what would be drained and evicted, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Don't wait until the GPUs are empty
    #[arg(long)]
    no_wait: bool,
    /// How long to wait, such as `90s`, `10m` or `1h`; for ever without it
    #[arg(long, value_name = "TIME")]
    timeout: Option<Patience>,
}

/// Put a node's GPUs into service again
#[derive(Debug, clap::Args)]
pub(crate) struct Undrain {
    /// The node, or one GPU of it by index or by the beginning of its UUID
    #[arg(value_name = "NODE[/GPU]")]
    target: Target,
}

/// Why it isn't done.
#[derive(Debug, Error)]
pub(crate) enum DrainError {
    /// The cluster doesn't tell, or refuses.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// No such card.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The annotation can't be written.
    #[error(transparent)]
    Wish(#[from] WishError),
    /// A terminal that is gone, or no runtime.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Time is up.
    #[error(
        "not drained within {patience}: {left}; hint: the drain stays in place, run the same again \
         to wait on, or take it back with `kubectl mpshare undrain {target}`"
    )]
    TimedOut {
        /// What was to be emptied.
        target: Target,
        /// How long was waited.
        patience: Patience,
        /// Which cards aren't.
        left: String,
    },
    /// By the person who waits.
    #[error(
        "interrupted: the drain stays in place and goes on by itself; hint: `kubectl mpshare \
         undrain {0}` takes it back"
    )]
    Interrupted(Target),
}

/// Has cards emptied.
pub(crate) async fn drain(cluster: &Cluster, args: &Drain) -> Result<(), DrainError> {
    let node = node(cluster, &args.target).await?;
    let cards = args.target.cards(&node)?;
    let mut evictions = Evictions::new(cluster, &args.target.node, &cards);
    if args.dry_run {
        say(&format!("node `{}`: would drain {cards}", args.target.node))?;
        return evictions.rehearse(&node).await;
    }
    let written = wish::write(cluster, &args.target.node, |before| wish::with(before, &cards));
    match written.await? {
        wish::Written::Changed => say(&format!("node `{}`: draining {cards}", args.target.node))?,
        wish::Written::Already => {
            say(&format!("node `{}`: {cards} is to be drained already", args.target.node))?;
        }
    }
    if args.no_wait {
        return if args.evict { evictions.round(&node).await } else { Ok(()) };
    }
    tokio::select! {
        done = wait(cluster, args, &cards, &mut evictions) => done,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            Err(DrainError::Interrupted(args.target.clone()))
        }
    }
}

/// Puts cards into service again.
pub(crate) async fn undrain(cluster: &Cluster, args: &Undrain) -> Result<(), DrainError> {
    let Target { node: name, .. } = &args.target;
    let node = node(cluster, &args.target).await?;
    let cards = args.target.cards(&node)?;
    let all = target::known(&node);
    let written = wish::write(cluster, name, |before| wish::without(before, &cards, &all));
    say(&match written.await? {
        wish::Written::Changed => format!("node `{name}`: {cards} is no longer drained"),
        wish::Written::Already => format!("node `{name}`: {cards} wasn't to be drained"),
    })
}

async fn wait(
    cluster: &Cluster,
    args: &Drain,
    cards: &Cards,
    evictions: &mut Evictions<'_>,
) -> Result<(), DrainError> {
    let start = Instant::now();
    let mut told = Progress::default();
    let mut has_complained = false;
    loop {
        let node = node(cluster, &args.target).await?;
        let progress = Progress::of(&node, cards);
        for line in progress.news(&told) {
            say(&line)?;
        }
        told = progress;
        if told.is_done() {
            return Ok(());
        }
        if args.evict {
            evictions.round(&node).await?;
        }
        let waited = start.elapsed();
        if let Some(patience) = args.timeout.filter(|patience| waited >= patience.0) {
            let (target, left) = (args.target.clone(), told.left());
            return Err(DrainError::TimedOut { target, patience, left });
        }
        if told.is_unnoticed() && waited >= UNNOTICED && !has_complained {
            has_complained = true;
            warn("the node hasn't taken notice yet; hint: does its device plugin's pod run?");
        }
        tokio::time::sleep(EVERY).await;
    }
}

async fn node(cluster: &Cluster, target: &Target) -> Result<Node, DrainError> {
    let node = objects::node(&cluster.client, &target.node).await;
    let node = node.map_err(|error| cluster.explain("get", "nodes", error))?;
    Ok(node.ok_or_else(|| ClusterError::NoSuchNode(target.node.clone()))?)
}

/// What happens goes to stdout.
fn say(line: &str) -> Result<(), DrainError> {
    Ok(writeln!(io::stdout(), "{line}")?)
}

/// What somebody should think of goes to stderr; that it can't be written changes nothing.
fn warn(line: &str) {
    drop(writeln!(io::stderr(), "warning: {line}"));
}
