//! Arguments of the loads that measure one thing at a time: names, bytes, a tree.

use clap::Args;

use super::loads::{ContestArgs, TARGETS};

/// `extol bench metadata`.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol bench metadata --threads 8",
        "sudo extol bench metadata --target mount --target noop --target kernel --target fuse2fs --html metadata.html",
        "extol bench metadata --threads 2 --files 20000 --shared --medium memory",
    ),
    long_about = format!("Storms of single calls on names and inodes, phase by phase, without a sync: create, create with 4 KiB, \
        stat, readdir, chmod, rename, link, symlink, mkdir, rmdir, unlink, rm -rf.\n\n\
        Each phase is shown with its rate, latency and processor time, and the ratio of the first target to every other. What \
        a kernel answers from its cache is measured like all else.\n\n{TARGETS}")
)]
pub struct MetadataArgs {
    /// Threads.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    pub threads: u32,
    /// Files of each kind per thread.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..))]
    pub files: u64,
    /// All threads in one directory, not each in its own.
    #[arg(long)]
    pub shared: bool,
    #[command(flatten)]
    pub contest: ContestArgs,
}
