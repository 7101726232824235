//! A request to objects, taken apart: route, query, headers and body.

use axum::body::Bytes;
use axum::http::{HeaderMap, Method, header};
use serde_json::Value;

use super::error::ApiError;
use super::lifecycle::DeleteOptions;
use super::query::Query;
use super::representation::Form;
use super::route::Route;
use super::write::Keep;

/// A request, taken apart.
pub(crate) struct Asked {
    pub(crate) method: Method,
    pub(crate) route: Route,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Asked {
    /// The verb as audit logs and authorisation rules call it.
    pub(crate) fn verb(&self) -> &'static str {
        let one = self.route.name.is_some();
        match (self.method.as_str(), one) {
            ("GET", _) if self.query.is_set("watch") => "watch",
            ("GET", true) => "get",
            ("GET", false) => "list",
            ("POST", _) => "create",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            ("DELETE", true) => "delete",
            ("DELETE", false) => "deletecollection",
            _ => "",
        }
    }

    pub(crate) fn header(&self, name: header::HeaderName) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    pub(crate) fn form(&self) -> Form {
        Form::chosen(self.header(header::ACCEPT), &self.query)
    }

    pub(crate) fn keep(&self) -> Keep {
        match self.query.text("dryRun") {
            Some(_) => Keep::DryRun,
            None => Keep::Store,
        }
    }

    pub(crate) fn json(&self) -> Result<Value, ApiError> {
        // `kubectl create configmap NAME` and its like send protobuf; `kubectl create -f` doesn't.
        let media_type = self.header(header::CONTENT_TYPE);
        if media_type.starts_with("application/vnd.kubernetes.protobuf") {
            return Err(ApiError::new(
                415,
                "UnsupportedMediaType",
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json",
            ));
        }
        serde_json::from_slice(&self.body).map_err(|error| {
            ApiError::bad_request(format!("the body can't be decoded as JSON: {error}"))
        })
    }

    pub(crate) fn delete_options(&self) -> Result<DeleteOptions, ApiError> {
        let body = if self.body.is_empty() { Value::Null } else { self.json()? };
        let mut options = DeleteOptions::from_body(&body);
        if let Some(grace) = self.query.number("gracePeriodSeconds")? {
            options.grace_seconds = Some(i64::try_from(grace).unwrap_or(i64::MAX));
        }
        Ok(options)
    }
}
