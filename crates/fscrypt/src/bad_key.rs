//! Why a key cannot be used.

/// A master key that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadKey {
    /// No master key has so many bytes.
    #[error("a key of {0} bytes: encryption keys have 16 to 64")]
    Length(usize),
    /// The mode needs a longer one.
    #[error("a key of {has} bytes is too short: {mode} needs {needs}")]
    TooShort {
        /// Bytes that the key has.
        has: usize,
        /// Bytes that it needs.
        needs: usize,
        /// For this mode.
        mode: &'static str,
    },
    /// There are no ciphers: the feature `ciphers` is off.
    #[error("this program is built without encryption")]
    NotBuilt,
}
