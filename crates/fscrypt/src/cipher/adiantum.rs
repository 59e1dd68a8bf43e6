//! Adiantum: XChaCha12 encrypts all but the last 16 bytes, AES-256 encrypts those; hashes make each
//! bit depend on each other one.

use aes::Aes256;
use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt};
use chacha20::XChaCha12;
use chacha20::cipher::{KeyIvInit, StreamCipher};
use poly1305::universal_hash::UniversalHash;
use zeroize::Zeroizing;

use super::nh::{self, NhPoly1305};
use super::{BLOCK, Block, Iv, keyed};

const HASH_KEYS: usize = 32;

pub(crate) struct Adiantum {
    stream: Zeroizing<[u8; 32]>,
    block: Aes256,
    tweaks: Zeroizing<[u8; 16]>,
    messages: NhPoly1305,
}

impl Adiantum {
    pub fn new(key: &[u8]) -> Self {
        let mut stream = Zeroizing::new([0; 32]);
        stream.copy_from_slice(key);
        // All other keys are the stream of the first nonce.
        let mut nonce = [0; 24];
        nonce[0] = 1;
        let mut keys = Zeroizing::new([0; 32 + HASH_KEYS + nh::KEY_LEN]);
        XChaCha12::new((&*stream).into(), &nonce.into()).apply_keystream(&mut *keys);
        let (block, hashes) = keys.split_first_chunk::<32>().expect("longer");
        let (tweaks, hashes) = hashes.split_first_chunk().expect("longer");
        let (poly, nh) = hashes.split_first_chunk().expect("longer");
        let nh = nh.first_chunk().expect("just as long");
        Self {
            stream,
            block: keyed(block),
            tweaks: Zeroizing::new(*tweaks),
            messages: NhPoly1305::new(poly, nh),
        }
    }

    pub fn encrypt(&self, iv: &Iv, data: &mut [u8]) {
        let (bulk, last) = data.split_at_mut(data.len() - BLOCK);
        let header = self.header(iv, bulk.len());
        let hash = header.wrapping_add(self.messages.hash(bulk));
        let mut middle = Block::from(number(last).wrapping_add(hash).to_le_bytes());
        self.block.encrypt_block(&mut middle);
        self.stream(&middle, bulk);
        let hash = header.wrapping_add(self.messages.hash(bulk));
        last.copy_from_slice(&number(&middle).wrapping_sub(hash).to_le_bytes());
    }

    pub fn decrypt(&self, iv: &Iv, data: &mut [u8]) {
        let (bulk, last) = data.split_at_mut(data.len() - BLOCK);
        let header = self.header(iv, bulk.len());
        let hash = header.wrapping_add(self.messages.hash(bulk));
        let mut middle = Block::from(number(last).wrapping_add(hash).to_le_bytes());
        self.stream(&middle, bulk);
        self.block.decrypt_block(&mut middle);
        let hash = header.wrapping_add(self.messages.hash(bulk));
        last.copy_from_slice(&number(&middle).wrapping_sub(hash).to_le_bytes());
    }

    /// The hash of the length and the tweak.
    fn header(&self, iv: &Iv, bulk: usize) -> u128 {
        let mut poly = nh::poly(&self.tweaks);
        poly.update_padded(&(bulk as u128 * 8).to_le_bytes());
        poly.update_padded(iv);
        nh::number(poly)
    }

    fn stream(&self, middle: &Block, bulk: &mut [u8]) {
        let mut nonce = [0; 24];
        nonce[..BLOCK].copy_from_slice(middle);
        nonce[BLOCK] = 1;
        XChaCha12::new((&*self.stream).into(), &nonce.into()).apply_keystream(bulk);
    }
}

/// 16 bytes as a number.
fn number(bytes: &[u8]) -> u128 {
    bytes.iter().rev().fold(0, |sum, &byte| sum << 8 | u128::from(byte))
}
