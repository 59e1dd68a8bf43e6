//! Names of users and groups in mount options: `uid=ada` stands for her number, as with mount(8).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use extol_cli_common::{Failure, Result};
use extol_proc::Shown as _;
use nix::unistd::{Group, User};

/// A word with the number in place of the name, if it has one.
///
/// # Errors
/// There is no such user or group.
pub(super) fn numbered(word: OsString) -> Result<OsString> {
    let text = std::str::from_utf8(word.as_bytes()).unwrap_or_default();
    let Some((option, name)) = text.split_once('=') else { return Ok(word) };
    let (kind, find): (_, fn(&str) -> Option<u32>) = match option {
        "uid" | "resuid" => ("user", |name| Some(User::from_name(name).ok()??.uid.as_raw())),
        "gid" | "resgid" => ("group", |name| Some(Group::from_name(name).ok()??.gid.as_raw())),
        _ => return Ok(word),
    };
    // (What begins like a number is one, or a mistake in one.)
    if !name.starts_with(|c: char| c.is_alphabetic() || c == '_') {
        return Ok(word);
    }
    let none = || {
        let name = OsStr::new(name).shown();
        Failure::usage(format_args!("mount option {option:?}: there is no {kind} {name}"))
    };
    let number = find(name).ok_or_else(none)?;
    Ok(format!("{option}={number}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_numbers() {
        let word = |word: &str| numbered(word.into());
        for (given, taken) in [
            ("uid=root", "uid=0"),
            ("gid=root", "gid=0"),
            ("resuid=root", "resuid=0"),
            ("uid=7", "uid=7"),
            ("uid=-1", "uid=-1"),
            ("uid=", "uid="),
            ("label=root", "label=root"),
            ("ro", "ro"),
        ] {
            assert_eq!(word(given).unwrap(), taken);
        }
        let failure = word("gid=no_such_group").unwrap_err();
        let line = "mount option \"gid\": there is no group no_such_group";
        assert_eq!((failure.code, &*failure.line), (Failure::USAGE, line));
    }
}
