//! CBC: with ciphertext stealing for names, with ESSIV for contents.

use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, BlockSizeUser, KeyInit, consts::U16};
use aes::{Aes128, Aes256};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::{BLOCK, Block, Iv, keyed, short, xor};

pub(crate) struct Cbc<C> {
    cipher: C,
}

impl<C> Cbc<C>
where
    C: BlockCipherEncrypt + BlockCipherDecrypt + BlockSizeUser<BlockSize = U16> + KeyInit,
{
    pub fn new(key: &[u8]) -> Self {
        Self { cipher: keyed(key) }
    }

    /// Encrypts whole blocks and returns the last one.
    fn encrypt(&self, mut chain: Block, blocks: &mut [Block]) -> Block {
        for block in blocks {
            xor(block, &chain);
            self.cipher.encrypt_block(block);
            chain = *block;
        }
        chain
    }

    fn decrypt(&self, mut chain: Block, blocks: &mut [Block]) {
        for block in blocks {
            let encrypted = *block;
            self.cipher.decrypt_block(block);
            xor(block, &chain);
            chain = encrypted;
        }
    }

    /// The last two blocks change places, and what the last one lacks is left out (CS3). A single
    /// block is plain CBC.
    pub fn encrypt_stealing(&self, iv: &Iv, data: &mut [u8]) {
        let tail = tail(data.len());
        let (head, rest) = data.split_at_mut(data.len() - tail);
        let (blocks, _) = Block::slice_as_chunks_mut(head);
        let last = self.encrypt(short(iv), blocks);
        if tail == 0 {
            return;
        }
        let mut stolen = Block::default();
        stolen[..tail].copy_from_slice(rest);
        rest.copy_from_slice(&last[..tail]);
        xor(&mut stolen, &last);
        self.cipher.encrypt_block(&mut stolen);
        if let Some(last) = blocks.last_mut() {
            *last = stolen;
        }
    }

    pub fn decrypt_stealing(&self, iv: &Iv, data: &mut [u8]) {
        let tail = tail(data.len());
        let (head, rest) = data.split_at_mut(data.len() - tail);
        let (blocks, _) = Block::slice_as_chunks_mut(head);
        if tail > 0
            && let Some(at) = blocks.last_mut()
        {
            // The last block, before its exclusive or with the one before it.
            let mut last = *at;
            self.cipher.decrypt_block(&mut last);
            let mut before = last;
            before[..tail].copy_from_slice(rest);
            for (rest, last) in rest.iter_mut().zip(last) {
                *rest ^= last;
            }
            *at = before;
        }
        self.decrypt(short(iv), blocks);
    }
}

/// Bytes behind the block that is swapped: 1 to 16, or none if there is only one block.
fn tail(len: usize) -> usize {
    debug_assert!(len >= BLOCK);
    if len <= BLOCK { 0 } else { (len - 1) % BLOCK + 1 }
}

/// AES-128 in CBC mode, with IVs that AES-256 encrypts by the SHA-256 of the key.
pub(crate) struct Essiv {
    data: Cbc<Aes128>,
    ivs: Aes256,
}

impl Essiv {
    pub fn new(key: &[u8]) -> Self {
        let salt = Zeroizing::new(<[u8; 32]>::from(Sha256::digest(key)));
        Self { data: Cbc::new(key), ivs: keyed(&*salt) }
    }

    pub fn encrypt(&self, iv: &Iv, data: &mut [u8]) {
        let (blocks, _) = Block::slice_as_chunks_mut(data);
        self.data.encrypt(self.iv(iv), blocks);
    }

    pub fn decrypt(&self, iv: &Iv, data: &mut [u8]) {
        let (blocks, _) = Block::slice_as_chunks_mut(data);
        self.data.decrypt(self.iv(iv), blocks);
    }

    fn iv(&self, iv: &Iv) -> Block {
        let mut block = short(iv);
        self.ivs.encrypt_block(&mut block);
        block
    }
}
