//! What a container asks of the runtime, read from its specification. Which cards there are doesn't
//! matter here.

use std::path::Path;

use serde_json::Value;
use thiserror::Error;

use crate::driver::Capability;

/// Mounts below this directory name cards; who can only set variables can't make them.
const DEVICE_MOUNTS: &str = "/var/run/nvidia-container-devices";

/// The driver's parts that the real runtime knows.
const KNOWN: [&str; 7] = ["compat32", "compute", "display", "graphics", "ngx", "utility", "video"];

/// What the real runtime gives to a container that names no part.
const DEFAULT: &str = "utility,compute";

/// A container asks for what there isn't.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("unsupported capabilities found in `{asked}` (allowed `{}`)", KNOWN.join(","))]
pub(crate) struct UnknownCapability {
    asked: String,
}

/// The cards that a container names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cards {
    /// `all`.
    All,
    /// Indexes, UUIDs (or the start of one), PCI addresses. `none` is an empty list.
    Named(Vec<String>),
}

/// What a container asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) cards: Cards,
    pub(crate) capabilities: Vec<Capability>,
}

/// `None`: the container wants no driver.
pub(crate) fn read(specification: &Value) -> Result<Option<Request>, UnknownCapability> {
    let by_mounts = mounted_devices(specification);
    let cards = if by_mounts.is_empty() {
        variable(specification, "NVIDIA_VISIBLE_DEVICES").and_then(named)
    } else {
        named(&by_mounts.join(","))
    };
    let Some(cards) = cards else {
        return Ok(None);
    };
    let asked = variable(specification, "NVIDIA_DRIVER_CAPABILITIES").unwrap_or_default();
    Ok(Some(Request { cards, capabilities: capabilities(asked)? }))
}

/// Whether the container may open every device of the node, as a privileged pod's may.
pub(crate) fn is_privileged(specification: &Value) -> bool {
    let list = |pointer| specification.pointer(pointer).and_then(Value::as_array);
    let administers = list("/process/capabilities/bounding")
        .is_some_and(|names| names.iter().any(|name| name == "CAP_SYS_ADMIN"));
    let is_any = |rule: &Value, key: &str| rule.get(key).is_none_or(|value| *value == -1);
    let allows_all = |rule: &Value| {
        rule.get("allow") == Some(&Value::Bool(true))
            && rule.get("type").is_none_or(|kind| kind == "a")
            && is_any(rule, "major")
            && is_any(rule, "minor")
    };
    administers
        && list("/linux/resources/devices").is_some_and(|rules| rules.iter().any(allows_all))
}

fn named(text: &str) -> Option<Cards> {
    match text {
        "" | "void" => None,
        "none" => Some(Cards::Named(Vec::new())),
        "all" => Some(Cards::All),
        list => Some(Cards::Named(list.split(',').map(|id| id.trim().to_owned()).collect())),
    }
}

fn mounted_devices(specification: &Value) -> Vec<String> {
    let mounts = specification.get("mounts").and_then(Value::as_array);
    let device = |mount: &Value| {
        let destination = Path::new(mount.get("destination")?.as_str()?);
        let device = destination.strip_prefix(DEVICE_MOUNTS).ok()?.to_str()?;
        (!device.is_empty()).then(|| device.to_owned())
    };
    mounts.into_iter().flatten().filter_map(device).collect()
}

/// The last one of that name counts, as for a program that looks it up.
fn variable<'a>(specification: &'a Value, name: &str) -> Option<&'a str> {
    let variables = specification.pointer("/process/env")?.as_array()?;
    let value = |variable: &'a Value| {
        let (this, value) = variable.as_str()?.split_once('=')?;
        (this == name).then_some(value)
    };
    variables.iter().rev().find_map(value)
}

fn capabilities(asked: &str) -> Result<Vec<Capability>, UnknownCapability> {
    let asked = if asked.is_empty() { DEFAULT } else { asked };
    if asked == "all" {
        return Ok(vec![Capability::Compute, Capability::Utility]);
    }
    let mut capabilities = Vec::new();
    for word in asked.split(',').map(str::trim) {
        match word {
            "compute" => capabilities.push(Capability::Compute),
            "utility" => capabilities.push(Capability::Utility),
            word if KNOWN.contains(&word) => {} // the simulated driver has nothing for them
            _ => return Err(UnknownCapability { asked: asked.to_owned() }),
        }
    }
    capabilities.sort();
    capabilities.dedup();
    Ok(capabilities)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of_env(env: &[&str]) -> Result<Option<Request>, UnknownCapability> {
        read(&json!({ "process": { "env": env } }))
    }

    fn cards(value: &str) -> Option<Cards> {
        of_env(&[&format!("NVIDIA_VISIBLE_DEVICES={value}")]).unwrap().map(|request| request.cards)
    }

    fn named(names: &[&str]) -> Cards {
        Cards::Named(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn who_asks_for_nothing_gets_no_driver() {
        assert_eq!(of_env(&["PATH=/bin"]), Ok(None));
        assert_eq!(cards(""), None);
        assert_eq!(cards("void"), None);
    }

    #[test]
    fn none_is_a_driver_without_cards() {
        assert_eq!(cards("none"), Some(named(&[])));
    }

    #[test]
    fn a_list_names_cards_in_any_form() {
        assert_eq!(cards("all"), Some(Cards::All));
        assert_eq!(cards("0,GPU-1a2b"), Some(named(&["0", "GPU-1a2b"])));
    }

    #[test]
    fn the_last_variable_counts() {
        let request = of_env(&["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_VISIBLE_DEVICES=1"]);
        assert_eq!(request.unwrap().map(|request| request.cards), Some(named(&["1"])));
    }

    #[test]
    fn mounts_below_the_devices_directory_win_over_the_variable() {
        let specification = json!({
            "process": { "env": ["NVIDIA_VISIBLE_DEVICES=/var/run/nvidia-container-devices"] },
            "mounts": [
                { "source": "/dev/null", "destination": "/var/run/nvidia-container-devices/GPU-b" },
                { "source": "/data", "destination": "/data" },
            ],
        });
        assert_eq!(
            read(&specification).unwrap().map(|request| request.cards),
            Some(named(&["GPU-b"]))
        );
    }

    #[test]
    fn capabilities_are_compute_and_utility_unless_fewer_are_asked_for() {
        let both = vec![Capability::Compute, Capability::Utility];
        assert_eq!(capabilities(""), Ok(both.clone()));
        assert_eq!(capabilities("all"), Ok(both));
        assert_eq!(capabilities("utility"), Ok(vec![Capability::Utility]));
        assert_eq!(capabilities("compute,video"), Ok(vec![Capability::Compute]));
        assert!(capabilities("compute,magic").unwrap_err().to_string().contains("magic"));
    }

    #[test]
    fn privileged_is_who_administers_and_has_no_device_rules() {
        let container = |capability: &str, rules: Value| {
            json!({
                "process": { "capabilities": { "bounding": [capability] } },
                "linux": { "resources": { "devices": rules } },
            })
        };
        let everything = json!([{ "allow": false }, { "allow": true, "access": "rwm" }]);
        let some = json!([{ "allow": false }, { "allow": true, "type": "c", "major": 1 }]);
        assert!(is_privileged(&container("CAP_SYS_ADMIN", everything.clone())));
        assert!(!is_privileged(&container("CAP_SYS_ADMIN", some)));
        assert!(!is_privileged(&container("CAP_CHOWN", everything)));
        assert!(!is_privileged(&json!({})));
    }
}
