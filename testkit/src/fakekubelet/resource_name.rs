//! Which names a plugin may register: `IsExtendedResourceName` of Kubernetes.

/// Whether `name` can be an extended resource.
pub(super) fn is_extended_resource(name: &str) -> bool {
    let foreign = name.contains('/') && !name.contains("kubernetes.io/");
    foreign && !name.starts_with("requests.") && is_qualified(&format!("requests.{name}"))
}

fn is_qualified(name: &str) -> bool {
    match name.split_once('/') {
        Some((prefix, rest)) => is_subdomain(prefix) && is_name(rest, 63),
        None => is_name(name, 63),
    }
}

fn is_subdomain(prefix: &str) -> bool {
    let is_label = |label: &str| {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        label.chars().all(allowed) && is_name(label, 253)
    };
    prefix.len() <= 253 && prefix.split('.').all(is_label)
}

fn is_name(name: &str, longest: usize) -> bool {
    let ends_well = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let shape = name.chars().all(allowed);
    let ends = ends_well(name.chars().next()) && ends_well(name.chars().last());
    shape && ends && name.len() <= longest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_extended_resources_can_be_registered() {
        let check = |name: &str, expected: bool| {
            assert_eq!(is_extended_resource(name), expected, "{name}");
        };
        check("nvidia.com/gpu", true);
        check("nvidia.com/gpu.shared", true);
        check("gpu", false);
        check("kubernetes.io/gpu", false);
        check("node.kubernetes.io/gpu", false);
        check("requests.nvidia.com/gpu", false);
        check("nvidia.com/", false);
        check("nvidia.com/a/b", false);
        check("NVIDIA.com/gpu", false);
        check("nvidia.com/-gpu", false);
    }
}
