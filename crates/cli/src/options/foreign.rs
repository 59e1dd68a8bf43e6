//! Options of other programs that mount: mount(8), libfuse and its helpers, fuse2fs.
//!
//! A script that mounts with one of them can name Extol instead. An option whose meaning Extol has
//! anyway, or that has none here, is passed over ([`PASSED_OVER`]). One that would change what the
//! mount does, and that Extol does not do, is refused with a reason ([`REFUSED`]): passing it over
//! would be a silent mistake.

use std::ffi::OsStr;

use extol::options::table;
use extol_cli_common::Failure;
use extol_fuse::MountConfig;
use extol_vfs::{bytes_text, nearest};

/// Taken, and without effect.
const PASSED_OVER: &[&str] = &[
    // libfuse: how files are cached. The kernel caches what Extol tells it, and nothing goes stale.
    "kernel_cache",
    "auto_cache",
    "noauto_cache",
    "ac_attr_timeout",
    "attr_timeout",
    "entry_timeout",
    "negative_timeout",
    "noforget",
    "remember",
    // libfuse: the protocol. INIT agrees on the best that both sides have.
    "big_writes",
    "large_read",
    "async_read",
    "sync_read",
    "atomic_o_trunc",
    "max_read",
    "max_write",
    "max_readahead",
    "max_background",
    "congestion_threshold",
    "splice_read",
    "splice_write",
    "splice_move",
    "no_splice_read",
    "no_splice_write",
    "no_splice_move",
    "clone_fd",
    "max_idle_threads",
    "blksize",
    "blkdev",
    "intr",
    "intr_signal",
    // libfuse: what Extol always does.
    "hard_remove",
    "use_ino",
    "readdir_ino",
    "nonempty",
    "nopath",
    "no_remote_lock",
    "no_remote_flock",
    "no_remote_posix_lock",
    "drop_privileges",
    "max_pages",
    "io_uring_q_depth",
    "no_auto_inval",
    // ext2, ext3 and ext4 of other releases: what Extol always does, and debugging of Linux's code.
    "bh",
    "nobh",
    "check",
    "nocheck",
    "journal",
    "mblk_io_submit",
    "nomblk_io_submit",
    "reservation",
    "noreservation",
    "debug_want_extra_isize",
    "inlinecrypt",
    "fc_debug_force",
    "warn_on_error",
    "nowarn_on_error",
    // fuse2fs, and mount(8)'s own.
    "iomap",
    "noiomap",
    "no_default_opts",
    "fuse2fs_debug",
    "uhelper",
    "quiet",
    "iversion",
    "noiversion",
];

/// Refused, and why.
const REFUSED: &[(&str, &str)] = &[
    ("direct_io", "programs can open files with O_DIRECT instead"),
    ("auto_unmount", "after a daemon has died, extol umount takes the mount away"),
    ("lockfile", "the image itself is locked; extol umount waits until it is free"),
    ("setuid", "run extol mount as that user"),
    ("modules", "Extol has no modules"),
    ("encryption", "use cryptsetup, and mount its device"),
    ("test_dummy_encryption", "use extol encrypt set-policy and -o key=FILE"),
    ("journal_dev", "give the device by its path: journal_path=FILE"),
    ("abort", "it is for a volume that is mounted: extol remount -o abort DIR"),
    ("fd", "the kernel's own option: use --fd N"),
    ("rootmode", "the kernel's own option: leave it out"),
    ("user_id", "the kernel's own option: run extol mount as that user"),
    ("group_id", "the kernel's own option: run extol mount with that group"),
    ("subdir", "mount the volume, and the directory with mount --bind"),
    ("context", "labels of SELinux are those on the volume"),
    ("fscontext", "labels of SELinux are those on the volume"),
    ("defcontext", "labels of SELinux are those on the volume"),
    ("rootcontext", "labels of SELinux are those on the volume"),
    ("bind", "bind mounts are for mount(8): mount --bind"),
    ("rbind", "bind mounts are for mount(8): mount --rbind"),
    ("move", "mounts are moved by mount(8): mount --move"),
    ("usrjquota", "Extol keeps quotas in hidden inodes only: extol tune -O quota, then usrquota"),
    ("grpjquota", "Extol keeps quotas in hidden inodes only: extol tune -O quota, then usrquota"),
    ("jqfmt", "Extol keeps quotas in hidden inodes only: extol tune -O quota, then usrquota"),
    ("dax", "a mount through FUSE has no direct access to memory of the device"),
];

/// Words that the list itself has, beside those of the kernel and the library.
const OWN: [&str; 12] = [
    "loop",
    "offset=",
    "sizelimit=",
    "expand=",
    "backing=",
    "key=",
    "untrusted",
    "metrics=",
    "fakeroot",
    "kernel",
    "cache_size=",
    "remount",
];

/// Those of them that may have a value.
const WITH_VALUE: &[&str] = &[
    "ac_attr_timeout",
    "attr_timeout",
    "entry_timeout",
    "negative_timeout",
    "remember",
    "max_read",
    "max_write",
    "max_readahead",
    "max_background",
    "congestion_threshold",
    "max_idle_threads",
    "blksize",
    "intr_signal",
    "max_pages",
    "io_uring_q_depth",
    "check",
    "journal",
    "debug_want_extra_isize",
    "fc_debug_force",
    "uhelper",
];

/// True for an option that is taken, and has no effect.
///
/// # Errors
/// If it has a value, and takes none.
pub fn is_passed_over(name: &str, value: Option<&str>) -> Result<bool, Failure> {
    if value.is_some() && PASSED_OVER.contains(&name) && !WITH_VALUE.contains(&name) {
        return Err(no_value(name));
    }
    Ok(PASSED_OVER.contains(&name))
}

/// The failure for a flag with a value.
fn no_value(name: &str) -> Failure {
    Failure::usage(format_args!("mount option \"{name}\" takes no value"))
}

/// Takes an option of another program. `None`: it is no such option.
pub(super) fn accept(name: &str, value: Option<&str>) -> Option<Result<(), Failure>> {
    match is_passed_over(name, value) {
        Ok(false) => {}
        taken => return Some(taken.map(drop)),
    }
    if name.starts_with("X-") {
        let line = format_args!("mount option \"{name}\" is for mount(8): use mount -t fuse.extol");
        return Some(Err(Failure::usage(line)));
    }
    if name.starts_with("verity.") {
        let line = format_args!(
            "mount option \"{name}\" is not supported: use veritysetup, and mount its device"
        );
        return Some(Err(Failure::usage(line)));
    }
    let (_, why) = REFUSED.iter().find(|(refused, _)| *refused == name)?;
    let line = format_args!("mount option \"{name}\" is not supported: {why}");
    Some(Err(Failure::usage(line)))
}

/// The failure for a word that nothing takes. It names the known option that is nearest.
pub fn unknown(word: &OsStr) -> Failure {
    let shown = bytes_text(word.as_encoded_bytes());
    let text = super::text_of(word).unwrap_or_default();
    let name = super::parts(text).0;
    if let Some(known) = known().find(|known| known.trim_end_matches('=') == name) {
        if text.contains('=') && !known.ends_with('=') {
            return no_value(name);
        }
        if text.contains('=') {
            return Failure::usage(format_args!("bad mount option \"{shown}\": bad value"));
        }
        return Failure::usage(format_args!("bad mount option \"{shown}\": it needs a value"));
    }
    match nearest(name, known()) {
        Some(known) => Failure::usage(format_args!(
            "unknown mount option \"{shown}\": did you mean \"{known}\"?"
        )),
        None => Failure::usage(format_args!(
            "unknown mount option \"{shown}\" (extol mount --help lists them)"
        )),
    }
}

/// All names, the usual ones first; some that have a value end in `=`.
fn known() -> impl Iterator<Item = &'static str> {
    let library = table().flat_map(|spec| spec.names.iter().copied());
    let flags = ["nosuid", "nodev", "noexec", "nosymfollow", "symfollow", "nodiratime"];
    library.chain(MountConfig::WORDS).chain(flags).chain(OWN).chain(PASSED_OVER.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_option_is_named() {
        for (word, expected) in [
            ("noatme", "noatime"),
            ("realtime", "relatime"),
            ("comit=5", "commit"),
            ("nosiud", "nosuid"),
            ("allow-other", "allow_other"),
            ("async_chekpoint=30", "async_checkpoint"),
            ("FSNAME=x", "fsname="),
            ("kernel_cach", "kernel_cache"),
        ] {
            let line = unknown(word.as_ref()).line;
            assert!(line.ends_with(&format!("did you mean \"{expected}\"?")), "{line}");
        }
        let line = unknown("frobnicate".as_ref()).line;
        assert!(!line.contains("did you mean") && line.contains("--help"), "{line}");
        assert!(unknown("uid=x".as_ref()).line.ends_with("bad value"));
        assert!(unknown("uid".as_ref()).line.ends_with("needs a value"));
    }

    #[test]
    fn no_option_is_in_two_lists() {
        let mut names = PASSED_OVER.to_vec();
        names.extend(REFUSED.iter().map(|(name, _)| name));
        for name in &names {
            assert_eq!(names.iter().filter(|other| *other == name).count(), 1, "{name}");
            assert!(table().all(|spec| !spec.names.contains(name)), "{name}");
            assert_eq!(MountConfig::default().accept(name), Ok(false), "{name}");
        }
        for (name, why) in REFUSED {
            let line = accept(name, None).unwrap().unwrap_err().line;
            assert!(line.contains(name) && line.contains(why), "{line}");
        }
        assert!(accept("verity.hashdevice", None).unwrap().is_err());
        assert!(
            accept("X-mount.mkdir", None).unwrap().is_err() && accept("commit", None).is_none()
        );
    }
}
