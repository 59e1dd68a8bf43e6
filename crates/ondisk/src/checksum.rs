//! Checksums as ext4 and jbd2 use them: no final inversion, so that `crc(crc(s, a), b)` is `crc(s,
//! ab)`.
//!
//! [`FsSeed`] begins every checksum of a volume with metadata_csum, [`InodeSeed`] those of an
//! inode's own blocks.

/// CRC-32C (Castagnoli) from `seed`, without inversions.
#[must_use]
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    !::crc32c::crc32c_append(!seed, bytes)
}

const fn table_16() -> [u16; 256] {
    let mut table = [0u16; 256];
    let mut i = 0;
    while i < 256 {
        let mut c = i as u16;
        let mut bit = 0;
        while bit < 8 {
            c = if c & 1 != 0 { (c >> 1) ^ 0xA001 } else { c >> 1 };
            bit += 1;
        }
        table[i] = c;
        i += 1;
    }
    table
}

static TABLE_16: [u16; 256] = table_16();

/// CRC-16 with polynomial 0x8005 reflected, from `seed`, without inversions.
#[must_use]
pub fn crc16(seed: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(seed, |c, &b| (c >> 8) ^ TABLE_16[usize::from(c as u8 ^ b)])
}

/// Seed of all metadata checksums of a volume: from its uuid, or stored (csum_seed).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FsSeed(pub u32);

/// Seed of the checksums of one inode and of the blocks that belong to it alone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct InodeSeed(pub u32);

impl FsSeed {
    /// The seed that a uuid gives.
    #[must_use]
    pub fn from_uuid(uuid: &[u8; 16]) -> Self {
        Self(crc32c(!0, uuid))
    }

    /// The seed of an inode.
    #[must_use]
    pub fn inode(self, ino: crate::InodeNr, generation: u32) -> InodeSeed {
        InodeSeed(crc32c(crc32c(self.0, &ino.0.to_le_bytes()), &generation.to_le_bytes()))
    }

    /// The generation with which inode `to` has the seed that `from` has with `generation`: so
    /// all checksums of its blocks stay right. There is exactly one for each number.
    #[must_use]
    pub fn generation_for(self, from: crate::InodeNr, generation: u32, to: crate::InodeNr) -> u32 {
        // Four bytes enter a CRC of 32 bits by XOR, and what follows can be undone. So generations
        // that give one seed differ as the states before them do.
        let state = |ino: crate::InodeNr| self.crc(&ino.0.to_le_bytes());
        generation ^ state(from) ^ state(to)
    }

    /// Checksum of `bytes` from this seed.
    #[must_use]
    pub fn crc(self, bytes: &[u8]) -> u32 {
        crc32c(self.0, bytes)
    }
}

impl InodeSeed {
    /// Checksum of `bytes` from this seed.
    #[must_use]
    pub fn crc(self, bytes: &[u8]) -> u32 {
        crc32c(self.0, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_values() {
        assert_eq!(crc32c(!0, b"123456789"), 0x1CF9_6D7C);
        assert_eq!(crc16(!0, b"123456789"), 0x4B37);
        assert_eq!(crc32c(crc32c(!0, b"1234"), b"56789"), crc32c(!0, b"123456789"));
    }

    #[test]
    fn seeds() {
        let uuid: [u8; 16] = std::array::from_fn(|i| i as u8);
        let seed = FsSeed::from_uuid(&uuid);
        assert_eq!(seed, FsSeed(0x2636_F714));
        assert_eq!(seed.inode(crate::InodeNr(12), 0x1122_3344), InodeSeed(0x4388_17B3));
    }

    #[test]
    fn another_number_with_the_same_seed() {
        let fs = FsSeed(0x2636_F714);
        let numbers = (0..32).map(|bit| 12 ^ (1 << bit)).chain([12, 1, u32::MAX]);
        for to in numbers.map(crate::InodeNr) {
            for generation in [0, 1, 0x1122_3344, u32::MAX] {
                let from = crate::InodeNr(12);
                let new = fs.generation_for(from, generation, to);
                assert_eq!(fs.inode(to, new), fs.inode(from, generation), "{to}");
                assert_ne!(fs.inode(to, new ^ 1), fs.inode(from, generation), "{to}");
            }
        }
    }
}
