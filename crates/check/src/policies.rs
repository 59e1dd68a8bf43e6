//! Encryption policies of inodes, to be compared with those of their directories.

use std::collections::HashMap;

use extol_ondisk::encryption;

/// The policies that were met, by number, and the inodes that have them.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    known: HashMap<Vec<u8>, u32>,
    of: HashMap<u32, u32>,
}

impl Policies {
    /// Keeps the policy of an inode, which is in its context.
    pub(crate) fn add(&mut self, ino: u32, context: &[u8]) {
        let policy = encryption::split(context).map_or(context, |(policy, _)| policy);
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
