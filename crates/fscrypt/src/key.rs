//! A master key, and what is derived from it.

use std::fmt;

use aes::cipher::{BlockCipherEncrypt, KeyInit};
use hkdf::Hkdf;
use sha2::{Digest, Sha512};
use zeroize::Zeroizing;

use crate::{BadKey, DESCRIPTOR_LEN, IDENTIFIER_LEN, Mode, NONCE_LEN};

/// Shortest and longest master key in bytes.
const LENGTHS: std::ops::RangeInclusive<usize> = 16..=64;

/// What a derived key is for. The numbers are part of the derivation.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Purpose {
    Identifier = 1,
    PerFile = 2,
    Direct = 3,
    InoLblk64 = 4,
    DirHash = 5,
    InoLblk32 = 6,
    InodeHash = 7,
}

/// A secret that whole trees are encrypted with.
///
/// Its bytes are overwritten when it is dropped, and are never shown.
pub struct MasterKey {
    raw: Zeroizing<Vec<u8>>,
}

impl MasterKey {
    /// A key of 16 to 64 random bytes.
    ///
    /// # Errors
    ///
    /// If it has another length.
    pub fn new(raw: &[u8]) -> Result<Self, BadKey> {
        if !LENGTHS.contains(&raw.len()) {
            return Err(BadKey::Length(raw.len()));
        }
        Ok(Self { raw: Zeroizing::new(raw.to_vec()) })
    }

    /// What policies of version 2 call it.
    #[must_use]
    pub fn identifier(&self) -> [u8; IDENTIFIER_LEN] {
        let mut out = [0; IDENTIFIER_LEN];
        self.derive(Purpose::Identifier, &[], &mut out);
        out
    }

    /// What tools call it by custom in policies of version 1: the start of its double SHA-512.
    #[must_use]
    pub fn descriptor(&self) -> [u8; DESCRIPTOR_LEN] {
        let once = Zeroizing::new(<[u8; 64]>::from(Sha512::digest(&*self.raw)));
        let twice: [u8; 64] = Sha512::digest(once.as_slice()).into();
        std::array::from_fn(|i| twice[i])
    }

    /// The key itself, for direct keys of version 1.
    pub(crate) fn whole(&self, mode: Mode) -> Result<Derived, BadKey> {
        self.at_least(mode.key_len(), mode)?;
        Ok(Derived::new(&self.raw[..mode.key_len()]))
    }

    /// Version 1: the key of an inode is the master key, encrypted by the inode's nonce.
    pub(crate) fn per_file_v1(
        &self,
        mode: Mode,
        nonce: &[u8; NONCE_LEN],
    ) -> Result<Derived, BadKey> {
        let mut key = self.whole(mode)?;
        let cipher = aes::Aes128::new(&(*nonce).into());
        let (blocks, _) = aes::Block::slice_as_chunks_mut(&mut key.bytes);
        cipher.encrypt_blocks(blocks);
        Ok(key)
    }

    /// Version 2: the key of an inode.
    pub(crate) fn per_file(&self, mode: Mode, nonce: &[u8; NONCE_LEN]) -> Result<Derived, BadKey> {
        self.for_mode(Purpose::PerFile, mode, nonce)
    }

    /// Version 2: the key that all inodes share with `DIRECT_KEY`.
    pub(crate) fn direct(&self, mode: Mode) -> Result<Derived, BadKey> {
        self.for_mode(Purpose::Direct, mode, &[mode.number()])
    }

    /// Version 2: the key that the inodes of a volume share with `IV_INO_LBLK_64`.
    pub(crate) fn ino_lblk_64(&self, mode: Mode, uuid: &[u8; 16]) -> Result<Derived, BadKey> {
        self.for_mode(Purpose::InoLblk64, mode, &mode_and_volume(mode, uuid))
    }

    /// Version 2: the key that the inodes of a volume share with `IV_INO_LBLK_32`.
    pub(crate) fn ino_lblk_32(&self, mode: Mode, uuid: &[u8; 16]) -> Result<Derived, BadKey> {
        self.for_mode(Purpose::InoLblk32, mode, &mode_and_volume(mode, uuid))
    }

    /// The hash of an inode's number that `IV_INO_LBLK_32` adds to IVs.
    pub(crate) fn hashed_ino(&self, ino: u32) -> u32 {
        let mut key = Zeroizing::new([0; 16]);
        self.derive(Purpose::InodeHash, &[], &mut *key);
        // The upper half is left out.
        crate::siphash24(&key, &u64::from(ino).to_le_bytes()) as u32
    }

    /// The key of the hashes of names in an encrypted case-insensitive directory.
    pub(crate) fn dir_hash(&self, nonce: &[u8; NONCE_LEN]) -> Zeroizing<[u8; 16]> {
        let mut key = Zeroizing::new([0; 16]);
        self.derive(Purpose::DirHash, nonce, &mut *key);
        key
    }

    fn for_mode(&self, purpose: Purpose, mode: Mode, info: &[u8]) -> Result<Derived, BadKey> {
        self.at_least(mode.security(), mode)?;
        let mut key = Derived { bytes: Zeroizing::new(vec![0; mode.key_len()]) };
        self.derive(purpose, info, &mut key.bytes);
        Ok(key)
    }

    fn at_least(&self, needs: usize, mode: Mode) -> Result<(), BadKey> {
        let has = self.raw.len();
        let mode = mode.name();
        if has < needs { Err(BadKey::TooShort { has, needs, mode }) } else { Ok(()) }
    }

    fn derive(&self, purpose: Purpose, info: &[u8], out: &mut [u8]) {
        let from = Hkdf::<Sha512>::new(None, &self.raw);
        let done = from.expand_multi_info(&[b"fscrypt\0", &[purpose as u8], info], out);
        debug_assert!(done.is_ok(), "keys are shorter than HKDF's limit");
    }
}

fn mode_and_volume(mode: Mode, uuid: &[u8; 16]) -> [u8; 17] {
    let mut info = [mode.number(); 17];
    info[1..].copy_from_slice(uuid);
    info
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MasterKey").finish_non_exhaustive()
    }
}

/// A derived key. It has no `Debug`.
pub(crate) struct Derived {
    bytes: Zeroizing<Vec<u8>>,
}

impl Derived {
    pub fn new(bytes: &[u8]) -> Self {
        Self { bytes: Zeroizing::new(bytes.to_vec()) }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn master() -> MasterKey {
        MasterKey::new(&std::array::from_fn::<u8, 64, _>(|i| i as u8)).unwrap()
    }

    const NONCE: [u8; 16] =
        [100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113, 114, 115];
    const UUID: [u8; 16] =
        [200, 201, 202, 203, 204, 205, 206, 207, 208, 209, 210, 211, 212, 213, 214, 215];

    /// The values are of a script with the HMAC of Python.
    #[test]
    fn keys_are_derived_by_hkdf_with_a_purpose() {
        let master = master();
        assert_eq!(hex(&master.identifier()), "8699c2c53707405da5aba5ae4d8583c0");
        assert_eq!(hex(&*master.dir_hash(&NONCE)), "63ecb0c73c0e486dc8204aff96495bd8");
        let key = master.per_file(Mode::Aes256Xts, &NONCE).unwrap();
        assert_eq!(
            hex(key.bytes()),
            "150587bde889cb21adcd1fe65a5ac46c9881beab7c652429ccaa59f4f7c55c86\
             d085a040af6fcfe8134786e1c35054fd04579535ac7fd3c841b8fd2f7ec2f5d5"
        );
        let key = master.direct(Mode::Adiantum).unwrap();
        let known = "9efb31534e244dd4c251dd5d540c714ab1cfcfaf0008a870cc298b52b32b7d39";
        assert_eq!(hex(key.bytes()), known);
        let key = master.ino_lblk_64(Mode::Aes256Xts, &UUID).unwrap();
        assert_eq!(
            hex(key.bytes()),
            "ff9d8025cbc325978ca9e6665d1bd70d2f6ae4180ef87207cfd7af472be36cf1\
             9ac389e7b0d3611b91a8584334ec76f4a33f5306c18a977f36dc8f56e30526c4"
        );
        let key = master.ino_lblk_32(Mode::Aes256Cts, &UUID).unwrap();
        let known = "7dd0185121e33a353fc0165da87494bd41905248e969bfa0c45f8d3ef18e9cdb";
        assert_eq!(hex(key.bytes()), known);
    }

    #[test]
    fn inode_numbers_are_hashed_by_the_lower_half_of_siphash() {
        let mut key = [0; 16];
        master().derive(Purpose::InodeHash, &[], &mut key);
        assert_eq!(hex(&key), "670f76f85d2f3cb8a67e0bba366c1014");
        let whole = crate::siphash24(&key, &12_u64.to_le_bytes());
        assert_eq!(u64::from(master().hashed_ino(12)), whole & 0xFFFF_FFFF);
    }

    #[test]
    fn keys_of_version_1_are_the_master_key_encrypted_by_the_nonce() {
        let key = master().per_file_v1(Mode::Aes256Xts, &NONCE).unwrap();
        assert_eq!(
            hex(key.bytes()),
            "b47a9582cb53c4f78750542bb26f748d429c0f0e308e9d04fb9a95d192e7415d\
             674b6a36688b9695c24df5bae52fdbd2b45209e86a1185d3e8fa545f0171427e"
        );
        assert_eq!(hex(&master().descriptor()), "04334e23057a6e2d");
    }

    #[test]
    fn keys_that_are_too_short_or_too_long_are_told() {
        for len in 0..80 {
            let fits = (16..=64).contains(&len);
            assert_eq!(MasterKey::new(&vec![1; len]).is_ok(), fits, "{len}");
        }
        let half = MasterKey::new(&[1; 32]).unwrap();
        assert!(half.per_file(Mode::Aes256Xts, &NONCE).is_ok(), "32 bytes are secure enough");
        let got = half.per_file_v1(Mode::Aes256Xts, &NONCE).err();
        assert_eq!(got, Some(BadKey::TooShort { has: 32, needs: 64, mode: "AES-256-XTS" }));
        let short = MasterKey::new(&[1; 16]).unwrap();
        assert!(short.per_file(Mode::Aes128Cts, &NONCE).is_ok());
        assert!(short.direct(Mode::Adiantum).is_err());
        assert!(short.whole(Mode::Adiantum).is_err());
    }

    #[test]
    fn no_byte_of_a_key_is_shown() {
        let master = MasterKey::new(&[0xAB; 32]).unwrap();
        assert_eq!(format!("{master:?}"), "MasterKey { .. }");
    }
}
