//! Feature words of the journal superblock and what they mean for the layout of the other blocks.

use crate::types::{JournalError, Result};

/// The three feature words.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Features {
    /// Bits that a reader may ignore.
    pub compat: u32,
    /// Bits that a reader must know.
    pub incompat: u32,
    /// Bits that a writer must know.
    pub ro_compat: u32,
}

impl Features {
    /// compat: commit blocks carry a v1 sum over the transaction.
    pub const COMPAT_CHECKSUM: u32 = 0x1;
    /// incompat: revoke blocks may exist.
    pub const INCOMPAT_REVOKE: u32 = 0x1;
    /// incompat: 64-bit block numbers in tags and revoke records.
    pub const INCOMPAT_64BIT: u32 = 0x2;
    /// incompat: the commit block may have reached the disk before the rest of its transaction.
    pub const INCOMPAT_ASYNC_COMMIT: u32 = 0x4;
    /// incompat: 16-bit tag checksums.
    pub const INCOMPAT_CSUM_V2: u32 = 0x8;
    /// incompat: 32-bit tag checksums.
    pub const INCOMPAT_CSUM_V3: u32 = 0x10;
    /// incompat: the log ends before a fast-commit area.
    pub const INCOMPAT_FAST_COMMIT: u32 = 0x20;
    /// All incompat bits that we know.
    pub const INCOMPAT_KNOWN: u32 = 0x3F;

    const COMPAT_NAMES: [(u32, &'static str); 1] = [(Self::COMPAT_CHECKSUM, "journal_checksum")];
    const INCOMPAT_NAMES: [(u32, &'static str); 6] = [
        (Self::INCOMPAT_REVOKE, "journal_incompat_revoke"),
        (Self::INCOMPAT_64BIT, "journal_64bit"),
        (Self::INCOMPAT_ASYNC_COMMIT, "journal_async_commit"),
        (Self::INCOMPAT_CSUM_V2, "journal_checksum_v2"),
        (Self::INCOMPAT_CSUM_V3, "journal_checksum_v3"),
        (Self::INCOMPAT_FAST_COMMIT, "fast_commit"),
    ];

    /// Commit blocks carry a v1 sum.
    #[must_use]
    pub fn has_csum_v1(self) -> bool {
        self.compat & Self::COMPAT_CHECKSUM != 0
    }

    /// 16-bit tag checksums.
    #[must_use]
    pub fn has_csum_v2(self) -> bool {
        self.incompat & Self::INCOMPAT_CSUM_V2 != 0
    }

    /// 32-bit tag checksums.
    #[must_use]
    pub fn has_csum_v3(self) -> bool {
        self.incompat & Self::INCOMPAT_CSUM_V3 != 0
    }

    /// Every control block and every copy has a checksum.
    #[must_use]
    pub fn has_csum_v2_or_v3(self) -> bool {
        self.incompat & (Self::INCOMPAT_CSUM_V2 | Self::INCOMPAT_CSUM_V3) != 0
    }

    /// Block numbers of 64 bits.
    #[must_use]
    pub fn is_64bit(self) -> bool {
        self.incompat & Self::INCOMPAT_64BIT != 0
    }

    /// Revoke blocks may exist.
    #[must_use]
    pub fn has_revoke(self) -> bool {
        self.incompat & Self::INCOMPAT_REVOKE != 0
    }

    /// A commit block does not prove that its transaction is complete.
    #[must_use]
    pub fn has_async_commit(self) -> bool {
        self.incompat & Self::INCOMPAT_ASYNC_COMMIT != 0
    }

    /// The log ends before a fast-commit area.
    #[must_use]
    pub fn has_fast_commit(self) -> bool {
        self.incompat & Self::INCOMPAT_FAST_COMMIT != 0
    }

    /// Bytes of a tag, without the uuid that may follow.
    #[must_use]
    pub fn tag_size(self) -> usize {
        match (self.has_csum_v3(), self.has_csum_v2(), self.is_64bit()) {
            (true, _, _) => 16,
            (_, false, false) => 8,
            (_, false, true) => 12,
            (_, true, false) => 10,
            (_, true, true) => 14,
        }
    }

    /// Bytes at the end of descriptor and revoke blocks that hold their checksum.
    #[must_use]
    pub fn tail_size(self) -> usize {
        if self.has_csum_v2_or_v3() { 4 } else { 0 }
    }

    /// Bytes of a revoke record.
    #[must_use]
    pub fn revoke_record_size(self) -> usize {
        if self.is_64bit() { 8 } else { 4 }
    }

    /// Names of the bits that are set, as `dumpe2fs` spells them.
    #[must_use]
    pub fn names(self) -> Vec<String> {
        let mut names = Vec::new();
        let mut add = |word: u32, known: &[(u32, &str)], class: &str| {
            for bit in (0..32).map(|i| 1u32 << i).filter(|bit| word & bit != 0) {
                let name = known.iter().find(|(b, _)| *b == bit).map(|(_, n)| (*n).to_owned());
                names.push(name.unwrap_or_else(|| format!("{class}_{bit:#x}")));
            }
        };
        add(self.compat, &Self::COMPAT_NAMES, "compat");
        add(self.incompat, &Self::INCOMPAT_NAMES, "incompat");
        add(self.ro_compat, &[], "ro_compat");
        names
    }

    /// Refuses unknown bits and checksum versions that exclude each other.
    pub fn validate(self) -> Result<()> {
        let incompat = self.incompat & !Self::INCOMPAT_KNOWN;
        if incompat != 0 || self.ro_compat != 0 {
            return Err(JournalError::Unsupported(format!(
                "the journal has unknown features (incompat {incompat:#x}, ro_compat {:#x})",
                self.ro_compat
            )));
        }
        let versions = [self.has_csum_v1(), self.has_csum_v2(), self.has_csum_v3()]
            .iter()
            .filter(|v| **v)
            .count();
        if versions > 1 {
            let what = "superblock sets more than one checksum version";
            return Err(JournalError::corrupt(what, 0u32));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn incompat(incompat: u32) -> Features {
        Features { incompat, ..Features::default() }
    }

    #[test]
    fn tag_sizes() {
        for (bits, size, tail) in
            [(0, 8, 0), (0x2, 12, 0), (0x8, 10, 4), (0xA, 14, 4), (0x10, 16, 4), (0x12, 16, 4)]
        {
            assert_eq!(
                (incompat(bits).tag_size(), incompat(bits).tail_size()),
                (size, tail),
                "{bits:#x}"
            );
        }
    }

    #[test]
    fn exclusive_and_unknown_bits() {
        assert!(incompat(0x3F & !0x8).validate().is_ok());
        assert!(matches!(incompat(0x18).validate(), Err(JournalError::Corrupt { .. })));
        for bits in [0x8, 0x10] {
            let both = Features { compat: 1, incompat: bits, ro_compat: 0 };
            assert!(matches!(both.validate(), Err(JournalError::Corrupt { .. })));
        }
        assert!(matches!(incompat(0x40).validate(), Err(JournalError::Unsupported(_))));
        let ro = Features { ro_compat: 1, ..Features::default() };
        assert!(matches!(ro.validate(), Err(JournalError::Unsupported(_))));
        let compat = Features { compat: 0x8000_0000, ..Features::default() };
        assert!(compat.validate().is_ok());
    }

    #[test]
    fn names() {
        let f = Features { compat: 3, incompat: 0x32, ro_compat: 1 };
        assert_eq!(
            f.names(),
            [
                "journal_checksum",
                "compat_0x2",
                "journal_64bit",
                "journal_checksum_v3",
                "fast_commit",
                "ro_compat_0x1"
            ]
        );
    }
}
