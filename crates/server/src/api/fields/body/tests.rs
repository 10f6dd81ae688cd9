//! The bodies that are JSON objects, and the texts of faults in fields.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{JsonBody, read_value};
use crate::api::fields::numbers::{Count, Int, Share};
use crate::api::fields::types::{List, Members, Object, Required};
use crate::error::{ApiError, ErrorCode};

#[derive(Debug, Deserialize)]
struct Fields {
    #[serde(rename = "name")]
    _name: Required<String>,
    #[serde(rename = "count")]
    _count: Option<Int<1, 128>>,
    #[serde(rename = "seed")]
    _seed: Option<Int<{ i64::MIN }, { i64::MAX }>>,
    #[serde(rename = "budget")]
    _budget: Option<Count<1>>,
    #[serde(rename = "share")]
    _share: Option<Share>,
    #[serde(rename = "flag")]
    _flag: Option<bool>,
    #[serde(rename = "inner")]
    _inner: Option<Object<Inner>>,
    #[serde(rename = "list")]
    _list: Option<List<Object<Inner>>>,
    #[serde(rename = "map")]
    _map: Option<Members<Share>>,
}

#[derive(Debug, Deserialize)]
struct Inner {
    #[serde(rename = "size")]
    _size: Required<Int<0, 9>>,
}

fn read(text: &str) -> Result<Fields, ApiError> {
    JsonBody::new(text.as_bytes())?.read()
}

/// The code, the field and the rest of the message.
fn fault(text: &str) -> (ErrorCode, Option<String>, String) {
    let error = read(text).expect_err(text);
    (error.code, error.param, error.message)
}

#[test]
fn other_than_one_strict_object_is_invalid_json() {
    let deep = "[".repeat(200) + &"]".repeat(200);
    for text in [
        "",
        " ",
        "[]",
        "7",
        "{} {}",
        r#"{"a": 1, "a": 1}"#,
        r#"{"a": {"b": [{"c": 1, "c": 1}]}}"#,
        r#"{"a": 1e999}"#,
        r#"{"a": "\ud800"}"#,
        &format!(r#"{{"a": {deep}}}"#),
    ] {
        let (code, param, _) = fault(text);
        assert_eq!((code, param), (ErrorCode::InvalidJson, None), "{text}");
    }
    // A fault of the syntax wins over one of a field before it.
    assert_eq!(fault(r#"{"name": 7, "#).0, ErrorCode::InvalidJson);
    assert_eq!(fault("[]").2, "the body must be a JSON object, got a list");
}

#[test]
fn the_number_of_values_is_bounded_but_for_integer_lists() {
    let list = |item: &str, count: usize| {
        let items = vec![item; count].join(",");
        format!(r#"{{"name": "x", "a": [{items}]}}"#)
    };
    assert!(read(&list("1", 1 << 21)).is_ok());
    assert_eq!(fault(&list("1", (1 << 21) + 1)).0, ErrorCode::InvalidJson);
    assert_eq!(fault(&list("{}", 1 << 21)).0, ErrorCode::InvalidJson);
    let mixed = list("1", 1 << 21).replace("]", ",{}]");
    assert_eq!(fault(&mixed).0, ErrorCode::InvalidJson);
}

/// A field, the code of its fault, the message.
const FAULTS: &[(&str, ErrorCode, &str)] = &[
    (r#""count": "x""#, ErrorCode::InvalidType, "count must be an integer in 1..128, got a string"),
    (r#""count": 1.5"#, ErrorCode::InvalidType, "count must be an integer in 1..128, got a number"),
    (
        r#""count": true"#,
        ErrorCode::InvalidType,
        "count must be an integer in 1..128, got a boolean",
    ),
    (r#""count": 0"#, ErrorCode::InvalidValue, "count must be an integer in 1..128, got 0"),
    (
        r#""count": 18446744073709551615"#,
        ErrorCode::InvalidValue,
        "count must be an integer in 1..128, got 18446744073709551615",
    ),
    (
        r#""budget": 10000000000000000000"#,
        ErrorCode::InvalidValue,
        "budget must be an integer in 1..9223372036854775807, got 10000000000000000000",
    ),
    (r#""budget": 0"#, ErrorCode::InvalidValue, "budget must be an integer of at least 1, got 0"),
    (r#""seed": 1.5"#, ErrorCode::InvalidType, "seed must be a 64-bit integer, got a number"),
    (r#""share": 2"#, ErrorCode::InvalidValue, "share must be in 0..1, got 2"),
    (r#""share": [1]"#, ErrorCode::InvalidType, "share must be a number, got a list"),
    (r#""flag": 1"#, ErrorCode::InvalidType, "flag must be a boolean, got an integer"),
    (r#""inner": [3]"#, ErrorCode::InvalidType, "inner must be an object, got a list"),
    (r#""inner": {}"#, ErrorCode::MissingRequiredParameter, "inner.size is required"),
    (r#""inner": {"size": null}"#, ErrorCode::MissingRequiredParameter, "inner.size is required"),
    (
        r#""inner": {"size": 10}"#,
        ErrorCode::InvalidValue,
        "inner.size must be an integer in 0..9, got 10",
    ),
    (r#""list": {}"#, ErrorCode::InvalidType, "list must be a list, got an object"),
    (r#""list": [null]"#, ErrorCode::InvalidType, "list[0] must be an object, got null"),
    (
        r#""list": [{"size": 1}, {"size": "a, expected b"}]"#,
        ErrorCode::InvalidType,
        "list[1].size must be an integer in 0..9, got a string",
    ),
    (r#""map": {"a.b": 2}"#, ErrorCode::InvalidValue, "map.a.b must be in 0..1, got 2"),
];

#[test]
fn faults_name_field_expected_and_found() {
    for (field, code, message) in FAULTS {
        let (found, param, text) = fault(&format!(r#"{{"name": "x", {field}}}"#));
        assert_eq!((found, text.as_str()), (*code, *message), "{field}");
        assert!(param.is_some_and(|param| text.starts_with(&param)));
    }
    assert_eq!(fault("{}").2, "name is required");
    assert_eq!(fault(r#"{"name": null}"#).2, "name is required");
}

#[test]
fn an_integer_may_be_written_as_a_float() {
    for number in ["4.0", "4e0", "0.4e1", "128.0", "1"] {
        assert!(read(&format!(r#"{{"name": "x", "count": {number}}}"#)).is_ok(), "{number}");
    }
    for number in ["9007199254740992.0", "-9007199254740992.0", "-4.0"] {
        assert!(read(&format!(r#"{{"name": "x", "seed": {number}}}"#)).is_ok(), "{number}");
    }
    let cases = [
        (r#""count": 4.5"#, "count must be an integer in 1..128, got a number"),
        (r#""count": 129.0"#, "count must be an integer in 1..128, got 129"),
        // Rounded when it was read.
        (r#""seed": 9007199254740993.5"#, "seed must be a 64-bit integer, got a number"),
        (r#""seed": 1e17"#, "seed must be a 64-bit integer, got a number"),
        (r#""list": [{"size": 10.0}]"#, "list[0].size must be an integer in 0..9, got 10"),
    ];
    for (field, message) in cases {
        assert_eq!(fault(&format!(r#"{{"name": "x", {field}}}"#)).2, message);
    }
}

#[test]
fn a_body_that_is_no_json_says_why_and_where() {
    let cases = [
        ("", "it is empty"),
        (r#"{"a": 1,}"#, "trailing comma at line 1 column 9"),
        (r#"{"a" 1}"#, "expected `:` at line 1 column 6"),
        ("{\"a\": 1\n \"b\": 2}", "expected `,` or `}` at line 2 column 2"),
        ("{'a': 1}", "key must be a string at line 1 column 2"),
        (r#"{"a": NaN}"#, "expected value at line 1 column 7"),
        (r#"{"a": nul}"#, "expected true, false or null at line 1 column 10"),
        (r#"{"a": [1, 2"#, "the end came while parsing a list at line 1 column 11"),
        (r#"{"a": "b"#, "the end came while parsing a string at line 1 column 8"),
        (r#"{"a": 1} x"#, "trailing characters at line 1 column 10"),
        (r#"{"a": 01}"#, "invalid number at line 1 column 8"),
        (r#"{"a": 1e999}"#, "number out of range at line 1 column 11"),
        (r#"{"a": "\q"}"#, "invalid escape at line 1 column 9"),
        (r#"{"a": {"b": 1, "b": 2}}"#, "the key \"b\" twice at line 1 column 18"),
    ];
    for (body, reason) in cases {
        assert_eq!(fault(body).2, format!("the body is not valid JSON: {reason}"), "{body}");
    }
    let deep = format!(r#"{{"a": {}"#, "[".repeat(200));
    assert!(fault(&deep).2.contains(": more than 128 levels at line 1 column "));
    let many = format!(r#"{{"a": [{}1]}}"#, "{},".repeat(1 << 18));
    assert!(fault(&many).2.contains(": too many values at line 1 column "));
}

#[test]
fn little_of_a_body_comes_back() {
    let long = "x".repeat(5000);
    let (_, param, message) = fault(&format!(r#"{{"name": "x", "map": {{"{long}": 2}}}}"#));
    assert_eq!(param.map(|param| param.len()), Some(4 + 64));
    assert!(message.len() < 200, "{message}");
    let (_, _, message) = fault(&format!(r#"{{"{long}": 1, "{long}": 2}}"#));
    assert!(message.len() < 200, "{message}");
    let digits = "9".repeat(300);
    let (_, _, message) = fault(&format!(r#"{{"name": "x", "count": {digits}}}"#));
    assert!(message.len() < 200, "{message}");
}

#[test]
fn absent_null_and_unknown_fields_are_fine() {
    assert!(read(r#"{"name": "x", "count": null, "list": null, "other": {"a": []}}"#).is_ok());
    assert!(read(r#"{"name": "x", "share": 1, "map": {}}"#).is_ok());
}

#[test]
fn values_are_read_below_the_name_of_their_field() {
    let error = read_value::<Inner>("outer.inner", json!({"size": "x"})).expect_err("a string");
    assert_eq!(error.param.as_deref(), Some("outer.inner.size"));
    let error = read_value::<Object<Value>>("outer", json!([])).expect_err("a list");
    assert_eq!(error.message, "outer must be an object, got a list");
}
