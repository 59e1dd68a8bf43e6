//! The `extol` command that was built with the test.

use crate::{Finished, run, run_ok, tool};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// How long a command may take that a test waits for.
const LIMIT: Duration = Duration::from_secs(60);

/// Where the command lies: cargo puts it beside the directory of the test programs.
///
/// # Panics
/// If it was not built.
#[must_use]
pub fn extol_path() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let test = std::env::current_exe().expect("path of the test program");
        let beside = test.parent().and_then(Path::parent).expect("target/PROFILE/deps");
        let path = beside.join("extol");
        assert!(path.exists(), "{} is missing: cargo build -p extol-cli", path.display());
        path
    })
}

/// A copy of the command that every user reaches: `extol` in the directory.
///
/// (Another process makes it. A program cannot be started while a process has it open for writing,
/// and a child that another thread starts meanwhile would have it.)
///
/// # Panics
/// If it cannot be made.
#[must_use]
pub fn extol_copy(dir: &Path) -> PathBuf {
    let program = dir.join("extol");
    run_ok(tool("install").args(["-m", "755", "--"]).arg(extol_path()).arg(&program));
    program
}

/// The command, for arguments and a start of the test's own.
#[must_use]
pub fn extol() -> Command {
    Command::new(extol_path())
}

/// Runs it with these arguments, and kills it after a minute.
#[must_use]
pub fn run_extol(args: &[impl AsRef<OsStr>]) -> Finished {
    run(extol().args(args), LIMIT)
}

/// Runs it with these arguments; gives its output.
///
/// # Panics
/// If it fails.
#[track_caller]
pub fn extol_ok(args: &[impl AsRef<OsStr>]) -> String {
    run_ok(extol().args(args))
}

/// Runs it with these arguments: it ends with this exit code and one line on standard error, which
/// has these words.
///
/// # Panics
/// If it does not.
#[track_caller]
pub fn refused(args: &[&str], code: i32, words: &[&str]) {
    let done = run_extol(args);
    assert_eq!(done.code, Some(code), "{args:?}: {}", done.output);
    let lines: Vec<&str> = done.stderr.lines().collect();
    assert!(lines.len() == 1 && lines[0].starts_with("extol: "), "{args:?}: {}", done.output);
    for word in words {
        assert!(lines[0].contains(word), "{args:?} has no {word:?}: {}", lines[0]);
    }
}

/// A path of a test, which is UTF-8, as an argument.
///
/// # Panics
/// If it is not.
#[must_use]
pub fn text(path: &Path) -> &str {
    path.to_str().expect("paths of tests are UTF-8")
}
