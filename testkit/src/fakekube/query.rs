//! The query of a request, decoded.

use std::collections::BTreeMap;

use axum::http::Uri;

use super::error::ApiError;

/// Query parameters by name; of a repeated one the last counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Query(BTreeMap<String, String>);

impl Query {
    pub(crate) fn of(uri: &Uri) -> Result<Self, ApiError> {
        axum::extract::Query::<Vec<(String, String)>>::try_from_uri(uri)
            .map(|pairs| Self(pairs.0.into_iter().collect()))
            .map_err(|error| ApiError::bad_request(error.to_string()))
    }

    /// A parameter that is present and not empty.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|text| !text.is_empty())
    }

    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, ApiError> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        text.parse().map(Some).map_err(|_| {
            ApiError::bad_request(format!("invalid {name}: \"{text}\" is not a number"))
        })
    }

    /// Whether a flag is set.
    pub(crate) fn is_set(&self, name: &str) -> bool {
        matches!(self.text(name), Some("true" | "1"))
    }
}
