//! Where benchmarks run, how often, and what their output looks like.

use std::path::PathBuf;

use clap::Args;
use extol_bench::workload::{positive, size};

/// Where and how often.
#[derive(Args, Debug)]
pub struct PlaceArgs {
    /// Size of a volume.
    #[arg(long, value_name = "SIZE", default_value = "4G", value_parser = size)]
    pub volume: u64,
    /// Rounds; the median counts.
    #[arg(long, default_value = "3", value_parser = positive::<u32>)]
    pub rounds: u32,
    /// Where images and mount points are made.
    #[arg(long, default_value = "/var/tmp")]
    pub dir: PathBuf,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// What the output looks like.
#[derive(Args, Debug)]
pub struct OutputArgs {
    /// As JSON.
    #[arg(long)]
    pub json: bool,
    /// Also write a page with tables and pictures to this file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Also write each picture to a file of its own (SVG) in this directory, which is made if need
    /// be.
    #[arg(long, value_name = "DIR")]
    pub svg: Option<PathBuf>,
}
