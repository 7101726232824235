//! What became of a node, in sentences.

use std::io::{self, Write};

use serde_json::Value;

use crate::pod::{CleanupPod, Rights};

/// The exit code by which a cleanup says that clients live on.
const CLIENTS_LIVE: i32 = 3;

/// What became of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeOutcome {
    /// Its name.
    pub node: String,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing of the product is left; what the cleanup said.
    Clean(String),
    /// Clients live on; what the cleanup said.
    ClientsLive(String),
    /// The cleanup failed, couldn't run, or hasn't ended in time.
    Failed(String),
}

impl Outcome {
    /// By the way in which the cleanup's container ended.
    pub(crate) fn of(exit_code: i32, said: String) -> Self {
        match exit_code {
            0 => Self::Clean(said),
            CLIENTS_LIVE => Self::ClientsLive(said),
            code if said.trim().is_empty() => {
                Self::Failed(format!("the cleanup ended with code {code}"))
            }
            _ => Self::Failed(said),
        }
    }
}

impl NodeOutcome {
    /// Whether nothing is left to do.
    pub fn is_clean(&self) -> bool {
        matches!(self.outcome, Outcome::Clean(_))
    }

    /// What is left and why, in one sentence.
    pub(crate) fn sentence(&self) -> String {
        let (what, said) = match &self.outcome {
            Outcome::Clean(said) => ("mpshare was uninstalled", said),
            Outcome::ClientsLive(said) => {
                ("mpshare was uninstalled, and clients of its MPS daemons live on", said)
            }
            Outcome::Failed(said) => ("mpshare was uninstalled, but this node isn't clean", said),
        };
        let said: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        format!("{what}: {}", said.join("; "))
    }

    /// What people are told, with the command that finishes what isn't.
    pub(crate) fn write(&self, pod: &CleanupPod, out: &mut impl Write) -> io::Result<()> {
        let (state, said) = match &self.outcome {
            Outcome::Clean(said) => ("clean", said),
            Outcome::ClientsLive(said) => ("clients live on", said),
            Outcome::Failed(said) => ("not clean", said),
        };
        writeln!(out, "node `{}`: {state}", self.node)?;
        for line in said.lines().filter(|line| !line.trim().is_empty()) {
            writeln!(out, "  {line}")?;
        }
        if self.is_clean() {
            return Ok(());
        }
        let finish = Finish::of(pod, &self.node);
        writeln!(
            out,
            "  to finish, when that has changed, run the cleanup again and read its log:"
        )?;
        writeln!(out, "    {}", finish.run)?;
        writeln!(out, "    {}", finish.read)?;
        writeln!(out, "  and remove the node's condition:")?;
        writeln!(out, "    {}", finish.forget)
    }
}

/// The commands by which a person finishes a node. Each may be given again and again.
pub(crate) struct Finish {
    /// Runs the cleanup.
    run: String,
    /// Shows what it says.
    read: String,
    /// Removes the condition.
    forget: String,
}

impl Finish {
    pub(crate) fn of(pod: &CleanupPod, node: &str) -> Self {
        let (namespace, name) = (&pod.namespace, CleanupPod::name(node));
        // What a cleanup without privileges leaves needs them; whoever gives the command decides.
        let pod = CleanupPod { rights: Rights::Privileged, ..pod.clone() };
        let manifest = quoted(&pod.manifest(node));
        let removal = quoted(&crate::condition::removal());
        Self {
            // Pods can't be changed, so the one of last time goes first.
            run: format!(
                "kubectl delete pod -n {namespace} {name} --ignore-not-found && echo {manifest} | kubectl create -f -"
            ),
            // There is no log before the container has started.
            read: format!("until kubectl logs -f -n {namespace} {name}; do sleep 1; done"),
            forget: format!(
                "kubectl patch node {node} --subresource=status --type=strategic -p {removal}"
            ),
        }
    }

    /// One line for all.
    pub(crate) fn line(&self) -> String {
        let Self { run, read, forget } = self;
        format!("{run} && {read}; when it is clean: {forget}")
    }
}

/// JSON as one word of a shell.
fn quoted(value: &Value) -> String {
    format!("'{}'", value.to_string().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(outcome: Outcome) -> String {
        let mut out = Vec::new();
        let pod = CleanupPod { namespace: "kube-system".to_owned(), ..CleanupPod::default() };
        NodeOutcome { node: "n1".to_owned(), outcome }.write(&pod, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_clean_node_is_said_in_short_and_another_one_with_the_way_to_finish() {
        assert_eq!(
            told(Outcome::Clean("`GPU-ab`: clean\n".into())),
            "node `n1`: clean\n  `GPU-ab`: clean\n"
        );
        let text = told(Outcome::of(3, "`GPU-ab`: 1 client lives on".to_owned()));
        assert!(text.starts_with("node `n1`: clients live on\n  `GPU-ab`: 1 client lives on\n"));
        assert!(
            text.contains("    until kubectl logs -f -n kube-system mpshare-cleanup-n1;"),
            "{text}"
        );
    }

    #[test]
    fn the_command_that_finishes_can_be_given_twice_and_pasted_into_a_shell() {
        let pod = CleanupPod { mps_root: "/it's/here".to_owned(), ..CleanupPod::default() };
        let uninstalled = CleanupPod { rights: Rights::Unprivileged, ..pod.clone() };
        let finish = Finish::of(&uninstalled, "n1");
        let (delete, create) = finish.run.split_once(" && ").unwrap();
        assert!(delete.ends_with("mpshare-cleanup-n1 --ignore-not-found"), "{delete}");
        let script = create.strip_suffix(" | kubectl create -f -").unwrap();
        let shell = std::process::Command::new("sh").args(["-c", script]).output().unwrap();
        let manifest: Value = serde_json::from_slice(&shell.stdout).unwrap();
        assert_eq!(manifest, pod.manifest("n1"), "with all rights, or it would fail again");
    }

    #[test]
    fn a_cleanup_that_ended_without_a_word_is_told_by_its_code() {
        let outcome = Outcome::of(137, String::new());
        assert_eq!(outcome, Outcome::Failed("the cleanup ended with code 137".to_owned()));
    }
}
