//! JSON schemas of the types of fields, for the document of the API. A type that derives its parsing
//! derives its schema; a type that parses by itself states its schema beside that.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::types::{List, Members, NonEmpty, Object, Required};

/// States the schema of a type that parses by itself.
macro_rules! schema {
    ($type:ty, $generator:pat_param => $schema:expr) => {
        impl schemars::JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                concat!(module_path!(), "::", stringify!($type)).into()
            }

            fn json_schema($generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                $schema
            }
        }
    };
}

/// A type whose values have names: its parsing and its schema.
macro_rules! named {
    ($type:ty { $($name:literal => $value:expr),+ $(,)? }) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::api::fields::types::one_of(deserializer, &[$(($name, $value)),+])
            }
        }

        $crate::api::fields::schema::schema!($type, _ => schemars::json_schema!({
            "type": "string",
            "enum": [$($name),+],
        }));
    };
}

pub(crate) use {named, schema};

/// The schema of a type that is written as `T` is.
macro_rules! transparent {
    ($name:ident) => {
        impl<T: JsonSchema> JsonSchema for $name<T> {
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
    };
}

transparent!(Required);
transparent!(Object);

impl<T: JsonSchema> JsonSchema for List<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("List_of_{}", T::schema_name()).into()
    }

    fn schema_id() -> Cow<'static, str> {
        format!("List<{}>", T::schema_id()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let item = generator.subschema_for::<T>();
        json_schema!({"type": "array", "items": item})
    }
}

impl<T: JsonSchema> JsonSchema for Members<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Members_of_{}", T::schema_name()).into()
    }

    fn schema_id() -> Cow<'static, str> {
        format!("Members<{}>", T::schema_id()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let member = generator.subschema_for::<T>();
        json_schema!({"type": "object", "additionalProperties": member})
    }
}

schema!(NonEmpty, _ => json_schema!({"type": "string", "minLength": 1}));
