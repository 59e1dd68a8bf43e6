//! Options as text: all of them, and those that differ from what this volume has without options.

use std::fmt::Display;

use extol_ondisk::Superblock;
use extol_ondisk::superblock::DefaultMountOpts;

use super::{Atime, DataMode, ErrorPolicy, MIB, MountOptions};

impl MountOptions {
    /// What these options mean on this volume: where they leave the decision to the superblock, its
    /// value.
    pub(crate) fn effective(&self, sb: &Superblock) -> Self {
        let has = |flag| sb.default_mount_opts.contains(flag);
        let mut o = self.clone();
        o.data.get_or_insert(match (sb.default_mount_opts.bits() & 0x60) >> 5 {
            1 => DataMode::Journal,
            3 => DataMode::Writeback,
            _ => DataMode::Ordered,
        });
        o.barrier.get_or_insert(!has(DefaultMountOpts::NOBARRIER));
        o.errors.get_or_insert(match sb.errors {
            2 => ErrorPolicy::RemountRo,
            3 => ErrorPolicy::Panic,
            _ => ErrorPolicy::Continue,
        });
        o.grpid.get_or_insert(has(DefaultMountOpts::BSDGROUPS));
        o.resuid.get_or_insert(u32::from(sb.def_resuid));
        o.resgid.get_or_insert(u32::from(sb.def_resgid));
        o
    }

    /// Every option as one word, always in the same order; empty where there is nothing to say.
    pub(crate) fn words(&self) -> Vec<String> {
        // All fields by name: a new option that is not shown does not compile.
        let Self {
            read_only,
            norecovery,
            data,
            barrier,
            commit,
            journal_async_commit,
            journal_checksum,
            journal_checksum_v2: _,
            errors,
            journal_path,
            journal_device: _,
            atime,
            nodiratime,
            sync,
            dirsync,
            discard,
            grpid,
            minixdf,
            user_xattr,
            acl,
            resuid,
            resgid,
            sb,
            lazytime,
            nodelalloc,
            init_itable,
            init_itable_delay: _,
            batching,
            fua,
            fast_commit,
            async_checkpoint,
            checkpoint_merge,
            checkpoint_merge_given: _,
            checkpoint_disable: _,
            checkpoint_ioprio,
            journal_ioprio,
            cache_bytes,
            dirty_bytes,
            data_cache,
            kernel_caches: _,
            readahead,
            inode_cache,
            direct,
            mount_point: _,
            threads: _,
            waiting: _,
        } = self;
        fn with(name: &str, value: Option<impl Display>) -> String {
            value.map(|value| format!("{name}={value}")).unwrap_or_default()
        }
        let either = |on: bool, yes: &str, no: &str| if on { yes } else { no }.to_owned();
        let no = |on: bool, name: &str| if on { name.to_owned() } else { format!("no{name}") };
        vec![
            either(*read_only, "ro", "rw"),
            match atime {
                Atime::Relative => "relatime",
                Atime::Strict => "strictatime",
                Atime::Never => "noatime",
            }
            .to_owned(),
            either(*nodiratime, "nodiratime", "diratime"),
            either(*sync, "sync", "async"),
            either(*dirsync, "dirsync", ""),
            no(*lazytime, "lazytime"),
            either(*norecovery, "norecovery", ""),
            with("sb", *sb),
            with("journal_path", journal_path.as_ref().map(|path| path.display())),
            with(
                "data",
                data.map(|mode| match mode {
                    DataMode::Journal => "journal",
                    DataMode::Ordered => "ordered",
                    DataMode::Writeback => "writeback",
                }),
            ),
            no(barrier.unwrap_or(true), "barrier"),
            format!("commit={}", commit.as_secs()),
            no(*journal_checksum, "journal_checksum"),
            either(*journal_async_commit, "journal_async_commit", ""),
            with(
                "errors",
                errors.map(|policy| match policy {
                    ErrorPolicy::Continue => "continue",
                    ErrorPolicy::RemountRo => "remount-ro",
                    ErrorPolicy::Panic => "panic",
                }),
            ),
            no(*discard, "discard"),
            no(grpid.unwrap_or(false), "grpid"),
            either(*minixdf, "minixdf", "bsddf"),
            no(*user_xattr, "user_xattr"),
            no(*acl, "acl"),
            with("resuid", *resuid),
            with("resgid", *resgid),
            no(!*nodelalloc, "delalloc"),
            format!("min_batch_time={}", batching.min.as_micros()),
            format!("max_batch_time={}", batching.max.as_micros()),
            format!("fua={}", fua.name()),
            fast_commit.map(|on| no(on, "fast_commit")).unwrap_or_default(),
            match async_checkpoint {
                Some(threshold) => format!("async_checkpoint={}", threshold.percent()),
                None => "noasync_checkpoint".to_owned(),
            },
            match init_itable {
                Some(n) => format!("init_itable={n}"),
                None => "noinit_itable".to_owned(),
            },
            either(*checkpoint_merge, "checkpoint=merge", "checkpoint=nomerge"),
            // (A comma would end the word.)
            format!("ckpt_thread_ioprio={}", checkpoint_ioprio.to_string().replace(',', ":")),
            format!("journal_ioprio={}", journal_ioprio.to_string().trim_start_matches("be,")),
            format!("dirty_mb={}", dirty_bytes / MIB),
            with("data_cache_mb", data_cache.map(|bytes| bytes / MIB)),
            format!("readahead_kb={}", readahead >> 10),
            format!("cache_mb={}", cache_bytes / MIB),
            format!("inode_cache={inode_cache}"),
            match direct {
                None => "",
                Some(true) => "direct",
                Some(false) => "nodirect",
            }
            .to_owned(),
        ]
    }

    /// As `/proc/mounts` shows it: `ro` or `rw`, the rule for access times, and whatever differs
    /// from `defaults`.
    pub(crate) fn shown(&self, defaults: &Self) -> String {
        let always = 2;
        let words = self.words().into_iter().zip(defaults.words()).enumerate();
        let shown = words
            .filter(|(at, (word, default))| !word.is_empty() && (*at < always || word != default));
        shown.map(|(_, (word, _))| word).collect::<Vec<_>>().join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(list: &str) -> String {
        MountOptions::parse(list).unwrap().shown(&MountOptions::default())
    }

    #[test]
    fn only_what_differs_is_shown() {
        assert_eq!(shown(""), "rw,relatime");
        assert_eq!(
            shown("commit=9,async_checkpoint=30"),
            "rw,relatime,commit=9,async_checkpoint=30"
        );
        assert_eq!(
            shown("ro,noatime,nobarrier,commit=5,max_batch_time=15000"),
            "ro,noatime,nobarrier"
        );
        assert_eq!(shown("async_checkpoint,noasync_checkpoint"), "rw,relatime");
    }

    #[test]
    fn what_is_shown_can_be_given_again() {
        let list = "ro,strictatime,nodiratime,sync,dirsync,lazytime,norecovery,sb=32768,data=journal,nobarrier,commit=7,\
            journal_checksum,journal_async_commit,errors=panic,discard,grpid,minixdf,nouser_xattr,noacl,resuid=3,\
            resgid=4,nodelalloc,min_batch_time=1,max_batch_time=2,fua=never,nofast_commit,async_checkpoint=20,\
            noinit_itable,checkpoint=nomerge,ckpt_thread_ioprio=idle,journal_ioprio=6,dirty_mb=9,data_cache_mb=8,readahead_kb=100,cache_mb=10,inode_cache=100,nodirect";
        let once = MountOptions::parse(list).unwrap();
        assert_eq!(shown(list), list);
        let again = MountOptions::parse(&once.words().join(",")).unwrap();
        assert_eq!(again.words(), once.words());
    }
}
