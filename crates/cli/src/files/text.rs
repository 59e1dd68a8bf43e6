//! How names, modes, times and sizes of files are shown.

use extol_vfs::{Attr, FileKind, Timestamp, is_active};

use crate::calendar::date;

/// Adds a name as it is; for a terminal (`plain`) with a question mark for each control character
/// and each invalid byte.
pub(super) fn put_name(text: &mut Vec<u8>, name: &[u8], plain: bool) {
    if !plain {
        text.extend_from_slice(name);
        return;
    }
    for chunk in name.utf8_chunks() {
        let shown = chunk.valid().chars().map(|c| if is_active(c) { '?' } else { c });
        let shown: String = shown.chain(chunk.invalid().iter().map(|_| '?')).collect();
        text.extend_from_slice(shown.as_bytes());
    }
}

/// The path of a name in a directory.
pub(super) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if dir.is_empty() || dir.ends_with(b"/") { b"" } else { b"/" };
    [dir, slash, name].concat()
}

/// A size as ls(1) shows it with `-h`: rounded up, with one decimal below ten.
pub fn human(bytes: u64) -> String {
    let mut scale = 0;
    let mut value = u128::from(bytes) * 10;
    // In tenths; what would round up to 1024 takes the next unit.
    while value > 10_230 {
        value = value.div_ceil(1024);
        scale += 1;
    }
    let value = (u128::from(bytes) * 10).div_ceil(1024_u128.pow(scale));
    match b"KMGTPE".get(scale.wrapping_sub(1) as usize) {
        None => bytes.to_string(),
        Some(&unit) if value < 100 => format!("{}.{}{}", value / 10, value % 10, char::from(unit)),
        Some(&unit) => format!("{}{}", value.div_ceil(10), char::from(unit)),
    }
}

/// Kind and permissions as ls(1) shows them: `-rwxr-xr-x`.
pub(super) fn mode_text(attr: &Attr) -> String {
    let kind = match attr.kind {
        FileKind::Regular => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::CharDevice => 'c',
        FileKind::BlockDevice => 'b',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
    };
    let mut text = String::from(kind);
    for (shift, special, execute) in
        [(6, 0o4000, ['s', 'S']), (3, 0o2000, ['s', 'S']), (0, 0o1000, ['t', 'T'])]
    {
        let bits = attr.perm >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (attr.perm & special != 0, bits & 1 != 0) {
            (true, true) => execute[0],
            (true, false) => execute[1],
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// Date and time (UTC) of seconds since 1970.
pub(super) fn time_text(sec: i64) -> String {
    let d = date(sec);
    format!("{:04}-{:02}-{:02} {:02}:{:02}", d.year, d.month, d.day, d.hour, d.minute)
}

/// The same to the nanosecond, as stat(1) shows it.
pub(super) fn exact_time(time: Timestamp) -> String {
    let (minutes, second) = (time_text(time.sec), date(time.sec).second);
    format!("{minutes}:{second:02}.{:09} +0000", time.nsec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_control_characters_reach_a_terminal() {
        let show = |plain| {
            let mut text = Vec::new();
            put_name(&mut text, b"a\x1b[2Jb\xffc\xc2\x9bd\ne \xe2\x80\xae\xc3\xbc", plain);
            text
        };
        assert_eq!(show(false), b"a\x1b[2Jb\xffc\xc2\x9bd\ne \xe2\x80\xae\xc3\xbc");
        assert_eq!(String::from_utf8(show(true)).unwrap(), "a?[2Jb?c?d?e ?\u{fc}");
    }

    /// The values of GNU ls.
    #[test]
    fn readable_sizes() {
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10_137, "9.9K"),
            (10_138, "10K"),
            (10_240, "10K"),
            (10_241, "11K"),
            (1_047_552, "1023K"),
            (1_047_553, "1.0M"),
            (5 << 20, "5.0M"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(human(bytes), text, "{bytes}");
        }
    }

    #[test]
    fn dates() {
        for (sec, text) in [
            (0, "1970-01-01 00:00"),
            (951_782_400, "2000-02-29 00:00"),
            (-1, "1969-12-31 23:59"),
            (4_107_542_399, "2100-02-28 23:59"),
            (4_107_542_400, "2100-03-01 00:00"),
            (15_032_385_535, "2446-05-10 22:38"),
        ] {
            assert_eq!(time_text(sec), text);
        }
        let time = Timestamp { sec: -1, nsec: 5 };
        assert_eq!(exact_time(time), "1969-12-31 23:59:59.000000005 +0000");
    }
}
