//! HCTR2: the first block is encrypted by AES-256, the rest by a counter that starts there; POLYVAL
//! makes each bit depend on each other one.

use aes::Aes256;
use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt};
use polyval::{Polyval, universal_hash::UniversalHash};
use zeroize::Zeroizing;

use super::{BLOCK, Block, Iv, keyed, xor};

pub(crate) struct Hctr2 {
    cipher: Aes256,
    hash: Zeroizing<[u8; BLOCK]>,
    mask: Zeroizing<[u8; BLOCK]>,
}

impl Hctr2 {
    pub fn new(key: &[u8]) -> Self {
        let cipher: Aes256 = keyed(key);
        let derive = |number: u128| {
            let mut block = Block::from(number.to_le_bytes());
            cipher.encrypt_block(&mut block);
            Zeroizing::new(block.into())
        };
        let (hash, mask) = (derive(0), derive(1));
        Self { cipher, hash, mask }
    }

    pub fn encrypt(&self, iv: &Iv, data: &mut [u8]) {
        self.each(iv, data, |cipher, block| cipher.encrypt_block(block));
    }

    pub fn decrypt(&self, iv: &Iv, data: &mut [u8]) {
        self.each(iv, data, |cipher, block| cipher.decrypt_block(block));
    }

    /// Both directions are the same but for the block cipher: the counter starts at the exclusive
    /// or of its input, its output and the mask.
    fn each(&self, iv: &Iv, data: &mut [u8], cipher: impl Fn(&Aes256, &mut Block)) {
        let (first, rest) = data.split_at_mut(BLOCK);
        xor(first, &self.hash(iv, rest));
        let mut start: Block = Block::default();
        start.copy_from_slice(first);
        let mut block = start;
        cipher(&self.cipher, &mut block);
        xor(&mut start, &block);
        xor(&mut start, &*self.mask);
        self.count(&start, rest);
        first.copy_from_slice(&block);
        xor(first, &self.hash(iv, rest));
    }

    /// The hash of the tweak and the rest of the message.
    fn hash(&self, iv: &Iv, rest: &[u8]) -> [u8; BLOCK] {
        let mut hash = Polyval::new((&*self.hash).into());
        let (blocks, partial) = rest.split_at(rest.len() / BLOCK * BLOCK);
        let form = if partial.is_empty() { 2 } else { 3 };
        hash.update_padded(&(iv.len() as u128 * 8 * 2 + form).to_le_bytes());
        hash.update_padded(iv);
        hash.update_padded(blocks);
        if !partial.is_empty() {
            let mut last = [0; BLOCK];
            last[..partial.len()].copy_from_slice(partial);
            last[partial.len()] = 1;
            hash.update_padded(&last);
        }
        hash.finalize().into()
    }

    /// XCTR: block `i` of the stream is the encryption of `start ^ i`, counted from 1.
    fn count(&self, start: &Block, data: &mut [u8]) {
        for (i, chunk) in (1_u128..).zip(data.chunks_mut(BLOCK)) {
            let mut block = *start;
            xor(&mut block, &i.to_le_bytes());
            self.cipher.encrypt_block(&mut block);
            xor(chunk, &block);
        }
    }
}
