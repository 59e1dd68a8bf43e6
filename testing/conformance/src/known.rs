//! Differences from Linux that are known and justified: a short table, every entry with its reason.
//!
//! An entry that no run meets any more fails the suite, so the table cannot grow old.

/// Which subject.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub enum Side {
    /// Linux's ext4: what the others are compared with.
    Linux,
    /// The mount under test.
    Mount,
    /// The library.
    Library,
}

impl Side {
    /// For messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Linux => "linux",
            Self::Mount => "mount",
            Self::Library => "library",
        }
    }
}

/// A difference.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Subjects that differ.
    pub sides: &'static [Side],
    /// Case.
    pub case: &'static str,
    /// How Linux's line begins.
    pub line: &'static str,
    /// Why that is right or cannot be helped.
    pub why: &'static str,
}

/// All of them.
pub const KNOWN: &[Known] = &[
    // What Linux's FUSE does with any daemon.
    known(MOUNT, "collapse and insert", "", "Linux does not pass these two modes on to FUSE"),
    known(MOUNT, "fallocate by handles that may not", "append FallocateFlags(COLLAPSE", "the same"),
    known(MOUNT, "fallocate by handles that may not", "append FallocateFlags(INSERT", "the same"),
    known(MOUNT, "which times move", "collapse", "the same"),
    known(MOUNT, "which times move", "insert", "the same"),
    known(MOUNT, "which times move with blocks", "collapse", "the same"),
    known(MOUNT, "which times move with blocks", "insert", "the same"),
    known(
        MOUNT,
        "immutable and append-only",
        "access",
        "access(2) asks the kernel's inode, without chattr flags",
    ),
    known(
        MOUNT,
        "immutable and append-only",
        "touch by a stranger",
        "the same: EACCES comes before our EPERM",
    ),
    known(MOUNT, "access times", "file", "a read from the page cache does not reach the daemon"),
    known(MOUNT, "access times", "dir", "the same, from the cached listing"),
    // What the trait `FileSystem` does not have.
    known(LIBRARY, "access times", "O_NOATIME", "a read does not say how the file was opened"),
    // What Extol does on purpose.
    known(
        BOTH,
        "statfs",
        "reserved",
        "Linux keeps another 2 % back for delayed allocation; Extol's promises are exact",
    ),
    known(
        BOTH,
        "blocks of a file",
        "punched",
        "Extol frees indirect blocks that a punched hole leaves empty",
    ),
    known(
        BOTH,
        "which times move with blocks",
        "allocate",
        "Linux touches block-mapped files before it refuses",
    ),
    known(BOTH, "which times move with blocks", "zero", "the same"),
    known(LIBRARY, "which times move with blocks", "collapse", "the same"),
    known(LIBRARY, "which times move with blocks", "insert", "the same"),
];

const MOUNT: &[Side] = &[Side::Mount];
const LIBRARY: &[Side] = &[Side::Library];
const BOTH: &[Side] = &[Side::Mount, Side::Library];

const fn known(
    sides: &'static [Side],
    case: &'static str,
    line: &'static str,
    why: &'static str,
) -> Known {
    Known { sides, case, line, why }
}

impl Known {
    /// The entry for a line, if it may differ.
    #[must_use]
    pub fn find(side: Side, case: &str, line: &str) -> Option<usize> {
        KNOWN
            .iter()
            .position(|k| k.sides.contains(&side) && k.case == case && line.starts_with(k.line))
    }
}
