//! What the user is told when a benchmark fails: one line and an exit code, as of `extol`.

use std::fmt;
use std::io::Write as _;

use extol_fuse::MountError;
use extol_vfs::{plain, plain_json, plain_lines};

/// A failed benchmark.
#[derive(Debug)]
pub struct Failure {
    /// What to say; empty if it was said already.
    pub line: String,
    /// The exit code.
    pub code: u8,
}

/// Result of a benchmark.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// Wrong arguments, or not allowed.
    pub const USAGE: u8 = 1;
    /// The machine lacks something (FUSE, memory, processes).
    pub const SYSTEM: u8 = 2;
    /// A mistake in the program.
    pub const INTERNAL: u8 = 4;
    /// Interrupted by the user.
    pub const INTERRUPTED: u8 = 8;
    /// The volume cannot be used, or the operation failed.
    pub const FAILED: u8 = 32;

    /// A failure of the operation itself.
    pub fn new(line: impl fmt::Display) -> Self {
        Self { line: line.to_string(), code: Self::FAILED }
    }

    /// An argument makes no sense.
    pub fn usage(line: impl fmt::Display) -> Self {
        Self { line: line.to_string(), code: Self::USAGE }
    }

    /// The machine lacks something.
    pub fn system(line: impl fmt::Display) -> Self {
        Self { line: line.to_string(), code: Self::SYSTEM }
    }

    /// A failure that was reported already.
    pub fn silent(code: u8) -> Self {
        Self { line: String::new(), code }
    }

    /// Puts what the failure is about before it.
    pub fn about(what: impl fmt::Display, error: impl fmt::Display) -> Self {
        Self::new(format_args!("{what}: {error}"))
    }

    /// Prints the line.
    pub fn report(&self) {
        if !self.line.is_empty() {
            warn(&self.line);
        }
    }
}

impl From<MountError> for Failure {
    fn from(error: MountError) -> Self {
        let code = match error {
            MountError::NoFuse | MountError::NoHelper | MountError::TooOld => Self::SYSTEM,
            MountError::Permission { .. } => Self::USAGE,
            _ => Self::FAILED,
        };
        Self { line: error.to_string(), code }
    }
}

/// Prints one line. Line ends inside become spaces, so it stays one line.
pub fn warn(line: impl fmt::Display) {
    let line = line.to_string();
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    // Standard error may be closed.
    let _ = writeln!(std::io::stderr(), "extol-bench: {}", plain(&line));
}

/// Prints lines; a terminal only shows what they quote.
pub fn print(text: impl AsRef<str>) -> Result<()> {
    write(plain_lines(text.as_ref()).as_bytes())
}

/// Prints JSON, which stays JSON.
pub fn print_json(text: impl AsRef<str>) -> Result<()> {
    write(plain_json(text.as_ref()).as_bytes())
}

/// A reader that has gone (`extol-bench … | head`) ends the program without a message.
fn write(bytes: &[u8]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|error| match error.kind() {
        std::io::ErrorKind::BrokenPipe => Failure::silent(0),
        _ => Failure::about("standard output", error),
    })
}
