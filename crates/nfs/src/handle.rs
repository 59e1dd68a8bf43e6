//! File handles: opaque to peers, and valid as long as the inode is, whatever happens to the
//! server.
//!
//! ```text
//!   0  version   4  volume   12  inode   16  generation   20  seal   32
//! ```
//!
//! The volume is told apart by a digest of its UUID. The seal is a digest of the rest with a key
//! that comes from a secret, the UUID and the root of the export. So a peer cannot make a handle of
//! an inode that it was not led to by names (NF-4), whatever it knows of the volume. The secret is
//! no part of the volume, which others may read. Its owner keeps it where it survives a restart, or
//! handles end with the server.

use std::{fmt, io};

use extol_vfs::FileId;
use sha2::{Digest as _, Sha256};

use crate::status::{Result, Status};

const VERSION: u32 = 1;
const SEAL: usize = 20;
/// Bytes of a handle.
pub(crate) const LEN: usize = 32;
/// Most bytes of a handle of NFSv3.
pub(crate) const MOST: usize = 64;

/// A handle as it is sent.
pub(crate) type Handle = [u8; LEN];

/// The secret of those that export: random bytes, which peers do not know.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; Self::LEN]);

impl Secret {
    /// Bytes of a secret.
    pub const LEN: usize = 32;

    /// A new one.
    ///
    /// # Errors
    /// If the system has no random bytes.
    pub fn random() -> io::Result<Self> {
        extol_proc::random().map(Self)
    }

    /// The one that was kept as these bytes.
    #[must_use]
    pub fn of(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    /// The bytes to keep.
    #[must_use]
    pub fn bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").finish_non_exhaustive()
    }
}

/// Makes and reads the handles of an export.
#[derive(Debug)]
pub(crate) struct Handles {
    volume: [u8; 8],
    key: [u8; 32],
}

impl Handles {
    /// The handles of an export with this root, of the volume with this UUID.
    pub(crate) fn new(secret: &Secret, uuid: [u8; 16], root: FileId) -> Self {
        let digest = |what: &[u8]| {
            let mut hash = Sha256::new();
            hash.update(what);
            hash.update(uuid);
            hash
        };
        let mut volume = [0; 8];
        volume.copy_from_slice(&digest(b"extol volume").finalize()[..8]);
        let mut key = digest(b"extol handle");
        key.update(secret.0);
        key.update(root.ino.to_be_bytes());
        key.update(root.generation.to_be_bytes());
        Self { volume, key: key.finalize().into() }
    }

    /// A number for the volume, for attributes.
    pub(crate) fn volume(&self) -> u64 {
        u64::from_be_bytes(self.volume)
    }

    pub(crate) fn encode(&self, id: FileId) -> Handle {
        let mut handle = [0; LEN];
        handle[..4].copy_from_slice(&VERSION.to_be_bytes());
        handle[4..12].copy_from_slice(&self.volume);
        handle[12..16].copy_from_slice(&id.ino.to_be_bytes());
        handle[16..SEAL].copy_from_slice(&id.generation.to_be_bytes());
        let seal = self.seal(&handle[..SEAL]);
        handle[SEAL..].copy_from_slice(&seal);
        handle
    }

    fn seal(&self, bytes: &[u8]) -> [u8; LEN - SEAL] {
        let mut hash = Sha256::new();
        hash.update(self.key);
        hash.update(bytes);
        let mut seal = [0; LEN - SEAL];
        seal.copy_from_slice(&hash.finalize()[..LEN - SEAL]);
        seal
    }

    /// Which file a handle names. It may be gone.
    pub(crate) fn decode(&self, bytes: &[u8]) -> Result<FileId> {
        let handle: &Handle = bytes.try_into().map_err(|_| Status::BAD_HANDLE)?;
        let word = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&handle[at..at + 4]);
            u32::from_be_bytes(word)
        };
        if word(0) != VERSION {
            return Err(Status::BAD_HANDLE);
        }
        // Of another volume that was exported here before.
        if handle[4..12] != self.volume {
            return Err(Status::STALE);
        }
        let seal = self.seal(&handle[..SEAL]);
        let differs = seal.iter().zip(&handle[SEAL..]).fold(0, |all, (a, b)| all | (a ^ b));
        if differs != 0 {
            return Err(Status::BAD_HANDLE);
        }
        Ok(FileId { ino: word(12), generation: word(16) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: FileId = FileId { ino: 2, generation: 0 };
    const FILE: FileId = FileId { ino: 12, generation: 0x8765_4321 };

    fn handles(secret: u8, uuid: u8, root: FileId) -> Handles {
        Handles::new(&Secret::of([secret; 32]), [uuid; 16], root)
    }

    #[test]
    fn handles_outlive_the_server() {
        let handle = handles(1, 7, ROOT).encode(FILE);
        assert_eq!(handles(1, 7, ROOT).decode(&handle), Ok(FILE));
        assert_eq!(handles(1, 8, ROOT).decode(&handle), Err(Status::STALE));
        let subtree = FileId { ino: 40, generation: 1 };
        assert_eq!(handles(1, 7, subtree).decode(&handle), Err(Status::BAD_HANDLE));
        assert_eq!(handles(2, 7, ROOT).decode(&handle), Err(Status::BAD_HANDLE));
    }

    #[test]
    fn a_secret_is_not_shown() {
        let secret = Secret::random().expect("random bytes");
        assert_eq!(format!("{secret:?}"), "Secret { .. }");
        assert_eq!(Secret::of(*secret.bytes()), secret);
    }

    #[test]
    fn no_changed_handle_names_anything() {
        let handles = handles(1, 7, ROOT);
        let handle = handles.encode(FILE);
        for at in 0..LEN {
            let mut changed = handle;
            changed[at] ^= 1;
            assert!(handles.decode(&changed).is_err(), "byte {at}");
        }
        for len in 0..LEN {
            assert_eq!(handles.decode(&handle[..len]), Err(Status::BAD_HANDLE));
        }
    }
}
