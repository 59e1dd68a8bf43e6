//! Every mount option in one table: names, unit, default, reason, what a remount may do with it,
//! how it is parsed and how it is shown. The manual and the documentation are checked against it.

use std::time::Duration;

use extol_block::IoPriority;
use extol_jbd2::FreeThreshold;
use extol_jbd2::fast::FuaPolicy;

use super::parts::{Atime, DEFAULT_COMMIT, DataMode, ErrorPolicy, INIT_ITABLE};
use super::word::{Word, flag, name_of, only, with};
use super::{MountOptions, Remount};

const MIB: usize = 1 << 20;
/// Most mebibytes that a bound may have: a tebibyte.
const MOST_MIB: u64 = 1 << 20;
/// Longest `commit=` in seconds, as in Linux.
const MOST_COMMIT: u64 = 21_474_836;

const DATA: &[(&str, DataMode)] = &[
    ("journal", DataMode::Journal),
    ("ordered", DataMode::Ordered),
    ("writeback", DataMode::Writeback),
];
const ERRORS: &[(&str, ErrorPolicy)] = &[
    ("continue", ErrorPolicy::Continue),
    ("remount-ro", ErrorPolicy::RemountRo),
    ("panic", ErrorPolicy::Panic),
];

const JOURNAL: Remount = Remount::Never("Cannot specify journal on remount");
const CHECKSUM: Remount =
    Remount::Ignored("changing journal_checksum during remount not supported; ignoring");

/// A mount option.
#[derive(Clone, Copy, Debug)]
pub struct OptionSpec {
    /// Its names; those that turn it off included.
    pub names: &'static [&'static str],
    /// Unit or form of the value; empty: it has none.
    pub value: &'static str,
    /// What holds if it is not given.
    pub default: &'static str,
    /// When to use it.
    pub reason: &'static str,
    /// What a remount may do with it.
    pub(crate) remount: Remount,
    pub(super) set: fn(&mut MountOptions, Word<'_>) -> Result<(), String>,
    /// As one word; empty where there is nothing to say.
    pub(super) show: fn(&MountOptions) -> String,
}

fn mebibytes(w: Word<'_>, least: u64) -> Result<usize, String> {
    Ok(w.up_to(MOST_MIB)?.max(least) as usize * MIB)
}

/// Every option, in the order in which they are shown.
pub const TABLE: &[OptionSpec] = &[
    OptionSpec {
        names: &["ro", "rw"],
        value: "",
        default: "rw",
        reason: "ro: nothing is written; a log that needs recovery is replayed in memory",
        remount: Remount::Live,
        set: |o, w| {
            o.access.read_only = w.is("ro");
            Ok(())
        },
        show: |o| if o.access.read_only { "ro" } else { "rw" }.to_owned(),
    },
    OptionSpec {
        names: &["relatime", "norelatime", "strictatime", "nostrictatime", "atime", "noatime"],
        value: "",
        default: "relatime",
        reason: "whether reading writes: noatime saves writes, strictatime tells of every read",
        remount: Remount::Live,
        set: |o, w| {
            o.inodes.atime = match w.name {
                "noatime" => Atime::Never,
                "strictatime" | "atime" => Atime::Strict,
                _ => Atime::Relative,
            };
            Ok(())
        },
        show: |o| {
            match o.inodes.atime {
                Atime::Relative => "relatime",
                Atime::Strict => "strictatime",
                Atime::Never => "noatime",
            }
            .to_owned()
        },
    },
    OptionSpec {
        names: &["diratime", "nodiratime"],
        value: "",
        default: "diratime",
        reason: "nodiratime: listing a directory does not write",
        remount: Remount::Live,
        set: |o, w| {
            o.inodes.nodiratime = w.is("nodiratime");
            Ok(())
        },
        show: |o| if o.inodes.nodiratime { "nodiratime" } else { "diratime" }.to_owned(),
    },
    OptionSpec {
        names: &["sync", "async"],
        value: "",
        default: "async",
        reason: "sync: every write is durable when it returns, for programs that do not fsync",
        remount: Remount::Live,
        set: |o, w| {
            o.data.sync = w.is("sync");
            Ok(())
        },
        show: |o| if o.data.sync { "sync" } else { "async" }.to_owned(),
    },
    OptionSpec {
        names: &["dirsync", "nodirsync"],
        value: "",
        default: "nodirsync",
        reason: "dirsync: names are durable when the call returns, as some mail servers expect",
        remount: Remount::Live,
        set: |o, w| {
            o.data.dirsync = w.is("dirsync");
            Ok(())
        },
        show: |o| only(o.data.dirsync, "dirsync"),
    },
    OptionSpec {
        names: &["lazytime", "nolazytime"],
        value: "",
        default: "nolazytime",
        reason: "lazytime: time stamps alone are written with the next other change",
        remount: Remount::Live,
        set: |o, w| {
            o.inodes.lazytime = w.is("lazytime");
            Ok(())
        },
        show: |o| flag(o.inodes.lazytime, "lazytime"),
    },
    OptionSpec {
        names: &["norecovery", "noload"],
        value: "",
        default: "off",
        reason: "with ro: look at a volume without the changes in its log",
        remount: Remount::Fixed,
        set: |o, _| {
            o.access.norecovery = true;
            Ok(())
        },
        show: |o| only(o.access.norecovery, "norecovery"),
    },
    OptionSpec {
        names: &["sb"],
        value: "KiB from the start",
        default: "1",
        reason: "open a volume whose first superblock is damaged",
        remount: Remount::Fixed,
        set: |o, w| {
            o.access.superblock = Some(w.number()?);
            Ok(())
        },
        show: |o| with("sb", o.access.superblock),
    },
    OptionSpec {
        names: &["journal_path"],
        value: "file or device",
        default: "none",
        reason: "where the external journal of the volume is",
        remount: JOURNAL,
        set: |o, w| {
            o.journal.path = Some(w.value.ok_or_else(|| w.bad())?.into());
            Ok(())
        },
        show: |o| with("journal_path", o.journal.path.as_ref().map(|path| path.display())),
    },
    OptionSpec {
        names: &["data"],
        value: "journal, ordered or writeback",
        default: "what the superblock says, else ordered",
        reason: "journal: file data is as safe as metadata, and written twice",
        remount: Remount::FixedAs("Cannot change data mode on remount"),
        set: |o, w| {
            o.journal.data_mode = Some(w.choose(DATA)?);
            Ok(())
        },
        show: |o| with("data", o.journal.data_mode.map(|mode| name_of(DATA, mode))),
    },
    OptionSpec {
        names: &["barrier", "nobarrier"],
        value: "0 or 1",
        default: "what the superblock says, else barrier",
        reason: "nobarrier: no flushes, for a device that cannot lose its cache",
        remount: Remount::Live,
        set: |o, w| {
            let on = w.is("barrier") && w.value.map_or(Ok(true), |_| w.number().map(|n| n != 0))?;
            o.journal.barrier = Some(on);
            Ok(())
        },
        show: |o| flag(o.journal.barrier.unwrap_or(true), "barrier"),
    },
    OptionSpec {
        names: &["commit"],
        value: "seconds",
        default: "5",
        reason: "how much work a power cut may take from programs that do not fsync",
        remount: Remount::Live,
        set: |o, w| {
            o.journal.commit = match w.up_to(MOST_COMMIT)? {
                0 => DEFAULT_COMMIT,
                n => Duration::from_secs(n),
            };
            Ok(())
        },
        show: |o| format!("commit={}", o.journal.commit.as_secs()),
    },
    OptionSpec {
        names: &["journal_checksum", "nojournal_checksum"],
        value: "",
        default: "nojournal_checksum",
        reason: "checksums in the log of a volume without metadata_csum",
        remount: CHECKSUM,
        set: |o, w| {
            o.journal.checksum = w.is("journal_checksum");
            Ok(())
        },
        show: |o| flag(o.journal.checksum, "journal_checksum"),
    },
    OptionSpec {
        names: &["journal_async_commit"],
        value: "",
        default: "off",
        reason: "one flush less per commit; checksums tell a half-written commit apart",
        remount: Remount::Fixed,
        set: |o, _| {
            o.journal.async_commit = true;
            Ok(())
        },
        show: |o| only(o.journal.async_commit, "journal_async_commit"),
    },
    OptionSpec {
        names: &["errors"],
        value: "continue, remount-ro or panic",
        default: "what the superblock says",
        reason: "what damaged metadata does to the mount",
        remount: Remount::Live,
        set: |o, w| {
            o.access.errors = Some(w.choose(ERRORS)?);
            Ok(())
        },
        show: |o| with("errors", o.access.errors.map(|policy| name_of(ERRORS, policy))),
    },
    OptionSpec {
        names: &["discard", "nodiscard"],
        value: "",
        default: "nodiscard",
        reason: "discard: freed blocks are given back to a flash device or a sparse image at once",
        remount: Remount::Live,
        set: |o, w| {
            o.space.discard = w.is("discard");
            Ok(())
        },
        show: |o| flag(o.space.discard, "discard"),
    },
    OptionSpec {
        names: &["grpid", "bsdgroups", "nogrpid", "sysvgroups"],
        value: "",
        default: "what the superblock says",
        reason: "grpid: new files take the group of their directory",
        remount: Remount::Live,
        set: |o, w| {
            o.inodes.grpid = Some(w.is("grpid") || w.is("bsdgroups"));
            Ok(())
        },
        show: |o| flag(o.inodes.grpid.unwrap_or(false), "grpid"),
    },
    OptionSpec {
        names: &["minixdf", "bsddf"],
        value: "",
        default: "bsddf",
        reason: "minixdf: df counts metadata as space, too",
        remount: Remount::Live,
        set: |o, w| {
            o.space.minixdf = w.is("minixdf");
            Ok(())
        },
        show: |o| if o.space.minixdf { "minixdf" } else { "bsddf" }.to_owned(),
    },
    OptionSpec {
        names: &["user_xattr", "nouser_xattr"],
        value: "",
        default: "user_xattr",
        reason: "nouser_xattr: no attributes of users",
        remount: Remount::Fixed,
        set: |o, w| {
            o.inodes.user_xattr = w.is("user_xattr");
            Ok(())
        },
        show: |o| flag(o.inodes.user_xattr, "user_xattr"),
    },
    OptionSpec {
        names: &["acl", "noacl"],
        value: "",
        default: "acl",
        reason: "noacl: no access control lists",
        remount: Remount::Fixed,
        set: |o, w| {
            o.inodes.acl = w.is("acl");
            Ok(())
        },
        show: |o| flag(o.inodes.acl, "acl"),
    },
    OptionSpec {
        names: &["resuid"],
        value: "user id",
        default: "what the superblock says",
        reason: "a user beside root that may use the reserved blocks",
        remount: Remount::Live,
        set: |o, w| {
            o.space.resuid = Some(w.u32()?);
            Ok(())
        },
        show: |o| with("resuid", o.space.resuid),
    },
    OptionSpec {
        names: &["resgid"],
        value: "group id",
        default: "what the superblock says",
        reason: "a group that may use the reserved blocks",
        remount: Remount::Live,
        set: |o, w| {
            o.space.resgid = Some(w.u32()?);
            Ok(())
        },
        show: |o| with("resgid", o.space.resgid),
    },
    OptionSpec {
        names: &["delalloc", "nodelalloc"],
        value: "",
        default: "delalloc",
        reason: "nodelalloc: blocks are chosen in the write call, so less waits in memory",
        remount: Remount::Live,
        set: |o, w| {
            o.data.nodelalloc = w.is("nodelalloc");
            Ok(())
        },
        show: |o| flag(!o.data.nodelalloc, "delalloc"),
    },
    OptionSpec {
        names: &["min_batch_time"],
        value: "microseconds",
        default: "0",
        reason: "an fsync waits at least so long for others to share its commit",
        remount: Remount::Live,
        set: |o, w| {
            o.journal.batching.min = Duration::from_micros(w.u32()?.into());
            Ok(())
        },
        show: |o| format!("min_batch_time={}", o.journal.batching.min.as_micros()),
    },
    OptionSpec {
        names: &["max_batch_time"],
        value: "microseconds",
        default: "15000",
        reason: "an fsync waits at most so long for others; 0: never",
        remount: Remount::Live,
        set: |o, w| {
            o.journal.batching.max = Duration::from_micros(w.u32()?.into());
            Ok(())
        },
        show: |o| format!("max_batch_time={}", o.journal.batching.max.as_micros()),
    },
    OptionSpec {
        names: &["fua"],
        value: "auto, never or always",
        default: "auto",
        reason: "whether a fast commit is a durable write (FUA), or a write and a flush",
        remount: Remount::Live,
        set: |o, w| {
            o.journal.fua = w.choose(&FuaPolicy::NAMES)?;
            Ok(())
        },
        show: |o| format!("fua={}", o.journal.fua.name()),
    },
    OptionSpec {
        names: &["fast_commit", "nofast_commit"],
        value: "",
        default: "fast_commit if the volume has the feature",
        reason: "an fsync writes a few records instead of a whole commit",
        remount: Remount::FastCommit,
        set: |o, w| {
            o.journal.fast_commit = Some(w.is("fast_commit"));
            Ok(())
        },
        show: |o| o.journal.fast_commit.map(|on| flag(on, "fast_commit")).unwrap_or_default(),
    },
    OptionSpec {
        names: &["async_checkpoint", "noasync_checkpoint"],
        value: "percent of the log",
        default: "noasync_checkpoint; 50",
        reason: "write home in the background as soon as less of the log is free",
        remount: Remount::NeedsLog,
        set: |o, w| {
            let hint = "a percentage from 1 to 99, or 0 for off";
            o.journal.async_checkpoint = match w.value {
                _ if w.is("noasync_checkpoint") => None,
                None => Some(FreeThreshold::default()),
                Some("0") => None,
                Some(_) => {
                    let percent = w.number().ok().and_then(FreeThreshold::new);
                    Some(percent.ok_or_else(|| w.bad_use(hint))?)
                }
            };
            Ok(())
        },
        show: |o| match o.journal.async_checkpoint {
            Some(threshold) => format!("async_checkpoint={}", threshold.percent()),
            None => "noasync_checkpoint".to_owned(),
        },
    },
    OptionSpec {
        names: &["init_itable", "inititable", "noinit_itable", "noinititable"],
        value: "pauses per step",
        default: "10",
        reason: "zero inode tables that mkfs left; a pause is so many times as long as a step",
        remount: Remount::Live,
        set: |o, w| {
            o.background.init_itable = match w.value {
                _ if w.name.starts_with("no") => None,
                None => Some(INIT_ITABLE),
                Some(_) => Some(w.u32().map_err(|_| {
                    let name = w.name;
                    let hint = format!("a number, such as {name}={INIT_ITABLE}; 0 means no pauses");
                    w.bad_use(&hint)
                })?),
            };
            Ok(())
        },
        show: |o| match o.background.init_itable {
            Some(n) => format!("init_itable={n}"),
            None => "noinit_itable".to_owned(),
        },
    },
    OptionSpec {
        names: &["checkpoint", "checkpoint_merge", "nocheckpoint_merge"],
        value: "merge or nomerge",
        default: "merge",
        reason: "one thread answers all requests about the whole volume that wait",
        remount: Remount::Live,
        set: |o, w| {
            let merge = match (w.name, w.value) {
                ("checkpoint_merge", _) | ("checkpoint", Some("merge")) => true,
                ("nocheckpoint_merge", _) | ("checkpoint", Some("nomerge")) => false,
                (_, Some("enable")) => {
                    o.checkpoint.disable = false;
                    return Ok(());
                }
                (_, Some(v)) if v == "disable" || v.starts_with("disable:") => {
                    o.checkpoint.disable = true;
                    return Ok(());
                }
                _ => return Err(w.bad()),
            };
            (o.checkpoint.merge, o.checkpoint.merge_given) = (merge, merge);
            Ok(())
        },
        show: |o| {
            if o.checkpoint.merge { "checkpoint=merge" } else { "checkpoint=nomerge" }.to_owned()
        },
    },
    OptionSpec {
        names: &["ckpt_thread_ioprio"],
        value: "be:LEVEL, rt:LEVEL or idle",
        default: "be:3",
        reason: "I/O priority of that thread",
        remount: Remount::Live,
        set: |o, w| {
            let text = w.value.ok_or_else(|| w.bad())?;
            o.checkpoint.ioprio = text.parse().map_err(|e| format!("{}: {e}", w.bad()))?;
            Ok(())
        },
        // (A comma would end the word.)
        show: |o| {
            let priority = o.checkpoint.ioprio.to_string().replace(',', ":");
            format!("ckpt_thread_ioprio={priority}")
        },
    },
    OptionSpec {
        names: &["journal_ioprio"],
        value: "best-effort level, 0 to 7",
        default: "3",
        reason: "I/O priority of the threads that commit and checkpoint",
        remount: Remount::Live,
        set: |o, w| {
            let level = w.number().ok().and_then(|n| u8::try_from(n).ok());
            let priority = level.and_then(IoPriority::best_effort);
            o.journal.ioprio = priority.ok_or_else(|| w.bad_use("a level from 0 to 7"))?;
            Ok(())
        },
        show: |o| {
            let priority = o.journal.ioprio.to_string();
            format!("journal_ioprio={}", priority.trim_start_matches("be,"))
        },
    },
    OptionSpec {
        names: &["dirty_mb"],
        value: "MiB",
        default: "64",
        reason: "memory for file data that is not yet written; more lets writers run ahead longer",
        remount: Remount::Live,
        set: |o, w| {
            o.data.dirty_bytes = mebibytes(w, 1)?;
            Ok(())
        },
        show: |o| format!("dirty_mb={}", o.data.dirty_bytes / MIB),
    },
    OptionSpec {
        names: &["data_cache_mb"],
        value: "MiB",
        default: "64; for a mount 0, because the kernel keeps the data",
        reason: "memory for clean file data that programs read again",
        remount: Remount::Fixed,
        set: |o, w| {
            o.cache.data = Some(mebibytes(w, 0)?);
            Ok(())
        },
        show: |o| with("data_cache_mb", o.cache.data.map(|bytes| bytes / MIB)),
    },
    OptionSpec {
        names: &["readahead_kb"],
        value: "KiB",
        default: "4096",
        reason: "most that the library reads ahead of a program; 0: off, for a fast device",
        remount: Remount::Live,
        set: |o, w| {
            o.data.readahead = (w.up_to(32 << 10)? << 10) as usize;
            Ok(())
        },
        show: |o| format!("readahead_kb={}", o.data.readahead >> 10),
    },
    OptionSpec {
        names: &["cache_mb"],
        value: "MiB",
        default: "192",
        reason: "memory for metadata; the working set of inode tables and directories",
        remount: Remount::Fixed,
        set: |o, w| {
            o.cache.metadata_bytes = mebibytes(w, 4)?;
            Ok(())
        },
        show: |o| format!("cache_mb={}", o.cache.metadata_bytes / MIB),
    },
    OptionSpec {
        names: &["inode_cache"],
        value: "inodes",
        default: "16384",
        reason: "inodes kept decoded, at about 1 KiB each: those that programs use again",
        remount: Remount::Fixed,
        set: |o, w| {
            o.cache.inodes = w.up_to(1 << 28)?.max(64) as usize;
            Ok(())
        },
        show: |o| format!("inode_cache={}", o.cache.inodes),
    },
    OptionSpec {
        names: &["direct", "nodirect"],
        value: "",
        default: "direct, where the device can",
        reason: "nodirect: the host's page cache keeps the image, too",
        remount: Remount::Fixed,
        set: |o, w| {
            o.access.direct = Some(w.is("direct"));
            Ok(())
        },
        show: |o| o.access.direct.map(|on| flag(on, "direct")).unwrap_or_default(),
    },
];

/// Kernel options that ask for what Extol always does, or for something that has no meaning here.
pub(super) const ACCEPTED: &[&str] = &[
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
