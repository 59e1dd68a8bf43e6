//! `extol setxattr` and `extol getxattr`. Values are written and read as getfattr(1) and
//! setfattr(1) do.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use extol_cli_common::{FORMAT_VERSION, Failure, Result, write};
use extol_proc::Shown as _;
use extol_vfs::{FsError, XattrSet, bytes_text, is_active, plain_json};
use serde_json::{Value, json};

use super::change::{Change, walk};
use super::{InodeRef, Tree, show};
use crate::args::{GetxattrArgs, SetxattrArgs, VolumeArgs};
use crate::interrupt;

impl Change for SetxattrArgs {
    fn volume(&self) -> &VolumeArgs {
        &self.volume
    }

    fn check(&self) -> Result<()> {
        let name = self.name.as_deref().or(self.remove.as_deref()).unwrap_or_default();
        let known = ["user.", "trusted.", "security.", "system."];
        if !known.iter().any(|space| name.as_bytes().starts_with(space.as_bytes())) {
            let why = "must begin with user., trusted., security. or system.";
            return Err(Failure::usage(format_args!("{}: an attribute's name {why}", show(name))));
        }
        self.value().map(drop).map_err(Failure::usage)
    }

    fn apply(&self, tree: &Tree) -> Result<()> {
        let value = self.value().map_err(Failure::usage)?;
        let set = |inode: &InodeRef<'_>| match (&self.name, &self.remove) {
            (Some(name), _) => inode.fs.setxattr(inode.ino, name.as_bytes(), &value, XattrSet::Any),
            (None, name) => {
                let name = name.as_deref().unwrap_or_default();
                inode.fs.removexattr(inode.ino, name.as_bytes())
            }
        };
        for path in self.paths.iter().take_while(|_| !interrupt::came()) {
            let found = tree.find(path, !self.no_dereference);
            match (found.and_then(|inode| set(&inode)), &self.name) {
                (Ok(()), _) => {}
                (Err(FsError::NoSpace), Some(name)) => {
                    let why = super::put::attribute_size(tree, name.as_bytes(), &value);
                    let why = why.unwrap_or_else(|| FsError::NoSpace.to_string());
                    tree.report(show(path), format_args!("the attribute {}: {why}", show(name)));
                }
                (Err(error), _) => tree.report(show(path), error),
            }
        }
        Ok(())
    }
}

impl SetxattrArgs {
    fn value(&self) -> std::result::Result<Vec<u8>, String> {
        let typed = self.value.as_deref().unwrap_or_default();
        decoded(typed.as_bytes()).ok_or_else(|| {
            let typed = show(typed);
            format!("{typed}: no value: give text, \"text\", 0xHEX or 0sBASE64")
        })
    }
}

/// The bytes of a value as it was typed.
fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    match text {
        [b'0', b'x' | b'X', digits @ ..] => hex(digits),
        [b'0', b's' | b'S', digits @ ..] => base64(digits),
        [b'"', inside @ .., b'"'] => unescaped(inside),
        _ => Some(text.to_vec()),
    }
}

/// The bytes of pairs of hexadecimal digits.
pub(super) fn hex(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let pairs = digits.chunks(2).map(|pair| match pair {
        [high, low] => u8::try_from(digit(high)? << 4 | digit(low)?).ok(),
        _ => None,
    });
    pairs.collect()
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn base64(digits: &[u8]) -> Option<Vec<u8>> {
    if !digits.len().is_multiple_of(4) {
        return None;
    }
    let padding = digits.iter().rev().take_while(|&&byte| byte == b'=').count();
    let digits = digits.get(..digits.len().checked_sub(padding)?)?;
    let (mut bytes, mut bits, mut held) = (Vec::new(), 0u32, 0);
    for digit in digits {
        let value = BASE64.iter().position(|known| known == digit)?;
        bits = bits << 6 | value as u32;
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
        }
    }
    (padding <= 2).then_some(bytes)
}

fn to_base64(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let mut three = [0; 3];
        three[..chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes([0, three[0], three[1], three[2]]);
        for n in 0..4 {
            let digit = BASE64[(bits >> (18 - 6 * n) & 63) as usize];
            text.push(if n <= chunk.len() { digit.into() } else { '=' });
        }
    }
    text
}

/// Text in double quotes: `\` before a character is that one, before three octal digits a byte.
fn unescaped(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        match rest {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..] => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = tail;
            }
            [byte, tail @ ..] => {
                bytes.push(*byte);
                rest = tail;
            }
            [] => return None,
        }
    }
    Some(bytes)
}

/// How values are printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Coding {
    /// Text where it is some, else base64. The NUL that ends text is left out, as by getfattr(1).
    Auto,
    Text,
    Hex,
    Base64,
}

impl Coding {
    fn parse(text: Option<&str>) -> Result<Self> {
        match text {
            None => Ok(Self::Auto),
            Some("text") => Ok(Self::Text),
            Some("hex") => Ok(Self::Hex),
            Some("base64") => Ok(Self::Base64),
            Some(other) => Err(Failure::usage(format_args!(
                "--encoding: there is no coding {other:?}: use text, hex or base64"
            ))),
        }
    }

    fn encoded(self, value: &[u8]) -> String {
        let is_text =
            |value: &[u8]| std::str::from_utf8(value).is_ok_and(|text| !text.contains(is_active));
        let ended = value.strip_suffix(b"\0").filter(|text| !text.is_empty()).unwrap_or(value);
        match self {
            Self::Auto if is_text(ended) => quoted(ended),
            Self::Auto | Self::Base64 => format!("0s{}", to_base64(value)),
            Self::Hex => value.iter().fold("0x".to_owned(), |mut hex, byte| {
                let _ = write!(hex, "{byte:02x}");
                hex
            }),
            Self::Text => quoted(value),
        }
    }
}

/// In double quotes, with what is no text as octal digits.
fn quoted(value: &[u8]) -> String {
    let mut out = String::from("\"");
    for chunk in value.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' | '\\' => out.extend(['\\', c]),
                c if is_active(c) => {
                    for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                        let _ = write!(out, "\\{byte:03o}");
                    }
                }
                c => out.push(c),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\{byte:03o}");
        }
    }
    out.push('"');
    out
}

/// Prints.
pub fn getxattr(args: &GetxattrArgs) -> Result<()> {
    let coding = Coding::parse(args.encoding.as_deref())?;
    let tree = Tree::open(&args.volume, false)?;
    let mut listing = Listing { args, coding, any: false, outcome: Ok(()) };
    if args.json {
        listing.put(format!("{{\"format_version\":{FORMAT_VERSION},\"files\":[").as_bytes());
    }
    for path in &args.paths {
        let follow = !args.no_dereference && !args.recursive;
        match tree.find(path, follow) {
            Ok(inode) if args.recursive => {
                walk(&tree, path, inode, &mut |path, inode| listing.file(path, inode));
            }
            found => {
                let listed = found.and_then(|inode| listing.file(Path::new(path), &inode));
                if let Err(error) = listed {
                    tree.report(show(path), error);
                }
            }
        }
    }
    if args.json {
        listing.put(b"\n]}\n");
    }
    tree.close(listing.outcome)
}

/// A list under way.
struct Listing<'a> {
    args: &'a GetxattrArgs,
    coding: Coding,
    /// A file was listed.
    any: bool,
    /// Of writing to standard output.
    outcome: Result<()>,
}

impl Listing<'_> {
    fn put(&mut self, text: &[u8]) {
        if self.outcome.is_ok() {
            self.outcome = write(text);
        }
    }

    fn file(&mut self, path: &Path, inode: &InodeRef<'_>) -> extol_vfs::Result<()> {
        let names = match &self.args.name {
            Some(name) => vec![name.as_bytes().to_vec()],
            None => {
                let mut names = inode.fs.listxattr(inode.ino)?;
                names.sort();
                names
            }
        };
        let mut pairs = Vec::new();
        for name in names {
            match inode.fs.getxattr(inode.ino, &name) {
                Ok(value) => pairs.push((name, value)),
                // Of all files below a directory, those that have it.
                Err(FsError::NoAttribute) if self.args.recursive => {}
                Err(error) => return Err(error),
            }
        }
        if pairs.is_empty() {
            return Ok(());
        }
        let path = path.as_os_str();
        if self.args.only_values {
            pairs.iter().for_each(|(_, value)| self.put(value));
        } else if self.args.json {
            let comma = if self.any { ",\n" } else { "\n" };
            let object = object(path.as_bytes(), &pairs).to_string();
            self.put(format!("{comma}{}", plain_json(&object)).as_bytes());
        } else {
            let mut text = format!("# file: {}\n", path.shown());
            for (name, value) in &pairs {
                let name = OsStr::from_bytes(name).shown().to_string();
                let _ = writeln!(text, "{name}={}", self.coding.encoded(value));
            }
            text.push('\n');
            self.put(text.as_bytes());
        }
        self.any = true;
        Ok(())
    }
}

/// A file with its attributes.
pub fn object(path: &[u8], pairs: &[(Vec<u8>, Vec<u8>)]) -> Value {
    let attributes: Vec<Value> = pairs
        .iter()
        .map(|(name, value)| {
            let mut object = json!({"name": bytes_text(name), "base64": to_base64(value)});
            if let Ok(text) = std::str::from_utf8(value) {
                object["text"] = text.into();
            }
            object
        })
        .collect();
    json!({"path": bytes_text(path), "attributes": attributes})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back() {
        let values: [&[u8]; 7] =
            [b"", b"a", b"ab\0", b"\0", b"a \"quoted\" \\ one", b"\xff\x001", b"t\n"];
        for value in values {
            for coding in [Coding::Auto, Coding::Text, Coding::Hex, Coding::Base64] {
                let text = coding.encoded(value);
                assert!(!text.contains(is_active), "{text:?}");
                // (What is for reading has no NUL at its end.)
                let is_label = coding == Coding::Auto && value == b"ab\0";
                let value = if is_label { &b"ab"[..] } else { value };
                assert_eq!(decoded(text.as_bytes()).as_deref(), Some(value), "{text}");
            }
        }
        assert_eq!(Coding::Base64.encoded(b"any carnal"), "0sYW55IGNhcm5hbA==");
        assert_eq!(Coding::Auto.encoded(b"build-7"), "\"build-7\"");
        let label = b"system_u:object_r:etc_t:s0\0";
        assert_eq!(Coding::Auto.encoded(label), "\"system_u:object_r:etc_t:s0\"");
        assert_eq!(Coding::Auto.encoded(b"a\0\0"), "0sYQAA");
        assert_eq!(decoded(b"plain \\ text").unwrap(), b"plain \\ text");
        assert_eq!(decoded(b"\"\\101\\\\\"").unwrap(), b"A\\");
        for text in ["0x1", "0xg0", "0sYQ", "0sY===", "\"\\\"", "0s=aaa"] {
            assert_eq!(decoded(text.as_bytes()), None, "{text}");
        }
    }
}
