//! Changes of modes, as `--chmod` takes them: those of chmod(1), for directories or files alone
//! with a `D` or an `F` in front. A number sets all bits, also those of directories that chmod
//! keeps.

use extol_vfs::Mode;

use crate::error::{BuildError, Result};

/// A change of modes: clauses one after the other.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ModeChange {
    clauses: Vec<Clause>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Clause {
    /// For directories, for others.
    on: (bool, bool),
    change: Mode,
}

impl ModeChange {
    /// Reads `u+rwX,go-w`, `0644`, `D755,F644`.
    ///
    /// # Errors
    /// What is none of these.
    pub fn parse(text: &str) -> Result<Self> {
        let clauses = text.split(',').map(|part| {
            clause(part).ok_or_else(|| {
                BuildError::Refused(format!(
                    "--chmod {text}: '{part}' is no change of a mode: write it as for chmod, such \
                     as u+rwX,go-w or D755,F644"
                ))
            })
        });
        Ok(Self { clauses: clauses.collect::<Result<_>>()? })
    }

    /// The changed mode.
    #[must_use]
    pub fn apply(&self, mode: u16, is_dir: bool) -> u16 {
        self.clauses
            .iter()
            .filter(|clause| if is_dir { clause.on.0 } else { clause.on.1 })
            .fold(mode & 0o7777, |mode, clause| clause.change.applied(mode, is_dir, 0))
    }
}

fn clause(text: &str) -> Option<Clause> {
    let (on, rest) = match text.as_bytes().first()? {
        b'D' => ((true, false), &text[1..]),
        b'F' => ((false, true), &text[1..]),
        _ => ((true, true), text),
    };
    let is_digit = |byte: u8| byte.is_ascii_digit();
    let change = match rest.bytes().all(is_digit) {
        // A number of five digits names the set-id bits of directories, too.
        true if !rest.is_empty() => Mode::parse(&format!("{rest:0>5}")),
        _ if rest.bytes().any(is_digit) => return None,
        _ => Mode::parse(rest),
    };
    Some(Clause { on, change: change.ok()? })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::Command;

    use super::ModeChange;

    /// chmod(1) is the oracle, with a umask that takes nothing away.
    #[test]
    fn as_chmod() {
        let dir = tempfile::tempdir().expect("a directory");
        let (file, sub) = (dir.path().join("f"), dir.path().join("d"));
        fs::write(&file, b"").expect("write");
        fs::create_dir(&sub).expect("mkdir");
        let changes = [
            "u+x",
            "go-w",
            "a=r",
            "=",
            "u=rwx,g=rx,o=",
            "u+s",
            "g+s",
            "+t",
            "o+t",
            "u-s,g-s",
            "+X",
            "u+X",
            "g=u",
            "o=g",
            "u=o",
            "a-x+X",
            "u+rw-x",
            "644",
            "4755",
            "0",
            "g+u",
            "-w",
            "ug=rw,o=r",
            "u=s",
            "+s",
            "=s",
            "=t",
            "u+t",
        ];
        for change in changes {
            for mode in [0, 0o644, 0o755, 0o4711, 0o2750, 0o1777, 0o7777, 0o100] {
                for (path, is_dir) in [(&file, false), (&sub, true)] {
                    // GNU chmod has an octal mode keep the set-id bits of directories.
                    if is_dir && change.bytes().all(|byte| byte.is_ascii_digit()) {
                        continue;
                    }
                    fs::set_permissions(path, Permissions::from_mode(mode)).expect("set");
                    let done = Command::new("sh")
                        .args(["-c", "umask 0; exec chmod -- \"$@\"", "sh", change])
                        .arg(path)
                        .status();
                    assert!(done.expect("chmod").success(), "{change}");
                    let wanted = fs::metadata(path).expect("stat").permissions().mode() & 0o7777;
                    let parsed = ModeChange::parse(change).expect(change);
                    let got = u32::from(parsed.apply(mode as u16, is_dir));
                    assert_eq!(got, wanted, "{change} of {mode:o}, dir {is_dir}: {got:o}");
                }
            }
        }
    }

    #[test]
    fn directories_and_files_alone() {
        let change = ModeChange::parse("D755,F644").expect("parses");
        assert_eq!((change.apply(0o700, true), change.apply(0o700, false)), (0o755, 0o644));
        let change = ModeChange::parse("Dg+s,F-x").expect("parses");
        assert_eq!((change.apply(0o755, true), change.apply(0o755, false)), (0o2755, 0o644));
    }

    #[test]
    fn what_is_no_change() {
        for text in ["", "u", "888", "77777", "u+q", "x", "u+x,", "D", "u*x", "\u{e9}", "u+\u{e9}"]
        {
            assert!(ModeChange::parse(text).is_err(), "{text}");
        }
    }
}
