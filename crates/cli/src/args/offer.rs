//! Words that completions offer for the values of options. Any other value is taken as well; what
//! is wrong with it is said by the code that reads it.

use std::ffi::OsStr;

use clap::builder::{OsStringValueParser, PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Command, Error};

/// For `-o`, of mounts and of commands that open a volume.
pub const MOUNT: &[&str] = &[
    "ro",
    "rw",
    "noexec",
    "noatime",
    "relatime",
    "strictatime",
    "nodiratime",
    "lazytime",
    "sync",
    "dirsync",
    "suid",
    "nosuid",
    "dev",
    "nodev",
    "allow_other",
    "allow_root",
    "uid=",
    "gid=",
    "umask=",
    "fakeroot",
    "allow_idmap",
    "max_threads=",
    "io_uring",
    "noio_uring",
    "key=",
    "untrusted",
    "writeback_cache",
    "nowriteback_cache",
    "loop",
    "offset=",
    "sizelimit=",
    "expand=",
    "backing=",
    "norecovery",
    "noload",
    "nommp",
    "data=",
    "commit=",
    "barrier",
    "nobarrier",
    "journal_async_commit",
    "journal_checksum",
    "journal_path=",
    "errors=",
    "discard",
    "delalloc",
    "nodelalloc",
    "acl",
    "noacl",
    "user_xattr",
    "nouser_xattr",
    "grpid",
    "nogrpid",
    "minixdf",
    "bsddf",
    "resuid=",
    "resgid=",
    "usrquota",
    "grpquota",
    "prjquota",
    "noquota",
    "sb=",
    "cache_mb=",
    "dirty_mb=",
    "data_cache_mb=",
    "inode_cache=",
    "readahead_kb=",
    "direct",
    "nodirect",
    "fast_commit",
    "nofast_commit",
    "min_batch_time=",
    "max_batch_time=",
    "fua=",
    "async_checkpoint",
    "async_checkpoint=",
    "noasync_checkpoint",
    "checkpoint=",
    "checkpoint_merge",
    "nocheckpoint_merge",
    "ckpt_thread_ioprio=",
    "journal_ioprio=",
    "init_itable",
    "init_itable=",
    "noinit_itable",
    "kernel",
    "cache_size=",
    "metrics=",
    "x-extol.metrics=",
];

/// For the options of commands that open a volume without a mount.
pub const OPENING: &[&str] = &[
    "backing=",
    "expand=",
    "journal_path=",
    "key=",
    "norecovery",
    "offset=",
    "ro",
    "sb=",
    "sizelimit=",
];

/// For `-o` of export.
pub const EXPORT: &[&str] = &[
    "all_squash",
    "anongid=",
    "anonuid=",
    "connections=",
    "insecure",
    "memory=",
    "no_root_squash",
    "ro",
    "root_squash",
    "rw",
    "secure",
    "subtree=",
];

/// For `-o` of replay.
pub const REPLAY: &[&str] =
    &["backing=", "expand=", "journal_path=", "norecovery", "offset=", "ro", "sizelimit="];

/// For `-o` of info.
pub const INFO: &[&str] = &[
    "backing=",
    "blocksize=",
    "expand=",
    "journal_path=",
    "offset=",
    "sb=",
    "sizelimit=",
    "superblock=",
];

/// For `-o` of check.
pub const WINDOW: &[&str] = &["backing=", "expand=", "offset=", "sizelimit="];

/// For `-t` of mount.
pub const TYPES: &[&str] = &["auto", "ext2", "ext3", "ext4", "extol"];

/// For `-t` of mkfs.
pub const MKFS_TYPES: &[&str] = &["ext2", "ext3", "ext4"];

/// For `-O` of mkfs.
pub const FEATURES: &[&str] = &[
    "64bit",
    "^64bit",
    "bigalloc",
    "casefold",
    "dir_index",
    "dir_nlink",
    "ea_inode",
    "encrypt",
    "ext_attr",
    "extent",
    "extra_isize",
    "fast_commit",
    "filetype",
    "flex_bg",
    "^flex_bg",
    "has_journal",
    "^has_journal",
    "huge_file",
    "inline_data",
    "journal_dev",
    "large_dir",
    "large_file",
    "meta_bg",
    "metadata_csum",
    "^metadata_csum",
    "metadata_csum_seed",
    "mmp",
    "orphan_file",
    "^orphan_file",
    "project",
    "quota",
    "resize_inode",
    "^resize_inode",
    "sparse_super",
    "sparse_super2",
    "uninit_bg",
    "verity",
];

/// For `--limits` of mkfs.
pub const LIMITS: &[&str] =
    &["depth=", "entries=", "expand=", "expand-ratio=", "file-size=", "metadata=", "sparse-runs="];

/// For the type of mknod.
pub const NODES: &[&str] = &["b", "c", "p", "s"];

/// What quota does.
pub const QUOTA_ACTIONS: &[&str] = &["check", "report", "set"];

/// For `-e` of getxattr.
pub const CODINGS: &[&str] = &["text", "hex", "base64"];

/// For the action of verity.
pub const VERITY_ACTIONS: &[&str] = &["enable", "measure", "dump"];

/// For `--part` of verity.
pub const VERITY_PARTS: &[&str] = &["descriptor", "tree", "signature"];

/// For `--hash-alg` of verity.
pub const HASHES: &[&str] = &["sha256", "sha512"];

/// For the action of encrypt.
pub const ENCRYPT_ACTIONS: &[&str] = &["get-policy", "set-policy"];

/// For the action of key.
pub const KEY_ACTIONS: &[&str] = &["add", "list", "remove"];

/// For `--contents` of encrypt.
pub const CONTENTS_MODES: &[&str] = &["AES-256-XTS", "AES-128-CBC", "SM4-XTS", "Adiantum"];

/// For `--filenames` of encrypt.
pub const NAMES_MODES: &[&str] =
    &["AES-256-CTS", "AES-128-CTS", "SM4-CTS", "Adiantum", "AES-256-HCTR2"];

/// For `-e` of mkfs.
pub const ERRORS: &[&str] = &["continue", "panic", "remount-ro"];

/// Takes any text, and names words for completions.
#[derive(Clone)]
pub struct Offer<P> {
    inner: P,
    words: &'static [&'static str],
}

/// For text.
pub fn text(words: &'static [&'static str]) -> Offer<StringValueParser> {
    Offer { inner: StringValueParser::new(), words }
}

/// For any bytes.
pub fn bytes(words: &'static [&'static str]) -> Offer<OsStringValueParser> {
    Offer { inner: OsStringValueParser::new(), words }
}

impl<P: TypedValueParser> TypedValueParser for Offer<P> {
    type Value = P::Value;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Self::Value, Error> {
        self.inner.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.words.iter().map(|word| PossibleValue::new(*word))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// (A test of the options asks the parser for all that the manual lists.)
    #[test]
    fn what_is_offered_is_in_the_manual() {
        let words = |text: &str| -> Vec<String> {
            let words = text.split([' ', ',', '[', ']', '\n', '|']);
            words.map(|word| word.split('=').next().unwrap_or_default().to_owned()).collect()
        };
        let help = |name: &str| {
            let mut command = crate::args::visible();
            command.find_subcommand_mut(name).expect(name).render_long_help().to_string()
        };
        let all = [
            ("mount", MOUNT),
            ("mount", OPENING),
            ("export", EXPORT),
            ("info", INFO),
            ("mkfs", LIMITS),
        ];
        for (command, offered) in all {
            let listed = words(&help(command));
            for word in offered {
                let name = word.trim_end_matches('=').to_owned();
                assert!(listed.contains(&name), "{command} has no {word}");
            }
        }
    }

    #[test]
    fn the_limits_are_those_of_a_source() {
        let mut names = extol::image::tree::Limits::NAMES;
        names.sort_unstable();
        assert_eq!(LIMITS, names.map(|name| format!("{name}=")));
    }

    #[test]
    fn any_value_is_taken() {
        let line = ["extol", "mkfs", "-O", "^frob,64bit", "-t", "xfs", "a"];
        let words: Vec<_> = line.map(std::ffi::OsString::from).into();
        assert!(matches!(crate::args::parse(&words), Ok(crate::args::Command::Mkfs(_))));
    }
}
