//! `extol key`: keys of a mounted volume.
//!
//! A key goes to the daemon in a request, and is overwritten in each place on the way. No message
//! shows a byte of it.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use extol::encryption::{
    BadKey, KEYS_AT_ONCE, KeySpec, KeyStatus, MasterKey, Request, add_key_text, from_hex,
    spec_from_hex, spec_to_hex,
};
use extol_cli_common::{Failure, Result, counted, json_text, print, print_json, warn};
use extol_proc::Shown as _;
use extol_vfs::bytes_text;
use serde::Serialize;
use zeroize::Zeroizing;

use crate::args::KeyArgs;
use crate::{keys, maintenance};

/// Carries it out.
pub fn run(args: &KeyArgs) -> Result<()> {
    if args.json && args.action != "list" {
        return Err(Failure::usage("--json is for list"));
    }
    if args.descriptor.is_some() && args.action != "add" {
        return Err(Failure::usage("--descriptor is for add"));
    }
    if !args.names.is_empty() && args.action != "remove" {
        return Err(Failure::usage("what keys are called is for remove"));
    }
    match &*args.action {
        "add" => add(args),
        "list" if args.keys.is_empty() => list(args),
        "list" => Err(Failure::usage("--key is for add and remove")),
        "remove" => remove(args),
        other => Err(Failure::usage(format_args!(
            "there is no action {other:?}: use add, list or remove"
        ))),
    }
}

fn add(args: &KeyArgs) -> Result<()> {
    if args.keys.is_empty() {
        return Err(Failure::usage("which key? Give it with --key FILE"));
    }
    let descriptor = args.descriptor.as_deref().map(|digits| {
        let bytes = from_hex(digits).and_then(|bytes| bytes.try_into().ok());
        let line = "--descriptor: give eight bytes as 16 hexadecimal digits";
        bytes.ok_or_else(|| Failure::usage(line))
    });
    let descriptor = descriptor.transpose()?;
    keys::make_no_dump();
    let mut names = String::new();
    for file in &args.keys {
        let text: Zeroizing<String> = keys::with(file, |raw| {
            MasterKey::new(raw)?;
            Ok::<_, BadKey>(add_key_text(raw, descriptor))
        })?;
        for name in maintenance::key(&args.dir, &text)? {
            let _ = writeln!(names, "{name}");
        }
    }
    print(names)
}

/// The keys of the mount.
fn all(dir: &Path) -> Result<Vec<KeyStatus>> {
    let mut lines = Vec::new();
    loop {
        let more = maintenance::key(dir, &Request::Keys(lines.len()).to_text())?;
        let is_last = more.len() < KEYS_AT_ONCE;
        lines.extend(more);
        if is_last {
            break;
        }
    }
    let known: Option<Vec<_>> = lines.iter().map(|line| KeyStatus::parse(line)).collect();
    known.ok_or_else(|| Failure::about(dir.shown(), "the mount is of another version of extol"))
}

fn list(args: &KeyArgs) -> Result<()> {
    let document = Document::new(&args.dir, &all(&args.dir)?);
    match args.json {
        true => print_json(json_text(&document)?),
        false => print(document.text()),
    }
}

fn remove(args: &KeyArgs) -> Result<()> {
    let mut specs = Vec::new();
    for name in &args.names {
        specs.push(spec_from_hex(name).ok_or_else(|| {
            let line = "no key is called so: give 16 or 32 hexadecimal digits";
            Failure::usage(format_args!("{}: {line}", OsStr::new(name).shown()))
        })?);
    }
    if !args.keys.is_empty() {
        keys::make_no_dump();
    }
    for file in &args.keys {
        let identifier = keys::with(file, |raw| Ok(MasterKey::new(raw)?.identifier()))?;
        specs.push(KeySpec::Identifier(identifier));
    }
    if specs.is_empty() {
        return Err(Failure::usage("which key? Give --key FILE, or what it is called"));
    }
    let mut failed = false;
    for spec in specs {
        let lines = maintenance::remove_key(&args.dir, &Request::RemoveKey(spec).to_text())?;
        let files = lines.first().and_then(|line| line.parse().ok()).unwrap_or(0_u64);
        if files > 0 {
            warn(format_args!(
                "{}: the key {} is taken away, but {} that {} open can still be used: close them, \
                 and remove it again",
                args.dir.shown(),
                spec_to_hex(&spec),
                counted(files, "file"),
                if files == 1 { "is" } else { "are" }
            ));
            failed = true;
        }
    }
    if failed { Err(Failure::silent(Failure::FAILED)) } else { Ok(()) }
}

/// Keys as JSON.
#[derive(Debug, Serialize)]
pub struct Document {
    mount_point: String,
    keys: Vec<Key>,
}

#[derive(Debug, Serialize)]
struct Key {
    name: String,
    policy_version: u8,
    is_there: bool,
    open_files: usize,
}

impl Document {
    fn new(dir: &Path, keys: &[KeyStatus]) -> Self {
        let key = |status: &KeyStatus| Key {
            name: spec_to_hex(&status.spec),
            policy_version: match status.spec {
                KeySpec::Descriptor(_) => 1,
                KeySpec::Identifier(_) => 2,
            },
            is_there: status.is_there,
            open_files: status.files,
        };
        Self {
            mount_point: bytes_text(dir.as_os_str().as_bytes()),
            keys: keys.iter().map(key).collect(),
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for key in &self.keys {
            let Key { name, policy_version, .. } = key;
            let _ = write!(text, "{name:<32}  for policies of version {policy_version}");
            let _ = match key.is_there {
                true => writeln!(text),
                false => {
                    let files = counted(key.open_files as u64, "file");
                    writeln!(text, "; taken away while {files} had it open")
                }
            };
        }
        text
    }
}

/// A document, for the test of its schema.
#[cfg(test)]
pub fn example() -> Document {
    let status = |spec, is_there, files| KeyStatus { spec, is_there, files };
    let keys = [
        status(KeySpec::Identifier([1; 16]), true, 0),
        status(KeySpec::Descriptor([2; 8]), false, 3),
    ];
    Document::new(Path::new("/mnt"), &keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_says_what_was_taken_away() {
        let text = example().text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], format!("{}  for policies of version 2", "01".repeat(16)));
        assert!(lines[1].ends_with("version 1; taken away while 3 files had it open"));
    }
}
