//! The keys of encrypted files: those that a volume is opened with, and those that it has.
//!
//! A key that is taken away is gone for names, and for files that are not open. An open file keeps
//! what its contents are encrypted with: that is *lent* to it ([`KeyRing::lend`]), until the key is
//! taken away once more.
//!
//! Locking: the locks are held over no other one, and over no I/O.

use std::sync::Arc;

use extol_fscrypt::{BadKey, DESCRIPTOR_LEN, FileKey, KeySpec, MasterKey};
use extol_sync::plain::RwLock;

/// Keys, under what policies call them. They are never shown.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    list: Vec<(KeySpec, Arc<MasterKey>)>,
}

impl Keys {
    /// Adds a key: for policies of version 2, and for those of version 1 that call it as tools do
    /// by custom.
    ///
    /// # Errors
    /// If no key has this length.
    pub fn add(&mut self, raw: &[u8]) -> Result<(), BadKey> {
        let key = Arc::new(MasterKey::new(raw)?);
        let identifier = KeySpec::Identifier(key.identifier());
        let descriptor = KeySpec::Descriptor(key.descriptor());
        self.list.extend([(identifier, Arc::clone(&key)), (descriptor, key)]);
        Ok(())
    }

    /// Adds a key for policies of version 1 that call it this.
    ///
    /// # Errors
    /// If no key has this length.
    pub fn add_as(&mut self, descriptor: [u8; DESCRIPTOR_LEN], raw: &[u8]) -> Result<(), BadKey> {
        self.list.push((KeySpec::Descriptor(descriptor), Arc::new(MasterKey::new(raw)?)));
        Ok(())
    }

    /// True without any key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The key that a policy names.
    fn find(&self, spec: &KeySpec) -> Option<&Arc<MasterKey>> {
        self.list.iter().find(|(known, _)| known == spec).map(|(_, key)| key)
    }

    /// Adds other keys. One that is called as a key that is there already is left out.
    pub(crate) fn extend(&mut self, others: &Self) {
        for (spec, key) in &others.list {
            if self.find(spec).is_none() {
                self.list.push((*spec, Arc::clone(key)));
            }
        }
    }

    /// Takes away a key, under all that it is called; gives what that is.
    pub(crate) fn remove(&mut self, spec: &KeySpec) -> Vec<KeySpec> {
        let Some(key) = self.find(spec).map(|key| key.identifier()) else { return Vec::new() };
        let (gone, kept) =
            self.list.drain(..).partition::<Vec<_>, _>(|(_, other)| other.identifier() == key);
        self.list = kept;
        gone.into_iter().map(|(spec, _)| spec).collect()
    }

    /// What the keys are called.
    pub(crate) fn specs(&self) -> Vec<KeySpec> {
        self.list.iter().map(|(spec, _)| *spec).collect()
    }
}

/// The keys of an open volume.
#[derive(Debug, Default)]
pub(crate) struct KeyRing {
    keys: RwLock<Keys>,
    lent: RwLock<Vec<Lent>>,
}

/// What an open file keeps of a key that was taken away.
#[derive(Clone, Debug)]
struct Lent {
    ino: u32,
    /// What the key was called.
    specs: Vec<KeySpec>,
    key: Arc<FileKey>,
}

impl Lent {
    fn is_of(&self, specs: &[KeySpec]) -> bool {
        self.specs.iter().any(|spec| specs.contains(spec))
    }
}

impl KeyRing {
    /// With these keys.
    pub fn new(keys: Keys) -> Self {
        Self { keys: RwLock::new(keys), lent: RwLock::default() }
    }

    /// True without any key.
    pub fn is_empty(&self) -> bool {
        self.keys.read().is_empty()
    }

    /// The key that a policy names.
    pub fn find(&self, spec: &KeySpec) -> Option<Arc<MasterKey>> {
        self.keys.read().find(spec).map(Arc::clone)
    }

    /// As [`Keys::extend`].
    pub fn extend(&self, others: &Keys) {
        self.keys.write().extend(others);
    }

    /// As [`Keys::remove`]; of a key that is gone, what it was called if files keep a part of it.
    pub fn remove(&self, spec: &KeySpec) -> Vec<KeySpec> {
        let specs = self.keys.write().remove(spec);
        if !specs.is_empty() {
            return specs;
        }
        let lent = self.lent.read();
        let found = lent.iter().find(|lent| lent.specs.contains(spec));
        found.map(|lent| lent.specs.clone()).unwrap_or_default()
    }

    /// What an open file keeps.
    pub fn lent(&self, ino: u32) -> Option<Arc<FileKey>> {
        let lent = self.lent.read();
        lent.iter().find(|lent| lent.ino == ino).map(|lent| Arc::clone(&lent.key))
    }

    /// Lets an open file keep what its contents are encrypted with.
    pub fn lend(&self, ino: u32, specs: &[KeySpec], key: Arc<FileKey>) {
        let mut lent = self.lent.write();
        if lent.iter().all(|lent| lent.ino != ino) {
            lent.push(Lent { ino, specs: specs.to_vec(), key });
        }
    }

    /// The files that keep something of a key.
    pub fn borrowers(&self, specs: &[KeySpec]) -> Vec<u32> {
        let lent = self.lent.read();
        lent.iter().filter(|lent| lent.is_of(specs)).map(|lent| lent.ino).collect()
    }

    /// Ends that, but for some of them.
    pub fn end_loans(&self, specs: &[KeySpec], but_for: &[u32]) {
        self.lent.write().retain(|lent| !lent.is_of(specs) || but_for.contains(&lent.ino));
    }

    /// What all keys are called, and for each whether it is there, and how many files keep a part
    /// of it that is not.
    pub fn all(&self) -> Vec<(KeySpec, bool, usize)> {
        // (One lock after the other.)
        let there = self.keys.read().specs();
        let lent = self.lent.read();
        let kept = |spec: &KeySpec| lent.iter().filter(|lent| lent.specs.contains(spec)).count();
        let mut gone: Vec<KeySpec> = lent.iter().flat_map(|lent| lent.specs.clone()).collect();
        gone.retain(|spec| !there.contains(spec));
        gone.sort_unstable_by_key(|spec| format!("{spec:?}"));
        gone.dedup();
        let there = there.into_iter().map(|spec| (spec, true, 0));
        there.chain(gone.into_iter().map(|spec| (spec, false, kept(&spec)))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_goes_under_all_its_names() {
        let (one, two) = ([1; 32], [2; 64]);
        let mut keys = Keys::default();
        keys.add(&one).unwrap();
        keys.add(&two).unwrap();
        keys.add_as(*b"its name", &one).unwrap();
        let ring = KeyRing::new(keys.clone());
        ring.extend(&keys);
        assert_eq!(ring.all().len(), 5, "none is there twice");
        let name = KeySpec::Descriptor(*b"its name");
        let of_one = MasterKey::new(&one).unwrap();
        assert_eq!(ring.remove(&name).len(), 3);
        assert!(ring.find(&KeySpec::Identifier(of_one.identifier())).is_none());
        assert_eq!(ring.remove(&name), []);
        let of_two = MasterKey::new(&two).unwrap().identifier();
        assert!(ring.find(&KeySpec::Identifier(of_two)).is_some());
        assert_eq!(ring.all().len(), 2);
    }

    #[test]
    fn no_byte_of_a_key_is_shown() {
        let mut keys = Keys::default();
        keys.add(&[0xAB; 32]).unwrap();
        keys.add_as(*b"a name :", &[0xAB; 32]).unwrap();
        let shown = format!("{keys:?}");
        assert!(!shown.contains("171") && !shown.to_lowercase().contains("ab, ab"), "{shown}");
        assert_eq!(keys.add(&[1; 3]), Err(BadKey::Length(3)));
    }
}
