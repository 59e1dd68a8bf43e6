//! Ordering bugs on purpose, for the tests that show that such bugs are found. Chosen at run time,
//! for the calling thread only; without the feature `planted-bugs` there are none.

/// A planted bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// The commit record is written without a flush of what it covers.
    CommitWithoutFlush,
    /// The tail moves before the home writes are durable.
    TailTooEarly,
    /// Freed blocks are handed out before the transaction that freed them is durable.
    ReuseBeforeCommit,
    /// Freed metadata blocks are not revoked.
    RevokeForgotten,
    /// Blocks are mapped (and the mapping may commit) before their data is written.
    MapBeforeWrite,
    /// The volume is marked as needing recovery only when its superblock happens to be written.
    RecoveryFlagLate,
    /// A fast commit is written without a flush of the file data that it maps.
    FastWithoutFlush,
    /// The first fast commit of a transaction goes out without an empty one in front.
    FirstNotEmpty,
    /// The fast commits of a transaction stay in their area when it is durable.
    AreaNotCleared,
    /// The log wraps in front of the fast-commit area.
    LogWraps,
    /// Fast commits are written while the superblock still says that the log is empty.
    FastOnEmptyLog,
    /// A fast commit says only one of the names of an inode.
    NamesForgotten,
    /// A fast commit does not say that a name is gone.
    UnlinkForgotten,
    /// Recovery does not compare the data of the last fast commit.
    DataChecksumIgnored,
    /// Data of the last fast commit is overwritten while it is the last.
    ChecksummedDataOverwritten,
    /// Data that was left to a fast commit is written behind its flush.
    DataLeftBehind,
    /// Data that was left to a full commit is written behind its record.
    DataBehindRecord,
    /// Data that was left to a fast commit goes out with its records although no checksum covers
    /// it.
    OrderedDataForgotten,
    /// FUA writes of a fast commit are ordinary ones.
    FuaNotDurable,
    /// Data goes to blocks whose zeros are not on the medium yet.
    ZerosNotDurable,
    /// Fast commits say what files with tree blocks map.
    TreesRecorded,
    /// A flush is believed to cover writes that returned while it ran.
    FlushCoversLater,
    /// What e2fsck writes back from memory does not go home before the first fast commit.
    PatchedNotHome,
    /// A moved block is mapped to its new place (and that may commit) before it is copied.
    MapBeforeCopy,
    /// Nothing flushes the copy of a moved block before the transaction that maps it.
    CopyNotFlushed,
    /// New groups are added before what lies in them is durable.
    GroupsNotFlushed,
    /// The superblock of a larger volume goes home before the descriptors that it counts.
    SuperblockHomeFirst,
    /// The superblock of a smaller volume goes home beside blocks that it counts no more.
    CutHomeLate,
    /// The journal's inode names other map blocks before they are on the medium.
    JournalMapLate,
    /// Map blocks of the journal go home by the transaction whose inode names them.
    JournalMapLogged,
    /// The inode names a log before it is durable that this log is empty.
    LogSwitchNotFlushed,
    /// A disk image is cut before the smaller superblock is at home.
    DeviceCutEarly,
    /// What an operation uses is posted to quota files by the next one, in another transaction.
    UsageLate,
    /// A fast commit may hold an inode whose usage has changed.
    UsageInFastCommit,
    /// A fast commit may hold two spellings of one name.
    SpellingsInFastCommit,
    /// A fast commit may hold names of an encrypted directory.
    SecretsInFastCommit,
    /// A moved block of a quota file is mapped to its new place before it is copied.
    QuotaBlockLate,
}

#[cfg(feature = "planted-bugs")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
    static KEPT: std::cell::Cell<Option<Box<dyn std::any::Any>>> =
        const { std::cell::Cell::new(None) };
}

/// Plants a bug in this thread, or none.
#[cfg(feature = "planted-bugs")]
pub fn set(bug: Option<Bug>) {
    PLANTED.set(bug);
    KEPT.set(None);
}

/// For a bug that does something late: keeps it, and gives what was kept before.
#[cfg(feature = "planted-bugs")]
pub fn keep<T: 'static>(value: T) -> Option<T> {
    let before = KEPT.replace(Some(Box::new(value)));
    before.and_then(|before| before.downcast().ok()).map(|before| *before)
}

/// Keeps nothing: there are no bugs.
#[cfg(not(feature = "planted-bugs"))]
pub fn keep<T>(_: T) -> Option<T> {
    None
}

/// True if this thread has the bug.
#[cfg(feature = "planted-bugs")]
#[must_use]
pub fn has(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

/// There are none.
#[cfg(not(feature = "planted-bugs"))]
#[must_use]
pub const fn has(_: Bug) -> bool {
    false
}
