//! Names in messages, as words of a shell: a name that a message shows can be copied into a command
//! line, whatever bytes it has.
//!
//! As GNU coreutils have it: a name without anything special stays as it is, one with blanks and
//! the like stands in single quotes, and one with bytes that are no text, or with characters that
//! do something to a terminal, is written `$'f\376'`.

use std::ffi::OsStr;
use std::fmt;
use std::path::Path;

/// Characters that a shell takes for something else than themselves.
const SPECIAL: &str = " !\"$&'()*;<>?[\\]^`|";
/// The same at the beginning of a word.
const SPECIAL_FIRST: [char; 2] = ['#', '~'];

/// A name for a message.
pub trait Shown {
    /// As a word of a shell.
    fn shown(&self) -> ShownName<'_>;
}

impl Shown for OsStr {
    fn shown(&self) -> ShownName<'_> {
        ShownName(self.as_encoded_bytes())
    }
}

impl Shown for Path {
    fn shown(&self) -> ShownName<'_> {
        self.as_os_str().shown()
    }
}

/// What [`Shown::shown`] gives, to be formatted.
#[derive(Clone, Copy, Debug)]
pub struct ShownName<'n>(&'n [u8]);

impl fmt::Display for ShownName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match std::str::from_utf8(self.0) {
            Ok("") => f.write_str("''"),
            Ok(text) if text.contains(acts) || text.contains('\'') => escape(self.0, f),
            Ok(text) if text.contains(|c| SPECIAL.contains(c)) => write!(f, "'{text}'"),
            Ok(text) if text.starts_with(SPECIAL_FIRST) => write!(f, "'{text}'"),
            Ok(text) => f.write_str(text),
            Err(_) => escape(self.0, f),
        }
    }
}

/// True for a character that does something to a terminal instead of being shown: control
/// characters, ends of lines, and those that turn the direction of writing.
fn acts(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}')
        || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A name in `$'…'`.
fn escape(name: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("$'")?;
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\'' | '\\' => write!(f, "\\{c}")?,
                '\n' => f.write_str("\\n")?,
                '\t' => f.write_str("\\t")?,
                c if acts(c) => octal(c.encode_utf8(&mut [0; 4]).as_bytes(), f)?,
                c => write!(f, "{c}")?,
            }
        }
        octal(chunk.invalid(), f)?;
    }
    f.write_str("'")
}

/// Bytes as three octal digits each, so that no digit behind them is taken for one of them.
fn octal(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "\\{byte:03o}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt as _;
    use std::process::Command;

    const NAMES: [(&[u8], &str); 13] = [
        (b"/mnt/a-b_c.img", "/mnt/a-b_c.img"),
        (b"LABEL=x", "LABEL=x"),
        ("/Gr\u{fc}\u{df}e".as_bytes(), "/Gr\u{fc}\u{df}e"),
        (b"", "''"),
        (b"a b", "'a b'"),
        (b"$(x)", "'$(x)'"),
        (b"~a", "'~a'"),
        (b"a~#", "a~#"),
        (b"it's", "$'it\\'s'"),
        (b"f\xfe", "$'f\\376'"),
        (b"f\xfe1\\\xc3", "$'f\\3761\\\\\\303'"),
        (b"a\nb\tc\x1b[0m", "$'a\\nb\\tc\\033[0m'"),
        ("a\u{202e}b".as_bytes(), "$'a\\342\\200\\256b'"),
    ];

    #[test]
    fn names_are_words_of_a_shell() {
        for (name, word) in NAMES {
            assert_eq!(OsStr::from_bytes(name).shown().to_string(), word);
        }
    }

    /// A shell makes the same name of it again.
    #[test]
    fn a_shell_takes_them_back() {
        for (name, word) in NAMES {
            let script = format!("printf %s {word}");
            // (dash has no `$'…'`.)
            let Ok(out) = Command::new("bash").args(["-c", &script]).output() else { return };
            assert_eq!(out.stdout, name, "{word}");
        }
    }
}
