//! `AdmissionReview`, version `admission.k8s.io/v1`: what an API server asks a webhook, and what it
//! is answered (facts/kubernetes.md 8.2).
//!
//! Objects are kept as they came: which form they have depends on the resource, and most reviews
//! need only one of the two. Fields that are null count as absent, unknown ones are ignored.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use thiserror::Error;

/// The only version that is spoken.
pub const API_VERSION: &str = "admission.k8s.io/v1";

/// The kind of questions and of answers.
pub const KIND: &str = "AdmissionReview";

/// Why a body is no question.
#[derive(Debug, Error)]
pub enum ReviewError {
    /// No JSON, or a field of the wrong type.
    #[error("the body is no AdmissionReview: {0}")]
    Form(#[source] serde_json::Error),
    /// Another kind or version.
    #[error(
        "the body is `{kind}` of `{api_version}`, not `AdmissionReview` of `admission.k8s.io/v1`"
    )]
    Kind {
        /// Its kind.
        kind: String,
        /// Its version.
        api_version: String,
    },
    /// An answer, or nothing.
    #[error("the AdmissionReview has no `request`")]
    NoRequest,
    /// Nothing that the answer could refer to.
    #[error("the AdmissionReview's request has no `uid`")]
    NoUid,
}

/// A question.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Request {
    /// What the answer has to repeat.
    #[serde(deserialize_with = "or_default")]
    pub uid: String,
    /// The resource that is written.
    #[serde(deserialize_with = "or_default")]
    pub resource: Resource,
    /// Its subresource; empty for the object itself.
    #[serde(deserialize_with = "or_default")]
    pub sub_resource: String,
    /// The object's name; empty on a creation with `generateName`.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// Its namespace.
    #[serde(deserialize_with = "or_default")]
    pub namespace: String,
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    #[serde(deserialize_with = "or_default")]
    pub operation: String,
    /// Who writes.
    #[serde(deserialize_with = "or_default")]
    pub user_info: UserInfo,
    /// The object as it is to be.
    pub object: Value,
    /// The object as it is.
    pub old_object: Value,
    /// Whether nothing will be stored.
    #[serde(deserialize_with = "or_default")]
    pub dry_run: bool,
}

/// A resource by its names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Resource {
    /// The group; empty for the core.
    #[serde(deserialize_with = "or_default")]
    pub group: String,
    /// The version.
    #[serde(deserialize_with = "or_default")]
    pub version: String,
    /// The plural, such as `pods`.
    #[serde(deserialize_with = "or_default")]
    pub resource: String,
}

/// Who writes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct UserInfo {
    /// The name, such as `system:serviceaccount:kube-system:mpshare-scheduler`.
    #[serde(deserialize_with = "or_default")]
    pub username: String,
}

#[derive(Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[derive(Default)]
struct Question {
    #[serde(deserialize_with = "or_default")]
    api_version: String,
    #[serde(deserialize_with = "or_default")]
    kind: String,
    request: Option<Request>,
}

impl Request {
    /// Reads a question.
    pub fn read(body: &[u8]) -> Result<Self, ReviewError> {
        let question: Question = serde_json::from_slice(body).map_err(ReviewError::Form)?;
        let Question { api_version, kind, request } = question;
        if api_version != API_VERSION || kind != KIND {
            return Err(ReviewError::Kind { kind, api_version });
        }
        let request = request.ok_or(ReviewError::NoRequest)?;
        if request.uid.is_empty() {
            return Err(ReviewError::NoUid);
        }
        Ok(request)
    }
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Response {
    uid: String,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Status {
    code: u16,
    reason: &'static str,
    message: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: &'a Response,
}

impl Response {
    /// Lets the write pass.
    pub fn allow(uid: impl Into<String>) -> Self {
        Self {
            uid: uid.into(),
            allowed: true,
            status: None,
            patch: None,
            patch_type: None,
            warnings: Vec::new(),
        }
    }

    /// Refuses the write with 403 and this message.
    pub fn deny(uid: impl Into<String>, message: String) -> Self {
        let status = Status { code: 403, reason: "Forbidden", message };
        Self { allowed: false, status: Some(status), ..Self::allow(uid) }
    }

    /// The same with this JSON patch (RFC 6902); an empty one is none.
    ///
    /// As text in base64, which is what Go's `[]byte` is in JSON.
    #[must_use]
    pub fn patched(mut self, operations: &[Value]) -> Self {
        if !operations.is_empty() {
            let text = Value::Array(operations.to_vec()).to_string();
            self.patch = Some(STANDARD.encode(text));
            self.patch_type = Some("JSONPatch");
        }
        self
    }

    /// The same with these warnings.
    #[must_use]
    pub fn warning(mut self, warnings: Vec<String>) -> Self {
        self.warnings = warnings;
        self
    }

    /// The body of the HTTP answer.
    pub fn to_body(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(&Answer { api_version: API_VERSION, kind: KIND, response: self })
    }
}

/// Go's zero value for null.
fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn question(request: &Value) -> Vec<u8> {
        json!({"apiVersion": API_VERSION, "kind": KIND, "request": request}).to_string().into()
    }

    fn answer(response: &Response) -> Value {
        serde_json::from_slice(&response.to_body().unwrap()).unwrap()
    }

    #[test]
    fn a_question_is_read_with_what_counts() {
        let request = Request::read(&question(&json!({
            "uid": "u1",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "subResource": "status",
            "name": "a", "namespace": "default", "operation": "UPDATE",
            "userInfo": {"username": "alice", "groups": ["system:authenticated"]},
            "object": {"metadata": {"name": "a"}}, "oldObject": null,
            "dryRun": true, "options": {"kind": "UpdateOptions"},
        })))
        .unwrap();
        assert_eq!((request.uid.as_str(), request.sub_resource.as_str()), ("u1", "status"));
        assert_eq!((request.operation.as_str(), request.dry_run), ("UPDATE", true));
        assert_eq!(request.user_info.username, "alice");
        assert_eq!(request.object, json!({"metadata": {"name": "a"}}));
        assert_eq!(request.old_object, Value::Null);
    }

    #[test]
    fn what_is_null_counts_as_absent() {
        let nothing = json!({
            "uid": "u", "resource": null, "subResource": null, "name": null, "namespace": null,
            "operation": null, "userInfo": null, "object": null, "oldObject": null, "dryRun": null,
        });
        assert_eq!(
            Request::read(&question(&nothing)).unwrap(),
            Request::read(&question(&json!({"uid": "u"}))).unwrap()
        );
    }

    #[test]
    fn what_is_no_question_says_why() {
        let why = |body: &[u8]| Request::read(body).unwrap_err().to_string();
        assert!(why(b"").starts_with("the body is no AdmissionReview: EOF"));
        assert!(why(&[0xff, 0xfe]).starts_with("the body is no AdmissionReview: "));
        assert!(why(&question(&json!({"uid": 7}))).contains("invalid type: integer `7`"));
        assert_eq!(
            why(br#"{"kind": "Pod", "apiVersion": "v1"}"#),
            "the body is `Pod` of `v1`, not `AdmissionReview` of `admission.k8s.io/v1`"
        );
        assert_eq!(why(&question(&Value::Null)), "the AdmissionReview has no `request`");
        assert_eq!(why(&question(&json!({}))), "the AdmissionReview's request has no `uid`");
    }

    #[test]
    fn an_answer_has_the_form_that_go_reads() {
        let operations = [json!({"op": "add", "path": "/spec/schedulerName", "value": "gpu"})];
        let patched = Response::allow("u").patched(&operations).warning(vec!["careful".to_owned()]);
        let text = answer(&patched);
        let encoded = text.pointer("/response/patch").unwrap().as_str().unwrap();
        let decoded: Value = serde_json::from_slice(&STANDARD.decode(encoded).unwrap()).unwrap();
        assert_eq!(decoded, json!(operations));
        assert_eq!(
            text,
            json!({
                "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                "response": {
                    "uid": "u", "allowed": true, "patch": encoded, "patchType": "JSONPatch",
                    "warnings": ["careful"],
                },
            })
        );
    }

    #[test]
    fn a_refusal_has_code_reason_and_message_and_nothing_empty_is_sent() {
        let denied = answer(&Response::deny("u", "no; hint: don't".to_owned()));
        assert_eq!(
            denied["response"],
            json!({
                "uid": "u", "allowed": false,
                "status": {"code": 403, "reason": "Forbidden", "message": "no; hint: don't"},
            })
        );
        let allowed = answer(&Response::allow("u").patched(&[]).warning(Vec::new()));
        assert_eq!(allowed["response"], json!({"uid": "u", "allowed": true}));
    }
}
