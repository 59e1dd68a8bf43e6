//! The name that a search looks for.
//!
//! In a casefolded directory all names with one folded form are one name, and the index has the
//! hash of the folded form. Everywhere else a name is its bytes.

use extol_casefold::Wanted;
use extol_ondisk::htree::{Hasher, NameHash};
use extol_vfs::{FsError, Result};

use super::shape::Shape;

/// A name to search for, prepared once for all comparisons.
#[derive(Clone, Debug)]
pub(super) struct Sought<'n> {
    /// The name as it was asked for.
    pub name: &'n [u8],
    /// In a casefolded directory.
    pub folded: Option<Wanted<'n>>,
}

impl<'n> Sought<'n> {
    /// The name as the directory takes it.
    pub fn new(shape: &Shape<'_>, name: &'n [u8]) -> Self {
        Self { name, folded: shape.folds.then(|| Wanted::new(name)) }
    }

    /// A name that is only its bytes: `.` and `..`.
    pub fn exactly(name: &'n [u8]) -> Self {
        Self { name, folded: None }
    }

    /// True if an entry has the name. `.` and `..` are found by their bytes alone.
    pub fn is(&self, entry: &[u8]) -> bool {
        match &self.folded {
            Some(wanted) => wanted.matches(entry) && !matches!(entry, b"." | b".."),
            None => entry == self.name,
        }
    }

    /// The hash that the index has of it.
    pub fn hash(&self, hasher: &Hasher) -> u32 {
        match &self.folded {
            Some(wanted) => hasher.hash(wanted.hashed()).hash,
            None => hasher.hash(self.name).hash,
        }
    }
}

/// The hash that the index of a directory has of an entry's name.
pub(super) fn hash(shape: &Shape<'_>, hasher: &Hasher, entry: &[u8]) -> NameHash {
    if shape.folds { hasher.hash(Wanted::new(entry).hashed()) } else { hasher.hash(entry) }
}

/// Checks that a casefolded directory can have a name. With a strict encoding it is valid UTF-8;
/// and none but `.` and `..` is folded to these, since Linux would take it for them.
pub(super) fn check(shape: &Shape<'_>, name: &[u8]) -> Result<()> {
    if !shape.folds {
        return Ok(());
    }
    if shape.geo.strict_encoding && !extol_casefold::is_valid(name) {
        return Err(FsError::Invalid("the directory takes only names in valid UTF-8"));
    }
    let dots = [&b"."[..], b".."];
    if !dots.contains(&name) && dots.iter().any(|dot| extol_casefold::equal(dot, name)) {
        return Err(FsError::Invalid("the directory would take the name for '.' or '..'"));
    }
    Ok(())
}
