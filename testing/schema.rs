//! A check of values by the schemas in `docs/guide/schemas`, for the tests of several crates.
//!
//! The schemas are open, as a later version may add fields. Here they are closed: each field of an
//! output is in its schema.

use serde_json::Value;

/// What of a schema these files use: types, fields, items, constants, words, and
/// variants that a constant, the type or the fields tell apart.
pub fn check(schema: &Value, value: &Value, at: &str) {
    if let Some(constant) = schema.get("const") {
        assert_eq!(value, constant, "{at}");
    }
    if let Some(words) = schema["enum"].as_array() {
        assert!(words.contains(value), "{at} is {value}, and none of {words:?}");
    }
    if let Some(variants) = schema["oneOf"].as_array() {
        let variant = variants.iter().find(|variant| is_of(variant, value));
        check(variant.unwrap_or_else(|| panic!("{at}: no variant for {value}")), value, at);
        return;
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let is_allowed = match schema.get("type") {
        None => true,
        Some(Value::Array(kinds)) => kinds.iter().any(|k| k == kind),
        Some(one) => one == kind || (one == "number" && kind == "integer"),
    };
    assert!(is_allowed, "{at} is {kind}, and not {}", schema["type"]);
    match value {
        Value::Object(fields) => {
            for name in schema["required"].as_array().into_iter().flatten() {
                let name = name.as_str().expect("a name");
                assert!(fields.contains_key(name), "{at}.{name} is missing");
            }
            for (name, value) in fields {
                match (
                    schema.pointer(&format!("/properties/{name}")),
                    &schema["additionalProperties"],
                ) {
                    (Some(field), _) => check(field, value, &format!("{at}.{name}")),
                    (None, Value::Null | Value::Bool(false)) => {
                        panic!("{at}.{name} is in no schema")
                    }
                    (None, Value::Bool(true)) => {}
                    (None, others) => check(others, value, &format!("{at}.{name}")),
                }
            }
        }
        Value::Array(items) => {
            for (n, item) in items.iter().enumerate() {
                check(&schema["items"], item, &format!("{at}[{n}]"));
            }
        }
        _ => {}
    }
}

/// True if a value is meant to be of this variant.
fn is_of(variant: &Value, value: &Value) -> bool {
    let Some(fields) = value.as_object() else {
        return match variant["type"].as_str() {
            Some("null") => value.is_null(),
            Some("string") => value.is_string(),
            _ => false,
        };
    };
    let Some(properties) = variant["properties"].as_object() else { return false };
    let constants = properties.iter().filter_map(|(name, field)| Some((name, field.get("const")?)));
    let required = variant["required"].as_array().into_iter().flatten();
    constants.into_iter().all(|(name, constant)| fields.get(name) == Some(constant))
        && required.filter_map(Value::as_str).all(|name| fields.contains_key(name))
}
