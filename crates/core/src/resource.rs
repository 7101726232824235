//! Names of extended resources.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use thiserror::Error;

/// The name of an extended resource, such as `nvidia.com/gpu`.
///
/// Checked as the kubelet checks a registration (facts/kubernetes.md 1.2), and within 63
/// characters, because the name becomes a directory and a socket name. Copies share its text: a
/// cluster's ledger has one for each card, and copies them whenever it counts a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceName(Arc<str>);

/// Why a text isn't the name of an extended resource.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ParseResourceError {
    /// Longer than 63 characters.
    #[error("resource name `{0}` is longer than 63 characters")]
    TooLong(String),
    /// Not `domain/name`.
    #[error("`{0}` is no resource name; it must look like `nvidia.com/gpu`")]
    Form(String),
    /// A domain that belongs to Kubernetes.
    #[error("resource name `{0}` is in a domain of Kubernetes itself")]
    Reserved(String),
}

impl ResourceName {
    /// The name in full.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part before the slash.
    pub fn domain(&self) -> &str {
        self.0.split_once('/').map_or("", |(domain, _)| domain)
    }

    /// Whether units of it are amounts of memory. NVIDIA's config renames the resource of its replicas
    /// within its own domain only.
    pub fn is_memory(&self) -> bool {
        self.domain() != "nvidia.com"
    }

    /// The part after the slash.
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or("", |(_, name)| name)
    }
}

impl FromStr for ResourceName {
    type Err = ParseResourceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let form = || ParseResourceError::Form(text.to_owned());
        if text.len() > 63 {
            return Err(ParseResourceError::TooLong(text.to_owned()));
        }
        let (domain, name) = text.split_once('/').ok_or_else(form)?;
        if domain == "kubernetes.io" || domain.ends_with(".kubernetes.io") {
            return Err(ParseResourceError::Reserved(text.to_owned()));
        }
        if !is_dns_subdomain(domain) || domain.starts_with("requests.") || !is_qualified(name) {
            return Err(form());
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_dns_subdomain(text: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    text.split('.').all(label)
}

fn is_qualified(text: &str) -> bool {
    let alphanumeric = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    alphanumeric(text.chars().next())
        && alphanumeric(text.chars().last())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_what_the_kubelet_accepts() {
        for text in ["nvidia.com/gpu", "nvidia.com/gpu.shared", "aliyun.com/gpu-mem"] {
            assert_eq!(text.parse::<ResourceName>().unwrap().as_str(), text);
        }
    }

    #[test]
    fn refuses_paths_reserved_domains_and_malformed_names() {
        for text in
            ["gpu", "nvidia.com/", "/gpu", "a/b/c", "../x", "nvidia.com/..", "requests.a.b/c"]
        {
            assert!(
                matches!(text.parse::<ResourceName>(), Err(ParseResourceError::Form(_))),
                "{text}"
            );
        }
        assert!(matches!(
            "x.kubernetes.io/gpu".parse::<ResourceName>(),
            Err(ParseResourceError::Reserved(_))
        ));
        let long = format!("nvidia.com/{}", "g".repeat(60));
        assert!(matches!(long.parse::<ResourceName>(), Err(ParseResourceError::TooLong(_))));
    }
}
