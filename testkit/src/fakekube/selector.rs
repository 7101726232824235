//! Label and field selectors, in the grammar that clients put into queries.

use super::error::ApiError;
use super::object::Object;
use super::resource::ResourceType;

/// A conjunction of label requirements; the empty one selects everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LabelSelector(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    Exists,
    Absent,
    In(Vec<String>),
    NotIn(Vec<String>),
}

impl LabelSelector {
    pub(crate) fn parse(text: &str) -> Result<Self, ApiError> {
        split_outside_parentheses(text)
            .into_iter()
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .map(requirement)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    pub(crate) fn matches(&self, object: &Object) -> bool {
        self.0.iter().all(|requirement| {
            let label = object.label(&requirement.key);
            match &requirement.test {
                Test::Exists => label.is_some(),
                Test::Absent => label.is_none(),
                Test::In(values) => label.is_some_and(|l| values.iter().any(|v| v == l)),
                // An object without the label satisfies != and notin.
                Test::NotIn(values) => label.is_none_or(|l| values.iter().all(|v| v != l)),
            }
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A conjunction of equalities and inequalities on fields that the kind supports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldSelector(Vec<FieldTest>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct FieldTest {
    pointer: String,
    value: String,
    relation: Relation,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Relation {
    Equal,
    Different,
}

impl FieldSelector {
    /// Parses a selector; a field that the kind doesn't offer is refused, as by the real server.
    pub(crate) fn parse(resource: &ResourceType, text: &str) -> Result<Self, ApiError> {
        text.split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .map(|part| field_test(resource, part))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    pub(crate) fn matches(&self, object: &Object) -> bool {
        self.0.iter().all(|test| {
            // A missing field reads as the empty text.
            let actual = match object.value().pointer(&test.pointer) {
                Some(serde_json::Value::Bool(flag)) => flag.to_string(),
                Some(serde_json::Value::Number(number)) => number.to_string(),
                Some(other) => other.as_str().unwrap_or_default().to_owned(),
                None => String::new(),
            };
            (actual == test.value) == (test.relation == Relation::Equal)
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn requirement(text: &str) -> Result<Requirement, ApiError> {
    let of = |key: &str, test| {
        let key = key.trim();
        if key.is_empty() || key.contains([' ', '(', ')', '!', '=']) {
            return Err(unparsable(text));
        }
        Ok(Requirement { key: key.to_owned(), test })
    };
    if let Some(key) = text.strip_prefix('!') {
        return of(key, Test::Absent);
    }
    if let Some((head, values)) = text.split_once('(') {
        let values = values.strip_suffix(')').ok_or_else(|| unparsable(text))?;
        let values = values.split(',').map(|v| v.trim().to_owned()).collect();
        let mut words = head.split_whitespace();
        return match (words.next(), words.next(), words.next()) {
            (Some(key), Some("in"), None) => of(key, Test::In(values)),
            (Some(key), Some("notin"), None) => of(key, Test::NotIn(values)),
            _ => Err(unparsable(text)),
        };
    }
    if let Some((key, value)) = text.split_once("!=") {
        return of(key, Test::NotIn(vec![value.trim().to_owned()]));
    }
    if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return of(key, Test::In(vec![value.trim().to_owned()]));
    }
    of(text, Test::Exists)
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    text.split(move |c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
    .collect()
}

fn unparsable(text: &str) -> ApiError {
    ApiError::bad_request(format!("unable to parse requirement: {text}"))
}

fn field_test(resource: &ResourceType, text: &str) -> Result<FieldTest, ApiError> {
    let (field, value, relation) = if let Some((field, value)) = text.split_once("!=") {
        (field, value, Relation::Different)
    } else if let Some((field, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        (field, value, Relation::Equal)
    } else {
        return Err(ApiError::bad_request(format!(
            "invalid selector: '{text}'; can't understand '{text}'"
        )));
    };
    let pointer = pointer_of(resource, field.trim()).ok_or_else(|| {
        ApiError::bad_request(format!(
            "Unable to find \"{}\" that match label selector \"\", field selector \"{text}\": \
             field label not supported: {field}",
            resource.qualified()
        ))
    })?;
    Ok(FieldTest { pointer, value: value.trim().to_owned(), relation })
}

/// Where the value of a field label is found in the stored form, if the kind supports the label.
fn pointer_of(resource: &ResourceType, field: &str) -> Option<String> {
    let path = if resource.is_new_style_event() {
        field.replacen("regarding.", "involvedObject.", 1)
    } else {
        field.to_owned()
    };
    if path == "source" && resource.plural == "events" {
        return Some("/source/component".to_owned());
    }
    let supported = matches!(path.as_str(), "metadata.name" | "metadata.namespace")
        || supported_fields(&resource.plural).contains(&path.as_str());
    supported.then(|| format!("/{}", path.replace('.', "/")))
}

fn supported_fields(plural: &str) -> &'static [&'static str] {
    match plural {
        "pods" => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        "nodes" => &["spec.unschedulable"],
        "namespaces" => &["status.phase"],
        "secrets" => &["type"],
        "jobs" => &["status.successful"],
        "events" => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "type",
        ],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn selects(selector: &str, labels: &serde_json::Value) -> bool {
        let object = Object::new(json!({"metadata": {"labels": labels}})).unwrap();
        LabelSelector::parse(selector).unwrap().matches(&object)
    }

    #[test]
    fn every_label_operator_decides_as_documented() {
        let labels = json!({"a": "1", "b": "2"});
        for (selector, expected) in [
            ("", true),
            ("a=1", true),
            ("a==1,b=2", true),
            ("a=1,b=3", false),
            ("a!=2", true),
            ("c!=2", true),
            ("a in (1, 5),b notin (3,4)", true),
            ("a notin (1)", false),
            ("c notin (1)", true),
            ("a", true),
            ("!a", false),
            ("!c", true),
        ] {
            assert_eq!(selects(selector, &labels), expected, "{selector}");
        }
    }

    #[test]
    fn a_broken_selector_is_a_bad_request() {
        for selector in ["a in 1", "a in (1", "a b", "=1", "a near (1)"] {
            assert_eq!(LabelSelector::parse(selector).unwrap_err().code, 400, "{selector}");
        }
    }
}
