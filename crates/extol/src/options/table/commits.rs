//! Options of commits and checkpoints.

use std::time::Duration;

use extol_jbd2::FreeThreshold;
use extol_jbd2::fast::FuaPolicy;

use super::OptionSpec;
use crate::options::Remount;
use crate::options::word::flag;

pub(super) const ROWS: &[OptionSpec] = &[
    OptionSpec {
        names: &["min_batch_time"],
        value: "microseconds",
        default: "0",
        reason: "an fsync waits at least so long for others to share its commit",
        remount: Remount::Live,
        set: |o, w| {
            w.count(0..=u32::MAX)
                .map(|us| o.journal.batching.min = Duration::from_micros(us.into()))
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
            w.count(0..=u32::MAX)
                .map(|us| o.journal.batching.max = Duration::from_micros(us.into()))
        },
        show: |o| format!("max_batch_time={}", o.journal.batching.max.as_micros()),
    },
    OptionSpec {
        names: &["fua"],
        value: "auto, never or always",
        default: "auto",
        reason: "whether a fast commit is a durable write (FUA), or a write and a flush",
        remount: Remount::Live,
        set: |o, w| w.choose(&FuaPolicy::NAMES).map(|value| o.journal.fua = value),
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
                    let percent = w.count::<u64>(0..=99);
                    let percent = percent.map_err(|why| format!("{why}; use {hint}"))?;
                    FreeThreshold::new(percent)
                }
            };
            Ok(())
        },
        show: |o| match o.journal.async_checkpoint {
            Some(threshold) => format!("async_checkpoint={}", threshold.percent()),
            None => "noasync_checkpoint".to_owned(),
        },
    },
];
