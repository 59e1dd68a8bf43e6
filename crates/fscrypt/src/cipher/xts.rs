//! XTS (IEEE 1619) on whole blocks: data units have no rest, so nothing is stolen.

use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, BlockSizeUser, KeyInit, consts::U16};

use super::{BLOCK, Block, Iv, keyed, short, xor};

/// So many blocks are encrypted together.
const TOGETHER: usize = 32;

/// Two keys: one for data, one for tweaks.
pub(crate) struct Xts<C> {
    data: C,
    tweak: C,
}

impl<C> Xts<C>
where
    C: BlockCipherEncrypt + BlockCipherDecrypt + BlockSizeUser<BlockSize = U16> + KeyInit,
{
    pub fn new(key: &[u8]) -> Self {
        let (data, tweak) = key.split_at(key.len() / 2);
        Self { data: keyed(data), tweak: keyed(tweak) }
    }

    pub fn encrypt(&self, iv: &Iv, data: &mut [u8]) {
        self.each(iv, data, |cipher, blocks| cipher.encrypt_blocks(blocks));
    }

    pub fn decrypt(&self, iv: &Iv, data: &mut [u8]) {
        self.each(iv, data, |cipher, blocks| cipher.decrypt_blocks(blocks));
    }

    fn each(&self, iv: &Iv, data: &mut [u8], cipher: impl Fn(&C, &mut [Block])) {
        debug_assert!(data.len().is_multiple_of(BLOCK));
        let mut tweak = short(iv);
        self.tweak.encrypt_block(&mut tweak);
        let mut tweak = u128::from_le_bytes(tweak.into());
        let mut tweaks = [Block::default(); TOGETHER];
        let (blocks, _) = Block::slice_as_chunks_mut(data);
        for blocks in blocks.chunks_mut(TOGETHER) {
            for (block, at) in blocks.iter_mut().zip(&mut tweaks) {
                *at = tweak.to_le_bytes().into();
                tweak = doubled(tweak);
                xor(block, at);
            }
            cipher(&self.data, blocks);
            for (block, at) in blocks.iter_mut().zip(&tweaks) {
                xor(block, at);
            }
        }
    }
}

/// Times x in GF(2^128).
const fn doubled(tweak: u128) -> u128 {
    let carry = if tweak >> 127 == 1 { 0x87 } else { 0 };
    tweak << 1 ^ carry
}
