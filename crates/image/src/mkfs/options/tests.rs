//! Texts of options, and what is said of wrong ones.

use super::*;
use std::os::unix::ffi::OsStrExt as _;

/// A mistake names the word that was perhaps meant.
#[test]
fn the_nearest_word_is_named() {
    let mut o = MkfsOptions::default();
    for (text, meant) in [
        ("strid=4", "stride="),
        ("nodiscrad", "nodiscard"),
        ("lazy_itable_ini=0", "lazy_itable_init="),
        ("no_copy_xatrs", "no_copy_xattrs"),
    ] {
        let line = o.set_extended(text).expect_err(text).to_string();
        assert!(line.ends_with(&format!("did you mean \"{meant}\"?")), "{line}");
    }
    assert!(!o.set_extended("frobnicate").expect_err("no word").to_string().contains("mean"));
    let line = o.set_journal("siz=4").expect_err("no word").to_string();
    assert!(line.contains("did you mean \"size=\"?"), "{line}");
    assert!(FsType::parse("xt4").expect_err("no type").to_string().contains("\"ext4\""));
    // The list of names is the one that is taken.
    for name in EXTENDED {
        let bare = name.trim_end_matches('=');
        let taken = [
            "",
            "=0",
            "=1",
            "=1:1",
            "=utf8",
            "=strict",
            "=usrquota",
            "=00112233-4455-6677-8899-aabbccddeeff",
        ]
        .iter()
        .any(|value| o.set_extended(&format!("{bare}{value}")).is_ok());
        assert!(taken, "{name}");
    }
}

#[test]
fn numbers_say_what_is_wrong() {
    let mut o = MkfsOptions::default();
    for (text, words) in [
        ("stride=-1", "must not be negative"),
        ("stride=70000", "larger than 65535"),
        ("stripe_width=99999999999999999999", "larger than 4294967295"),
        ("num_backup_sb=3", "larger than 2"),
        ("root_perms=-7", "must not be negative"),
        ("root_perms=77777", "larger than 7777"),
        ("root_owner=4294967296:0", "larger than 4294967295"),
        ("resize=99999999999T", "2^64"),
    ] {
        let line = o.set_extended(text).expect_err(text).to_string();
        assert!(line.contains(words), "{text}: {line}");
    }
    for (text, words) in [
        ("size=0", "\"0\": it is less than 1M"),
        ("size=-1", "must not be negative"),
        ("fast_commit_size=9999P", "larger than"),
    ] {
        let line = o.set_journal(text).expect_err(text).to_string();
        assert!(line.contains(words), "{text}: {line}");
    }
    o.set_extended("revision=1").expect("revision");
    assert_eq!(o.revision, Some(1));
}

#[test]
fn option_texts() {
    let mut o = MkfsOptions::default();
    o.set_extended(
        "lazy_itable_init=0,nodiscard,stride=16,stripe-width=64,root_owner=5:6,\
        lazy_journal_init,,test_fs,root_perms=0750,resize=2G",
    )
    .expect("parse");
    let e = &o.extended;
    assert_eq!(
        (e.lazy_itable_init, e.discard, e.stride, e.stripe_width),
        (Some(false), Some(false), 16, 64)
    );
    assert_eq!((e.root_owner, e.lazy_journal_init, e.test_fs), (Some((5, 6)), true, true));
    assert_eq!((e.root_perms, e.resize), (Some(0o750), "2G".parse().ok()));
    o.set_journal("size=64M,fast_commit_size=256,location=1G,device=/dev/x").expect("parse");
    assert_eq!((o.journal.size_mib, o.journal.fast_commit_kib), (Some(64), Some(256)));
    assert_eq!(o.journal.location, "1G".parse().ok());
    assert_eq!(o.journal.device_path.as_deref(), Some(std::path::Path::new("/dev/x")));
    o.set_journal(OsStr::from_bytes(b"device=/x/\xFF")).expect("a path of bytes");
    assert_eq!(o.journal.device_path.as_ref().expect("path").as_os_str().len(), 4);
    for bad in [
        "bogus",
        "stride",
        "stride=x",
        "stride=70000",
        "root_owner=5",
        "hash_seed=1",
        "offset=5",
        "encoding=latin1",
        "encoding",
        "encoding_flags=",
        "quotatype",
        "quotatype=",
        "quotatype=usrquota:",
        "quotatype=disk",
        "root_perms=8",
        "root_perms=+7",
        "root_perms=10000",
        "resize=",
        "resize=-5M",
        "orphan_file_size=x",
        "revision=2",
        "revision",
        "num_backup_sb=3",
        "mmp_update_interval=301",
        "root_owner=-1:0",
    ] {
        let error = o.set_extended(bad).expect_err(bad).to_string();
        assert!(
            !error.contains('\n') && error.contains(bad.split('=').next().expect("name")),
            "{error}"
        );
    }
    for bad in [
        "size=",
        "size=x",
        "size",
        "size=1K",
        "size=9999999P",
        "location=",
        "nonsense=1",
        "device=",
    ] {
        assert!(o.set_journal(bad).is_err(), "{bad}");
    }
}
