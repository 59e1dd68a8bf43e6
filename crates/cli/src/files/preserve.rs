//! Which attributes a copy preserves, in the terms of cp(1), and what it has skipped.
//!
//! A volume is not trusted. Unless they are asked for, a copy has no set-id bits, no capabilities,
//! no owners and no access lists of the volume, no device nodes are made, and directories that were
//! there stay as they are.

use extol_cli_common::{Failure, Result};
use serde::Serialize;

use crate::args::CpArgs;

/// Attributes, by the names of `--preserve`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Attributes {
    /// All bits of the mode (without: those of rwx that the umask leaves), and access lists.
    pub mode: bool,
    pub ownership: bool,
    pub timestamps: bool,
    /// All kinds of attributes (without: see [`Preserve::user_xattr`]).
    pub xattr: bool,
    pub links: bool,
}

impl Attributes {
    fn set(&mut self, name: &str, to: bool) -> bool {
        match name {
            "mode" => self.mode = to,
            "ownership" => self.ownership = to,
            "timestamps" => self.timestamps = to,
            "xattr" => self.xattr = to,
            "links" => self.links = to,
            "all" => {
                *self = Self { mode: to, ownership: to, timestamps: to, xattr: to, links: to };
            }
            _ => return false,
        }
        true
    }
}

/// What a copy preserves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Preserve {
    /// Of what the copy makes.
    pub new: Attributes,
    /// Of directories that were there: only what was asked for.
    pub existing: Attributes,
    /// Attributes of users (`user.*`).
    pub user_xattr: bool,
    /// Device nodes are made.
    pub devices: bool,
    /// Bits that a copy's mode does not get.
    pub umask: u32,
}

impl Preserve {
    /// What these arguments ask for. `--no-preserve` is stronger than the others.
    pub fn of(args: &CpArgs, umask: u32) -> Result<Self> {
        let mut asked = Attributes::default();
        let mut devices = args.archive;
        if args.archive {
            asked.set("all", true);
        }
        if args.preserve_usual {
            for name in ["mode", "ownership", "timestamps"] {
                asked.set(name, true);
            }
        }
        for name in args.preserve.iter().flat_map(|list| list.split(',')) {
            devices |= name == "all";
            if !asked.set(name, true) {
                return Err(unknown("--preserve", name));
            }
        }
        let mut new = Attributes { timestamps: true, links: true, ..asked };
        let mut user_xattr = true;
        for name in args.no_preserve.iter().flat_map(|list| list.split(',')) {
            if !new.set(name, false) || !asked.set(name, false) {
                return Err(unknown("--no-preserve", name));
            }
            user_xattr &= !matches!(name, "xattr" | "all");
        }
        Ok(Self { new, existing: asked, user_xattr, devices, umask })
    }

    /// Permission bits of a copy of what has these. `owned`: its owner is that of the volume.
    pub fn mode(&self, attributes: Attributes, perm: u16, owned: bool) -> u32 {
        let perm = u32::from(perm);
        match (attributes.mode, owned) {
            (true, true) => perm & 0o7777,
            // For another owner, set-id bits would mean something else.
            (true, false) => perm & 0o1777,
            (false, _) => perm & 0o777 & !self.umask,
        }
    }

    /// Whether an extended attribute is kept.
    pub fn xattr(&self, attributes: Attributes, is_new: bool, name: &[u8]) -> bool {
        if name.starts_with(b"system.posix_acl_") {
            attributes.mode
        } else if name.starts_with(b"user.") {
            attributes.xattr || (is_new && self.user_xattr)
        } else {
            attributes.xattr && (name.starts_with(b"trusted.") || name.starts_with(b"security."))
        }
    }
}

fn unknown(option: &str, name: &str) -> Failure {
    let names = "mode, ownership, timestamps, xattr, links, all";
    Failure::usage(format_args!("{option}: there is no attribute {name:?}: use {names}"))
}

/// What was not copied, without an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub(super) struct Skipped {
    pub devices: u64,
    pub set_ids: u64,
    pub capabilities: u64,
    pub access_lists: u64,
    /// Asked for, but only root can.
    pub owners: u64,
    /// `security.*`, asked for, but only root can, and not everywhere.
    pub security: u64,
    /// `trusted.*`, asked for, but only root can.
    pub trusted: u64,
    /// Asked for, but the destination does not take them.
    pub xattrs: u64,
    /// Further names of a file, which became files of their own.
    pub links: u64,
}

/// The kinds of attributes that one file has lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Lost {
    capabilities: bool,
    access_lists: bool,
    security: bool,
    trusted: bool,
    xattrs: bool,
}

impl Lost {
    /// One more attribute; `asked`: attributes of all kinds were asked for.
    pub fn add(&mut self, name: &[u8], asked: bool) {
        match name {
            b"security.capability" => self.capabilities = true,
            _ if name.starts_with(b"system.posix_acl_") => self.access_lists = true,
            _ if name.starts_with(b"security.") => self.security |= asked,
            _ if name.starts_with(b"trusted.") => self.trusted |= asked,
            _ => self.xattrs |= asked,
        }
    }
}

impl Skipped {
    /// Counts what a file has lost.
    pub fn count(&mut self, lost: Lost) {
        self.capabilities += u64::from(lost.capabilities);
        self.access_lists += u64::from(lost.access_lists);
        self.security += u64::from(lost.security);
        self.trusted += u64::from(lost.trusted);
        self.xattrs += u64::from(lost.xattrs);
    }

    /// The line for the user; `None` if nothing was left out.
    pub fn line(&self, everything: bool) -> Option<String> {
        let many = |n: u64, one: &str, more: &str| match n {
            0 => None,
            1 => Some(format!("1 {one}")),
            n => Some(format!("{n} {more}")),
        };
        let of = |what: &str, n| many(n, "file", "files").map(|files| format!("{what} of {files}"));
        let parts: Vec<String> = [
            many(self.devices, "device node", "device nodes"),
            of("set-id bits", self.set_ids),
            of("capabilities", self.capabilities),
            of("access lists", self.access_lists),
            of("owners", self.owners),
            of("security labels", self.security),
            of("trusted attributes", self.trusted),
            of("extended attributes", self.xattrs),
            many(self.links, "hard link", "hard links"),
        ]
        .into_iter()
        .flatten()
        .collect();
        let is_one = self.devices + self.links == 1;
        let verb = if is_one && parts.len() == 1 { "was" } else { "were" };
        let hint = match (everything, self.xattrs + self.links) {
            (false, _) => ": use -a as root",
            (true, 0) => ": that needs root",
            (true, _) => ": that needs root, and a destination that can keep them",
        };
        (!parts.is_empty()).then(|| format!("{} {verb} not copied{hint}", parts.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{self, Command};

    fn preserve(options: &[&str]) -> Result<Preserve> {
        let words = ["extol", "cp"].iter().chain(options).chain(&["image", "/a", "b"]);
        let words: Vec<_> = words.map(std::ffi::OsString::from).collect();
        let Command::Cp(args) = args::parse(&words)? else { panic!("another command") };
        Preserve::of(&args, 0o022)
    }

    #[test]
    fn as_in_cp() {
        let plain = preserve(&[]).unwrap();
        assert_eq!(plain.existing, Attributes::default());
        assert_eq!((plain.mode(plain.new, 0o7777, true), plain.devices), (0o755, false));
        assert!(plain.new.timestamps && plain.new.links && !plain.new.ownership);
        let all = preserve(&["-a"]).unwrap();
        assert_eq!(
            (all.new, all.existing, all.devices),
            (preserve(&["--preserve=all"]).unwrap().new, all.new, true)
        );
        assert_eq!(
            (all.mode(all.new, 0o7777, true), all.mode(all.new, 0o7777, false)),
            (0o7777, 0o1777)
        );
        assert_eq!(preserve(&["-p"]).unwrap(), preserve(&["--preserve"]).unwrap());
        assert_eq!(
            preserve(&["-p"]).unwrap(),
            preserve(&["--preserve=mode,ownership,timestamps"]).unwrap()
        );
        let some = preserve(&["-a", "--no-preserve=ownership,xattr"]).unwrap();
        assert!(some.new.mode && !some.new.ownership && !some.xattr(some.new, true, b"user.a"));
        assert_eq!(preserve(&["--preserve=colour"]).unwrap_err().code, Failure::USAGE);
        assert!(preserve(&["-rR", "-a", "-p"]).is_ok());
        for (name, kept) in [
            (&b"user.a"[..], true),
            (b"trusted.a", false),
            (b"security.capability", false),
            (b"security.a", false),
        ] {
            assert_eq!(plain.xattr(plain.new, true, name), kept);
            assert!(all.xattr(all.new, true, name) && !plain.xattr(plain.existing, false, name));
        }
    }

    #[test]
    fn the_line() {
        assert_eq!(Skipped::default().line(false), None);
        let devices = Skipped { devices: 3, ..Skipped::default() };
        assert_eq!(devices.line(false).unwrap(), "3 device nodes were not copied: use -a as root");
        let some = Skipped { devices: 1, set_ids: 2, owners: 1, ..Skipped::default() };
        assert_eq!(
            some.line(true).unwrap(),
            "1 device node, set-id bits of 2 files, owners of 1 file were not copied: \
             that needs root"
        );
        let mut lost = Lost::default();
        for name in [&b"security.selinux"[..], b"security.capability", b"trusted.a", b"user.a"] {
            lost.add(name, true);
        }
        let mut some = Skipped { links: 1, ..Skipped::default() };
        some.count(lost);
        some.count(Lost::default());
        assert_eq!(
            some.line(true).unwrap(),
            "capabilities of 1 file, security labels of 1 file, trusted attributes of 1 file, \
             extended attributes of 1 file, 1 hard link were not copied: that needs root, and a \
             destination that can keep them"
        );
    }
}
