//! Arguments of key.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use extol_cli_common::manual;

use super::offer;

/// Add keys of encrypted files to a mounted volume, list them, and take them away.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol key add --key ada.key /mnt/data",
        "extol key add --key old.key --descriptor 0123456789abcdef /mnt",
        "extol key list --json /mnt/data",
        "extol key remove --key ada.key /mnt/data",
        "extol key remove /mnt/data 8699c2c53707405da5aba5ae4d8583c0",
    ),
    long_about = "Add keys of encrypted files to a mounted volume, list them, and take them \
        away.\n\n\
        add gives the mount the key in the file of --key, as the mount option key= does, and \
        prints what it is called: the identifier in policies of version 2. With --descriptor it \
        is a key of policies of version 1 that call it so.\n\n\
        list shows what the keys of the mount are called, and which of them were taken away while \
        files were open.\n\n\
        remove takes keys away, by their files or by what they are called: names are then shown as \
        without them, and files cannot be opened. Files that are open can still be read and \
        written; the command says how many these are and fails, as when a mount is busy. Give it \
        again once they are closed. The kernel drops what it has in memory of encrypted files and \
        names.\n\n\
        For root (with CAP_SYS_ADMIN) and the user of the mount."
)]
pub struct KeyArgs {
    /// A file with the raw bytes of a key, 16 to 64 (may be repeated).
    #[arg(long = "key", value_name = "FILE")]
    pub keys: Vec<PathBuf>,
    /// add: a key of policies of version 1, with these eight bytes as hexadecimal digits.
    #[arg(long, value_name = "HEX")]
    pub descriptor: Option<String>,
    /// list: print JSON (see the json page of the guide).
    #[arg(long)]
    pub json: bool,
    /// add, list or remove.
    #[arg(value_name = "ACTION", value_parser = offer::text(offer::KEY_ACTIONS),
        hide_possible_values = true)]
    pub action: String,
    /// A directory on a volume that Extol has mounted.
    #[arg(value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
    /// remove: what keys are called, as hexadecimal digits.
    pub names: Vec<String>,
}
