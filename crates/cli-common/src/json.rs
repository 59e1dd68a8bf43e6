//! The JSON of all commands: one object, which begins with the version of its format.
//!
//! Within a version, fields are added and none is renamed, removed or given another meaning. The
//! fields are listed in `docs/guide/json.md` and in the schemas beside it.

use serde::Serialize;

use crate::{Failure, Result};

/// The version of the format, of every command.
pub const FORMAT_VERSION: u32 = 1;

#[derive(Serialize)]
struct Versioned<'a, T> {
    format_version: u32,
    #[serde(flatten)]
    value: &'a T,
}

fn fail(error: serde_json::Error) -> Failure {
    Failure { line: format!("JSON: {error}"), code: Failure::INTERNAL }
}

fn versioned<T: Serialize>(value: &T) -> Versioned<'_, T> {
    Versioned { format_version: FORMAT_VERSION, value }
}

/// An object as JSON of several lines.
///
/// # Errors
/// If it is none.
pub fn json_text(value: &impl Serialize) -> Result<String> {
    serde_json::to_string_pretty(&versioned(value)).map(|text| text + "\n").map_err(fail)
}

/// An object as JSON of one line, for output that goes on.
///
/// # Errors
/// If it is none.
pub fn json_line(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(&versioned(value)).map(|text| text + "\n").map_err(fail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_comes_first() {
        let value = serde_json::json!({"a": 1, "z": {"b": null}});
        let line =
            format!("{{\"format_version\":{FORMAT_VERSION},\"a\":1,\"z\":{{\"b\":null}}}}\n");
        assert_eq!(json_line(&value).unwrap(), line);
        assert!(json_text(&value).unwrap().starts_with("{\n  \"format_version\": "));
        assert_eq!(json_line(&[1, 2]).unwrap_err().code, Failure::INTERNAL, "no object");
    }
}
