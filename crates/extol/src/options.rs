//! Mount options: the kernel's names and meanings, and a few of our own.
//!
//! | ours | meaning |
//! |---|---|
//! | `cache_mb=N` | bound on the metadata cache, default 256 MiB together with the write cache |
//! | `dirty_mb=N` | bound on file data not yet written, default 64 |
//! | `data_cache_mb=N` | bound on clean file data kept in memory, default 64, for a mount 0: off |
//! | `readahead_kb=N` | most that is read ahead of somebody who reads an open file of the library, default 4096; 0: off |
//! | `inode_cache=N` | inodes kept decoded, default 16384 |
//! | `min_batch_time=N`, `max_batch_time=N` | bounds of an fsync's wait for others to share its commit, in microseconds, default 0 and 15000; a maximum of 0: no wait |
//! | `fua=auto\|never\|always` | fast commits by FUA instead of a flush: where the device says that it has FUA, never, or wherever they can; default auto |
//! | `async_checkpoint[=PERCENT]`, `noasync_checkpoint` | write home in the background when less of the log is free; default off |
//! | `checkpoint=merge\|nomerge` (`checkpoint_merge`, `nocheckpoint_merge`) | one thread answers all whole-volume syncs, default merge |
//! | `ckpt_thread_ioprio=be:N\|rt:N\|idle` | I/O priority of that thread, default `be:3` |
//! | `journal_ioprio=N` | best-effort I/O priority of the journal's threads, 0 to 7, default 3 |
//! | `fast_commit`, `nofast_commit` | an fsync writes a few records instead of a whole commit; default on where the volume has the feature |
//! | `direct`, `nodirect` | open the image or disk with O_DIRECT (default: where it can) |

mod text;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use extol_block::{IoPriority, SharedDevice};
use extol_jbd2::FreeThreshold;
use extol_jbd2::batching::Batching;
use extol_jbd2::fast::FuaPolicy;

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
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorPolicy {
    /// Note the error in the superblock and go on.
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

/// How to mount. `Default` is what `mount` does without options.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// `ro`.
    pub read_only: bool,
    /// `norecovery`, `noload`.
    pub norecovery: bool,
    /// `data=`; `None`: what the superblock says, else ordered.
    pub data: Option<DataMode>,
    /// `barrier`, `nobarrier`; `None`: what the superblock says, else on.
    pub barrier: Option<bool>,
    /// `commit=` (0 is the default of 5 s).
    pub commit: Duration,
    /// `journal_async_commit`.
    pub journal_async_commit: bool,
    /// `journal_checksum`.
    pub journal_checksum: bool,
    /// Checksums v2 where the log would get v3, as Linux 3.5 to 3.17 wrote them. No option text
    /// asks for it: it is there so that recovery of such logs can be tested.
    pub journal_checksum_v2: bool,
    /// `errors=`; `None`: what the superblock says.
    pub errors: Option<ErrorPolicy>,
    /// `journal_path=`: the device or image of an external journal.
    pub journal_path: Option<PathBuf>,
    /// The same, already open (for programs).
    pub journal_device: Option<SharedDevice>,
    /// `relatime`, `strictatime`, `noatime`.
    pub atime: Atime,
    /// `nodiratime`.
    pub nodiratime: bool,
    /// `sync`: every write is durable when it returns, and every change of a name.
    pub sync: bool,
    /// `dirsync`: every change of a name is durable when it returns.
    pub dirsync: bool,
    /// `discard`: tell the device about freed blocks.
    pub discard: bool,
    /// `grpid`, `bsdgroups`: new files take the directory's group.
    pub grpid: Option<bool>,
    /// `minixdf`: statfs counts metadata as space, too.
    pub minixdf: bool,
    /// `nouser_xattr` off.
    pub user_xattr: bool,
    /// `noacl` off.
    pub acl: bool,
    /// `resuid=`: may use reserved blocks; `None`: what the superblock says.
    pub resuid: Option<u32>,
    /// `resgid=`.
    pub resgid: Option<u32>,
    /// `sb=`: which superblock copy to use, in 1 KiB units.
    pub sb: Option<u64>,
    /// `lazytime`: time stamps alone are written with the next other change.
    pub lazytime: bool,
    /// `init_itable=`: zero inode tables that mkfs left unzeroed, with pauses of so many times what
    /// the first one took; `None`: `noinit_itable`.
    pub init_itable: Option<u32>,
    /// How long after the mount that begins; `None`: a random time below 5 s. No option text asks
    /// for it: it is there for tests and benchmarks.
    pub init_itable_delay: Option<Duration>,
    /// `nodelalloc`: map blocks in the write call.
    pub nodelalloc: bool,
    /// `min_batch_time=`, `max_batch_time=` (microseconds). No option text asks for another policy:
    /// that is there for benchmarks.
    pub batching: Batching,
    /// `fua=`.
    pub fua: FuaPolicy,
    /// `fast_commit`, `nofast_commit`; `None`: on if the volume has the feature and room for it.
    pub fast_commit: Option<bool>,
    /// `async_checkpoint=`; `None`: `noasync_checkpoint`.
    pub async_checkpoint: Option<FreeThreshold>,
    /// `checkpoint=merge`.
    pub checkpoint_merge: bool,
    /// It was asked for in so many words, so it does not go with `checkpoint=disable`.
    pub checkpoint_merge_given: bool,
    /// `checkpoint=disable`, which [`check`](Self::check) refuses.
    pub checkpoint_disable: bool,
    /// `ckpt_thread_ioprio=`: of the thread that answers merged requests.
    pub checkpoint_ioprio: IoPriority,
    /// `journal_ioprio=`: of the threads that commit and checkpoint.
    pub journal_ioprio: IoPriority,
    /// Bound on the metadata cache in bytes.
    pub cache_bytes: usize,
    /// Bound on file data waiting to be written, in bytes.
    pub dirty_bytes: usize,
    /// Bound on clean file data in memory, in bytes; see
    /// [`data_cache_bytes`](Self::data_cache_bytes).
    pub data_cache: Option<usize>,
    /// Those who use the volume keep its file data themselves, as the kernel does for a mount:
    /// nothing is gained by keeping it twice.
    pub kernel_caches: bool,
    /// Most bytes read ahead of somebody who reads a [`File`](crate::File) from one end to the
    /// other; 0: none. (Of a mount the kernel reads ahead.)
    pub readahead: usize,
    /// Inodes kept decoded.
    pub inode_cache: usize,
    /// O_DIRECT: `None` where it can.
    pub direct: Option<bool>,
    /// Where it is mounted, for the superblock's record.
    pub mount_point: Option<PathBuf>,
    /// Start the background threads. Without them nothing is written by time: commits and
    /// checkpoints are made by the operations that need them, and the volume behaves the same every
    /// time.
    pub threads: bool,
    /// Is told of long waits (multi-mount protection). `None`: they are silent.
    pub waiting: Option<Arc<dyn Waiting>>,
}

const MIB: usize = 1 << 20;

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            norecovery: false,
            data: None,
            barrier: None,
            commit: DEFAULT_COMMIT,
            journal_async_commit: false,
            journal_checksum: false,
            journal_checksum_v2: false,
            errors: None,
            journal_path: None,
            journal_device: None,
            atime: Atime::Relative,
            nodiratime: false,
            sync: false,
            dirsync: false,
            discard: false,
            grpid: None,
            minixdf: false,
            user_xattr: true,
            acl: true,
            resuid: None,
            resgid: None,
            sb: None,
            lazytime: false,
            init_itable: Some(INIT_ITABLE),
            init_itable_delay: None,
            nodelalloc: false,
            batching: Batching::default(),
            fua: FuaPolicy::default(),
            fast_commit: None,
            async_checkpoint: None,
            checkpoint_merge: true,
            checkpoint_merge_given: false,
            checkpoint_disable: false,
            checkpoint_ioprio: IoPriority::SERVICE,
            journal_ioprio: IoPriority::SERVICE,
            // 192 + 64 make the documented bound of 256 MiB.
            cache_bytes: 192 * MIB,
            dirty_bytes: 64 * MIB,
            data_cache: None,
            kernel_caches: false,
            readahead: 4 * MIB,
            inode_cache: 16384,
            direct: None,
            mount_point: None,
            threads: true,
            waiting: None,
        }
    }
}

impl MountOptions {
    /// Bound on clean file data in memory: as asked for, otherwise 64 MiB, or nothing if the kernel
    /// keeps it.
    #[must_use]
    pub fn data_cache_bytes(&self) -> usize {
        self.data_cache.unwrap_or(if self.kernel_caches { 0 } else { 64 * MIB })
    }
}

const DEFAULT_COMMIT: Duration = Duration::from_secs(5);

/// `init_itable` without a number.
const INIT_ITABLE: u32 = 10;

/// Kernel options that ask for what Extol always does, or for something that has no meaning here.
const ACCEPTED: &[&str] = &[
    "auto_da_alloc",
    "noauto_da_alloc",
    "block_validity",
    "noblock_validity",
    "dioread_lock",
    "dioread_nolock",
    "i_version",
    "inode_readahead_blks",
    "max_dir_size_kb",
    "mb_optimize_scan",
    "nombcache",
    "no_mbcache",
    "no_prefetch_block_bitmaps",
    "prefetch_block_bitmaps",
    "noquota",
    "oldalloc",
    "orlov",
    "nouid32",
    "stripe",
    "debug",
    "data_err",
];

impl MountOptions {
    /// Parses a comma-separated option list.
    ///
    /// # Errors
    /// One line that names the option that is unknown or has a bad value.
    pub fn parse(list: &str) -> Result<Self, String> {
        let mut options = Self::default();
        for option in list.split(',').filter(|o| !o.is_empty()) {
            let (name, value) = match option.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (option, None),
            };
            if !options.set(name, value)? {
                return Err(format!("unknown mount option \"{option}\""));
            }
        }
        options.check()?;
        Ok(options)
    }

    fn merge(&mut self, on: bool) {
        (self.checkpoint_merge, self.checkpoint_merge_given) = (on, on);
    }

    /// Looks for options that do not go together. [`parse`](Self::parse) does it, and opening a
    /// volume does, too.
    ///
    /// # Errors
    /// One line that names them.
    pub fn check(&self) -> Result<(), String> {
        if self.checkpoint_disable && self.checkpoint_merge_given {
            return Err("checkpoint=merge cannot be used with checkpoint=disable".into());
        }
        if self.checkpoint_disable {
            return Err(
                "checkpoint=disable is not supported: leave it out (every mount here can be recovered)"
                    .into(),
            );
        }
        Ok(())
    }

    /// Applies one option. `Ok(false)`: not an option of ours.
    ///
    /// # Errors
    /// One line about a bad or missing value.
    pub fn set(&mut self, name: &str, value: Option<&str>) -> Result<bool, String> {
        let bad = || match value {
            Some(v) => format!("bad value \"{v}\" for mount option \"{name}\""),
            None => format!("mount option \"{name}\" needs a value"),
        };
        let number = || value.and_then(|v| v.parse::<u64>().ok()).ok_or_else(bad);
        let small =
            |max: u64| number().and_then(|n| if n <= max { Ok(n as usize) } else { Err(bad()) });
        match name {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "norecovery" | "noload" => self.norecovery = true,
            "data" => {
                self.data = Some(match value {
                    Some("journal") => DataMode::Journal,
                    Some("ordered") => DataMode::Ordered,
                    Some("writeback") => DataMode::Writeback,
                    _ => return Err(bad()),
                });
            }
            "barrier" => {
                self.barrier = Some(match value {
                    None => true,
                    Some(_) => number()? != 0,
                });
            }
            "nobarrier" => self.barrier = Some(false),
            "commit" => {
                self.commit = match small(21_474_836)? {
                    0 => DEFAULT_COMMIT,
                    n => Duration::from_secs(n as u64),
                };
            }
            "journal_async_commit" => self.journal_async_commit = true,
            "journal_checksum" => self.journal_checksum = true,
            "nojournal_checksum" => self.journal_checksum = false,
            "errors" => {
                self.errors = Some(match value {
                    Some("continue") => ErrorPolicy::Continue,
                    Some("remount-ro") => ErrorPolicy::RemountRo,
                    Some("panic") => ErrorPolicy::Panic,
                    _ => return Err(bad()),
                });
            }
            "journal_path" => self.journal_path = Some(value.ok_or_else(bad)?.into()),
            "relatime" | "norelatime" => self.atime = Atime::Relative,
            "strictatime" | "atime" => self.atime = Atime::Strict,
            "nostrictatime" => self.atime = Atime::Relative,
            "noatime" => self.atime = Atime::Never,
            "nodiratime" => self.nodiratime = true,
            "diratime" => self.nodiratime = false,
            "sync" => self.sync = true,
            "async" => self.sync = false,
            "dirsync" => self.dirsync = true,
            "nodirsync" => self.dirsync = false,
            "discard" => self.discard = true,
            "nodiscard" => self.discard = false,
            "grpid" | "bsdgroups" => self.grpid = Some(true),
            "nogrpid" | "sysvgroups" => self.grpid = Some(false),
            "minixdf" => self.minixdf = true,
            "bsddf" => self.minixdf = false,
            "user_xattr" => self.user_xattr = true,
            "nouser_xattr" => self.user_xattr = false,
            "acl" => self.acl = true,
            "noacl" => self.acl = false,
            "resuid" => self.resuid = Some(small(u64::from(u32::MAX))? as u32),
            "resgid" => self.resgid = Some(small(u64::from(u32::MAX))? as u32),
            "sb" => self.sb = Some(number()?),
            "lazytime" => self.lazytime = true,
            "nolazytime" => self.lazytime = false,
            "nodelalloc" => self.nodelalloc = true,
            "init_itable" | "inititable" => {
                self.init_itable = Some(match value {
                    None => INIT_ITABLE,
                    Some(_) => {
                        number().ok().and_then(|n| u32::try_from(n).ok()).ok_or_else(|| {
                            format!(
                                "{}: use a number, such as {name}={INIT_ITABLE}; 0 means no pauses",
                                bad()
                            )
                        })?
                    }
                });
            }
            "noinit_itable" | "noinititable" => self.init_itable = None,
            "delalloc" => self.nodelalloc = false,
            "fua" => {
                let known = FuaPolicy::NAMES.iter().find(|(name, _)| Some(*name) == value);
                self.fua = known.ok_or_else(bad)?.1;
            }
            "min_batch_time" => {
                self.batching.min = Duration::from_micros(small(u64::from(u32::MAX))? as u64);
            }
            "max_batch_time" => {
                self.batching.max = Duration::from_micros(small(u64::from(u32::MAX))? as u64);
            }
            "async_checkpoint" => {
                self.async_checkpoint = match value {
                    None => Some(FreeThreshold::default()),
                    Some("0") => None,
                    Some(_) => {
                        Some(number().ok().and_then(FreeThreshold::new).ok_or_else(|| {
                            format!("{}: use a percentage from 1 to 99, or 0 for off", bad())
                        })?)
                    }
                };
            }
            "noasync_checkpoint" => self.async_checkpoint = None,
            "fast_commit" => self.fast_commit = Some(true),
            "nofast_commit" => self.fast_commit = Some(false),
            "checkpoint" => match value {
                Some("merge") => self.merge(true),
                Some("nomerge") => self.merge(false),
                Some("enable") => self.checkpoint_disable = false,
                Some(v) if v == "disable" || v.starts_with("disable:") => {
                    self.checkpoint_disable = true
                }
                _ => return Err(bad()),
            },
            "checkpoint_merge" => self.merge(true),
            "nocheckpoint_merge" => self.merge(false),
            "ckpt_thread_ioprio" => {
                let text = value.ok_or_else(bad)?;
                self.checkpoint_ioprio = text.parse().map_err(|e| format!("{}: {e}", bad()))?;
            }
            "journal_ioprio" => {
                let level = number().ok().and_then(|n| u8::try_from(n).ok());
                let priority = level.and_then(IoPriority::best_effort);
                self.journal_ioprio =
                    priority.ok_or_else(|| format!("{}: use a level from 0 to 7", bad()))?;
            }
            "cache_mb" => self.cache_bytes = small(1 << 20)?.max(4) * MIB,
            "dirty_mb" => self.dirty_bytes = small(1 << 20)?.max(1) * MIB,
            "data_cache_mb" => self.data_cache = Some(small(1 << 20)? * MIB),
            "readahead_kb" => self.readahead = small(32 << 10)? << 10,
            "inode_cache" => self.inode_cache = small(1 << 28)?.max(64),
            "direct" => self.direct = Some(true),
            "nodirect" => self.direct = Some(false),
            _ => return Ok(ACCEPTED.contains(&name)),
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_names() {
        let o =
            MountOptions::parse("ro,data=journal,commit=0,barrier=0,errors=panic,noload,resuid=5")
                .unwrap();
        assert!(o.read_only && o.norecovery);
        assert_eq!(o.data, Some(DataMode::Journal));
        assert_eq!(o.commit, DEFAULT_COMMIT);
        assert_eq!(o.barrier, Some(false));
        assert_eq!(o.errors, Some(ErrorPolicy::Panic));
        assert_eq!(o.resuid, Some(5));
        assert_eq!(MountOptions::parse("commit=7").unwrap().commit, Duration::from_secs(7));
    }

    #[test]
    fn init_itable_in_both_spellings() {
        let parsed = |list: &str| MountOptions::parse(list).map(|o| o.init_itable);
        assert_eq!(parsed(""), Ok(Some(10)), "on by default");
        assert_eq!(parsed("noinit_itable,init_itable"), Ok(Some(10)));
        assert_eq!(parsed("init_itable=0"), Ok(Some(0)));
        assert_eq!(parsed("inititable=5"), Ok(Some(5)));
        assert_eq!(parsed("init_itable=3,noinit_itable"), Ok(None));
        assert_eq!(parsed("noinititable"), Ok(None));
        for bad in ["init_itable=", "init_itable=x", "inititable=-1", "init_itable=4294967296"] {
            let line = parsed(bad).unwrap_err();
            assert!(
                line.contains("init") && line.contains("=10") && !line.contains('\n'),
                "{line}"
            );
        }
    }

    /// C1 of the journal's scenarios.
    #[test]
    fn asynchronous_checkpoint() {
        let percent = |list: &str| {
            MountOptions::parse(list).map(|o| o.async_checkpoint.map(FreeThreshold::percent))
        };
        assert_eq!(percent(""), Ok(None));
        assert_eq!(percent("async_checkpoint"), Ok(Some(50)));
        assert_eq!(percent("async_checkpoint=30"), Ok(Some(30)));
        assert_eq!(percent("async_checkpoint=99,async_checkpoint=1"), Ok(Some(1)));
        assert_eq!(percent("async_checkpoint=0"), Ok(None));
        assert_eq!(percent("async_checkpoint=30,noasync_checkpoint"), Ok(None));
        for bad in ["100", "101", "306", "-1", "abc", "", "5%", "4294967346"] {
            let line = percent(&format!("async_checkpoint={bad}")).unwrap_err();
            assert!(
                line.contains("async_checkpoint")
                    && line.contains("1 to 99")
                    && !line.contains('\n'),
                "{line}"
            );
        }
    }

    #[test]
    fn merged_checkpoints() {
        let on = |list| MountOptions::parse(list).unwrap().checkpoint_merge;
        assert!(on("") && on("checkpoint=merge") && on("nocheckpoint_merge,checkpoint_merge"));
        assert!(!on("checkpoint=nomerge") && !on("checkpoint=merge,nocheckpoint_merge"));
        let refused = "checkpoint=merge cannot be used with checkpoint=disable";
        for list in
            ["checkpoint=merge,checkpoint=disable", "checkpoint=disable:5%,checkpoint_merge"]
        {
            assert_eq!(MountOptions::parse(list).unwrap_err(), refused);
        }
        for list in
            ["checkpoint=disable", "checkpoint=merge,checkpoint=nomerge,checkpoint=disable:9"]
        {
            let error = MountOptions::parse(list).unwrap_err();
            assert!(error.starts_with("checkpoint=disable is not supported"), "{error}");
        }
        assert!(on("checkpoint=disable,checkpoint=enable"));
        assert!(MountOptions::parse("checkpoint=sometimes").is_err());
    }

    #[test]
    fn priorities() {
        let o = MountOptions::parse("ckpt_thread_ioprio=rt:0,journal_ioprio=7").unwrap();
        assert_eq!(
            (o.checkpoint_ioprio.to_string(), o.journal_ioprio.to_string()),
            ("rt,0".into(), "be,7".into())
        );
        let o = MountOptions::default();
        assert_eq!(
            (o.checkpoint_ioprio.to_string(), o.journal_ioprio.to_string()),
            ("be,3".into(), "be,3".into())
        );
        for list in [
            "ckpt_thread_ioprio=be:8",
            "ckpt_thread_ioprio",
            "journal_ioprio=8",
            "journal_ioprio=be",
        ] {
            assert!(MountOptions::parse(list).unwrap_err().contains("ioprio"), "{list}");
        }
    }

    #[test]
    fn one_clear_line_for_mistakes() {
        assert_eq!(MountOptions::parse("dta=x").unwrap_err(), "unknown mount option \"dta=x\"");
        assert_eq!(
            MountOptions::parse("data=x").unwrap_err(),
            "bad value \"x\" for mount option \"data\""
        );
        assert_eq!(
            MountOptions::parse("commit").unwrap_err(),
            "mount option \"commit\" needs a value"
        );
        assert!(MountOptions::parse("commit=-1").is_err());
    }
}
