//! What `extol resize` says at its end, as text and as JSON.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use extol_cli_common::{Result, json_text, print, print_json};
use extol_proc::Shown as _;
use extol_vfs::{Resized, bytes_text};
use serde::Serialize;

use crate::args::ResizeArgs;
use crate::volume::Minimum;

/// What became of a volume.
#[derive(Serialize, Debug)]
pub struct Report {
    #[serde(skip)]
    source: PathBuf,
    /// The volume is a part of a file, which -o offset= or sizelimit= names.
    #[serde(skip)]
    is_part: bool,
    /// `grew`, `shrank` or `same`.
    outcome: &'static str,
    block_size: u32,
    blocks_before: u64,
    blocks: u64,
    bytes: u64,
    blocks_wished: u64,
    blocks_target: u64,
    went_to_meta_bg: bool,
    device_bytes: u64,
    /// The device is the disk of a qcow2 image.
    #[serde(skip)]
    is_qcow2: bool,
}

impl Report {
    /// The report of a resize.
    pub fn of(source: &Path, resized: Resized) -> Self {
        let Resized { block_size, before, blocks, target, wished, went_to_meta_bg, device } =
            resized;
        Self {
            source: source.to_owned(),
            is_part: false,
            outcome: match blocks.cmp(&before) {
                std::cmp::Ordering::Greater => "grew",
                std::cmp::Ordering::Less => "shrank",
                std::cmp::Ordering::Equal => "same",
            },
            block_size,
            blocks_before: before,
            blocks,
            bytes: blocks * u64::from(block_size),
            blocks_wished: wished,
            blocks_target: target,
            went_to_meta_bg,
            device_bytes: device,
            is_qcow2: extol_block::open::disk_image(source).is_some(),
        }
    }

    /// As that; `is_part`: the volume is a part of a file, whose length does not change.
    pub fn of_part(self, is_part: bool) -> Self {
        Self { is_part, ..self }
    }

    /// Prints it, unless the user wants to hear nothing.
    pub fn print(&self, args: &ResizeArgs) -> Result<()> {
        if args.json {
            return print_json(json_text(self)?);
        }
        if args.quiet { Ok(()) } else { print(self.text()) }
    }

    fn text(&self) -> String {
        let name = self.source.shown();
        let Self { outcome, blocks_before, blocks, block_size, bytes, .. } = self;
        let mut text = match *outcome {
            "same" => format!("{name}: has {blocks} blocks of {block_size} bytes, nothing to do\n"),
            _ => format!(
                "{name}: {outcome} from {blocks_before} to {blocks} blocks of {block_size} bytes \
                 ({bytes} bytes)\n"
            ),
        };
        let missing = self.blocks_wished.saturating_sub(*blocks);
        if missing > 0 && *blocks == self.blocks_target {
            text += &format!(
                "{name}: {missing} blocks at the end stay unused: a block group needs more for its \
                 own metadata\n"
            );
        }
        if self.went_to_meta_bg {
            text += &format!(
                "{name}: no more descriptor blocks were reserved: it has the feature meta_bg now\n"
            );
        }
        if self.is_part && *outcome != "same" {
            text += &format!(
                "{name}: the file is as long as before: with -o offset= or sizelimit= only the \
                 volume in it is resized\n"
            );
        } else if *outcome == "shrank" && self.device_bytes > *bytes {
            let has = format!("has {} bytes, the volume the first {bytes}", self.device_bytes);
            text += &match self.is_qcow2 {
                true => format!(
                    "{name}: its disk {has}: qemu-img resize --shrink {name} {bytes} cuts it\n"
                ),
                false => format!("{name}: the device {has}: it may be cut there\n"),
            };
        }
        text
    }
}

/// How small a volume can be.
#[derive(Serialize, Debug)]
pub struct Smallest {
    source: String,
    block_size: u32,
    blocks: u64,
    minimum: u64,
    minimum_bytes: u64,
}

impl Smallest {
    /// Of what was found.
    pub fn new(source: &Path, found: &Minimum) -> Self {
        Self {
            source: bytes_text(source.as_os_str().as_bytes()),
            block_size: found.block_size,
            blocks: found.blocks,
            minimum: found.minimum,
            minimum_bytes: found.minimum * u64::from(found.block_size),
        }
    }

    /// Prints it.
    pub fn print(&self, args: &ResizeArgs) -> Result<()> {
        if args.json {
            return print_json(json_text(self)?);
        }
        let (name, size) = (args.source.shown(), self.block_size);
        let (minimum, bytes) = (self.minimum, self.minimum_bytes);
        print(format!("{name}: needs at least {minimum} blocks of {size} bytes ({bytes} bytes)\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_and_what_there_is() {
        let resized = |before, blocks, wished| {
            let resized = Resized {
                block_size: 1024,
                before,
                blocks,
                target: blocks,
                wished,
                ..Resized::default()
            };
            Report::of(Path::new("a.img"), resized).text()
        };
        assert_eq!(
            resized(4096, 8193, 8200),
            "a.img: grew from 4096 to 8193 blocks of 1024 bytes (8389632 bytes)\n\
             a.img: 7 blocks at the end stay unused: a block group needs more for its own \
             metadata\n"
        );
        assert_eq!(
            resized(8193, 8193, 8193),
            "a.img: has 8193 blocks of 1024 bytes, nothing to do\n"
        );
        assert!(resized(8193, 8193, 8194).contains("1 block"));
        assert!(resized(8193, 5000, 5000).starts_with("a.img: shrank from 8193 to 5000 blocks"));
    }
}
