//! Arguments of the commands that watch a mount: stat.

use std::path::PathBuf;

use clap::Args;

/// `extol stat`.
#[derive(Args, Debug)]
#[command(after_long_help = manual!("extol stat /mnt", "extol stat --json /mnt | jq .journal.transactions"))]
pub struct StatArgs {
    /// As JSON.
    #[arg(long)]
    pub json: bool,
    /// A directory on the mount.
    pub dir: PathBuf,
}
