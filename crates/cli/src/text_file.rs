//! Text files that the command line names: scripts, and lists of what a volume gets.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use extol_cli_common::{Failure, Result};
use extol_proc::Shown as _;

/// The longest one. A device or a pipe has no end of its own.
const MOST: u64 = 64 << 20;

/// Reads a file.
///
/// # Errors
/// One line that names it: it cannot be read, or is longer than [`MOST`].
pub fn read(path: &Path) -> Result<Vec<u8>> {
    let name = path.shown().to_string();
    let mut file = File::open(path).map_err(|error| Failure::system_call(&name, error))?;
    read_from(&mut file, &name)
}

/// Reads what is open under that name.
///
/// # Errors
/// As [`read`].
pub fn read_from(file: &mut dyn Read, name: &str) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    file.take(MOST + 1)
        .read_to_end(&mut text)
        .map_err(|error| Failure::system_call(name, error))?;
    if text.len() as u64 > MOST {
        return Err(Failure::about(name, "a file of text has at most 64 MiB"));
    }
    Ok(text)
}
