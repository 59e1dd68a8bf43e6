//! Parsing and showing of mount options.

use std::time::Duration;

use extol_jbd2::FreeThreshold;

use super::parts::DEFAULT_COMMIT;
use super::*;

#[test]
fn kernel_names() {
    let o = MountOptions::parse("ro,data=journal,commit=0,barrier=0,errors=panic,noload,resuid=5")
        .unwrap();
    assert!(o.access.read_only && o.access.norecovery);
    assert_eq!(o.journal.data_mode, Some(DataMode::Journal));
    assert_eq!(o.journal.commit, DEFAULT_COMMIT);
    assert_eq!(o.journal.barrier, Some(false));
    assert_eq!(o.access.errors, Some(ErrorPolicy::Panic));
    assert_eq!(o.space.resuid, Some(5));
    assert_eq!(MountOptions::parse("commit=7").unwrap().journal.commit, Duration::from_secs(7));
}

#[test]
fn init_itable_in_both_spellings() {
    let parsed = |list: &str| MountOptions::parse(list).map(|o| o.background.init_itable);
    assert_eq!(parsed(""), Ok(Some(10)), "on by default");
    assert_eq!(parsed("noinit_itable,init_itable"), Ok(Some(10)));
    assert_eq!(parsed("init_itable=0"), Ok(Some(0)));
    assert_eq!(parsed("inititable=5"), Ok(Some(5)));
    assert_eq!(parsed("init_itable=3,noinit_itable"), Ok(None));
    assert_eq!(parsed("noinititable"), Ok(None));
    for bad in ["init_itable=", "init_itable=x", "inititable=-1", "init_itable=4294967296"] {
        let line = parsed(bad).unwrap_err();
        assert!(line.contains("init") && line.contains("=10") && !line.contains('\n'), "{line}");
    }
}

#[test]
fn asynchronous_checkpoint() {
    let percent = |list: &str| {
        MountOptions::parse(list).map(|o| o.journal.async_checkpoint.map(FreeThreshold::percent))
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
            line.contains("async_checkpoint") && line.contains("1 to 99") && !line.contains('\n'),
            "{line}"
        );
    }
}

#[test]
fn an_image_that_is_only_read_is_in_the_page_cache_alone() {
    use extol_block::open::{OpenName, Window, open};
    use extol_block::{Direct, OpenOptions};

    let image = tempfile::NamedTempFile::new().unwrap();
    image.as_file().set_len(1 << 20).unwrap();
    for (list, direct, cache) in [
        ("ro", Direct::Devices, Some(0)),
        ("ro,data_cache_mb=8", Direct::Devices, Some(8 << 20)),
        ("ro,nodirect", Direct::Off, Some(0)),
        ("rw", Direct::Auto, None),
        ("rw,nodirect", Direct::Off, None),
    ] {
        let options = MountOptions::parse(list).unwrap();
        assert_eq!(options.direct(), direct, "{list}");
        let how = OpenOptions::read_only().direct(options.direct());
        let name = OpenName::parse(image.path(), Window::default()).unwrap();
        let opened = open(&name, &how).unwrap();
        assert_eq!(options.for_opened(&opened).cache.data, cache, "{list}");
    }
}

#[test]
fn sizes_take_units() {
    let list = "cache_mb=1G,dirty_mb=1536K,data_cache_mb=64 MiB,readahead_kb=4m";
    let o = MountOptions::parse(list).unwrap();
    assert_eq!((o.cache.metadata_bytes, o.data.dirty_bytes), (1 << 30, 1 << 20));
    assert_eq!((o.cache.data, o.data.readahead), (Some(64 << 20), Some(4 << 20)));
    let plain = MountOptions::parse("cache_mb=4,dirty_mb=1,readahead_kb=7").unwrap();
    assert_eq!((plain.cache.metadata_bytes, plain.data.dirty_bytes), (4 << 20, 1 << 20));
    assert_eq!(MountOptions::parse("inode_cache=10k").unwrap().cache.inodes, 10_240);
    assert_eq!(plain.data.readahead, Some(7 << 10));
    assert_eq!(plain.over_network().data.readahead, Some(7 << 10));
    let usual = MountOptions::default();
    assert_eq!(usual.data.readahead_bytes(), 4 << 20);
    assert_eq!(usual.over_network().data.readahead_bytes(), 32 << 20);
    for (bad, words) in [
        ("cache_mb", "needs a value"),
        ("cache_mb=", "empty"),
        ("dirty_mb=-1", "negative"),
        ("dirty_mb=lots", "a number"),
        ("data_cache_mb=2P", "larger than 1T"),
        ("readahead_kb=1G", "larger than 32M"),
        ("cache_mb=0", "less than 4M"),
        ("cache_mb=3", "less than 4M"),
        ("dirty_mb=0", "less than 1M"),
        ("dirty_mb=1K", "less than 1M"),
        ("inode_cache=0", "less than 64"),
        ("inode_cache=-5", "negative"),
        ("inode_cache=1G", "larger than 268435456"),
        ("commit=-1", "negative"),
        ("commit=99999999999999999999", "larger than 21474836"),
        ("commit=5s", "whole number"),
        ("resuid=-1", "negative"),
        ("resuid=4294967296", "larger than 4294967295"),
        ("sb=-1", "negative"),
        ("sb=18446744073709551615", "larger than"),
        ("barrier=-1", "negative"),
        ("journal_ioprio=8", "larger than 7"),
        ("async_checkpoint=-1", "negative"),
        ("init_itable=-1", "negative"),
        ("max_batch_time=99999999999", "larger than 4294967295"),
        ("readahead_kb=99999999999999999999", "too large"),
    ] {
        let line = MountOptions::parse(bad).unwrap_err();
        let name = bad.split('=').next().unwrap();
        assert!(line.contains(name) && line.contains(words) && !line.contains('\n'), "{line}");
    }
}

#[test]
fn merged_checkpoints() {
    let on = |list| MountOptions::parse(list).unwrap().checkpoint.merge;
    assert!(on("") && on("checkpoint=merge") && on("nocheckpoint_merge,checkpoint_merge"));
    assert!(!on("checkpoint=nomerge") && !on("checkpoint=merge,nocheckpoint_merge"));
    let refused = "checkpoint=merge cannot be used with checkpoint=disable";
    for list in ["checkpoint=merge,checkpoint=disable", "checkpoint=disable:5%,checkpoint_merge"] {
        assert_eq!(MountOptions::parse(list).unwrap_err(), refused);
    }
    for list in ["checkpoint=disable", "checkpoint=merge,checkpoint=nomerge,checkpoint=disable:9"] {
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
        (o.checkpoint.ioprio.to_string(), o.journal.ioprio.to_string()),
        ("rt,0".into(), "be,7".into())
    );
    let o = MountOptions::default();
    assert_eq!(
        (o.checkpoint.ioprio.to_string(), o.journal.ioprio.to_string()),
        ("be,3".into(), "be,3".into())
    );
    for list in
        ["ckpt_thread_ioprio=be:8", "ckpt_thread_ioprio", "journal_ioprio=8", "journal_ioprio=be"]
    {
        assert!(MountOptions::parse(list).unwrap_err().contains("ioprio"), "{list}");
    }
}

#[test]
fn one_clear_line_for_mistakes() {
    assert_eq!(MountOptions::parse("dta=x").unwrap_err(), "unknown mount option \"dta=x\"");
    assert_eq!(
        MountOptions::parse("data=x").unwrap_err(),
        "bad value \"x\" for mount option \"data\": use journal, ordered or writeback"
    );
    assert_eq!(MountOptions::parse("commit").unwrap_err(), "mount option \"commit\" needs a value");
    assert!(MountOptions::parse("commit=-1").is_err());
}

fn shown(list: &str) -> String {
    MountOptions::parse(list).unwrap().shown(&MountOptions::default())
}

#[test]
fn only_what_differs_is_shown() {
    assert_eq!(shown(""), "rw,relatime");
    assert_eq!(shown("commit=9,async_checkpoint=30"), "rw,relatime,commit=9,async_checkpoint=30");
    assert_eq!(shown("ro,noatime,nobarrier,commit=5,max_batch_time=15000"), "ro,noatime,nobarrier");
    assert_eq!(shown("async_checkpoint,noasync_checkpoint"), "rw,relatime");
}

#[test]
fn what_is_shown_can_be_given_again() {
    let list = "ro,strictatime,nodiratime,sync,dirsync,lazytime,norecovery,nommp,sb=32768,data=journal,\
        nobarrier,commit=7,\
        journal_checksum,journal_async_commit,errors=panic,discard,grpid,minixdf,nouser_xattr,\
        noacl,resuid=3,\
        resgid=4,nodelalloc,min_batch_time=1,max_batch_time=2,fua=never,\
        nofast_commit,async_checkpoint=20,\
        noinit_itable,checkpoint=nomerge,ckpt_thread_ioprio=idle,journal_ioprio=6,dirty_mb=9,\
        data_cache_mb=8,readahead_kb=100,cache_mb=10,inode_cache=100,nodirect";
    let once = MountOptions::parse(list).unwrap();
    assert_eq!(shown(list), list);
    let again = MountOptions::parse(&once.words().join(",")).unwrap();
    assert_eq!(again.words(), once.words());
}

#[test]
fn the_table_is_complete() {
    let mut names: Vec<_> = table().flat_map(|spec| spec.names).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all, "a name stands for one option");
    for spec in table() {
        let name = spec.names[0];
        assert!(!spec.default.is_empty() && !spec.reason.is_empty(), "{name}");
        // An option with a value says so, and one without takes none.
        let mut options = MountOptions::default();
        let alone = spec.names.iter().any(|name| options.set(name, None) == Ok(true));
        assert!(alone || !spec.value.is_empty(), "{name} needs a value");
    }
}
