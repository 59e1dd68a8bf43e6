//! NH and Poly1305 together: the hash of messages in Adiantum.

use poly1305::{
    Key, Poly1305,
    universal_hash::{KeyInit, UniversalHash},
};
use zeroize::Zeroizing;

/// Words of a message that are hashed with one pass through the key.
const MESSAGE_WORDS: usize = 256;
/// A pass of NH begins so many words behind the one before it.
const STRIDE: usize = 4;
const PASSES: usize = 4;
/// Words of the key.
const KEY_WORDS: usize = MESSAGE_WORDS + STRIDE * (PASSES - 1);
/// Bytes of the key.
pub(super) const KEY_LEN: usize = KEY_WORDS * 4;

/// The key of both hashes.
pub(super) struct NhPoly1305 {
    poly: Zeroizing<[u8; 16]>,
    nh: Zeroizing<[u32; KEY_WORDS]>,
}

impl NhPoly1305 {
    pub fn new(poly: &[u8; 16], nh: &[u8; KEY_LEN]) -> Self {
        let mut words = Zeroizing::new([0; KEY_WORDS]);
        for (word, bytes) in words.iter_mut().zip(nh.chunks_exact(4)) {
            *word = le32(bytes);
        }
        Self { poly: Zeroizing::new(*poly), nh: words }
    }

    /// The hash of a message, as a number.
    pub fn hash(&self, message: &[u8]) -> u128 {
        let mut poly = poly(&self.poly);
        for part in message.chunks(MESSAGE_WORDS * 4) {
            for half in self.nh(part).chunks_exact(16) {
                poly.update_padded(half);
            }
        }
        number(poly)
    }

    /// NH of at most 1024 bytes, which are filled with zeroes to a multiple of 16.
    fn nh(&self, part: &[u8]) -> [u8; 32] {
        let mut sums = [0_u64; PASSES];
        let (units, rest) = part.as_chunks::<16>();
        for (unit, keys) in units.iter().zip(self.nh.windows(STRIDE * PASSES).step_by(STRIDE)) {
            add(&mut sums, unit, keys);
        }
        if !rest.is_empty() {
            let mut unit = [0; 16];
            unit[..rest.len()].copy_from_slice(rest);
            let at = units.len() * STRIDE;
            add(&mut sums, &unit, &self.nh[at..at + STRIDE * PASSES]);
        }
        let mut out = [0; 32];
        for (out, sum) in out.chunks_exact_mut(8).zip(sums) {
            out.copy_from_slice(&sum.to_le_bytes());
        }
        out
    }
}

/// Adds what one unit of four words contributes to each pass.
fn add(sums: &mut [u64; PASSES], unit: &[u8; 16], keys: &[u32]) {
    let words: [u32; 4] = std::array::from_fn(|i| le32(&unit[4 * i..]));
    for (sum, key) in sums.iter_mut().zip(keys.chunks_exact(STRIDE)) {
        let product = |a: usize, b: usize| {
            u64::from(words[a].wrapping_add(key[a])) * u64::from(words[b].wrapping_add(key[b]))
        };
        *sum = sum.wrapping_add(product(0, 2)).wrapping_add(product(1, 3));
    }
}

fn le32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// Poly1305 without the number that is added at the end.
pub(super) fn poly(r: &[u8; 16]) -> Poly1305 {
    let mut key = Zeroizing::new([0; 32]);
    key[..16].copy_from_slice(r);
    let key: &Key = (&*key).into();
    Poly1305::new(key)
}

/// The result of Poly1305 as a number.
pub(super) fn number(poly: Poly1305) -> u128 {
    u128::from_le_bytes(poly.finalize().into())
}
