//! The parts of the mount options, each with one job.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use extol_block::{IoPriority, SharedDevice};
use extol_jbd2::FreeThreshold;
use extol_jbd2::batching::Batching;
use extol_jbd2::fast::FuaPolicy;
use extol_ondisk::quota::Kind;
use extol_task::Clock;

const MIB: usize = 1 << 20;

/// `commit=` without a choice.
pub(super) const DEFAULT_COMMIT: Duration = Duration::from_secs(5);
/// `init_itable` without a number.
pub(super) const INIT_ITABLE: u32 = 10;

/// `data=`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DataMode {
    /// File data goes through the log.
    Journal,
    /// File data is durable before the metadata that names it.
    #[default]
    Ordered,
    /// No promise about file data that was not synced. (Extol still writes data before it maps it.)
    Writeback,
}

/// `errors=`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ErrorPolicy {
    /// Record the error in the superblock and go on.
    #[default]
    Continue,
    /// Stop writing.
    RemountRo,
    /// Stop writing and tell the front end to end at once.
    Panic,
}

/// When reads change the access time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Atime {
    /// If it is older than the last change, or than a day.
    #[default]
    Relative,
    /// Always.
    Strict,
    /// Never.
    Never,
}

/// Is told what the opening of a volume waits for, and can end the wait.
pub trait Waiting: Send + Sync + std::fmt::Debug {
    /// A wait of some seconds or minutes begins: a line for the user.
    fn waits(&self, line: &str);
    /// True if the volume is not wanted any more.
    fn is_interrupted(&self) -> bool;
}

/// How the volume is opened, and what an error does to it.
#[derive(Clone, Debug, Default)]
pub struct AccessOptions {
    /// `ro`.
    pub read_only: bool,
    /// `norecovery`, `noload`.
    pub norecovery: bool,
    /// `nommp`: the volume is not claimed, and no claim of another host is looked for.
    pub nommp: bool,
    /// `sb=`: which superblock copy to use, in KiB.
    pub superblock: Option<u64>,
    /// O_DIRECT: `None` where it can.
    pub direct: Option<bool>,
    /// `errors=`; `None`: what the superblock says.
    pub errors: Option<ErrorPolicy>,
    /// Where it is mounted, for the superblock's record.
    pub mount_point: Option<PathBuf>,
    /// If there is no room below the device (a sparse image on a full file system), the volume
    /// stops as by a power cut, without a record of an error: for a program that says so itself
    /// ([`Ext4::is_stopped_by_full`](crate::Ext4::is_stopped_by_full)).
    pub unmarked_when_full: bool,
    /// Is told of long waits (multi-mount protection). `None`: they are silent.
    pub waiting: Option<Arc<dyn Waiting>>,
}

/// How the journal works.
#[derive(Clone, Debug)]
pub struct JournalOptions {
    /// `data=`; `None`: what the superblock says, else ordered.
    pub data_mode: Option<DataMode>,
    /// `barrier`, `nobarrier`; `None`: what the superblock says, else on.
    pub barrier: Option<bool>,
    /// `commit=` (0 is the default of 5 s).
    pub commit: Duration,
    /// `journal_async_commit`.
    pub async_commit: bool,
    /// `journal_checksum`.
    pub checksum: bool,
    /// Checksums v2 where the log would get v3, as Linux 3.5 to 3.17 wrote them. No option text
    /// asks for it: it is there so that recovery of such logs can be tested.
    pub checksum_v2: bool,
    /// `journal_path=`: the device or image of an external journal.
    pub path: Option<PathBuf>,
    /// The same, already open (for programs).
    pub device: Option<SharedDevice>,
    /// `min_batch_time=`, `max_batch_time=`.
    pub batching: Batching,
    /// `fua=`.
    pub fua: FuaPolicy,
    /// `fast_commit`, `nofast_commit`; `None`: on if the volume has the feature and room for it.
    pub fast_commit: Option<bool>,
    /// `async_checkpoint=`; `None`: `noasync_checkpoint`.
    pub async_checkpoint: Option<FreeThreshold>,
    /// `journal_ioprio=`: of the threads that commit and checkpoint.
    pub ioprio: IoPriority,
}

impl Default for JournalOptions {
    fn default() -> Self {
        Self {
            data_mode: None,
            barrier: None,
            commit: DEFAULT_COMMIT,
            async_commit: false,
            checksum: false,
            checksum_v2: false,
            path: None,
            device: None,
            batching: Batching::default(),
            fua: FuaPolicy::default(),
            fast_commit: None,
            async_checkpoint: None,
            ioprio: IoPriority::SERVICE,
        }
    }
}

/// Requests about the whole volume (sync, checkpoint, freeze).
#[derive(Clone, Copy, Debug)]
pub struct CheckpointOptions {
    /// `checkpoint=merge`: one thread answers all that wait.
    pub merge: bool,
    /// It was asked for explicitly, so it does not go with `checkpoint=disable`.
    pub merge_given: bool,
    /// `checkpoint=disable`, which [`MountOptions::check`](super::MountOptions::check) refuses.
    pub disable: bool,
    /// `ckpt_thread_ioprio=`: of the thread that answers merged requests.
    pub ioprio: IoPriority,
}

impl Default for CheckpointOptions {
    fn default() -> Self {
        Self { merge: true, merge_given: false, disable: false, ioprio: IoPriority::SERVICE }
    }
}

/// Times, owners and attributes of inodes.
#[derive(Clone, Copy, Debug)]
pub struct InodeOptions {
    /// `relatime`, `strictatime`, `noatime`.
    pub atime: Atime,
    /// `nodiratime`.
    pub nodiratime: bool,
    /// `lazytime`: time stamps alone are written with the next other change.
    pub lazytime: bool,
    /// `grpid`, `bsdgroups`: new files take the directory's group; `None`: what the superblock
    /// says.
    pub grpid: Option<bool>,
    /// `nouser_xattr` off.
    pub user_xattr: bool,
    /// `noacl` off.
    pub acl: bool,
}

impl Default for InodeOptions {
    fn default() -> Self {
        Self {
            atime: Atime::Relative,
            nodiratime: false,
            lazytime: false,
            grpid: None,
            user_xattr: true,
            acl: true,
        }
    }
}

/// Free space and the blocks kept for root.
#[derive(Clone, Copy, Debug, Default)]
pub struct SpaceOptions {
    /// `resuid=`: may use reserved blocks; `None`: what the superblock says.
    pub resuid: Option<u32>,
    /// `resgid=`.
    pub resgid: Option<u32>,
    /// `minixdf`: statfs counts metadata as space, too.
    pub minixdf: bool,
    /// `discard`: tell the device about freed blocks.
    pub discard: bool,
}

/// Whose limits are enforced. (Usage is kept wherever the volume has quota files.)
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QuotaOptions {
    /// `usrquota`, `quota`.
    pub user: bool,
    /// `grpquota`.
    pub group: bool,
    /// `prjquota`.
    pub project: bool,
}

impl QuotaOptions {
    /// The kinds of owners.
    #[must_use]
    pub fn kinds(self) -> Vec<Kind> {
        let on = [self.user, self.group, self.project];
        Kind::ALL.into_iter().zip(on).filter(|(_, on)| *on).map(|(kind, _)| kind).collect()
    }
}

/// How file data is written and read ahead.
#[derive(Clone, Copy, Debug)]
pub struct DataOptions {
    /// `sync`: every write is durable when it returns, and every change of a name.
    pub sync: bool,
    /// `dirsync`: every change of a name is durable when it returns.
    pub dirsync: bool,
    /// `nodelalloc`: map blocks in the write call.
    pub nodelalloc: bool,
    /// Bound on file data waiting to be written, in bytes.
    pub dirty_bytes: usize,
    /// Most bytes read ahead of a program that reads a [`File`](crate::File) from one end to the
    /// other; 0: none; `None`: 4 MiB, or 32 MiB from another host, whose answers take longer. (Of a
    /// mount the kernel reads ahead.)
    pub readahead: Option<usize>,
}

impl DataOptions {
    /// Bytes read ahead.
    pub(crate) fn readahead_bytes(&self) -> usize {
        self.readahead.unwrap_or(4 * MIB)
    }
}

impl Default for DataOptions {
    fn default() -> Self {
        Self {
            sync: false,
            dirsync: false,
            nodelalloc: false,
            dirty_bytes: 64 * MIB,
            readahead: None,
        }
    }
}

/// Bounds on what is kept in memory.
#[derive(Clone, Copy, Debug)]
pub struct CacheOptions {
    /// Metadata, in bytes. (Together with the dirty data 256 MiB.)
    pub metadata_bytes: usize,
    /// Clean file data, in bytes; see [`CacheOptions::data_bytes`].
    pub data: Option<usize>,
    /// The users of the volume keep its file data themselves, as the kernel does for a mount: a
    /// second copy gains nothing.
    pub kernel_caches: bool,
    /// Inodes kept decoded.
    pub inodes: usize,
}

impl CacheOptions {
    /// Bound on clean file data: as asked for, otherwise 64 MiB, or nothing if the kernel keeps it.
    #[must_use]
    pub fn data_bytes(&self) -> usize {
        self.data.unwrap_or(if self.kernel_caches { 0 } else { 64 * MIB })
    }
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self { metadata_bytes: 192 * MIB, data: None, kernel_caches: false, inodes: 16384 }
    }
}

/// What happens beside the operations.
#[derive(Clone, Debug)]
pub struct BackgroundOptions {
    /// Start the background threads. Without them nothing is written by time: commits and
    /// checkpoints are made by the operations that need them, and the volume behaves the same every
    /// time.
    pub threads: bool,
    /// `init_itable=`: zero inode tables that mkfs left unzeroed, with pauses of so many times what
    /// the first one takes; `None`: `noinit_itable`.
    pub init_itable: Option<u32>,
    /// How long after the mount that begins; `None`: a random time below 5 s. No option text asks
    /// for it: it is there for tests and benchmarks.
    pub init_itable_delay: Option<Duration>,
    /// The clock of the volume in place of the machine's. No option text asks for it: it is there
    /// for tests that move time on themselves.
    pub clock: Option<Arc<dyn Clock>>,
}

impl Default for BackgroundOptions {
    fn default() -> Self {
        Self { threads: true, init_itable: Some(INIT_ITABLE), init_itable_delay: None, clock: None }
    }
}
