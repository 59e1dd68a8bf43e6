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
