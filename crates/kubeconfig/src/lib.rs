//! Kubeconfig files, read by way of JSON values: kube-client reads them too, but has the YAML
//! library make code for each of its twenty types.

use std::io;
use std::path::{MAIN_SEPARATOR, Path, PathBuf};

use kube::config::{AuthInfo, Kubeconfig, KubeconfigError};
use mpshare_api::yaml::{self, YamlError};
use thiserror::Error;

/// Why a file is no kubeconfig. None of these quotes the file: it has secrets.
#[derive(Debug, Error)]
pub enum ReadError {
    /// It can't be read.
    #[error("can't read it")]
    Io(#[from] io::Error),
    /// Its text is no YAML.
    #[error(transparent)]
    Yaml(#[from] YamlError),
    /// It is YAML of another form.
    #[error("this is no kubeconfig")]
    Form(#[source] serde_json::Error),
    /// Two documents are of different kinds.
    #[error("its documents don't fit together")]
    Merge(#[from] KubeconfigError),
}

/// Reads a kubeconfig. Relative paths in it start at its directory, and the documents of a file
/// are merged, as `kubectl` has it.
pub fn read(path: &Path) -> Result<Kubeconfig, ReadError> {
    let text = std::fs::read_to_string(path)?;
    let directory = path.parent().unwrap_or(Path::new(""));
    let mut merged = Kubeconfig::default();
    for document in yaml::documents(&text)? {
        let mut config: Kubeconfig = serde_json::from_value(document).map_err(ReadError::Form)?;
        resolve(&mut config, directory);
        merged = merged.merge(config)?;
    }
    Ok(merged)
}

fn resolve(config: &mut Kubeconfig, directory: &Path) {
    for cluster in config.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        start_at(directory, &mut cluster.certificate_authority);
    }
    for user in config.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
        resolve_user(user, directory);
    }
}

fn resolve_user(user: &mut AuthInfo, directory: &Path) {
    start_at(directory, &mut user.client_certificate);
    start_at(directory, &mut user.client_key);
    start_at(directory, &mut user.token_file);
    if let Some(exec) = &mut user.exec {
        // A mere name is one to look for in `PATH`.
        if exec.command.as_ref().is_some_and(|command| command.contains(MAIN_SEPARATOR)) {
            start_at(directory, &mut exec.command);
        }
    }
}

fn start_at(directory: &Path, file: &mut Option<String>) {
    if let Some(relative) = file {
        let whole: PathBuf = directory.join(&*relative);
        if let Some(whole) = whole.to_str() {
            whole.clone_into(relative);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> (tempfile::TempDir, Result<Kubeconfig, ReadError>) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        std::fs::write(&path, text).unwrap();
        let read = read(&path);
        (directory, read)
    }

    #[test]
    fn relative_paths_start_at_the_directory_of_the_file() {
        let text = "
clusters: [{name: c, cluster: {server: 'https://c', certificate-authority: ca.pem}}]
users:
- {name: u, user: {client-certificate: /etc/u.pem, client-key: u.key, tokenFile: token}}
- {name: e, user: {exec: {command: bin/login}}}
- {name: p, user: {exec: {command: login}}}
";
        let (directory, config) = read_text(text);
        let config = config.unwrap();
        let at = |name: &str| Some(directory.path().join(name).to_str().unwrap().to_owned());
        let cluster = config.clusters[0].cluster.as_ref().unwrap();
        assert_eq!(cluster.certificate_authority, at("ca.pem"));
        let user = |n: usize| config.auth_infos[n].auth_info.clone().unwrap();
        assert_eq!(user(0).client_certificate.as_deref(), Some("/etc/u.pem"));
        assert_eq!((user(0).client_key, user(0).token_file), (at("u.key"), at("token")));
        assert_eq!(user(1).exec.unwrap().command, at("bin/login"));
        assert_eq!(user(2).exec.unwrap().command.as_deref(), Some("login"));
    }

    #[test]
    fn credentials_are_read_as_they_stand() {
        let user = serde_json::json!({
            "token": "t",
            "client-certificate-data": "Y2VydA==",
            "client-key-data": "a2V5",
            "exec": {"command": "login", "args": ["a"], "env": [{"name": "N", "value": "1"}]},
        });
        let text = serde_json::json!({"users": [{"name": "u", "user": user}]}).to_string();
        let config = read_text(&text).1.unwrap();
        let read = serde_json::to_value(&config.auth_infos[0]).unwrap();
        for key in ["token", "client-certificate-data", "client-key-data"] {
            assert_eq!(read["user"][key], user[key]);
        }
        for key in ["command", "args", "env"] {
            assert_eq!(read["user"]["exec"][key], user["exec"][key]);
        }
    }

    #[test]
    fn the_documents_of_a_file_are_merged_and_the_first_counts() {
        let text = "current-context: a\n---\ncurrent-context: b\ncontexts: [{name: b}]\n";
        let config = read_text(text).1.unwrap();
        assert_eq!(config.current_context.as_deref(), Some("a"));
        assert_eq!(config.contexts.len(), 1);
    }

    #[test]
    fn what_is_no_kubeconfig_is_an_error() {
        for text in ["clusters: 1\n", "- a\n", "{"] {
            assert!(read_text(text).1.is_err(), "{text:?}");
        }
    }
}
