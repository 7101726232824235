//! Why a pod wasn't scheduled, as kube-scheduler writes it into the pod and into an Event.

use serde_json::{Value, json};

/// Why a pod wasn't scheduled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    reason: &'static str,
    message: String,
}

impl Failure {
    /// It doesn't fit.
    pub(super) fn unschedulable(message: impl Into<String>) -> Self {
        Self { reason: "Unschedulable", message: message.into() }
    }

    /// Something went wrong, which says nothing about whether it fits.
    pub(super) fn error(message: impl Into<String>) -> Self {
        Self { reason: "SchedulerError", message: message.into() }
    }

    pub(super) fn is_error(&self) -> bool {
        self.reason == "SchedulerError"
    }

    /// Whether the pod says so already.
    pub(super) fn is_told(&self, pod: &Value) -> bool {
        let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        conditions.any(|condition| condition["message"] == *self.message)
    }

    /// The pod's condition.
    pub(super) fn status(&self) -> Value {
        json!({"phase": "Pending", "conditions": [{
            "type": "PodScheduled", "status": "False", "reason": self.reason,
            "message": self.message,
        }]})
    }

    /// The Event.
    pub(super) fn event(&self, pod: &Value) -> Value {
        let metadata = &pod["metadata"];
        json!({
            "apiVersion": "v1", "kind": "Event", "type": "Warning",
            "metadata": {"generateName": "failed-scheduling-", "namespace": metadata["namespace"]},
            "involvedObject": {
                "apiVersion": "v1", "kind": "Pod", "name": metadata["name"],
                "namespace": metadata["namespace"], "uid": metadata["uid"],
            },
            "reason": "FailedScheduling", "message": self.message, "count": 1,
            "source": {"component": "default-scheduler"},
            "firstTimestamp": metadata["creationTimestamp"],
            "lastTimestamp": metadata["creationTimestamp"],
        })
    }
}
