//! Arguments of encrypt.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueHint};
use extol_cli_common::manual;

use super::offer;

/// Show how files are encrypted, and encrypt an empty directory.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol encrypt get-policy disk.img /home/ada",
        "extol encrypt get-policy --json /mnt/data /home/ada",
        "extol encrypt set-policy --key ada.key disk.img /home/ada",
        "extol encrypt set-policy --key ada.key --padding 16 disk.img /secret",
        "extol encrypt set-policy --descriptor 0123456789abcdef disk.img /old",
    ),
    long_about = "Show how files are encrypted, and encrypt an empty directory.\n\n\
        get-policy shows the policy of each file: the key that it names, the modes of contents and \
        names, and how long names are padded; and whether the key is there.\n\n\
        set-policy makes an empty directory an encrypted one: what is then made in it, by Extol or \
        by Linux, is encrypted by its policy. There is no way back but to make another directory. \
        A policy of version 2 names the key in the file of --key; one of version 1 has the eight \
        bytes of --descriptor, which nothing compares with a key. The \
        rules are those of Linux (fscryptctl set_policy). The volume needs the feature encrypt \
        (extol tune -O encrypt).\n\n\
        A volume that Extol has mounted is named by a directory on it; paths are those on the \
        volume, from its root."
)]
pub struct EncryptArgs {
    /// set-policy: mode of contents: AES-256-XTS (the default), AES-128-CBC, SM4-XTS or Adiantum.
    #[arg(long, value_name = "MODE", value_parser = offer::text(offer::CONTENTS_MODES),
        hide_possible_values = true)]
    pub contents: Option<String>,
    /// set-policy: mode of names: AES-256-CTS (the default), AES-128-CTS, SM4-CTS, Adiantum or
    /// AES-256-HCTR2.
    #[arg(long, value_name = "MODE", value_parser = offer::text(offer::NAMES_MODES),
        hide_possible_values = true)]
    pub filenames: Option<String>,
    /// set-policy: names are padded to a multiple of 4, 8, 16 or 32 bytes [default: 32].
    #[arg(long, value_name = "BYTES", value_parser = super::count, allow_hyphen_values = true)]
    pub padding: Option<u32>,
    /// set-policy: contents are encrypted in units of so many bytes [default: those of a block].
    #[arg(long, value_name = "BYTES", value_parser = super::count, allow_hyphen_values = true)]
    pub data_unit_size: Option<u32>,
    /// set-policy: all files share one key, and IVs have the nonce of a file (with Adiantum).
    #[arg(long)]
    pub direct_key: bool,
    /// set-policy: all files share one key, and IVs have the inode number (with stable_inodes).
    #[arg(long, conflicts_with = "direct_key")]
    pub iv_ino_lblk_64: bool,
    /// set-policy: as --iv-ino-lblk-64, with a hash of the number in IVs of 32 bits.
    #[arg(long, conflicts_with_all = ["direct_key", "iv_ino_lblk_64"])]
    pub iv_ino_lblk_32: bool,
    /// set-policy: a policy of version 1, with these eight bytes as hexadecimal digits.
    #[arg(long, value_name = "HEX")]
    pub descriptor: Option<String>,
    /// get-policy: print JSON (see the json page of the guide).
    #[arg(long)]
    pub json: bool,
    /// Mount options for opening the volume.
    #[arg(short = 'o', value_name = "OPTIONS",
        value_parser = offer::text(offer::OPENING), hide_possible_values = true)]
    pub options: Vec<String>,
    /// A key of encrypted files: a file with its raw bytes, 16 to 64 (may be repeated).
    #[arg(long = "key", value_name = "FILE")]
    pub keys: Vec<PathBuf>,
    /// get-policy or set-policy.
    #[arg(value_name = "ACTION", value_parser = offer::text(offer::ENCRYPT_ACTIONS),
        hide_possible_values = true)]
    pub action: String,
    /// Disk image or block device, or a directory on a volume that Extol has mounted.
    #[arg(value_hint = ValueHint::AnyPath)]
    pub source: PathBuf,
    /// Files on the volume; directories for set-policy.
    #[arg(required = true)]
    pub paths: Vec<OsString>,
}
