//! Keys of names and of targets, once they are derived: that takes several rounds of SHA-512, and
//! each lookup in an encrypted directory needs one.
//!
//! Such a key follows from the master key, the context of the inode, its number, and whether it
//! folds names. They are kept under all of these but the master key. So what happens to inodes
//! (deletion, another policy, a number used again) makes no key wrong; what happens to master keys
//! does, and [`NameKeys::purge`] must follow it.
//!
//! Locking: a leaf. Keys are derived without it.

use std::collections::HashMap;
use std::sync::Arc;

use extol_fscrypt::FileKey;
use extol_sync::plain::RwLock;

/// Most keys that are kept.
const MAX: usize = 512;

/// What a key is kept under.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Of {
    pub ino: u32,
    pub casefold: bool,
    /// As it is stored.
    pub context: Vec<u8>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct NameKeys {
    kept: RwLock<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    keys: HashMap<Of, Arc<FileKey>>,
    /// How often master keys were taken away.
    purged: u64,
}

impl NameKeys {
    /// The key, which `derive` makes if it is not kept.
    pub fn get(&self, of: Of, derive: impl FnOnce(&Of) -> Option<FileKey>) -> Option<Arc<FileKey>> {
        let purged = {
            let kept = self.kept.read();
            if let Some(key) = kept.keys.get(&of) {
                return Some(Arc::clone(key));
            }
            kept.purged
        };
        let key = Arc::new(derive(&of)?);
        let mut kept = self.kept.write();
        // The master key may be gone by now.
        if kept.purged == purged {
            if kept.keys.len() >= MAX {
                kept.keys.clear();
            }
            kept.keys.insert(of, Arc::clone(&key));
        }
        Some(key)
    }

    /// Forgets all keys: a master key is there no more.
    pub fn purge(&self) {
        let mut kept = self.kept.write();
        kept.purged += 1;
        kept.keys.clear();
    }
}

#[cfg(test)]
mod tests {
    use extol_fscrypt::{Context, MasterKey, Volume};

    use super::*;

    fn of(ino: u32) -> Of {
        let mut context = vec![2, 1, 4, 3, 0, 0, 0, 0];
        context.extend([7; 32]);
        Of { ino, casefold: false, context }
    }

    fn derived(of: &Of) -> Option<FileKey> {
        let volume =
            Volume { block_bits: 12, huge_files: false, stable_inodes: false, uuid: [0; 16] };
        let context = Context::parse(&of.context).ok()?;
        let policy = context.policy.check(&volume, of.casefold).ok()?;
        FileKey::names(&MasterKey::new(&[1; 64]).ok()?, &policy, &context, of.ino).ok()
    }

    #[test]
    fn a_key_is_derived_once() {
        let keys = NameKeys::default();
        let first = keys.get(of(12), derived).expect("a key");
        let again = keys.get(of(12), |_| panic!("it is kept")).expect("a key");
        assert!(Arc::ptr_eq(&first, &again));
        assert!(keys.get(Of { casefold: true, ..of(12) }, |_| None).is_none());
        for ino in 13..13 + 2 * MAX as u32 {
            keys.get(of(ino), derived).expect("a key");
            assert!(keys.kept.read().keys.len() <= MAX);
        }
    }

    #[test]
    fn no_key_survives_its_master_key() {
        let keys = NameKeys::default();
        keys.get(of(12), derived).expect("a key");
        // One that is derived while the master key goes.
        let late = |of: &Of| {
            keys.purge();
            derived(of)
        };
        keys.get(of(13), late).expect("a key");
        for ino in [12, 13] {
            assert!(keys.get(of(ino), |_| None).is_none());
        }
    }
}
