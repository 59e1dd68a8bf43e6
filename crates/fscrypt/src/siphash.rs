//! SipHash-2-4: hashes of inode numbers, and of names in encrypted case-insensitive directories.

use zeroize::Zeroize;

/// SipHash-2-4 of `data`.
#[must_use]
pub fn siphash24(key: &[u8; 16], data: &[u8]) -> u64 {
    let (k0, k1) = (word(&key[..8]), word(&key[8..]));
    let mut state = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    let mut chunks = data.chunks_exact(8);
    for chunk in &mut chunks {
        absorb(&mut state, word(chunk));
    }
    // The low byte of the length is the highest byte of the last word.
    let last = word(chunks.remainder()) | (data.len() as u64) << 56;
    absorb(&mut state, last);
    state[2] ^= 0xff;
    for _ in 0..4 {
        round(&mut state);
    }
    let hash = state[0] ^ state[1] ^ state[2] ^ state[3];
    state.zeroize();
    hash
}

/// At most eight bytes as a number, the lowest first.
fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
}

fn absorb(state: &mut [u64; 4], word: u64) {
    state[3] ^= word;
    round(state);
    round(state);
    state[0] ^= word;
}

fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[2] = v[2].rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_the_paper_hold() {
        let key = std::array::from_fn(|i| i as u8);
        let data: Vec<u8> = (0..15).collect();
        assert_eq!(siphash24(&key, &data), 0xa129_ca61_49be_45e5);
        assert_eq!(siphash24(&key, &[]), 0x726f_db47_dd0e_0e31);
        assert_eq!(siphash24(&key, &data[..8]), 0x93f5_f579_9a93_2462);
    }
}
