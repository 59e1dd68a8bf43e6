//! The keys of encrypted files that a volume is opened with.

use std::sync::Arc;

use extol_fscrypt::{BadKey, DESCRIPTOR_LEN, KeySpec, MasterKey};

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
    pub(crate) fn find(&self, spec: &KeySpec) -> Option<&MasterKey> {
        self.list.iter().find(|(known, _)| known == spec).map(|(_, key)| &**key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
