//! Where the hashes of names come from: a function of the name, or the entry itself.

use extol_ondisk::htree::{self, HashVersion, Hasher, NameHash};

use super::shape::Shape;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) enum Hashes {
    /// They are computed from names.
    Computed(Hasher),
    /// They stand behind names that are encrypted and casefolded: computing them takes the key.
    Stored,
}

impl Hashes {
    /// As the root of an index says. `None`: the function is unknown, or none of the directory's.
    pub fn new(shape: &Shape<'_>, version: u8) -> Option<Self> {
        match shape.hash_len {
            0 => Hasher::new(shape.geo, version).map(Self::Computed),
            _ => (version == htree::SIP_HASH).then_some(Self::Stored),
        }
    }

    /// Those of a directory without an index.
    pub fn default_for(shape: &Shape<'_>) -> Self {
        match shape.hash_len {
            0 => Self::Computed(Hasher::default_for(shape.geo)),
            _ => Self::Stored,
        }
    }

    /// What the root of an index says.
    pub fn to_disk(self) -> u8 {
        match self {
            Self::Computed(hasher) => hasher.version.to_disk(),
            Self::Stored => htree::SIP_HASH,
        }
    }

    /// The hash of an entry, behind whose name this one stands.
    pub fn of(&self, shape: &Shape<'_>, name: &[u8], stored: Option<NameHash>) -> NameHash {
        match self {
            Self::Computed(hasher) if shape.folds => {
                hasher.hash(extol_casefold::Wanted::new(name).hashed())
            }
            Self::Computed(hasher) => hasher.hash(name),
            Self::Stored => even(stored.unwrap_or(NameHash { hash: 0, minor: 0 })),
        }
    }

    /// The hash of a name, made fit for an order of all entries: the minor hash tells names apart.
    pub fn place(&self, name: &[u8], hash: NameHash) -> NameHash {
        match self {
            Self::Computed(hasher) if hasher.version == HashVersion::Legacy => {
                // No minor hash there; any function of the name will do.
                let other = Hasher { version: HashVersion::HalfMd4, ..*hasher };
                NameHash { minor: other.hash(name).hash, ..hash }
            }
            Self::Computed(_) => hash,
            Self::Stored => even(hash),
        }
    }
}

/// A hash as an index has it.
pub(super) fn even(hash: NameHash) -> NameHash {
    NameHash { hash: hash.hash & !1, ..hash }
}
