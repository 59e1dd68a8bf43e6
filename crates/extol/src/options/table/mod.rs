//! Every mount option in one table: names, unit, default, reason, what a remount may do with it,
//! how it is parsed and how it is shown. The manual and the documentation are checked against it.

mod commits;
mod opening;
mod resources;
mod volume;

use super::word::Word;
use super::{MountOptions, Remount};

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

/// Every option, in the order in which they are shown.
pub fn table() -> impl Iterator<Item = &'static OptionSpec> {
    [opening::ROWS, volume::ROWS, commits::ROWS, resources::ROWS].into_iter().flatten()
}

/// Kernel options that ask for what Extol always does, or for something that has no meaning here.
pub(super) const ACCEPTED: &[&str] = &[
    "noauto_da_alloc",
    "block_validity",
    "noblock_validity",
    "dioread_lock",
    "dioread_nolock",
    "i_version",
    "nombcache",
    "no_mbcache",
    "no_prefetch_block_bitmaps",
    "prefetch_block_bitmaps",
    "oldalloc",
    "orlov",
    "nouid32",
    "debug",
];

/// The same for those that may have a value.
pub(super) const ACCEPTED_WITH_VALUE: &[&str] = &[
    "auto_da_alloc",
    "inode_readahead_blks",
    "max_dir_size_kb",
    "mb_optimize_scan",
    "stripe",
    "data_err",
];
