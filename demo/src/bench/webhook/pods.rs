//! Reviews of pods as an inference service has them: about 3 KB each, as the API server sends them
//! after its defaults and its own mutators.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

/// The memory limit as the TKE document writes it.
const ASKED: &str = "4294967296";

/// The same as the driver takes it, and as validating webhooks see it.
const MUTATED: &str = "0=4096M";

/// Mutating and validating ones of several pods, with their paths.
pub(super) fn reviews() -> Result<Vec<(&'static str, String)>> {
    let mut reviews = Vec::new();
    for number in 0..8 {
        let asked = review(number).to_string();
        ensure!((2_500..5_000).contains(&asked.len()), "{} bytes", asked.len());
        let mutated = asked.replace(ASKED, MUTATED);
        reviews.push(("/mutate/enforce", asked));
        reviews.push(("/validate/enforce", mutated));
    }
    Ok(reviews)
}

fn review(number: usize) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": format!("6a3bb1a5-5be5-4a5a-9d7e-0a0e4e6d{number:04}"),
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
            "requestResource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": "inference", "operation": "CREATE",
            "userInfo": {
                "username": "system:serviceaccount:kube-system:replicaset-controller",
                "uid": "1f0e2ad5-6d1c-4ae2-8e2c-6f6a8a0d5c11",
                "groups": [
                    "system:serviceaccounts", "system:serviceaccounts:kube-system",
                    "system:authenticated",
                ],
            },
            "object": pod(number), "oldObject": null, "dryRun": false,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    })
}

fn pod(number: usize) -> Value {
    json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {
            "generateName": format!("llm-server-{number}-5c9f7d8b6-"), "namespace": "inference",
            "labels": {
                "app.kubernetes.io/name": "llm-server", "app.kubernetes.io/part-of": "assistant",
                "pod-template-hash": "5c9f7d8b6", "version": format!("v{number}"),
            },
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "8000"},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "llm-server-5c9f7d8b6",
                "uid": "5b6b8c34-53a6-4a0c-9e2e-1d2f7c9a6b10",
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "volumes": [
                {"name": "models", "persistentVolumeClaim": {"claimName": "models"}},
                {"name": "cache", "emptyDir": {"sizeLimit": "8Gi"}},
                {"name": "kube-api-access-x7k2p", "projected": {"defaultMode": 420, "sources": [
                    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                ]}},
            ],
            "containers": [container()],
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 60,
            "dnsPolicy": "ClusterFirst", "serviceAccountName": "llm-server",
            "securityContext": {"runAsUser": 1000, "runAsNonRoot": true},
            "schedulerName": "default-scheduler", "priority": 0, "enableServiceLinks": true,
            "preemptionPolicy": "PreemptLowerPriority",
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists",
                 "effect": "NoExecute", "tolerationSeconds": 300},
            ],
        },
        "status": {},
    })
}

fn container() -> Value {
    let probe = |path: &str| {
        json!({
            "httpGet": {"path": path, "port": 8000, "scheme": "HTTP"},
            "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3,
        })
    };
    json!({
        "name": "server", "image": "registry.example.com/inference/llm-server:2.4.1",
        "command": ["python3", "-m", "llm.server"],
        "args": ["--model", "/models/assistant", "--max-batch-size", "32"],
        "ports": [{"name": "http", "containerPort": 8000, "protocol": "TCP"}],
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {
                "apiVersion": "v1", "fieldPath": "metadata.name",
            }}},
            {"name": "HF_HOME", "value": "/cache/huggingface"},
            {"name": "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "value": ASKED},
            {"name": "OTEL_SERVICE_NAME", "value": "llm-server"},
        ],
        "resources": {
            "limits": {"aliyun.com/gpu-mem": "4", "cpu": "4", "memory": "16Gi"},
            "requests": {"aliyun.com/gpu-mem": "4", "cpu": "2", "memory": "16Gi"},
        },
        "volumeMounts": [
            {"name": "models", "readOnly": true, "mountPath": "/models"},
            {"name": "cache", "mountPath": "/cache"},
            {"name": "kube-api-access-x7k2p", "readOnly": true,
             "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"},
        ],
        "livenessProbe": probe("/healthz"), "readinessProbe": probe("/readyz"),
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent",
    })
}
