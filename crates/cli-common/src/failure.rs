//! A failure: one line on standard error and an exit code.

use std::fmt;
use std::io::Write as _;

use extol_fuse::MountError;
use extol_vfs::{plain, plain_json, plain_lines};

/// A failed command.
#[derive(Debug)]
pub struct Failure {
    /// The line; empty if it is printed already.
    pub line: String,
    /// The exit code.
    pub code: u8,
}

/// Result of a command.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// Wrong arguments, or not allowed.
    pub const USAGE: u8 = 1;
    /// The machine lacks something (FUSE, memory, processes).
    pub const SYSTEM: u8 = 2;
    /// A mistake in the program.
    pub const INTERNAL: u8 = 4;
    /// Ended by SIGINT, the signal of Ctrl-C: what a shell reports of a program that it ends.
    pub const INTERRUPTED: u8 = 130;
    /// Standard output is a pipe whose reader has ended: what a shell reports of SIGPIPE.
    pub const CLOSED_PIPE: u8 = 141;
    /// The volume cannot be used, or the operation failed.
    pub const FAILED: u8 = 32;
    /// As fsck(8): the volume is damaged.
    pub const FSCK_DAMAGED: u8 = 4;
    /// As fsck(8): the check could not be made.
    pub const FSCK_FAILED: u8 = 8;
    /// As fsck(8): wrong arguments.
    pub const FSCK_USAGE: u8 = 16;

    /// A failure of the operation itself.
    pub fn new(line: impl fmt::Display) -> Self {
        Self { line: line.to_string(), code: Self::FAILED }
    }

    /// The arguments make no sense.
    pub fn usage(line: impl fmt::Display) -> Self {
        Self { line: line.to_string(), code: Self::USAGE }
    }

    /// The machine lacks something.
    pub fn system(line: impl fmt::Display) -> Self {
        Self { line: line.to_string(), code: Self::SYSTEM }
    }

    /// Ended by a signal that the program has caught, with the code that a shell reports of a
    /// program which the signal itself ends: 128 and its number.
    #[must_use]
    pub fn interrupted(signal: i32) -> Self {
        let code = u8::try_from(signal.saturating_add(128)).unwrap_or(Self::INTERRUPTED);
        Self { line: "interrupted".into(), code }
    }

    /// A failure that was reported already, by a child or piecewise.
    pub fn silent(code: u8) -> Self {
        Self { line: String::new(), code }
    }

    /// A failure with its subject before it.
    pub fn about(what: impl fmt::Display, error: impl fmt::Display) -> Self {
        Self::new(format_args!("{}: {error}", named(what)))
    }

    /// A failed system call about something: not allowed, or another reason.
    pub fn system_call(what: impl fmt::Display, error: impl Into<std::io::Error>) -> Self {
        let error = error.into();
        Self { code: Self::code_of(error.kind()), ..Self::about(what, error) }
    }

    /// The code for an error of the system's.
    #[must_use]
    pub fn code_of(error: std::io::ErrorKind) -> u8 {
        match error {
            std::io::ErrorKind::PermissionDenied => Self::USAGE,
            _ => Self::FAILED,
        }
    }

    /// Prints the line.
    pub fn report(&self) {
        if !self.line.is_empty() {
            warn(&self.line);
        }
    }
}

/// What was typed, for messages: an empty word can be seen.
#[must_use]
pub fn named(what: impl fmt::Display) -> String {
    match what.to_string() {
        empty if empty.is_empty() => "''".to_owned(),
        text => text,
    }
}

impl From<MountError> for Failure {
    fn from(error: MountError) -> Self {
        let code = match &error {
            MountError::NoFuse | MountError::NoHelper | MountError::TooOld => Self::SYSTEM,
            MountError::Permission { .. } | MountError::UnmountPermission { .. } => Self::USAGE,
            MountError::Dir { source, .. } => Self::code_of(source.kind()),
            _ => Self::FAILED,
        };
        Self { line: error.to_string(), code }
    }
}

/// Prints one line for the user. Line ends inside become spaces, so it stays one line. Control
/// characters that the line quotes of a volume or of the command line are escaped.
pub fn warn(line: impl fmt::Display) {
    let line = without_os_error(line.to_string());
    let line = line
        .split(['\n', '\r'])
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(" ");
    // Standard error may be closed.
    let program = crate::PROGRAM.get().unwrap_or(&"extol");
    let _ = writeln!(std::io::stderr(), "{program}: {}", plain(&line));
}

/// A line without the "(os error N)" that Rust's library puts behind the system's messages.
#[must_use]
pub fn without_os_error(mut line: String) -> String {
    while let Some(at) = line.find(" (os error ")
        && let Some(len) = line[at..].find(')')
    {
        line.replace_range(at..=at + len, "");
    }
    line
}

/// Prints lines. Control characters that they quote are escaped.
pub fn print(text: impl AsRef<str>) -> Result<()> {
    write(plain_lines(text.as_ref()).as_bytes())
}

/// Prints JSON, which stays JSON.
pub fn print_json(text: impl AsRef<str>) -> Result<()> {
    write(plain_json(text.as_ref()).as_bytes())
}

/// Writes bytes to stdout as they are: contents of files, and what was made for a terminal. A
/// closed pipe (`extol ls … | head`) ends the program without a message, see [`output_failed`].
pub fn write(bytes: &[u8]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|error| output_failed(&error))
}

/// Standard output takes nothing more. A pipe whose reader has ended is told by the exit code
/// alone, which is the one that a shell shows for SIGPIPE.
#[must_use]
pub fn output_failed(error: &std::io::Error) -> Failure {
    match error.kind() {
        std::io::ErrorKind::BrokenPipe => Failure::silent(Failure::CLOSED_PIPE),
        _ => Failure::about("standard output", error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_no_numbers_of_errors() {
        let error = std::io::Error::from_raw_os_error(2);
        let line = format!("x: {error}; y: {error}");
        assert_eq!(
            without_os_error(line),
            "x: No such file or directory; y: No such file or directory"
        );
        assert_eq!(without_os_error("a (os error 5".into()), "a (os error 5");
    }

    #[test]
    fn codes_are_those_of_mount() {
        assert_eq!(Failure::from(MountError::NoFuse).code, 2);
        assert_eq!(Failure::from(MountError::Busy { dir: "/x".into() }).code, 32);
        let denied = MountError::Permission { dir: "/x".into(), why: "no".into() };
        assert_eq!(Failure::from(denied).code, 1);
        let denied = std::io::Error::from_raw_os_error(13);
        assert_eq!(Failure::system_call("a", denied).code, 1);
        let missing = std::io::Error::from_raw_os_error(2);
        assert_eq!(Failure::system_call("a", missing).code, 32);
        assert_eq!(Failure::about("a", "b").line, "a: b");
        assert_eq!(Failure::about("", "b").line, "'': b");
        let codes = [2, 15, 1, 1000].map(|signal| Failure::interrupted(signal).code);
        assert_eq!(codes, [Failure::INTERRUPTED, 143, 129, Failure::INTERRUPTED]);
    }
}
