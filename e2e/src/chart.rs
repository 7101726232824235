//! The Helm chart, rendered by Helm itself.
//!
//! What a chart means is what Helm makes of it, so nothing here imitates Helm: without the program
//! there is no chart. `e2e/cluster/build-helm` builds it.

use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use thiserror::Error;

/// The environment variable that names a directory with `helm` in it.
pub const PROGRAMS: &str = "MPSHARE_E2E_BIN";

/// Where builds put `helm`, in the repository.
const BUILT: &str = "target/e2e/bin";

/// Where the chart is, in the repository.
const CHART: &str = "deploy/helm/mpshare";

/// The chart as plain manifests, in the repository.
const MANIFESTS: &str = "deploy/kubernetes.yaml";

/// The oldest Kubernetes that has every kind of object that the chart can render.
const KUBERNETES: &str = "1.30.0";

/// How [`MANIFESTS`] begins.
const HEADER: &str = "\
# The Helm chart deploy/helm/mpshare, rendered with its default values, for `kubectl apply -f`.
# Set the image `mpshare:...` to where yours is, and kube-scheduler's to the cluster's version.
# Made by `MPSHARE_UPDATE=1 cargo test -p mpshare-e2e --test chart`; changes belong into the chart.
";

/// Why the chart couldn't be rendered.
#[derive(Debug, Error)]
pub enum ChartError {
    /// Helm doesn't run.
    #[error("can't run `{}`", program.display())]
    Helm {
        /// Its file.
        program: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Helm, the schema of the values or a template says no.
    #[error("helm refuses: {0}")]
    Refused(String),
    /// What was rendered is no YAML.
    #[error("what helm rendered can't be read")]
    Unreadable(#[source] Box<serde_saphyr::Error>),
}

/// The chart, and the Helm that renders it.
#[derive(Debug, Clone)]
pub struct Chart {
    helm: PathBuf,
    dir: PathBuf,
}

impl Chart {
    /// The chart of this repository. `None` where there is no Helm.
    #[must_use]
    pub fn of(repository: &Path) -> Option<Self> {
        let helm = find_helm(repository)?;
        Some(Self { helm, dir: repository.join(CHART) })
    }

    /// The same Helm for a chart in another directory.
    #[must_use]
    pub fn at(&self, dir: &Path) -> Self {
        Self { helm: self.helm.clone(), dir: dir.to_owned() }
    }

    /// Where the chart is.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What `helm lint` says of the chart; warnings count as faults.
    pub fn lint(&self) -> Result<String, ChartError> {
        self.run(&["lint", "--strict", &self.dir.to_string_lossy()])
    }

    /// The objects of an install into `kube-system`, with these arguments of `helm template`.
    pub fn render(&self, arguments: &[&str]) -> Result<Rendering, ChartError> {
        // A hook's objects aren't there while the chart is installed.
        self.render_with_hooks(&[&["--no-hooks"], arguments].concat())
    }

    /// The same, and what Helm makes for a moment at an uninstall.
    pub fn render_with_hooks(&self, arguments: &[&str]) -> Result<Rendering, ChartError> {
        let dir = self.dir.to_string_lossy();
        let fixed = ["template", "mpshare", &dir, "--namespace", "kube-system"];
        let version = ["--kube-version", KUBERNETES];
        Rendering::read(self.run(&[&fixed[..], &version, arguments].concat())?)
    }

    /// The chart with default values, without what is about Helm only.
    pub fn manifests(&self) -> Result<String, ChartError> {
        let rendered = self.render(&[])?.text;
        let of_helm = ["# Source: ", "helm.sh/chart: ", "app.kubernetes.io/managed-by: "];
        let lines = rendered
            .lines()
            .filter(|line| !of_helm.iter().any(|start| line.trim_start().starts_with(start)));
        let mut text = HEADER.to_owned();
        for line in lines {
            text.push_str(line);
            text.push('\n');
        }
        Ok(text)
    }

    fn run(&self, arguments: &[&str]) -> Result<String, ChartError> {
        let output = Command::new(&self.helm)
            .args(arguments)
            .output()
            .map_err(|source| ChartError::Helm { program: self.helm.clone(), source })?;
        let Output { status, stdout, stderr } = output;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        if !status.success() {
            // `helm lint` has its faults on stdout.
            return Err(ChartError::Refused(format!("{}{}", text(stderr), text(stdout))));
        }
        Ok(text(stdout))
    }
}

/// Where the plain manifests of a repository are.
#[must_use]
pub fn manifests_of(repository: &Path) -> PathBuf {
    repository.join(MANIFESTS)
}

fn find_helm(repository: &Path) -> Option<PathBuf> {
    let named = env::var_os(PROGRAMS).map(PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    let mut places =
        named.into_iter().chain([repository.join(BUILT)]).chain(env::split_paths(&path));
    places.find_map(|dir| Some(dir.join("helm")).filter(|program| program.is_file()))
}

/// What a chart rendered.
#[derive(Debug, Clone)]
pub struct Rendering {
    /// As Helm printed it.
    pub text: String,
    /// As the API server would read it.
    pub objects: Vec<Value>,
}

impl Rendering {
    /// Reads manifests.
    pub fn read(text: String) -> Result<Self, ChartError> {
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text)
            .map_err(|error| ChartError::Unreadable(Box::new(error)))?;
        let objects = documents.into_iter().filter(|document| !document.is_null()).collect();
        Ok(Self { text, objects })
    }

    /// All objects of a kind.
    pub fn of_kind(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.objects
            .iter()
            .filter(move |object| object.get("kind").is_some_and(|found| found == kind))
    }

    /// One object.
    #[must_use]
    pub fn find(&self, kind: &str, name: &str) -> Option<&Value> {
        self.of_kind(kind)
            .find(|object| object.pointer("/metadata/name").is_some_and(|found| found == name))
    }

    /// The containers of all pods that the objects make.
    pub fn containers(&self) -> impl Iterator<Item = &Value> {
        let path = "/spec/template/spec/containers";
        self.objects.iter().filter_map(move |object| object.pointer(path)?.as_array()).flatten()
    }

    /// One container.
    #[must_use]
    pub fn container(&self, name: &str) -> Option<&Value> {
        self.containers().find(|container| container.get("name").is_some_and(|found| found == name))
    }
}
