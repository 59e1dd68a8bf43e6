//! Options of background work and memory.

use extol_block::IoPriority;

use super::OptionSpec;
use crate::options::Remount;
use crate::options::parts::INIT_ITABLE;
use crate::options::word::{Word, flag, with};

const MIB: usize = 1 << 20;
/// Most bytes that a bound may have: a tebibyte.
const MOST: u64 = 1 << 40;

/// A number of MiB, or a size with a unit, in whole MiB: at least so many.
fn mebibytes(w: Word<'_>, least: usize) -> Result<usize, String> {
    let bytes = w.size(MIB as u64, (least * MIB) as u64..=MOST)? as usize;
    Ok(bytes / MIB * MIB)
}

pub(super) const ROWS: &[OptionSpec] = &[
    OptionSpec {
        names: &["init_itable", "inititable", "noinit_itable", "noinititable"],
        value: "multiple of a step's time",
        default: "10",
        reason: "zero inode tables that mkfs left; each pause is so many times as long as a step",
        remount: Remount::Live,
        set: |o, w| {
            o.background.init_itable = match w.value {
                _ if w.name.starts_with("no") => None,
                None => Some(INIT_ITABLE),
                Some(_) => Some(w.count(0..=u32::MAX).map_err(|why| {
                    format!("{why}; use such as {}={INIT_ITABLE}; 0 means no pauses", w.name)
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
                ("checkpoint_merge", None) | ("checkpoint", Some("merge")) => true,
                ("nocheckpoint_merge", None) | ("checkpoint", Some("nomerge")) => false,
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
            let priority = IoPriority::best_effort(w.count(0..=7)?);
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
        value: "MiB, or a size such as 1G",
        default: "64",
        reason: "memory for file data that is not yet written; more lets writers run ahead longer",
        remount: Remount::Live,
        set: |o, w| mebibytes(w, 1).map(|value| o.data.dirty_bytes = value),
        show: |o| format!("dirty_mb={}", o.data.dirty_bytes / MIB),
    },
    OptionSpec {
        names: &["data_cache_mb"],
        value: "MiB, or a size such as 1G",
        default: "64; for a mount, and a disk image that is only read, 0, because the kernel keeps \
                  the data",
        reason: "memory for clean file data that programs read again",
        remount: Remount::Fixed,
        set: |o, w| mebibytes(w, 0).map(|value| o.cache.data = Some(value)),
        show: |o| with("data_cache_mb", o.cache.data.map(|bytes| bytes / MIB)),
    },
    OptionSpec {
        names: &["readahead_kb"],
        value: "KiB, or a size such as 4M",
        default: "4096; 32768 from another host",
        reason: "most that the library reads ahead of a program; 0: off, for a fast device",
        remount: Remount::Live,
        set: |o, w| {
            o.data.readahead = Some((w.size(1 << 10, 0..=32 << 20)? >> 10 << 10) as usize);
            Ok(())
        },
        show: |o| with("readahead_kb", o.data.readahead.map(|bytes| bytes >> 10)),
    },
    OptionSpec {
        names: &["cache_mb"],
        value: "MiB, or a size such as 1G",
        default: "192",
        reason: "memory for metadata; the working set of inode tables and directories",
        remount: Remount::Fixed,
        set: |o, w| mebibytes(w, 4).map(|value| o.cache.metadata_bytes = value),
        show: |o| format!("cache_mb={}", o.cache.metadata_bytes / MIB),
    },
    OptionSpec {
        names: &["inode_cache"],
        value: "inodes",
        default: "16384",
        reason: "inodes kept decoded, at about 1 KiB each: those that programs use again",
        remount: Remount::Fixed,
        set: |o, w| {
            o.cache.inodes = w.count::<u64>(64..=1 << 28)? as usize;
            Ok(())
        },
        show: |o| format!("inode_cache={}", o.cache.inodes),
    },
    OptionSpec {
        names: &["direct", "nodirect"],
        value: "",
        default: "direct, where the device can; nodirect for a disk image that a library or \
                  a command only reads",
        reason: "nodirect: the host's page cache keeps the image, too",
        remount: Remount::Fixed,
        set: |o, w| {
            o.access.direct = Some(w.is("direct"));
            Ok(())
        },
        show: |o| o.access.direct.map(|on| flag(on, "direct")).unwrap_or_default(),
    },
];
