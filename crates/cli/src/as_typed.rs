//! Paths in messages as they were typed: a command works on the resolved path, and what it calls
//! names that one.

use std::path::Path;

use extol_proc::Shown as _;

/// A line in which `opened` is named as it was typed. What lies below it keeps its whole path.
pub fn as_typed(line: &str, opened: &Path, typed: &Path) -> String {
    let (opened, typed) = (opened.shown().to_string(), typed.shown().to_string());
    if opened == typed || opened.len() < 2 {
        return line.to_owned();
    }
    let mut text = String::new();
    let mut rest = line;
    while let Some(at) = rest.find(&opened) {
        let (before, found) = rest.split_at(at);
        let (found, after) = found.split_at(opened.len());
        let begins = before.chars().last().is_none_or(|c| c == ' ' || c == '(');
        let ends = after.chars().next().is_none_or(|c| matches!(c, ' ' | ')' | ':' | ',' | ';'));
        text.push_str(before);
        text.push_str(if begins && ends { &typed } else { found });
        rest = after;
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_paths_alone_are_replaced() {
        let line = |line: &str| as_typed(line, Path::new("/a/mnt"), Path::new("mnt"));
        for (opened, typed) in [
            ("/a/mnt: no", "mnt: no"),
            ("on /a/mnt: use (extol umount /a/mnt)", "on mnt: use (extol umount mnt)"),
            ("/a/mnt is in use: /a/mnt/file open", "mnt is in use: /a/mnt/file open"),
            ("/b/a/mnt and /a/mnts", "/b/a/mnt and /a/mnts"),
            ("waiting for /a/mnt", "waiting for mnt"),
        ] {
            assert_eq!(line(opened), typed);
        }
        assert_eq!(as_typed("/ is x", Path::new("/"), Path::new("..")), "/ is x");
    }
}
