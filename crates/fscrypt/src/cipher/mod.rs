//! The ciphers. All encrypt in place: a data unit, or a padded name of at least 16 bytes.

use aes::{Aes128, Aes256};
use sm4::Sm4;

use crate::{Mode, key::Derived};

mod adiantum;
mod cbc;
mod hctr2;
mod nh;
#[cfg(test)]
mod tests;
mod xts;

use adiantum::Adiantum;
use cbc::{Cbc, Essiv};
use hctr2::Hctr2;
use xts::Xts;

/// Bytes of a block of AES and SM4, and fewest bytes that are encrypted.
pub(crate) const BLOCK: usize = 16;

/// An IV. Modes with shorter ones use its start.
pub(crate) type Iv = [u8; 32];

type Block = aes::Block;

/// A cipher with its key. Round keys are overwritten when it is dropped; it has no `Debug`.
pub(crate) enum Cipher {
    Aes256Xts(Box<Xts<Aes256>>),
    Aes256Cts(Box<Cbc<Aes256>>),
    Aes128Cbc(Box<Essiv>),
    Aes128Cts(Box<Cbc<Aes128>>),
    Sm4Xts(Box<Xts<Sm4>>),
    Sm4Cts(Box<Cbc<Sm4>>),
    Adiantum(Box<Adiantum>),
    Aes256Hctr2(Box<Hctr2>),
}

impl Cipher {
    /// The cipher of a mode. The key has as many bytes as the mode says.
    pub fn new(mode: Mode, key: &Derived) -> Self {
        let key = key.bytes();
        match mode {
            Mode::Aes256Xts => Self::Aes256Xts(Box::new(Xts::new(key))),
            Mode::Aes256Cts => Self::Aes256Cts(Box::new(Cbc::new(key))),
            Mode::Aes128Cbc => Self::Aes128Cbc(Box::new(Essiv::new(key))),
            Mode::Aes128Cts => Self::Aes128Cts(Box::new(Cbc::new(key))),
            Mode::Sm4Xts => Self::Sm4Xts(Box::new(Xts::new(key))),
            Mode::Sm4Cts => Self::Sm4Cts(Box::new(Cbc::new(key))),
            Mode::Adiantum => Self::Adiantum(Box::new(Adiantum::new(key))),
            Mode::Aes256Hctr2 => Self::Aes256Hctr2(Box::new(Hctr2::new(key))),
        }
    }

    /// Encrypts. Contents have a multiple of 16 bytes, names at least 16.
    pub fn encrypt(&self, iv: &Iv, data: &mut [u8]) {
        match self {
            Self::Aes256Xts(cipher) => cipher.encrypt(iv, data),
            Self::Aes256Cts(cipher) => cipher.encrypt_stealing(iv, data),
            Self::Aes128Cbc(cipher) => cipher.encrypt(iv, data),
            Self::Aes128Cts(cipher) => cipher.encrypt_stealing(iv, data),
            Self::Sm4Xts(cipher) => cipher.encrypt(iv, data),
            Self::Sm4Cts(cipher) => cipher.encrypt_stealing(iv, data),
            Self::Adiantum(cipher) => cipher.encrypt(iv, data),
            Self::Aes256Hctr2(cipher) => cipher.encrypt(iv, data),
        }
    }

    /// Decrypts what [`Self::encrypt`] made.
    pub fn decrypt(&self, iv: &Iv, data: &mut [u8]) {
        match self {
            Self::Aes256Xts(cipher) => cipher.decrypt(iv, data),
            Self::Aes256Cts(cipher) => cipher.decrypt_stealing(iv, data),
            Self::Aes128Cbc(cipher) => cipher.decrypt(iv, data),
            Self::Aes128Cts(cipher) => cipher.decrypt_stealing(iv, data),
            Self::Sm4Xts(cipher) => cipher.decrypt(iv, data),
            Self::Sm4Cts(cipher) => cipher.decrypt_stealing(iv, data),
            Self::Adiantum(cipher) => cipher.decrypt(iv, data),
            Self::Aes256Hctr2(cipher) => cipher.decrypt(iv, data),
        }
    }
}

/// The first 16 bytes of an IV as a block.
fn short(iv: &Iv) -> Block {
    std::array::from_fn::<u8, BLOCK, _>(|i| iv[i]).into()
}

/// The key of a cipher out of bytes whose number the mode decides.
fn keyed<C: aes::cipher::KeyInit>(key: &[u8]) -> C {
    C::new_from_slice(key).expect("the length of a mode's key fits its cipher")
}

/// `to ^= from`, as far as both reach.
fn xor(to: &mut [u8], from: &[u8]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to ^= from;
    }
}
