//! Encryption policies of inodes, to be compared with those of their directories.

use std::collections::HashMap;

use extol_ondisk::encryption;

/// True for a context that may be one: it has the length of its version, or a version that is not
/// known yet. Linux opens no such file, and nothing is wrong with the volume.
pub(crate) fn is_context(context: &[u8]) -> bool {
    match context.first() {
        Some(0..=2) => encryption::split(context).is_some(),
        version => version.is_some(),
    }
}

/// The policies that were met, by number, and the inodes that have them.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    known: HashMap<Vec<u8>, u32>,
    of: HashMap<u32, u32>,
}

impl Policies {
    /// Keeps the policy of an inode, which is in its context.
    pub(crate) fn add(&mut self, ino: u32, context: &[u8]) {
        // Contexts of a version that is not known yet tell nothing of their policies.
        let policy = encryption::split(context).map_or(&[][..], |(policy, _)| policy);
        let next = self.known.len() as u32;
        let nr = match self.known.get(policy) {
            Some(nr) => *nr,
            None => *self.known.entry(policy.to_vec()).or_insert(next),
        };
        self.of.insert(ino, nr);
    }

    /// The number of an inode's policy.
    pub(crate) fn of(&self, ino: u32) -> Option<u32> {
        self.of.get(&ino).copied()
    }
}
