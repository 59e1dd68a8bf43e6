//! Text from a volume for terminals and logs: without what makes a terminal do things.
//!
//! Labels, names, link targets and paths are bytes of the volume, and may be chosen to hide lines,
//! to forge them, or to send commands to a terminal. So wherever such text is shown on a line, it
//! goes through [`plain`], and what a command prints goes once more through [`plain_lines`], which
//! leaves nothing but the ends of lines.

use std::borrow::Cow;
use std::fmt::Write as _;

/// True for characters that do something instead of being something: control characters (C0, DEL,
/// C1), the other ends of lines, and those that turn the direction of writing.
#[must_use]
pub fn is_active(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}')
        || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Text for a part of a line: active characters are written out, as `\n` or `\u{1b}`.
#[must_use]
pub fn plain(text: &str) -> Cow<'_, str> {
    escape(text, is_active, |c| c.escape_default().collect())
}

/// Bytes that should be text, as text: each byte that is none is written as `\xNN`. (Control
/// characters stay; [`plain`] writes them out.)
#[must_use]
pub fn bytes_text(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // Writing to a string cannot fail.
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

/// The same as [`plain`] for text of several lines, and columns with tabs.
#[must_use]
pub fn plain_lines(text: &str) -> Cow<'_, str> {
    let acts = |c| is_active(c) && !matches!(c, '\n' | '\t');
    escape(text, acts, |c| c.escape_default().collect())
}

/// The same for JSON, with its own escapes: it stays JSON.
#[must_use]
pub fn plain_json(text: &str) -> Cow<'_, str> {
    let acts = |c| is_active(c) && !matches!(c, '\n' | '\t' | '\r');
    // All of them are in the basic plane.
    escape(text, acts, |c| format!("\\u{:04x}", u32::from(c)))
}

/// Writes the characters out that act.
fn escape(
    text: &str,
    acts: impl Fn(char) -> bool + Copy,
    written: impl Fn(char) -> String,
) -> Cow<'_, str> {
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if acts(c) { out.push_str(&written(c)) } else { out.push(c) }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_active_is_left() {
        assert!(matches!(plain("Grüße, 世界 {}"), Cow::Borrowed("Grüße, 世界 {}")));
        assert_eq!(
            plain("a\x1b[2Jb\nc\u{9b}d\x7f\u{202e}e"),
            "a\\u{1b}[2Jb\\nc\\u{9b}d\\u{7f}\\u{202e}e"
        );
        assert_eq!(plain_lines("a\tb\nc\rd\x07"), "a\tb\nc\\rd\\u{7}");
        for c in ('\0'..='\u{ffff}').filter(|c| c.is_control()) {
            assert!(plain(&c.to_string()).chars().all(|c| c.is_ascii_graphic()), "{c:?}");
        }
    }

    #[test]
    fn no_byte_is_lost() {
        assert_eq!(bytes_text("a\u{e9} b".as_bytes()), "a\u{e9} b");
        assert_eq!(bytes_text(b"a\xffb\xc3"), "a\\xffb\\xc3");
    }

    #[test]
    fn json_stays_json() {
        assert_eq!(
            plain_json("{\n\t\"a\": \"\u{9b}2J\x7f\u{202e}\"}"),
            "{\n\t\"a\": \"\\u009b2J\\u007f\\u202e\"}"
        );
    }
}
