//! The words of requests, for help texts and completions.

/// Words that `Request::set_extended` takes.
pub const EXTENDED: &[&str] = &[
    "clear_mmp",
    "encoding=utf8",
    "encoding_flags=strict",
    "force_fsck",
    "hash_alg=half_md4",
    "hash_alg=tea",
    "mmp_update_interval=",
    "mount_opts=",
    "orphan_file_size=",
    "stride=",
    "stripe_width=",
    "test_fs",
    "^test_fs",
];
/// Words that `Request::set_default_options` takes; each with a `^` before it, too.
pub const DEFAULT_OPTIONS: &[&str] = &[
    "debug",
    "bsdgroups",
    "user_xattr",
    "acl",
    "uid16",
    "journal_data",
    "journal_data_ordered",
    "journal_data_writeback",
    "nobarrier",
    "block_validity",
    "discard",
    "nodelalloc",
];
/// Features that can be switched, as words of `Request::set_features`.
pub const FEATURES: &[&str] = &[
    "casefold",
    "^casefold",
    "dir_index",
    "^dir_index",
    "dir_nlink",
    "^dir_nlink",
    "ea_inode",
    "encrypt",
    "extent",
    "extra_isize",
    "^extra_isize",
    "fast_commit",
    "^fast_commit",
    "filetype",
    "^filetype",
    "flex_bg",
    "has_journal",
    "^has_journal",
    "huge_file",
    "^huge_file",
    "large_dir",
    "large_file",
    "^large_file",
    "metadata_csum",
    "^metadata_csum",
    "metadata_csum_seed",
    "^metadata_csum_seed",
    "mmp",
    "^mmp",
    "orphan_file",
    "^orphan_file",
    "project",
    "^project",
    "quota",
    "^quota",
    "read-only",
    "^read-only",
    "^resize_inode",
    "sparse_super",
    "stable_inodes",
    "uninit_bg",
    "^uninit_bg",
    "verity",
];
/// Words that `Request::set_journal` takes.
pub const JOURNAL: &[&str] = &["size=", "fast_commit_size=", "location=", "device="];
/// Words that `Request::set_quotas` takes.
pub const QUOTAS: &[&str] =
    &["usrquota", "grpquota", "prjquota", "^usrquota", "^grpquota", "^prjquota"];
