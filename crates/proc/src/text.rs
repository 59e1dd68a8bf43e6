//! Files of the kernel as bytes.

use std::path::Path;
use std::str::FromStr;

/// The contents of a file without the line end that the kernel writes behind them. `None` if it
/// cannot be read.
#[must_use]
pub fn read(path: impl AsRef<Path>) -> Option<Vec<u8>> {
    let mut bytes = std::fs::read(path).ok()?;
    bytes.pop_if(|last| *last == b'\n');
    Some(bytes)
}

/// A file that holds one number.
#[must_use]
pub fn read_number<T: FromStr>(path: impl AsRef<Path>) -> Option<T> {
    number(read(path)?.trim_ascii())
}

/// A field that is a number.
#[must_use]
pub fn number<T: FromStr>(field: &[u8]) -> Option<T> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// The words of a line, which are separated by blanks or tabs.
pub fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// The value of the line `name:` in a file of such lines (`/proc/PID/status`, `/proc/PID/io`).
#[must_use]
pub fn field<'a>(text: &'a [u8], name: &str) -> Option<&'a [u8]> {
    text.split(|byte| *byte == b'\n').find_map(|line| {
        let value = line.strip_prefix(name.as_bytes())?.strip_prefix(b":")?;
        Some(value.trim_ascii())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_beside_names_that_are_no_text() {
        let status = b"Name:\tprog\xff\nUmask:\t0022\nCapEff:\t00000000000000ff\n";
        assert_eq!(field(status, "CapEff"), Some(&b"00000000000000ff"[..]));
        assert_eq!(field(status, "Name"), Some(&b"prog\xff"[..]));
        assert_eq!(field(status, "Cap"), None);
        assert_eq!(number::<u32>(b"17"), Some(17));
        assert_eq!(number::<u32>(b"1\xff"), None);
        assert_eq!(words(b" a\tb  c ").collect::<Vec<_>>(), [b"a", b"b", b"c"]);
    }

    #[test]
    fn line_ends_are_no_contents() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, b"/a \xff \n\n").unwrap();
        assert_eq!(read(&file).unwrap(), b"/a \xff \n", "one is of the name");
        std::fs::write(&file, b" 42\n").unwrap();
        assert_eq!(read_number::<u64>(&file), Some(42));
        assert_eq!(read("/nonexistent"), None);
    }
}
