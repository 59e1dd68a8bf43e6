//! The error of options as text.

use std::io;

/// A mount option that is unknown, has a bad value, or does not go together with another: one line
/// that names it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct OptionsError(String);

impl OptionsError {
    /// Linux's number for it: EINVAL, as of mount(2).
    #[must_use]
    pub fn errno(&self) -> i32 {
        22
    }
}

impl From<String> for OptionsError {
    fn from(line: String) -> Self {
        Self(line)
    }
}

impl From<OptionsError> for String {
    fn from(error: OptionsError) -> Self {
        error.0
    }
}

impl From<&str> for OptionsError {
    fn from(line: &str) -> Self {
        Self(line.to_owned())
    }
}

impl From<OptionsError> for io::Error {
    fn from(error: OptionsError) -> Self {
        Self::new(io::ErrorKind::InvalidInput, error)
    }
}
