//! The benchmarks behind Extol's commits, each with the published table that it is measured
//! against.
//!
//! | command | published by | shows |
//! |---|---|---|
//! | [`FsyncBatching`] | Josef Bacik, 8 January 2009 | files/s by threads on three media, with and without adaptive batching |
//! | [`AsyncCheckpoint`] | Xiaoguang Wang, September 2019 | files/s and transactions by sync mode of fs_mark |
//! | [`CheckpointMerge`] | Daeho Jeong, January 2021 | time of 1000 checkpoints beside a throttled caller |
//! | [`FastCommit`] | Harshad Shirwadkar, 18 September 2020 | fs_mark, dbench, varmail with and without fast commits; beside Linux |
//! | [`LazyInit`] | Lukas Czerner, 2010 | PostMark while inode tables are zeroed |
//!
//! The published figures are from other machines and other file systems: only ratios can be
//! compared.

mod async_checkpoint;
mod checkpoint_merge;
mod fast_commit;
mod fsync_batching;
mod lazy_init;
mod throttle;

pub use async_checkpoint::AsyncCheckpoint;
pub use checkpoint_merge::CheckpointMerge;
pub use fast_commit::{FastCommit, Part};
pub use fsync_batching::{Backend, FsyncBatching};
pub use lazy_init::LazyInit;
pub use throttle::Throttle;

/// A ratio that is as good as one: repeated runs on a quiet machine differ by that much.
pub(crate) const NOISE: f64 = 0.03;

#[cfg(test)]
mod tests;
