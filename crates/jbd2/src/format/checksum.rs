//! The two checksums of a journal.
//!
//! - `crc32c` (Castagnoli) protects everything of a v2 or v3 journal and the fast-commit area. No
//!   final inversion: the result of one piece is the seed of the next.
//! - `crc32be` (0x04C11DB7, most significant bit first) is the one sum of a v1 journal: it runs
//!   over the descriptors of a transaction and the copies that follow them, and is kept in the
//!   commit block ([`V1Sum`]).

/// `crc32c` of `bytes` begun with `seed`, without final inversion.
#[must_use]
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, bytes)
}

/// `crc32c` of a block whose four bytes at `hole` (its checksum field) count as zeros.
#[must_use]
pub(super) fn crc32c_with_hole(seed: u32, block: &[u8], hole: usize) -> u32 {
    let (before, rest) = block.split_at(hole.min(block.len()));
    let after = rest.get(4..).unwrap_or_default();
    let zeros = [0u8; 4];
    crc32c(crc32c(crc32c(seed, before), &zeros[..rest.len().min(4)]), after)
}

const POLY: u32 = 0x04C1_1DB7;

/// `TABLES[k][b]`: what byte `b` followed by `k` zero bytes adds to the sum.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut t = [[0u32; 256]; 8];
    let mut i = 0;
    while i < 256 {
        let mut c = (i as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            c = if c & 0x8000_0000 != 0 { (c << 1) ^ POLY } else { c << 1 };
            bit += 1;
        }
        t[0][i] = c;
        i += 1;
    }
    let mut k = 1;
    while k < 8 {
        let mut i = 0;
        while i < 256 {
            let prev = t[k - 1][i];
            t[k][i] = (prev << 8) ^ t[0][(prev >> 24) as usize];
            i += 1;
        }
        k += 1;
    }
    t
}

/// The big-endian CRC-32 of `bytes` begun with `seed`, without final inversion.
#[must_use]
pub fn crc32be(seed: u32, bytes: &[u8]) -> u32 {
    let mut crc = seed;
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let mixed = u64::from_be_bytes(*word) ^ (u64::from(crc) << 32);
        crc = 0;
        for (table, byte) in TABLES.iter().rev().zip(mixed.to_be_bytes()) {
            crc ^= table[usize::from(byte)];
        }
    }
    for byte in rest {
        crc = (crc << 8) ^ TABLES[0][usize::from((crc >> 24) as u8 ^ byte)];
    }
    crc
}

/// The running sum of a v1 transaction: descriptors and the copies behind them, in log order, no
/// revoke blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct V1Sum(u32);

impl V1Sum {
    /// The sum of a transaction that holds nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self(u32::MAX)
    }

    /// Adds a block as it is in the log.
    pub fn update(&mut self, block: &[u8]) {
        self.0 = crc32be(self.0, block);
    }

    /// The value for the commit block.
    #[must_use]
    pub fn value(self) -> u32 {
        self.0
    }
}

impl Default for V1Sum {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_values() {
        assert_eq!(crc32c(u32::MAX, b"123456789"), 0x1CF9_6D7C);
        assert_eq!(crc32be(u32::MAX, b"123456789"), 0x0376_E6E7);
        let uuid: Vec<u8> = (0..16).collect();
        assert_eq!(crc32c(u32::MAX, &uuid), 0x2636_F714);
    }

    #[test]
    fn pieces_add_up() {
        let bytes: Vec<u8> = (0..1000u32).map(|i| (i * 7) as u8).collect();
        for cut in [0, 1, 7, 8, 9, 500, 1000] {
            let (a, b) = bytes.split_at(cut);
            assert_eq!(crc32be(crc32be(5, a), b), crc32be(5, &bytes));
            assert_eq!(crc32c(crc32c(5, a), b), crc32c(5, &bytes));
            let mut holed = bytes.clone();
            for b in holed.iter_mut().skip(cut).take(4) {
                *b = 0;
            }
            assert_eq!(crc32c_with_hole(5, &bytes, cut), crc32c(5, &holed));
        }
    }
}
