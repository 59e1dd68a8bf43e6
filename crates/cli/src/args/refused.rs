//! Options of other programs that Extol's commands know and refuse.

use extol_cli_common::{Failure, Result};

/// If it was given, its name, and the reason with what to do.
pub struct Refusal<'a>(pub bool, pub &'a str, pub &'a str);

/// Refuses the first of these that was given.
pub fn refused(all: &[Refusal<'_>]) -> Result<()> {
    match all.iter().find(|Refusal(given, ..)| *given) {
        Some(Refusal(_, name, why)) => {
            Err(Failure::usage(format_args!("{name} is not supported: {why}")))
        }
        None => Ok(()),
    }
}
