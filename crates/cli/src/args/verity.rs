//! The arguments of `extol verity`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use extol_cli_common::manual;

use super::files::VolumeArgs;
use super::offer;

/// Make, measure and dump files of fs-verity on a volume that is not mounted.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol verity enable disk.img /usr/bin/tool",
        "extol verity enable --hash-alg sha512 --salt 00ff disk.img /a /b",
        "extol verity measure disk.img /usr/bin/tool",
        "extol verity measure --json disk.img /usr/bin/tool",
        "extol verity dump --part tree disk.img /usr/bin/tool > tree"
    ),
    long_about = "Make, measure and dump files of fs-verity on a volume that is not mounted.\n\n\
        enable gives regular files a Merkle tree: from then on their contents cannot change, and \
        each read is verified. There is no way back but to copy the file. The volume needs the \
        feature verity (extol tune -O verity).\n\n\
        measure prints the digest of each file, as fsverity measure does.\n\n\
        dump prints a part of what lies behind the contents of one file: the descriptor as it is \
        hashed, the tree, or the signature.\n\n\
        Signatures are stored and not checked. On a mount, use fsverity(1) with enable and measure."
)]
pub struct VerityArgs {
    /// enable: hash algorithm, sha256 or sha512 [default: sha256].
    #[arg(long, value_name = "ALGORITHM", value_parser = offer::text(offer::HASHES),
        hide_possible_values = true)]
    pub hash_alg: Option<String>,
    /// enable: bytes of a block of the tree [default: 4096, or the block size of the volume].
    #[arg(long, value_name = "BYTES", value_parser = super::verity_block,
        allow_hyphen_values = true)]
    pub block_size: Option<u32>,
    /// enable: up to 32 bytes before each block that is hashed, as hexadecimal digits.
    #[arg(long, value_name = "HEX")]
    pub salt: Option<String>,
    /// enable: a signature to be stored with the file.
    #[arg(long, value_name = "FILE")]
    pub signature: Option<PathBuf>,
    /// dump: descriptor, tree or signature [default: descriptor].
    #[arg(long, value_name = "PART", value_parser = offer::text(offer::VERITY_PARTS),
        hide_possible_values = true)]
    pub part: Option<String>,
    /// measure: print the digests as JSON (see the json page of the guide).
    #[arg(long)]
    pub json: bool,
    /// enable, measure or dump.
    #[arg(value_name = "ACTION", value_parser = offer::text(offer::VERITY_ACTIONS),
        hide_possible_values = true)]
    pub action: String,
    #[command(flatten)]
    pub volume: VolumeArgs,
    /// Files on the volume.
    #[arg(required = true)]
    pub paths: Vec<OsString>,
}
