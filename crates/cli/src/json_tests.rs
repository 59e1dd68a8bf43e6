//! The JSON of the commands is what the schemas in `docs/guide/schemas` say: every field is in the
//! schema, and every field of the schema is there.

use std::sync::Arc;

use extol::{Ext4, MountOptions};
use extol_block::{MemDevice, SharedDevice};
use extol_cli_common::{FORMAT_VERSION, json_text};
use extol_vfs::FileSystem as _;
use serde::Serialize;
use serde_json::Value;

#[path = "../../../testing/schema.rs"]
mod schema;

use schema::check;

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

/// What mkfs says of an empty volume, a filled one and a journal.
#[test]
fn what_mkfs_says_is_what_the_schema_says() {
    use extol::image::build::{BuildOptions, build};
    use extol::image::source::{DirOptions, DirSource};
    let schema = include_str!("../../../docs/guide/schemas/mkfs.json");
    let target = std::path::Path::new("a.img");
    for features in ["journal_dev", "has_journal"] {
        let options =
            extol::mkfs::MkfsOptions { features: vec![features.into()], ..Default::default() };
        let device = MemDevice::new(32 << 20);
        let summary = extol::mkfs::mkfs(&device, &options, &mut |_| {}).expect("mkfs");
        fits(schema, &crate::mkfs::Made::new(target, &summary, None, &[]));
    }
    let dir = tempfile::tempdir().expect("a directory");
    let mut source = DirSource::open(dir.path(), DirOptions::default()).expect("source");
    let device = MemDevice::new(32 << 20);
    let go_on = &mut |_| std::ops::ControlFlow::Continue(());
    let built = build(&device, &mut source, &BuildOptions::default(), go_on).expect("built");
    fits(schema, &crate::mkfs::Made::new(target, &built.volume, Some(&built), &built.notes));
}

/// What became of files, each in its way.
#[test]
fn moved_files_are_what_the_schema_says() {
    let schema = include_str!("../../../docs/guide/schemas/defrag.json");
    for dry in [false, true] {
        fits(schema, &crate::defrag::example(dry));
    }
}

/// What came out of a volume, one by one or as an archive.
#[test]
fn copies_and_archives_are_what_the_schemas_say() {
    fits(include_str!("../../../docs/guide/schemas/cp.json"), &crate::files::CpDone::default());
    let summary = extol::image::tar::TarSummary::default();
    let written = crate::files::TarWritten::new(&summary);
    fits(include_str!("../../../docs/guide/schemas/tar.json"), &written);
}

/// What was measured.
#[test]
fn measured_files_are_what_the_schema_says() {
    let measured = crate::files::VerityMeasured::example();
    fits(include_str!("../../../docs/guide/schemas/verity-measure.json"), &measured);
}

/// What was tuned.
#[test]
fn tuned_volumes_are_what_the_schema_says() {
    fits(include_str!("../../../docs/guide/schemas/tune.json"), &crate::tune::example());
}

/// How files are encrypted.
#[test]
fn policies_are_what_the_schema_says() {
    let schema = include_str!("../../../docs/guide/schemas/encrypt.json");
    fits(schema, &crate::files::policies_example());
}

/// The keys of a mount.
#[test]
fn keys_are_what_the_schema_says() {
    fits(include_str!("../../../docs/guide/schemas/key.json"), &crate::key::example());
}

/// Quotas, and what is wrong with their usage.
#[test]
fn quotas_are_what_the_schemas_say() {
    let (quotas, checks) = crate::quota::examples();
    for document in quotas {
        fits(include_str!("../../../docs/guide/schemas/quota.json"), &document);
    }
    for document in checks {
        fits(include_str!("../../../docs/guide/schemas/quota-check.json"), &document);
    }
}

/// What was made smaller, and how small it can be.
#[test]
fn sizes_are_what_the_schemas_say() {
    use crate::resize_report::{Report, Smallest};
    use extol::resize::Target;
    let (name, device) = (std::path::Path::new("a\u{1b}.img"), volume("fast_commit"));
    let options = MountOptions::default().without_threads();
    let found = Ext4::minimum(&device, &options, &mut |_| true).expect("a minimum");
    let schema = include_str!("../../../docs/guide/schemas/resize-minimum.json");
    fits(schema, &Smallest::new(name, &found));
    let fs = Ext4::open(device, &options).expect("open");
    let resized = fs.resize(Target::Minimum, &mut |_| true).expect("smaller");
    assert_eq!(resized.blocks, found.minimum);
    assert!(resized.blocks < resized.before);
    fits(include_str!("../../../docs/guide/schemas/resize.json"), &Report::of(name, resized));
}

/// A list of files, with each kind of object.
#[test]
fn lists_are_what_the_schema_says() {
    use crate::files::Objects;
    let fs = Ext4::open(volume("fast_commit"), &MountOptions::default()).expect("open");
    fs.write_file("/file", b"contents").expect("a file");
    let attr = fs.lookup(fs.root(), b"file").expect("a name");
    let mut objects = Objects::default();
    let mut text = Objects::begin().into_bytes();
    text.extend(objects.file(&attr, None, b"file", b"/file"));
    let link = extol_vfs::Attr { kind: extol_vfs::FileKind::Symlink, ..attr.clone() };
    text.extend(objects.file(&link, Some(b"a\xff\x1b"), b"link\xff", b"/link\xff"));
    let device = extol_vfs::Attr { kind: extol_vfs::FileKind::CharDevice, ..attr };
    text.extend(objects.file(&device, None, b"device", b"/device"));
    text.extend(objects.unknown(b"bad", b"/bad", &extol_vfs::FsError::NotFound));
    text.extend(Objects::END.bytes());
    let value: Value = serde_json::from_slice(&text).expect("JSON");
    assert_eq!(value["entries"].as_array().expect("a list").len(), 4);
    assert_eq!(value["entries"][1]["target"], "a\\xff\u{1b}");
    assert_eq!(value["entries"][1]["path"], "/link\\xff");
    let schema = include_str!("../../../docs/guide/schemas/ls.json");
    check(&serde_json::from_str(schema).expect("a schema"), &value, "ls");
}

/// Attributes that are text, and others.
#[test]
fn attributes_are_what_the_schema_says() {
    let pairs = [(b"user.a".to_vec(), b"text".to_vec()), (b"user.\xff".to_vec(), vec![0xff, 0])];
    let object = crate::files::xattr_object(b"/file\xff", &pairs);
    assert_eq!(object["attributes"][1].get("text"), None);
    let value = serde_json::json!({"format_version": FORMAT_VERSION, "files": [object]});
    let schema = include_str!("../../../docs/guide/schemas/getxattr.json");
    check(&serde_json::from_str(schema).expect("a schema"), &value, "getxattr");
}

/// The kinds of findings in the schema are those that there are.
#[test]
fn kinds_of_findings_are_listed() {
    let schema: Value =
        serde_json::from_str(include_str!("../../../docs/guide/schemas/check.json")).unwrap();
    let kinds = schema.pointer("/properties/findings/items/properties/kind/enum").unwrap();
    let listed: Vec<_> = kinds.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let known: Vec<_> = extol_check::Kind::ALL.iter().map(|kind| kind.name()).collect();
    assert_eq!(listed, known);
}

/// A block of the log has no field that its kind does not have.
#[test]
#[should_panic(expected = ".more is in no schema")]
fn a_field_of_another_kind_is_found() {
    let log: Value =
        serde_json::from_str(include_str!("../../../docs/guide/schemas/log.json")).unwrap();
    let block = serde_json::json!({"kind": "unused", "block": 1, "count": 2, "more": 3});
    check(&log["properties"]["blocks"]["items"], &block, "block");
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
