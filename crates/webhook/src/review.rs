//! One question and its answer. What isn't known to be about a pod of ours is let pass.

use std::collections::{BTreeMap, BTreeSet};

use mpshare_api::admission_review::{Request, Response};
use mpshare_api::admitted_pod::AdmittedPod;
use mpshare_core::Reason;
use mpshare_core::admission::{Fleet, Policy, change, guard, judge};
use serde::Deserialize as _;
use thiserror::Error;

use crate::metrics::Outcome;
use crate::mode::Mode;
use crate::patch::operations;
use crate::warnings::warnings;

/// Why a question has no answer.
#[derive(Debug, Error)]
pub enum Unanswerable {
    /// The API server sends an object with each write that is answered here.
    #[error("the AdmissionReview's request has no `{0}`")]
    NoObject(&'static str),
    /// A field of the wrong type.
    #[error("`{field}` of the AdmissionReview's request can't be read: {problem}")]
    Object {
        /// Of `object` and `oldObject`.
        field: &'static str,
        /// What is wrong with it.
        problem: serde_json::Error,
    },
}

/// By what a question is answered.
#[derive(Debug, Clone, Copy)]
pub struct Rules<'a> {
    /// What the cluster's owner wants of pods.
    pub policy: &'a Policy,
    /// The cards that there are.
    pub fleet: &'a Fleet,
    /// Users that may write our annotations.
    pub own_accounts: &'a BTreeSet<String>,
}

/// An answer, and what is to be counted.
#[derive(Debug)]
pub struct Reviewed {
    /// The answer.
    pub response: Response,
    /// What was found, whatever the mode makes of it.
    pub findings: Vec<Reason>,
    pub(crate) outcome: Outcome,
}

/// The writes that are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Write {
    Creation,
    EphemeralContainers,
    /// Of the pod or its status; annotations can change with both.
    Change,
    /// Its annotations become the pod's.
    Binding,
    Other,
}

/// Changes a pod so that it means what its author says; never refuses it.
pub fn mutate(rules: Rules<'_>, mode: Mode, request: &Request) -> Result<Reviewed, Unanswerable> {
    // Containers that are added for debugging can't ask for units.
    if write(request) != Write::Creation {
        return Ok(allowed(request));
    }
    let subject = pod(request, Side::New)?.subject(rules.fleet.resources());
    let changes = change(&subject, rules.fleet, rules.policy);
    let operations = operations(&request.object, &changes.edits);
    let outcome = if operations.is_empty() { Outcome::Allowed } else { Outcome::Patched };
    let shown = if mode == Mode::Audit { Vec::new() } else { warnings(&changes.notes) };
    let response = Response::allow(&request.uid).patched(&operations).warning(shown);
    Ok(Reviewed { response, findings: changes.notes, outcome })
}

/// Says what is wrong with a write, in the way of the mode.
pub fn validate(rules: Rules<'_>, mode: Mode, request: &Request) -> Result<Reviewed, Unanswerable> {
    let mut findings = match write(request) {
        Write::Creation | Write::EphemeralContainers => judged(rules, request)?,
        Write::Change | Write::Binding => Vec::new(),
        Write::Other => return Ok(allowed(request)),
    };
    if !rules.own_accounts.contains(&request.user_info.username) {
        findings.extend(guarded(request)?);
    }
    if findings.is_empty() {
        return Ok(allowed(request));
    }
    let (response, outcome) = match mode {
        Mode::Enforce => {
            let sentences: Vec<String> = findings.iter().map(Reason::to_string).collect();
            (Response::deny(&request.uid, sentences.join("; ")), Outcome::Denied)
        }
        Mode::Warn => {
            let response = Response::allow(&request.uid).warning(warnings(&findings));
            (response, Outcome::Warned)
        }
        Mode::Audit => (Response::allow(&request.uid), Outcome::Audited),
    };
    Ok(Reviewed { response, findings, outcome })
}

fn write(request: &Request) -> Write {
    if !request.resource.group.is_empty() {
        return Write::Other;
    }
    let resource = request.resource.resource.as_str();
    match (resource, request.sub_resource.as_str(), request.operation.as_str()) {
        ("pods", "", "CREATE") => Write::Creation,
        ("pods", "ephemeralcontainers", "UPDATE") => Write::EphemeralContainers,
        ("pods", "" | "status", "UPDATE") => Write::Change,
        ("pods", "binding", "CREATE") | ("bindings", "", "CREATE") => Write::Binding,
        _ => Write::Other,
    }
}

fn allowed(request: &Request) -> Reviewed {
    let response = Response::allow(&request.uid);
    Reviewed { response, findings: Vec::new(), outcome: Outcome::Allowed }
}

/// What is wrong with the pod. What was wrong with it before isn't held against a container that
/// is added for debugging: the pod runs already.
fn judged(rules: Rules<'_>, request: &Request) -> Result<Vec<Reason>, Unanswerable> {
    let judge =
        |pod: AdmittedPod| judge(&pod.subject(rules.fleet.resources()), rules.fleet, rules.policy);
    let mut findings = judge(pod(request, Side::New)?);
    if !request.old_object.is_null() {
        let before = judge(pod(request, Side::Old)?);
        findings.retain(|finding| !before.contains(finding));
    }
    Ok(findings)
}

/// What is wrong with who writes our annotations.
fn guarded(request: &Request) -> Result<Option<Reason>, Unanswerable> {
    let after = pod(request, Side::New)?;
    if request.old_object.is_null() {
        return Ok(guard(&BTreeMap::new(), after.annotations()));
    }
    Ok(guard(pod(request, Side::Old)?.annotations(), after.annotations()))
}

#[derive(Debug, Clone, Copy)]
enum Side {
    Old,
    New,
}

/// The pod; of a Binding the metadata, which is all that is asked of it.
fn pod(request: &Request, side: Side) -> Result<AdmittedPod, Unanswerable> {
    let (field, object) = match side {
        Side::Old => ("oldObject", &request.old_object),
        Side::New => ("object", &request.object),
    };
    if object.is_null() {
        return Err(Unanswerable::NoObject(field));
    }
    AdmittedPod::deserialize(object).map_err(|problem| Unanswerable::Object { field, problem })
}
