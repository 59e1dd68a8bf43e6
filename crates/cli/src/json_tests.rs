//! The JSON of the commands is what the schemas in `docs/guide/schemas` say: every field is in the
//! schema, and every field of the schema is there.

use std::sync::Arc;

use extol::{Ext4, MountOptions};
use extol_block::{MemDevice, SharedDevice};
use extol_cli_common::{FORMAT_VERSION, json_text};
use extol_vfs::FileSystem as _;
use serde::Serialize;
use serde_json::Value;

/// What of a schema these files use: types, fields, items, constants.
fn check(schema: &Value, value: &Value, at: &str) {
    if let Some(constant) = schema.get("const") {
        assert_eq!(value, constant, "{at}");
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
                    (None, Value::Bool(false)) => panic!("{at}.{name} is in no schema"),
                    (None, Value::Null) => {}
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

#[track_caller]
fn fits(schema: &str, value: &impl Serialize) {
    let schema: Value = serde_json::from_str(schema).expect("a schema");
    let text = json_text(value).expect("JSON");
    let value: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(value["format_version"], FORMAT_VERSION);
    check(&schema, &value, schema["title"].as_str().expect("a title"));
}

fn volume(features: &str) -> SharedDevice {
    let device = MemDevice::new(32 << 20);
    let options =
        extol::mkfs::MkfsOptions { features: vec![features.to_owned()], ..Default::default() };
    extol::mkfs::mkfs(&device, &options, &mut |_| {}).expect("mkfs");
    Arc::new(device)
}

#[test]
fn outputs_are_what_the_schemas_say() {
    for features in ["fast_commit", "^has_journal", "orphan_file"] {
        let device = volume(features);
        let fs = Ext4::open(Arc::clone(&device), &MountOptions::default()).expect("open");
        fs.write_file("/file", b"contents").expect("a file");
        for n in 0..4 {
            let name = format!("synced-{n}");
            fs.write_file(format!("/{name}"), b"contents").expect("a file");
            let ino = fs.lookup(fs.root(), name.as_bytes()).expect("a name").id.ino;
            fs.fsync(ino, false).expect("fsync");
        }
        let stat = include_str!("../../../docs/guide/schemas/stat.json");
        fits(stat, &fs.stats());
        fs.crash();
        fits(stat, &fs.stats());
        drop(fs);
        let info = include_str!("../../../docs/guide/schemas/info.json");
        fits(info, &extol::info(&device).expect("info"));
        let options = MountOptions::default();
        if features != "^has_journal" {
            let log = include_str!("../../../docs/guide/schemas/log.json");
            let report = extol::inspect_journal(&device, &options).expect("log");
            assert!(features != "fast_commit" || !report.fast_commits.is_empty());
            fits(log, &report);
        }
        let replay = include_str!("../../../docs/guide/schemas/replay.json");
        fits(replay, &extol::replay(&device, &options).expect("replay"));
        let check = include_str!("../../../docs/guide/schemas/check.json");
        let opts = extol_check::CheckOptions {
            recovery: extol_check::Recovery::InMemory,
            ..Default::default()
        };
        let checked = extol_check::check(Arc::clone(&device), &opts, &mut |_| {});
        fits(check, &checked.expect("a check"));
        fits(info, &extol::info(&device).expect("info"));
    }
}

/// A schema that allows everything would prove nothing.
#[test]
#[should_panic(expected = ".more is in no schema")]
fn a_field_without_a_schema_is_found() {
    #[derive(Serialize)]
    struct More {
        #[serde(flatten)]
        info: extol::Info,
        more: u32,
    }
    let info = extol::info(&volume("fast_commit")).expect("info");
    fits(include_str!("../../../docs/guide/schemas/info.json"), &More { info, more: 1 });
}
