//! Arguments of resize.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use extol_cli_common::manual;

use crate::volume::Size;

/// Make a volume larger or smaller.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol resize disk.img 20G",
        "extol resize /dev/vg/data",
        "extol resize /mnt 20G",
        "extol resize --minimum disk.img",
    ),
    long_about = "Make a volume larger or smaller.\n\n\
        SIZE is a number with a unit: K, M, G, T, P or E (or KiB, MiB ...) are powers of 1024, KB, \
        MB, GB ... powers of 1000, s is 512 bytes; without a unit it counts blocks of the volume. \
        Without SIZE the volume becomes as large as its device. A disk image becomes longer or \
        shorter with it; a partition or logical volume must be made larger before, and smaller \
        after.\n\n\
        Smaller: what lies behind the new end moves in front of it first. --minimum makes the \
        volume as small as what is in use allows; --print-minimum only says how small that is, by \
        the same moves in memory.\n\n\
        It may be interrupted, and even crash, at any moment: the volume is sound then, of the old \
        size, the new one, or one in between. The volume is checked first, since damage could \
        spread; -f leaves that out. A volume that Extol has mounted can become larger while it is \
        in use: name a directory of the mount, or what is mounted."
)]
pub struct ResizeArgs {
    /// Do not check the volume first.
    #[arg(short, long)]
    pub force: bool,
    /// Make the volume as small as possible.
    #[arg(short = 'M', long, conflicts_with = "size")]
    pub minimum: bool,
    /// Show how small the volume could be, and change nothing.
    #[arg(short = 'P', long, conflicts_with_all = ["size", "minimum"])]
    pub print_minimum: bool,
    /// Show what was done, or the minimum, as JSON.
    #[arg(long, conflicts_with = "quiet")]
    pub json: bool,
    /// Print nothing but errors.
    #[arg(short, long)]
    pub quiet: bool,
    /// Options for opening the volume, as for mount: journal_path=FILE.
    #[arg(short = 'o', value_name = "OPTIONS", allow_hyphen_values = true)]
    pub options: Vec<String>,
    /// Disk image or block device, or a directory of a mount.
    #[arg(value_hint = ValueHint::AnyPath)]
    pub source: PathBuf,
    /// How large it is to be, as 20G.
    #[arg(allow_negative_numbers = true)]
    pub size: Option<Size>,
}
