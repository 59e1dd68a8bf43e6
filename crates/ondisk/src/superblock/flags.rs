//! Flag words of the superblock, but for the features.

use bitflags::bitflags;

bitflags! {
    /// `state`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct State: u16 {
        /// Cleanly unmounted (or journaled: errors aside always set).
        const VALID = 1;
        /// Errors were found.
        const ERROR = 2;
        /// Orphans are being processed.
        const ORPHANS = 4;
        /// A fast-commit replay is under way.
        const FC_REPLAY = 0x20;
    }

    /// `flags`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct SuperFlags: u32 {
        /// Directory hashes treat characters as signed.
        const SIGNED_HASH = 1;
        /// Directory hashes treat characters as unsigned.
        const UNSIGNED_HASH = 2;
        /// For testing development code.
        const TEST_FILESYS = 4;
    }

    /// `default_mount_opts`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct DefaultMountOpts: u32 {
        /// debug
        const DEBUG = 1;
        /// bsdgroups
        const BSDGROUPS = 2;
        /// user_xattr
        const USER_XATTR = 4;
        /// acl
        const ACL = 8;
        /// 16-bit user ids
        const UID16 = 0x10;
        /// data=journal (alone)
        const JOURNAL_DATA = 0x20;
        /// data=ordered (alone); with JOURNAL_DATA: data=writeback
        const JOURNAL_ORDERED = 0x40;
        /// nobarrier
        const NOBARRIER = 0x100;
        /// block_validity
        const BLOCK_VALIDITY = 0x200;
        /// discard
        const DISCARD = 0x400;
        /// nodelalloc
        const NODELALLOC = 0x800;
    }
}

/// How data goes to the device; the two bits stand for three words.
const DATA_MODES: [(DefaultMountOpts, &str); 3] = [
    (DefaultMountOpts::JOURNAL_DATA, "journal_data"),
    (DefaultMountOpts::JOURNAL_ORDERED, "journal_data_ordered"),
    (
        DefaultMountOpts::JOURNAL_DATA.union(DefaultMountOpts::JOURNAL_ORDERED),
        "journal_data_writeback",
    ),
];
const MOUNT_OPTIONS: [(DefaultMountOpts, &str); 9] = [
    (DefaultMountOpts::DEBUG, "debug"),
    (DefaultMountOpts::BSDGROUPS, "bsdgroups"),
    (DefaultMountOpts::USER_XATTR, "user_xattr"),
    (DefaultMountOpts::ACL, "acl"),
    (DefaultMountOpts::UID16, "uid16"),
    (DefaultMountOpts::NOBARRIER, "nobarrier"),
    (DefaultMountOpts::BLOCK_VALIDITY, "block_validity"),
    (DefaultMountOpts::DISCARD, "discard"),
    (DefaultMountOpts::NODELALLOC, "nodelalloc"),
];

impl DefaultMountOpts {
    /// The two bits that say how data goes to the device.
    pub const DATA_MODE: Self = Self::JOURNAL_DATA.union(Self::JOURNAL_ORDERED);

    /// The words for the bits that are set, as tune2fs(8) and dumpe2fs(8) spell them.
    #[must_use]
    pub fn names(self) -> Vec<&'static str> {
        let mode = self & Self::DATA_MODE;
        let mode = DATA_MODES.iter().filter(|(bits, _)| *bits == mode);
        let others = MOUNT_OPTIONS.iter().filter(|(bit, _)| self.contains(*bit));
        mode.chain(others).map(|(_, name)| *name).collect()
    }

    /// Sets or clears what a word stands for. False: there is no such word.
    pub fn switch(&mut self, name: &str, on: bool) -> bool {
        let named = |all: &[(Self, &str)]| all.iter().find(|(_, n)| *n == name).map(|(b, _)| *b);
        if let Some(mode) = named(&DATA_MODES) {
            *self -= Self::DATA_MODE;
            *self |= if on { mode } else { Self::empty() };
            return true;
        }
        match named(&MOUNT_OPTIONS) {
            Some(bit) => self.set(bit, on),
            None => return false,
        }
        true
    }

    /// All words that [`switch`](Self::switch) takes.
    pub fn words() -> impl Iterator<Item = &'static str> {
        DATA_MODES.iter().chain(&MOUNT_OPTIONS).map(|(_, name)| *name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_mount_options() {
        for word in DefaultMountOpts::words() {
            let mut options = DefaultMountOpts::empty();
            assert!(options.switch(word, true));
            assert_eq!(options.names(), [word]);
            assert!(options.switch(word, false));
            assert_eq!(options, DefaultMountOpts::empty());
        }
        let mut options = DefaultMountOpts::ACL | DefaultMountOpts::JOURNAL_DATA;
        assert!(options.switch("journal_data_ordered", true));
        assert_eq!(options.names(), ["journal_data_ordered", "acl"]);
        assert!(!options.switch("frob", true));
    }
}
