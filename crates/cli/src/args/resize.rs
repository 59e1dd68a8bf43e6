//! Arguments of resize.

use std::path::PathBuf;

use std::str::FromStr;

use clap::{Args, ValueHint};
use extol_cli_common::manual;
use extol_vfs::NumberError;

use crate::volume::Size;

/// How large something is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewSize {
    /// So large.
    To(Size),
    /// Larger by this.
    More(Size),
    /// Smaller by this.
    Less(Size),
}

impl FromStr for NewSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let size = |text: &str| text.parse().map_err(|error: NumberError| error.to_string());
        match text.as_bytes() {
            [b'+', ..] => size(&text[1..]).map(Self::More),
            [b'-', b'-', ..] => Err(format!("there is no option {text:?}")),
            [b'-', ..] => size(&text[1..]).map(Self::Less),
            _ => size(text).map(Self::To),
        }
    }
}

impl NewSize {
    /// In bytes, for what has `now`. A number without a unit counts things of `plain` bytes.
    ///
    /// # Errors
    /// It is less than nothing, or more than there can be.
    pub fn bytes(self, now: u64, plain: u64) -> Result<u64, String> {
        let none = |what: &str| format!("its {now} bytes cannot become {what}");
        let by = |size: Size| size.bytes(plain).map_err(|error| error.to_string());
        match self {
            Self::To(size) => by(size),
            Self::More(size) => now.checked_add(by(size)?).ok_or_else(|| none("so many more")),
            Self::Less(size) => {
                let less = now.checked_sub(by(size)?).filter(|bytes| *bytes > 0);
                less.ok_or_else(|| none("so many less"))
            }
        }
    }
}

/// Make a volume larger or smaller.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol resize disk.img 20G",
        "extol resize disk.img +10G",
        "extol resize disk.qcow2:1 +10G         # the partition as well",
        "extol resize --partition-only disk.img:root",
        "extol resize /dev/vg/data",
        "extol resize /mnt 20G",
        "extol resize --minimum disk.img",
    ),
    long_about = "Make a volume larger or smaller.\n\n\
        SIZE is a number with a unit: K, M, G, T, P or E (or KiB, MiB ...) are powers of 1024, KB, \
        MB, GB ... powers of 1000, s is 512 bytes; without a unit it counts blocks of the volume. \
        +SIZE is so much more than now, -SIZE so much less. Without SIZE the volume becomes as \
        large as its device. A disk image becomes longer or shorter with it; a logical volume must \
        be made larger before, and smaller after.\n\n\
        A partition of an image (disk.img:1) becomes longer before its volume does, in a GPT with \
        the copy at the end of the disk, or in an MBR; the next partition or the end of the disk \
        is its limit. A raw image becomes longer for it; the disk of a qcow2 image is made longer \
        by qemu-img resize before. It does not become shorter with its volume: --partition-only \
        changes the partition alone, to all the room that there is without SIZE, or to a size that \
        its volume still fits.\n\n\
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
    /// Change the length of the partition, and leave its volume as it is.
    #[arg(long, conflicts_with_all = ["minimum", "print_minimum"])]
    pub partition_only: bool,
    /// Show what was done, or the minimum, as JSON.
    #[arg(long, conflicts_with = "quiet")]
    pub json: bool,
    /// Print nothing but errors.
    #[arg(short, long)]
    pub quiet: bool,
    /// Options for opening the volume, as for mount: journal_path=FILE.
    #[arg(short = 'o', value_name = "OPTIONS", allow_hyphen_values = true)]
    pub options: Vec<String>,
    /// Keep all rights of the caller, for a debugger.
    #[arg(long)]
    pub no_sandbox: bool,
    /// Disk image or block device, or a directory of a mount.
    #[arg(value_hint = ValueHint::AnyPath)]
    pub source: PathBuf,
    /// How large it is to be, as 20G; +10G and -10G are from the size that it has.
    #[arg(allow_hyphen_values = true)]
    pub size: Option<NewSize>,
}

#[cfg(test)]
mod tests {
    use crate::args::{Command, parse};
    use std::ffi::OsString;

    #[test]
    fn a_size_may_be_from_that_of_now() {
        let size = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let Command::Resize(args) = parse(&words)? else { panic!("not resize") };
            Ok::<_, extol_cli_common::Failure>((args.quiet, args.size.map(|s| s.bytes(4096, 1024))))
        };
        for (line, quiet, bytes) in [
            ("extol resize a 10K", false, Ok(10_240)),
            ("extol resize a +1K", false, Ok(5120)),
            ("extol resize a -1K -q", true, Ok(3072)),
            ("extol resize -q a -2", true, Ok(2048)),
            ("extol resize a 5", false, Ok(5120)),
        ] {
            assert_eq!(size(line).unwrap(), (quiet, Some(bytes)), "{line}");
        }
        assert_eq!(size("extol resize a -q").unwrap(), (true, None));
        for line in ["extol resize a -4K", "extol resize a +18446744073709551615B"] {
            assert!(size(line).map(|(_, size)| size.unwrap()).unwrap().is_err(), "{line}");
        }
        for (line, words) in [
            ("extol resize a x", "number"),
            ("extol resize a --1", "no option"),
            ("extol resize a --frob", "--frob"),
            ("extol resize a +99999999999999999999", "larg"),
            ("extol resize a -", "empty"),
        ] {
            let failure = size(line).unwrap_err();
            assert!(failure.line.contains(words), "{line}: {}", failure.line);
        }
    }
}
