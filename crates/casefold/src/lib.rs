//! Names that are equal but for case, as Linux compares them in a directory with `+F` (casefold).
//!
//! ```text
//!   lib.rs       a name that is searched for, and what it matches
//!   fold.rs      a name to its folded form
//!   tables/      what Unicode 12.1.0 says of each code point; data.rs is generated
//! ```
//!
//! Two names are one if they are the same bytes, or if both have the same folded form: canonical
//! decomposition (NFD) and full case folding of UTF-8, without the code points that Unicode calls
//! ignorable. The hash of a name in a directory index is that of its folded form. So both must be
//! what Linux computes, to the byte, for every name: with another form a name is on the disk and
//! cannot be found.
//!
//! Invariants
//! - CF-1: [`fold`] gives what `utf8_casefold` of Linux gives with its tables of Unicode 12.1.0,
//!   malformed names included. `tests/libext2fs.rs` compares it with another implementation of
//!   that.
//! - CF-2: the tables never change. A volume says which version its names are folded by, and 12.1.0
//!   is the only one there is.

#![forbid(unsafe_code)]

use std::borrow::Cow;

mod fold;
mod tables;
#[cfg(test)]
mod tests;

pub use fold::{fold, has_ignored};

/// How much longer the folded form of valid UTF-8 can be than the name.
pub const MAX_EXPANSION: usize = 3;

/// Linux hashes no folded form that is longer than this. Only malformed names have such forms.
pub const MAX_HASHED: usize = 4095;

/// Whether a directory takes a new name if the volume's encoding is strict.
#[must_use]
pub fn is_valid(name: &[u8]) -> bool {
    std::str::from_utf8(name).is_ok()
}

/// A name that is searched for in a casefolded directory.
#[derive(Clone, Debug)]
pub struct Wanted<'n> {
    name: Cow<'n, [u8]>,
    /// None: the name cannot be folded, and matches only itself.
    folded: Option<Vec<u8>>,
}

impl<'n> Wanted<'n> {
    /// Folds the name, once for all comparisons.
    #[must_use]
    pub fn new(name: impl Into<Cow<'n, [u8]>>) -> Self {
        let name = name.into();
        Self { folded: fold(&name), name }
    }

    /// The name as it was given.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Whether it has a folded form: a name that is malformed may have none.
    #[must_use]
    pub fn folds(&self) -> bool {
        self.folded.is_some()
    }

    /// The bytes whose hash a directory index has for this name.
    #[must_use]
    pub fn hashed(&self) -> &[u8] {
        match &self.folded {
            Some(folded) if folded.len() <= MAX_HASHED => folded,
            _ => &self.name,
        }
    }

    /// Whether a name of the directory is this one.
    #[must_use]
    pub fn matches(&self, other: &[u8]) -> bool {
        if *self.name == *other {
            return true;
        }
        let Some(folded) = &self.folded else { return false };
        // What is ASCII folds to as many bytes, so most names differ before anything is folded.
        for (at, byte) in other.iter().enumerate() {
            if !byte.is_ascii() || *byte == 0 {
                return fold(other).is_some_and(|other| other == *folded);
            }
            if folded.get(at) != Some(&byte.to_ascii_lowercase()) {
                return false;
            }
        }
        folded.len() == other.len()
    }
}

/// Whether a casefolded directory takes two names for one.
#[must_use]
pub fn equal(one: &[u8], other: &[u8]) -> bool {
    Wanted::new(one).matches(other)
}
