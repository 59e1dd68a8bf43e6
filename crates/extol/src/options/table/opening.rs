//! Options of how the volume and its journal are opened, and of times.

use std::time::Duration;

use super::OptionSpec;
use crate::options::Remount;
use crate::options::parts::{Atime, DEFAULT_COMMIT, DataMode};
use crate::options::word::{flag, name_of, only, with};

/// Longest `commit=` in seconds, as in Linux.
const MOST_COMMIT: u64 = 21_474_836;
/// Largest `sb=`: the start of a block of which the byte offset has 63 bits.
const MOST_SUPERBLOCK: u64 = i64::MAX as u64 >> 10;
const DATA: &[(&str, DataMode)] = &[
    ("journal", DataMode::Journal),
    ("ordered", DataMode::Ordered),
    ("writeback", DataMode::Writeback),
];
const JOURNAL: Remount = Remount::Never("Cannot specify journal on remount");
const CHECKSUM: Remount =
    Remount::Ignored("changing journal_checksum during remount not supported; ignoring");

pub(super) const ROWS: &[OptionSpec] = &[
    OptionSpec {
        names: &["ro", "rw"],
        value: "",
        default: "rw",
        reason: "ro: nothing is written; a log that needs recovery is replayed in memory",
        remount: Remount::Live,
        set: |o, w| w.flag("ro", &mut o.access.read_only),
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
        set: |o, w| w.flag("nodiratime", &mut o.inodes.nodiratime),
        show: |o| if o.inodes.nodiratime { "nodiratime" } else { "diratime" }.to_owned(),
    },
    OptionSpec {
        names: &["sync", "async"],
        value: "",
        default: "async",
        reason: "sync: every write is durable when it returns, for programs that do not fsync",
        remount: Remount::Live,
        set: |o, w| w.flag("sync", &mut o.data.sync),
        show: |o| if o.data.sync { "sync" } else { "async" }.to_owned(),
    },
    OptionSpec {
        names: &["dirsync", "nodirsync"],
        value: "",
        default: "nodirsync",
        reason: "dirsync: names are durable when the call returns, as some mail servers expect",
        remount: Remount::Live,
        set: |o, w| w.flag("dirsync", &mut o.data.dirsync),
        show: |o| only(o.data.dirsync, "dirsync"),
    },
    OptionSpec {
        names: &["lazytime", "nolazytime"],
        value: "",
        default: "nolazytime",
        reason: "lazytime: time stamps alone are written with the next other change",
        remount: Remount::Live,
        set: |o, w| w.flag("lazytime", &mut o.inodes.lazytime),
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
        names: &["nommp"],
        value: "",
        default: "off",
        reason: "open at once a volume with multi-mount protection that no other host can reach",
        remount: Remount::Fixed,
        set: |o, _| {
            o.access.nommp = true;
            Ok(())
        },
        show: |o| only(o.access.nommp, "nommp"),
    },
    OptionSpec {
        names: &["sb"],
        value: "KiB from the start",
        default: "1",
        reason: "open a volume whose first superblock is damaged",
        remount: Remount::Fixed,
        set: |o, w| w.count(0..=MOST_SUPERBLOCK).map(|value| o.access.superblock = Some(value)),
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
        set: |o, w| w.choose(DATA).map(|value| o.journal.data_mode = Some(value)),
        show: |o| with("data", o.journal.data_mode.map(|mode| name_of(DATA, mode))),
    },
    OptionSpec {
        names: &["barrier", "nobarrier"],
        value: "0 or 1",
        default: "what the superblock says, else barrier",
        reason: "nobarrier: no flushes, for a device that cannot lose its cache",
        remount: Remount::Live,
        set: |o, w| {
            let on = w.is("barrier")
                && w.value.map_or(Ok(true), |_| w.count(0..=u32::MAX).map(|n| n != 0))?;
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
            o.journal.commit = match w.count(0..=MOST_COMMIT)? {
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
        set: |o, w| w.flag("journal_checksum", &mut o.journal.checksum),
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
];
