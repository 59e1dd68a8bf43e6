//! Arguments of bench.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `extol bench`.
#[derive(Subcommand, Debug)]
pub enum BenchCommand {
    /// Names, inodes and small files through a mount (needs root, a loop device, e2fsprogs and fuse2fs).
    Metadata(BenchMetadataArgs),
}

/// `extol bench metadata`.
#[derive(Args, Debug)]
#[command(after_long_help = manual!("extol bench metadata", "extol bench metadata --threads 8 --subjects extol,kernel"))]
pub struct BenchMetadataArgs {
    /// Files per thread.
    #[arg(long, default_value_t = 2000)]
    pub files: u32,
    /// Threads, each in a directory of its own.
    #[arg(long, default_value_t = 4)]
    pub threads: u32,
    /// Rounds; the median counts.
    #[arg(long, default_value_t = 3)]
    pub rounds: u32,
    /// Size of the volume in MiB.
    #[arg(long, default_value_t = 1024)]
    pub megabytes: u64,
    /// Where to make the image.
    #[arg(long, default_value = "/var/tmp")]
    pub dir: PathBuf,
    /// Who takes part: extol, fuse2fs, kernel.
    #[arg(long, value_delimiter = ',', default_value = "extol,fuse2fs,kernel")]
    pub subjects: Vec<String>,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}
