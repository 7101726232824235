//! The pod that cleans up one node.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::{Value, json};

/// The longest name that an object may have.
const LONGEST_NAME: usize = 253;

/// What is the same for the pods of all nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CleanupPod {
    /// The namespace that they are made in.
    pub namespace: String,
    /// The product's image; its entry point is `mpshare`.
    pub image: String,
    /// When it is pulled.
    pub pull_policy: Option<String>,
    /// Secrets to pull it with.
    pub pull_secrets: Vec<String>,
    /// The runtime class that gives a container the driver, where the default one doesn't.
    pub runtime_class: Option<String>,
    /// The priority class.
    pub priority_class: Option<String>,
    /// The MPS root, a path of the node.
    pub mps_root: String,
    /// What it may do.
    pub rights: Rights,
    /// More arguments of `mpshare node cleanup`.
    pub arguments: Vec<String>,
    /// For how many seconds the cleanup waits for clients.
    pub wait: u64,
}

/// What a cleanup may do on its node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Rights {
    /// Everything: it ends daemons of the node and restores compute modes.
    #[default]
    Privileged,
    /// Root without any right of root: it removes files. For nodes on which nothing of the product
    /// had more.
    Unprivileged,
}

impl Rights {
    fn security_context(self) -> Value {
        match self {
            Self::Privileged => json!({"privileged": true, "readOnlyRootFilesystem": true}),
            Self::Unprivileged => json!({
                "runAsUser": 0,
                "allowPrivilegeEscalation": false,
                "readOnlyRootFilesystem": true,
                "capabilities": {"drop": ["ALL"]},
                "seccompProfile": {"type": "RuntimeDefault"},
            }),
        }
    }

    /// Where the cleanup looks for daemons and cgroups.
    const fn launch(self) -> &'static str {
        match self {
            Self::Privileged => "--launch=host",
            Self::Unprivileged => "--launch=here",
        }
    }
}

impl CleanupPod {
    /// The name of the pod for a node.
    pub(crate) fn name(node: &str) -> String {
        let name = format!("mpshare-cleanup-{node}");
        if name.len() <= LONGEST_NAME {
            return name;
        }
        let mut hasher = DefaultHasher::new();
        node.hash(&mut hasher);
        let whole = format!("{:016x}", hasher.finish());
        let cut = name.get(..LONGEST_NAME - whole.len()).unwrap_or("mpshare-cleanup-");
        format!("{cut}{whole}")
    }

    /// The pod for a node. Nothing holds it up there: no scheduler, no taint.
    pub(crate) fn manifest(&self, node: &str) -> Value {
        let mut spec = json!({
            "nodeName": node,
            "restartPolicy": "Never",
            "hostPID": true,
            "automountServiceAccountToken": false,
            "tolerations": [{"operator": "Exists"}],
            "terminationGracePeriodSeconds": 1,
            "containers": [self.container()],
            "volumes": [{
                "name": "mps-root",
                "hostPath": {"path": self.mps_root, "type": "DirectoryOrCreate"},
            }],
        });
        let secrets: Vec<Value> =
            self.pull_secrets.iter().map(|name| json!({"name": name})).collect();
        let optional = [
            ("runtimeClassName", self.runtime_class.as_ref().map(|name| json!(name))),
            ("priorityClassName", self.priority_class.as_ref().map(|name| json!(name))),
            ("imagePullSecrets", Some(json!(secrets)).filter(|_| !secrets.is_empty())),
        ];
        for (key, value) in optional {
            set(&mut spec, key, value);
        }
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": Self::name(node),
                "namespace": self.namespace,
                "labels": {"app.kubernetes.io/name": "mpshare", "app.kubernetes.io/component": "cleanup"},
            },
            "spec": spec,
        })
    }

    fn container(&self) -> Value {
        let mut arguments = vec![
            "node".to_owned(),
            "cleanup".to_owned(),
            self.rights.launch().to_owned(),
            "--termination-log=/dev/termination-log".to_owned(),
            format!("--mps-root={}", self.mps_root),
            format!("--wait={}", self.wait),
        ];
        arguments.extend(self.arguments.iter().cloned());
        let mut container = json!({
            "name": "cleanup",
            "image": self.image,
            "args": arguments,
            // With these NVIDIA's container runtime adds cards and driver.
            "env": [
                {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
                {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute,utility"},
            ],
            "securityContext": self.rights.security_context(),
            "terminationMessagePath": "/dev/termination-log",
            // So that nobody needs the right to read logs.
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "volumeMounts": [{"name": "mps-root", "mountPath": self.mps_root}],
        });
        set(&mut container, "imagePullPolicy", self.pull_policy.as_ref().map(|it| json!(it)));
        container
    }
}

fn set(object: &mut Value, key: &str, value: Option<Value>) {
    if let (Some(object), Some(value)) = (object.as_object_mut(), value) {
        object.insert(key.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_set_is_not_in_the_manifest() {
        let pod = CleanupPod { image: "mpshare:1".to_owned(), ..CleanupPod::default() };
        let manifest = pod.manifest("n1");
        assert_eq!(manifest["metadata"]["name"], "mpshare-cleanup-n1");
        for key in ["runtimeClassName", "imagePullSecrets"] {
            assert!(manifest["spec"].get(key).is_none());
        }
        let pod = CleanupPod {
            runtime_class: Some("nvidia".to_owned()),
            pull_secrets: vec!["s".to_owned()],
            ..pod
        };
        let spec = pod.manifest("n1")["spec"].clone();
        assert_eq!(spec["runtimeClassName"], "nvidia");
        assert_eq!(spec["imagePullSecrets"], json!([{"name": "s"}]));
    }

    #[test]
    fn without_privileges_it_enters_nothing_of_the_host() {
        let pod = CleanupPod { rights: Rights::Unprivileged, ..CleanupPod::default() };
        let container = pod.manifest("n1")["spec"]["containers"][0].clone();
        assert!(container["securityContext"].get("privileged").is_none());
        assert_eq!(container["securityContext"]["capabilities"], json!({"drop": ["ALL"]}));
        let args = container["args"].to_string();
        assert!(args.contains("--launch=here"), "{args}");
    }

    #[test]
    fn nodes_with_long_names_have_pods_with_names_of_their_own() {
        let node = |last: char| format!("{}{last}", "n".repeat(252));
        let (a, b) = (CleanupPod::name(&node('a')), CleanupPod::name(&node('b')));
        assert!(a != b && a.len() <= LONGEST_NAME);
    }
}
