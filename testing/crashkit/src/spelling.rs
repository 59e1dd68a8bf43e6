//! Spellings of names, and names that are no text.
//!
//! The model's paths are text, and have each name as its entry has it. In a casefolded directory an
//! operation asks for another spelling of it, which is the same name: so what is asked for and what
//! must be there differ all the time. A byte that is no part of valid UTF-8 is, in the model, a
//! character of its own, which no load uses otherwise.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use crate::model::Tree;

/// The character that stands for the byte 0.
const BYTES: u32 = 0xE000;
/// Names longer than this get no longer in another spelling.
const LONG: usize = 150;
/// Means nothing in a name.
const IGNORABLE: char = '\u{AD}';

/// A path of the model as the volume has it.
#[must_use]
pub fn on_disk(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    for c in text.chars() {
        match u32::from(c).checked_sub(BYTES).map(u8::try_from) {
            Some(Ok(byte)) => bytes.push(byte),
            _ => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    OsString::from_vec(bytes).into()
}

/// A name of the volume as the model has it.
#[must_use]
pub fn in_model(name: &[u8]) -> String {
    let mut text = String::new();
    for chunk in name.utf8_chunks() {
        text.push_str(chunk.valid());
        let invalid = chunk.invalid().iter();
        text.extend(invalid.filter_map(|byte| char::from_u32(BYTES + u32::from(*byte))));
    }
    text
}

fn is_text(name: &str) -> bool {
    !name.chars().any(|c| (BYTES..BYTES + 256).contains(&u32::from(c)))
}

/// A path with each of its names that is there in one of its spellings: `style` says which.
#[must_use]
pub fn other(tree: &Tree, path: &str, style: usize) -> String {
    let mut spelled = Vec::new();
    let mut end = 0;
    for name in path.split('/') {
        end += name.len();
        let is_there = tree.get(&path[..end]).is_some();
        spelled.push(if is_there { respelled(name, style) } else { name.to_owned() });
        end += 1;
    }
    spelled.join("/")
}

fn respelled(name: &str, style: usize) -> String {
    if style.is_multiple_of(4) || !is_text(name) {
        return name.to_owned();
    }
    let mut text = String::new();
    for (at, c) in name.chars().enumerate() {
        let swap = !(at + style).is_multiple_of(3);
        match c {
            'a'..='z' if swap => text.push(c.to_ascii_uppercase()),
            'A'..='Z' if swap => text.push(c.to_ascii_lowercase()),
            'ß' if swap => text.push_str("sS"),
            'é' | 'É' if swap => text.push_str("E\u{301}"),
            'Ω' if swap => text.push('\u{2126}'),
            c => text.push(c),
        }
        if at == 0 && style % 4 == 3 && name.len() < LONG {
            text.push(IGNORABLE);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;
    use crate::model::Kind;

    #[test]
    fn bytes_that_are_no_text_come_back() {
        for name in [&b"plain"[..], b"\xFFab", b"x\xC3", "Straße\u{301}".as_bytes()] {
            assert_eq!(on_disk(&in_model(name)).as_os_str().as_bytes(), name);
        }
        assert_eq!(in_model(b"a\xFF"), "a\u{E0FF}");
    }

    #[test]
    fn names_that_are_there_have_other_spellings() {
        let mut tree = Tree::default();
        tree.add("Dir", 1, Kind::Dir);
        tree.add("Dir/Straße", 2, Kind::File);
        assert_eq!(other(&tree, "Dir/Straße", 0), "Dir/Straße");
        let all: Vec<String> = (1..12).map(|style| other(&tree, "Dir/Straße", style)).collect();
        assert!(all.iter().any(|path| path.contains("sS") && path.contains(IGNORABLE)), "{all:?}");
        let same = all.iter().filter(|path| *path == "Dir/Straße").count();
        assert!(same < 4, "{all:?}");
        assert!(all.iter().all(|path| path.split('/').count() == 2));
        assert!(other(&tree, "Dir/new", 1).ends_with("/new"), "a new name is as it is");
    }
}
