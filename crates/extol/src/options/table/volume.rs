//! Options of errors, free space, permissions and where data goes.

use super::OptionSpec;
use crate::options::Remount;
use crate::options::parts::{ErrorPolicy, QuotaOptions};
use crate::options::word::{flag, name_of, only, with};

const ERRORS: &[(&str, ErrorPolicy)] = &[
    ("continue", ErrorPolicy::Continue),
    ("remount-ro", ErrorPolicy::RemountRo),
    ("panic", ErrorPolicy::Panic),
];

pub(super) const ROWS: &[OptionSpec] = &[
    OptionSpec {
        names: &["errors"],
        value: "continue, remount-ro or panic",
        default: "what the superblock says",
        reason: "what damaged metadata does to the mount",
        remount: Remount::Live,
        set: |o, w| w.choose(ERRORS).map(|value| o.access.errors = Some(value)),
        show: |o| with("errors", o.access.errors.map(|policy| name_of(ERRORS, policy))),
    },
    OptionSpec {
        names: &["discard", "nodiscard"],
        value: "",
        default: "nodiscard",
        reason: "discard: freed blocks are given back to a flash device or a sparse image at once",
        remount: Remount::Live,
        set: |o, w| w.flag("discard", &mut o.space.discard),
        show: |o| flag(o.space.discard, "discard"),
    },
    OptionSpec {
        names: &["grpid", "bsdgroups", "nogrpid", "sysvgroups"],
        value: "",
        default: "what the superblock says",
        reason: "grpid: new files take the group of their directory",
        remount: Remount::Live,
        set: |o, w| {
            o.inodes.grpid = Some(w.is("grpid") || w.is("bsdgroups"));
            Ok(())
        },
        show: |o| flag(o.inodes.grpid.unwrap_or(false), "grpid"),
    },
    OptionSpec {
        names: &["minixdf", "bsddf"],
        value: "",
        default: "bsddf",
        reason: "minixdf: df counts metadata as space, too",
        remount: Remount::Live,
        set: |o, w| w.flag("minixdf", &mut o.space.minixdf),
        show: |o| if o.space.minixdf { "minixdf" } else { "bsddf" }.to_owned(),
    },
    OptionSpec {
        names: &["user_xattr", "nouser_xattr"],
        value: "",
        default: "user_xattr",
        reason: "nouser_xattr: no attributes of users",
        remount: Remount::Fixed,
        set: |o, w| w.flag("user_xattr", &mut o.inodes.user_xattr),
        show: |o| flag(o.inodes.user_xattr, "user_xattr"),
    },
    OptionSpec {
        names: &["acl", "noacl"],
        value: "",
        default: "acl",
        reason: "noacl: no access control lists",
        remount: Remount::Fixed,
        set: |o, w| w.flag("acl", &mut o.inodes.acl),
        show: |o| flag(o.inodes.acl, "acl"),
    },
    OptionSpec {
        names: &["resuid"],
        value: "user id",
        default: "what the superblock says",
        reason: "a user beside root that may use the reserved blocks",
        remount: Remount::Live,
        set: |o, w| w.count(0..=u32::MAX).map(|value| o.space.resuid = Some(value)),
        show: |o| with("resuid", o.space.resuid),
    },
    OptionSpec {
        names: &["resgid"],
        value: "group id",
        default: "what the superblock says",
        reason: "a group that may use the reserved blocks",
        remount: Remount::Live,
        set: |o, w| w.count(0..=u32::MAX).map(|value| o.space.resgid = Some(value)),
        show: |o| with("resgid", o.space.resgid),
    },
    OptionSpec {
        names: &["usrquota", "quota", "noquota"],
        value: "",
        default: "noquota",
        reason: "usrquota: limits of users hold; noquota: no limits at all",
        remount: Remount::Live,
        set: |o, w| {
            match w.is("noquota") {
                true => o.quota = QuotaOptions::default(),
                false => o.quota.user = true,
            }
            Ok(())
        },
        show: |o| only(o.quota.user, "usrquota"),
    },
    OptionSpec {
        names: &["grpquota"],
        value: "",
        default: "noquota",
        reason: "limits of groups hold",
        remount: Remount::Live,
        set: |o, w| w.flag("grpquota", &mut o.quota.group),
        show: |o| only(o.quota.group, "grpquota"),
    },
    OptionSpec {
        names: &["prjquota"],
        value: "",
        default: "noquota",
        reason: "limits of projects hold",
        remount: Remount::Live,
        set: |o, w| w.flag("prjquota", &mut o.quota.project),
        show: |o| only(o.quota.project, "prjquota"),
    },
    OptionSpec {
        names: &["delalloc", "nodelalloc"],
        value: "",
        default: "delalloc",
        reason: "nodelalloc: blocks are chosen in the write call, so less waits in memory",
        remount: Remount::Live,
        set: |o, w| w.flag("nodelalloc", &mut o.data.nodelalloc),
        show: |o| flag(!o.data.nodelalloc, "delalloc"),
    },
];
