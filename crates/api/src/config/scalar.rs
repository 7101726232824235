//! Values that the format takes in several forms, with their position.
//!
//! They accept any scalar, so that it is the meaning that is refused, in words about the meaning,
//! and not a type of the YAML library.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

use super::mistake::Position;

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct At<T> {
    pub(crate) value: T,
    pub(crate) at: Position,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for At<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = serde_saphyr::Spanned::<T>::deserialize(deserializer)?;
        Ok(Self { value: spanned.value, at: spanned.referenced.into() })
    }
}

impl<T: JsonSchema> JsonSchema for At<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

impl From<serde_saphyr::Location> for Position {
    fn from(location: serde_saphyr::Location) -> Self {
        Self {
            line: usize::try_from(location.line()).unwrap_or(0),
            column: usize::try_from(location.column()).unwrap_or(0),
        }
    }
}

/// A whole number, or whatever stands in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Number {
    Whole(i128),
    /// Shown as written.
    Other(String),
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(number) => number.fmt(f),
            Self::Other(text) => f.write_str(text),
        }
    }
}

struct NumberVisitor;

impl Visitor<'_> for NumberVisitor {
    type Value = Number;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number")
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Number, E> {
        Ok(Number::Whole(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Number, E> {
        Ok(Number::Whole(value.into()))
    }

    fn visit_i128<E: Error>(self, value: i128) -> Result<Number, E> {
        Ok(Number::Whole(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Number, E> {
        Ok(Number::Other(value.to_string()))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Number, E> {
        Ok(Number::Other(value.to_string()))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Number, E> {
        Ok(Number::Other(value.to_owned()))
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberVisitor)
    }
}

impl JsonSchema for Number {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Number".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer" })
    }
}

/// An amount of memory, or whatever stands in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Amount(pub(crate) Number);

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Number::deserialize(deserializer).map(Self)
    }
}

impl JsonSchema for Amount {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Amount".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-9]+[GM]i$" })
    }
}

/// One value, or a list of values with their positions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OneOrMany {
    One(Number),
    Many(Vec<At<Number>>),
}

struct OneOrManyVisitor;

impl<'de> Visitor<'de> for OneOrManyVisitor {
    type Value = OneOrMany;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value or a list of values")
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<OneOrMany, E> {
        NumberVisitor.visit_i64(value).map(OneOrMany::One)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<OneOrMany, E> {
        NumberVisitor.visit_u64(value).map(OneOrMany::One)
    }

    fn visit_i128<E: Error>(self, value: i128) -> Result<OneOrMany, E> {
        NumberVisitor.visit_i128(value).map(OneOrMany::One)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<OneOrMany, E> {
        NumberVisitor.visit_f64(value).map(OneOrMany::One)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<OneOrMany, E> {
        NumberVisitor.visit_bool(value).map(OneOrMany::One)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<OneOrMany, E> {
        NumberVisitor.visit_str(value).map(OneOrMany::One)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<OneOrMany, A::Error> {
        let mut many = Vec::new();
        while let Some(value) = seq.next_element()? {
            many.push(value);
        }
        Ok(OneOrMany::Many(many))
    }
}

impl OneOrMany {
    fn deserialize_any<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneOrManyVisitor)
    }
}

/// `devices`: `all`, a count, or a list of indexes and UUIDs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Devices(pub(crate) OneOrMany);

impl<'de> Deserialize<'de> for Devices {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        OneOrMany::deserialize_any(deserializer).map(Self)
    }
}

impl JsonSchema for Devices {
    fn schema_name() -> Cow<'static, str> {
        "Devices".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "`all`, the number of cards, or a list of NVML indexes and UUIDs.",
            "oneOf": [
                { "const": "all" },
                { "type": "integer", "minimum": 1 },
                {
                    "type": "array",
                    "minItems": 1,
                    "items": {
                        "oneOf": [
                            { "type": "integer", "minimum": 0 },
                            { "type": "string", "pattern": "^([0-9]+|GPU-[0-9a-fA-F-]+)$" }
                        ]
                    }
                }
            ]
        })
    }
}

/// `deviceListStrategy`: one strategy or a list of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Strategies(pub(crate) OneOrMany);

impl<'de> Deserialize<'de> for Strategies {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        OneOrMany::deserialize_any(deserializer).map(Self)
    }
}

impl JsonSchema for Strategies {
    fn schema_name() -> Cow<'static, str> {
        "DeviceListStrategies".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let one =
            json_schema!({ "enum": ["envvar", "volume-mounts", "cdi-annotations", "cdi-cri"] });
        json_schema!({
            "description": "How a container is told of its cards: one strategy or a list.",
            "oneOf": [one, { "type": "array", "minItems": 1, "items": one }]
        })
    }
}

/// A duration in Go's form, or nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GoDuration;

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberVisitor).map(|_| Self)
    }
}

impl JsonSchema for GoDuration {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "integer"] })
    }
}
