//! `extol mknod` and `extol truncate`.

use std::ffi::OsStr;

use extol_cli_common::{Failure, Result};
use extol_vfs::{FileKind, FsError, Mode, NewNode, NumberError, Rdev, SetAttr, Size};

use super::attrs::Owner;
use super::change::{Change, Problem, find_or_make};
use super::{Tree, show};
use crate::args::{MknodArgs, TruncateArgs, VolumeArgs};
use crate::interrupt;

/// Largest numbers of a device, as Linux keeps them.
const MAX_MAJOR: u32 = 0xfff;
const MAX_MINOR: u32 = 0xf_ffff;

impl MknodArgs {
    fn node(&self) -> std::result::Result<(NewNode, u16), String> {
        let mode = match &self.mode {
            Some(mode) => Mode::parse(mode)?.applied(0o644, false, 0),
            None => 0o644,
        };
        let is_device = matches!(&*self.kind, "b" | "c" | "u");
        let device = match &self.device[..] {
            [major, minor] if is_device => {
                Rdev { major: number(major, MAX_MAJOR)?, minor: number(minor, MAX_MINOR)? }
            }
            [] if !is_device => Rdev::default(),
            _ if is_device => return Err("a device node needs MAJOR and MINOR".into()),
            _ => return Err("MAJOR and MINOR are for device nodes: b or c".into()),
        };
        let node = match &*self.kind {
            "b" => NewNode::BlockDevice(device),
            "c" | "u" => NewNode::CharDevice(device),
            "p" => NewNode::Fifo,
            "s" => NewNode::Socket,
            kind => return Err(format!("bad type {kind:?}: it must be b, c, p or s")),
        };
        Ok((node, mode))
    }

    fn make(&self, tree: &Tree, node: NewNode, perm: u16) -> std::result::Result<(), Problem> {
        let owner = tree.owner(self.owner.as_deref())?;
        let (dir, name) = tree.find_parent(&self.path)?;
        dir.make(name, node, perm, owner)?;
        Ok(())
    }
}

/// A device number: decimal, octal behind 0, hexadecimal behind 0x.
fn number(text: &str, most: u32) -> std::result::Result<u32, String> {
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    let plain = digits.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let number = u32::from_str_radix(digits, radix).ok().filter(|n| plain && *n <= most);
    number.ok_or_else(|| format!("bad number {text:?}: it must be one from 0 to {most}"))
}

impl Change for MknodArgs {
    fn volume(&self) -> &VolumeArgs {
        &self.volume
    }

    fn check(&self) -> Result<()> {
        self.owner.as_deref().map_or(Ok(()), Owner::check)?;
        self.node().map(drop).map_err(Failure::usage)
    }

    fn apply(&self, tree: &Tree) -> Result<()> {
        let (node, perm) = self.node().map_err(Failure::usage)?;
        if let Err(problem) = self.make(tree, node, perm) {
            tree.report(show(&self.path), problem);
        }
        Ok(())
    }
}

/// How a size changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wish {
    Is(u64),
    More(u64),
    Less(u64),
    AtMost(u64),
    AtLeast(u64),
    Down(u64),
    Up(u64),
}

impl Wish {
    fn parse(text: &str) -> std::result::Result<Self, String> {
        let text = text.trim();
        let bytes = |text: &str| {
            let size = text.parse::<Size>().and_then(|size| size.bytes(1));
            size.map_err(|NumberError { .. }| {
                format!("bad size {text:?}: give one such as 0, 10M, +1G or %4K")
            })
        };
        let mut rest = text.chars();
        let wish = match rest.next() {
            Some('+') => Self::More(bytes(rest.as_str())?),
            Some('-') => Self::Less(bytes(rest.as_str())?),
            Some('<') => Self::AtMost(bytes(rest.as_str())?),
            Some('>') => Self::AtLeast(bytes(rest.as_str())?),
            Some('/') => Self::Down(bytes(rest.as_str())?),
            Some('%') => Self::Up(bytes(rest.as_str())?),
            _ => Self::Is(bytes(text)?),
        };
        match wish {
            Self::Down(0) | Self::Up(0) => Err("a multiple of 0 is none".into()),
            wish => Ok(wish),
        }
    }

    /// The size of a file that has this one; `None` if there is none.
    fn of(self, size: u64) -> Option<u64> {
        match self {
            Self::Is(bytes) => Some(bytes),
            Self::More(bytes) => size.checked_add(bytes),
            Self::Less(bytes) => Some(size.saturating_sub(bytes)),
            Self::AtMost(bytes) => Some(size.min(bytes)),
            Self::AtLeast(bytes) => Some(size.max(bytes)),
            Self::Down(unit) => Some(size - size % unit),
            Self::Up(unit) => size.checked_next_multiple_of(unit),
        }
    }
}

impl Change for TruncateArgs {
    fn volume(&self) -> &VolumeArgs {
        &self.volume
    }

    fn check(&self) -> Result<()> {
        self.owner.as_deref().map_or(Ok(()), Owner::check)?;
        Wish::parse(&self.size).map(drop).map_err(Failure::usage)
    }

    fn apply(&self, tree: &Tree) -> Result<()> {
        let wish = Wish::parse(&self.size).map_err(Failure::usage)?;
        let owner = match tree.owner(self.owner.as_deref()) {
            Ok(owner) => owner,
            Err(why) => return tree.reported(why),
        };
        for path in self.paths.iter().take_while(|_| !interrupt::came()) {
            if let Err(problem) = self.one(tree, path, wish, owner) {
                tree.report(show(path), problem);
            }
        }
        Ok(())
    }
}

impl TruncateArgs {
    fn one(
        &self,
        tree: &Tree,
        path: &OsStr,
        wish: Wish,
        owner: Owner,
    ) -> std::result::Result<(), Problem> {
        let make = (!self.no_create).then_some(owner);
        let Some(inode) = find_or_make(tree, path, true, make)? else {
            return Ok(());
        };
        let attr = inode.attr()?;
        match attr.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(FsError::IsADirectory.into()),
            _ => return Err("has no size to set".into()),
        }
        let size = wish.of(attr.size).ok_or(FsError::FileTooLarge)?;
        inode.fs.setattr(inode.ino, &SetAttr { size: Some(size), ..SetAttr::default() })?;
        // As Linux does for root: capabilities were for the old contents.
        match inode.fs.removexattr(inode.ino, b"security.capability") {
            Ok(()) | Err(FsError::NoAttribute | FsError::NotSupported(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, then) in [
            ("0", 0),
            ("10K", 10_240),
            ("+1K", 11_024),
            ("-1M", 0),
            ("-1000", 9_000),
            ("<5000", 5_000),
            (">5000", 10_000),
            ("/4K", 8_192),
            ("%4K", 12_288),
        ] {
            assert_eq!(Wish::parse(text).unwrap().of(10_000), Some(then), "{text}");
        }
        assert_eq!(Wish::More(1).of(u64::MAX), None);
        for text in ["", "+", "x", "%0", "1Q"] {
            assert!(Wish::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn device_numbers() {
        assert_eq!(number("0x1f", 255), Ok(31));
        assert_eq!(number("010", 255), Ok(8));
        assert_eq!(number("0", 255), Ok(0));
        for text in ["", "256", "-1", "+1", "0x", "08", "x"] {
            assert!(number(text, 255).is_err(), "{text}");
        }
    }
}
