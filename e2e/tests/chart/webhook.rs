//! The admission webhook: who is asked about which pods, and with which rights.

use mpshare_core::admission::OWN_ANNOTATIONS;
use mpshare_e2e::chart::Rendering;
use serde_json::Value;

use super::{chart, refusal, with};

const KINDS: [&str; 2] = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];

/// The entries that are asked about a pod in a namespace with this name and this label.
fn asked<'a>(
    rendering: &'a Rendering,
    kind: &str,
    namespace: &str,
    label: Option<&str>,
) -> Vec<&'a str> {
    let entries = rendering.find(kind, "mpshare").unwrap()["webhooks"].as_array().unwrap();
    let matches = |expression: &Value| {
        let value = match expression["key"].as_str().unwrap() {
            "kubernetes.io/metadata.name" => Some(namespace),
            "mpshare.io/admission" => label,
            other => panic!("{other}"),
        };
        let is_in = expression["values"].as_array().unwrap().iter().any(|it| it.as_str() == value);
        match expression["operator"].as_str().unwrap() {
            "In" => is_in,
            "NotIn" => !is_in,
            other => panic!("{other}"),
        }
    };
    let is_asked = |entry: &&Value| {
        entry["namespaceSelector"]["matchExpressions"].as_array().unwrap().iter().all(matches)
    };
    let paths = entries.iter().filter(is_asked).map(|it| &it["clientConfig"]["service"]["path"]);
    let mut paths: Vec<&str> = paths.map(|path| path.as_str().unwrap()).collect();
    paths.dedup();
    paths
}

#[test]
fn each_namespace_has_one_mode() {
    let Some(chart) = chart() else { return };
    for default in ["enforce", "warn", "audit"] {
        let mode = format!("webhook.mode={default}");
        let rendering = with(&chart, &[&mode, "webhook.exemptNamespaces={monitoring}"]).unwrap();
        for (kind, verb) in KINDS.into_iter().zip(["mutate", "validate"]) {
            let of = |namespace: &str, label| asked(&rendering, kind, namespace, label);
            let path = |mode: &str| vec![format!("/{verb}/{mode}")];
            assert_eq!(of("team", None), path(default), "{kind} {default}");
            for label in ["enforce", "warn", "audit"] {
                assert_eq!(of("team", Some(label)), path(label), "{kind} {default}");
            }
            assert_eq!(of("team", Some("off")), [""; 0]);
            // Rather looked at than not, when a label is mistyped.
            assert_eq!(of("team", Some("Enforced")), path(default));
            assert_eq!(of("monitoring", Some("enforce")), [""; 0]);
            assert_eq!(of("kube-system", None), [""; 0], "the chart's own");
        }
    }
    assert!(refusal(&chart, &["webhook.mode=deny"]).contains("mode"));
}

#[test]
fn the_same_annotations_are_guarded_everywhere() {
    let Some(chart) = chart() else { return };
    let rendering = chart.render(&["--kube-version", "1.34.4"]).unwrap();
    let policy = rendering.find("ValidatingAdmissionPolicy", "mpshare-pod-claims").unwrap();
    let entries = rendering.find(KINDS[1], "mpshare").unwrap()["webhooks"].to_string();
    for text in [policy.to_string(), entries] {
        for annotation in OWN_ANNOTATIONS {
            assert!(text.contains(annotation), "`{annotation}` isn't in {text}");
        }
        for account in ["config-manager", "scheduler", "scheduler-extender"] {
            let name = format!("system:serviceaccount:kube-system:mpshare-{account}");
            assert!(text.contains(&name), "`{name}` isn't in {text}");
        }
    }
    let writes = policy["spec"]["matchConstraints"]["resourceRules"].to_string();
    for resource in ["pods", "pods/status", "pods/binding", "bindings"] {
        assert!(writes.contains(&format!("\"{resource}\"")), "{writes}");
    }
}

#[test]
fn old_api_servers_are_told_no_conditions() {
    let Some(chart) = chart() else { return };
    for (version, has_conditions) in [("1.29.9", false), ("1.30.0", true)] {
        let rendering = chart.render(&["--kube-version", version]).unwrap();
        for kind in KINDS {
            let text = rendering.find(kind, "mpshare").unwrap().to_string();
            assert_eq!(text.contains("matchConditions"), has_conditions, "{kind} {version}");
        }
    }
}

#[test]
fn with_cert_manager_it_has_no_rights_to_certificates() {
    let Some(chart) = chart() else { return };
    let issuer = ["webhook.certManager.issuer.kind=Issuer", "webhook.certManager.issuer.name=ca"];
    let rendering = with(&chart, &issuer).unwrap();
    let certificate = rendering.find("Certificate", "mpshare-webhook").unwrap();
    assert_eq!(certificate["spec"]["issuerRef"]["name"], "ca");
    assert_eq!(certificate["spec"]["dnsNames"][0], "mpshare-webhook.kube-system.svc");
    for kind in KINDS {
        let annotations = &rendering.find(kind, "mpshare").unwrap()["metadata"]["annotations"];
        assert_eq!(annotations["cert-manager.io/inject-ca-from"], "kube-system/mpshare-webhook");
    }
    assert!(rendering.find("Secret", "mpshare-webhook-certificates").is_none());
    assert!(rendering.find("Role", "mpshare-webhook").is_none());
    let rights = rendering.find("ClusterRole", "mpshare-webhook").unwrap()["rules"].to_string();
    assert!(!rights.contains("webhookconfigurations"), "{rights}");
    let args = rendering.container("mpshare-webhook").unwrap()["args"].to_string();
    assert!(args.contains("--certificate-dir=/etc/mpshare-webhook"), "{args}");
}

#[test]
fn where_it_is_off_nothing_of_it_is_rendered() {
    let Some(chart) = chart() else { return };
    for value in ["webhook.enabled=false", "mps.enabled=false"] {
        let rendering = with(&chart, &[value]).unwrap();
        assert!(!rendering.text.contains("mpshare-webhook"), "{value}");
        for kind in KINDS {
            assert_eq!(rendering.of_kind(kind).count(), 0, "{value}");
        }
    }
}

#[test]
fn devices_are_settled_where_they_arent_named_by_the_variable() {
    let Some(chart) = chart() else { return };
    let option = |values: &[&str]| {
        let rendering = with(&chart, values).unwrap();
        let args = rendering.container("mpshare-webhook").unwrap()["args"].clone();
        let args: Vec<String> = serde_json::from_value(args).unwrap();
        args.into_iter().find_map(|it| it.strip_prefix("--visible-devices=").map(str::to_owned))
    };
    assert_eq!(option(&[]), None);
    assert_eq!(option(&["deviceListStrategy=cdi-cri"]).as_deref(), Some("void"));
    let mounts = option(&["deviceListStrategy=volume-mounts"]);
    assert_eq!(mounts.as_deref(), Some("/var/run/nvidia-container-devices"));
}
