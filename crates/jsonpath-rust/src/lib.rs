//! The part of the crate `jsonpath-rust` that `kube-client` uses: the value at a path.
//!
//! kube-client asks for one thing, the token in the answer of a program that a kubeconfig names
//! below `auth-provider`. The whole crate answers it with a parser generator, filters and a regex
//! engine, which were a tenth of a program that three processes on every node keep in memory. Here
//! are paths of names and indexes (RFC 9535: `$.a['b'][0]`); any other is an error that names it.

use serde_json::Value;
use thiserror::Error;

/// A path that isn't understood.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("`{0}` isn't a path of names and indexes, such as `$.credential.access_token`")]
pub struct JsonPathError(String);

/// Values that are asked by path.
pub trait JsonPath {
    /// The values at a path: one, or none.
    fn query(&self, path: &str) -> Result<Vec<&Self>, JsonPathError>;
}

impl JsonPath for Value {
    fn query(&self, path: &str) -> Result<Vec<&Self>, JsonPathError> {
        let steps = steps(path).ok_or_else(|| JsonPathError(path.to_owned()))?;
        let found = steps.into_iter().try_fold(self, |value, step| match step {
            Step::Name(name) => value.as_object()?.get(name),
            Step::Index(index) => value.as_array()?.get(index),
        });
        Ok(found.into_iter().collect())
    }
}

/// From a value to one inside of it.
enum Step<'a> {
    Name(&'a str),
    Index(usize),
}

fn steps(path: &str) -> Option<Vec<Step<'_>>> {
    let mut rest = path.strip_prefix('$')?;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        let step;
        (step, rest) = match rest.strip_prefix('[') {
            Some(bracket) => bracketed(bracket)?,
            None => dotted(rest.strip_prefix('.')?)?,
        };
        steps.push(step);
    }
    Some(steps)
}

fn dotted(text: &str) -> Option<(Step<'_>, &str)> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    (!name.is_empty()).then_some((Step::Name(name), rest))
}

fn bracketed(text: &str) -> Option<(Step<'_>, &str)> {
    for quote in ['\'', '"'] {
        if let Some(quoted) = text.strip_prefix(quote) {
            let (name, rest) = quoted.split_once(quote)?;
            return Some((Step::Name(name), rest.strip_prefix(']')?));
        }
    }
    let (index, rest) = text.split_once(']')?;
    Some((Step::Index(index.parse().ok()?), rest))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_path_leads_to_the_value_there() {
        let answer = json!({"credential": {"access_token": "t", "a.b": ["x", "y"]}});
        assert_eq!(answer.query("$.credential.access_token"), Ok(vec![&json!("t")]));
        assert_eq!(answer.query("$['credential'].access_token"), Ok(vec![&json!("t")]));
        assert_eq!(answer.query("$.credential[\"a.b\"][1]"), Ok(vec![&json!("y")]));
        assert_eq!(answer.query("$"), Ok(vec![&answer]));
    }

    #[test]
    fn where_nothing_is_nothing_is_found() {
        let answer = json!({"list": ["x"], "text": "t"});
        for path in ["$.none", "$.list[1]", "$.list.name", "$.text[0]", "$.text.more"] {
            assert_eq!(answer.query(path), Ok(vec![]));
        }
    }

    #[test]
    fn what_is_not_understood_is_an_error_that_names_it() {
        for path in ["", "a", "$a", "$.", "$..a", "$.*", "$[*]", "$[?@.a]", "$['a", "$[0", "$.a b"]
        {
            assert_eq!(json!({}).query(path), Err(JsonPathError(path.to_owned())));
        }
    }
}
