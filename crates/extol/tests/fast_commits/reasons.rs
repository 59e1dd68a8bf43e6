//! Every reason for a full commit, through a real fsync: the commit is a full one, exactly
//! that reason is counted, once, and the next fsync is fast again.

use std::sync::Arc;

use extol::FullCommitReason as Reason;
use extol::mkfs::{MkfsOptions, mkfs};
use extol::vfs::{Creds, Fallocate, NewNode, RenameFlags, SetAttr, XattrSet};
use extol::{Ext4, FileSystem as _, MountOptions};
use extol_block::{MemDevice, SharedDevice};
use extol_jbd2::fast::FastCommitStats;

const BLOCK: u64 = 4096;

/// A volume in memory that commits nothing but what the test asks for. `/a` and `/b` are files,
/// `/sub` and `/gone` directories; all is durable and the log live.
struct Rig {
    fs: Arc<Ext4>,
    root: u32,
    a: u32,
    b: u32,
    sub: u32,
}

impl Rig {
    fn new(features: &[&str], inodes: Option<u64>) -> Self {
        let device = Arc::new(MemDevice::new(32 << 20));
        let how = MkfsOptions {
            features: ["fast_commit"]
                .iter()
                .chain(features)
                .map(|name| (*name).to_owned())
                .collect(),
            block_size: Some(BLOCK as u32),
            inodes,
            ..MkfsOptions::default()
        };
        mkfs(&*device, &how, &mut |_| {}).unwrap();
        let options = MountOptions::default().without_threads();
        let fs = Ext4::open(device as SharedDevice, &options).unwrap();
        let root = fs.root();
        let mut rig = Self { fs, root, a: 0, b: 0, sub: 0 };
        rig.a = rig.make("a", NewNode::Regular);
        rig.b = rig.make("b", NewNode::Regular);
        rig.sub = rig.make("sub", NewNode::Directory);
        rig.make("gone", NewNode::Directory);
        rig.fs.write(rig.a, 0, &[7; 4 * BLOCK as usize]).unwrap();
        rig.fs.sync().unwrap();
        rig
    }

    fn make(&self, name: &str, new: NewNode) -> u32 {
        self.make_in(self.root, name, new)
    }

    fn make_in(&self, dir: u32, name: &str, new: NewNode) -> u32 {
        self.fs.create(dir, name.as_bytes(), new, 0o644, 0, Creds::default()).unwrap().id.ino
    }

    fn fast(&self) -> FastCommitStats {
        self.fs.stats().journal.fast_commit
    }

    fn transactions(&self) -> u64 {
        self.fs.stats().journal.transactions
    }

    /// `change` gives what is fsynced then.
    #[track_caller]
    fn expect(&self, reason: Reason, change: impl FnOnce(&Self) -> u32) {
        self.fs.sync().unwrap();
        let (before, full) = (self.fast(), self.transactions());
        let ino = change(self);
        self.fs.fsync(ino, false).unwrap();
        let after = self.fast();
        let mut expected = before.clone();
        expected.ineligible += 1;
        let counter = expected.reasons.iter_mut().find(|(name, _)| name == reason.name());
        counter.expect("all reasons are listed").1 += 1;
        assert_eq!(after.reasons, expected.reasons, "{reason:?}");
        assert_eq!(
            (after.ineligible, after.commits),
            (expected.ineligible, expected.commits),
            "{reason:?}"
        );
        assert_eq!(self.transactions(), full + 1, "{reason:?}: one full commit");
        // The next one is fast again.
        let perm = if self.fs.getattr(self.b).unwrap().perm == 0o600 { 0o640 } else { 0o600 };
        self.fs.setattr(self.b, &SetAttr { perm: Some(perm), ..SetAttr::default() }).unwrap();
        self.fs.fsync(self.b, false).unwrap();
        assert_eq!(self.fast().commits, after.commits + 1, "{reason:?}: fast again");
        assert_eq!(self.transactions(), full + 1, "{reason:?}: fast again");
    }
}

#[test]
fn each_reason_is_counted_once() {
    let rig = Rig::new(&[], None);
    rig.expect(Reason::Xattr, |rig| {
        rig.fs.setxattr(rig.a, b"user.x", b"1", XattrSet::Any).unwrap();
        rig.a
    });
    rig.expect(Reason::CrossRename, |rig| {
        rig.fs.rename(rig.root, b"a", rig.root, b"b", RenameFlags::EXCHANGE).unwrap();
        rig.a
    });
    rig.expect(Reason::DirRename, |rig| {
        rig.fs.rename(rig.root, b"sub", rig.root, b"moved", RenameFlags::empty()).unwrap();
        rig.fs.write(rig.a, 0, b"x").unwrap();
        rig.a
    });
    rig.expect(Reason::FallocRange, |rig| {
        rig.fs.fallocate(rig.a, Fallocate::CollapseRange, 0, BLOCK).unwrap();
        rig.a
    });
    rig.expect(Reason::DataJournalling, |rig| rig.make("link", NewNode::Symlink(b"a".to_vec())));
    rig.expect(Reason::DataJournalling, |rig| rig.make("pipe", NewNode::Fifo));
    rig.expect(Reason::Directory, |rig| rig.make("dir", NewNode::Directory));
    rig.expect(Reason::Directory, |rig| {
        let dir = rig.make("dir2", NewNode::Directory);
        rig.make_in(dir, "file", NewNode::Regular)
    });
    rig.expect(Reason::Directory, |rig| {
        rig.fs.rmdir(rig.root, b"gone").unwrap();
        rig.root
    });
    rig.expect(Reason::Deleted, |rig| {
        let unnamed = rig.fs.create_unnamed(rig.root, 0o600, 0, Creds::default()).unwrap().id.ino;
        rig.fs.link(unnamed, rig.root, b"victim").unwrap();
        unnamed
    });
    rig.expect(Reason::DirectoryGrew, |rig| {
        // Each takes 252 bytes.
        (0..16).for_each(|n| _ = rig.make_in(rig.sub, &format!("{n:0>244}"), NewNode::Regular));
        rig.make_in(rig.sub, &format!("{:0>244}", 16), NewNode::Regular)
    });
    rig.expect(Reason::ExtentTree, |rig| {
        let file = rig.make("pieces", NewNode::Regular);
        (0..6).for_each(|n| assert_eq!(rig.fs.write(file, 2 * n * BLOCK, b"x").unwrap(), 1));
        file
    });
    rig.expect(Reason::Attributes, |rig| {
        rig.fs.setattr(rig.sub, &SetAttr { perm: Some(0o700), ..SetAttr::default() }).unwrap();
        rig.sub
    });
}

/// A name in a casefolded directory is recorded as it is spelled. Readers take another spelling of
/// it for the same name, and not all of them find one that is malformed.
#[test]
fn a_name_that_is_spelled_anew_is_counted() {
    const CASEFOLD: u32 = 0x4000_0000;
    let rig = Rig::new(&["casefold"], None);
    let flags = rig.fs.getattr(rig.sub).unwrap().flags | CASEFOLD;
    rig.fs.setattr(rig.sub, &SetAttr { flags: Some(flags), ..SetAttr::default() }).unwrap();
    rig.fs.sync().unwrap();
    let rename = |from: &str, to: &str| {
        let (from, to) = (from.as_bytes(), to.as_bytes());
        rig.fs.rename(rig.sub, from, rig.sub, to, RenameFlags::empty()).unwrap();
    };
    let before = rig.fast();
    let file = rig.make_in(rig.sub, "Straße", NewNode::Regular);
    rig.fs.fsync(file, false).unwrap();
    rename("STRASSE", "other");
    rig.fs.fsync(file, false).unwrap();
    assert_eq!(rig.fast().commits, before.commits + 2, "one spelling of each");
    assert_eq!(rig.fast().reasons, before.reasons);
    rig.expect(Reason::Spelling, |_| {
        rename("OTHER", "between");
        rename("between", "Other");
        file
    });
    rig.expect(Reason::Spelling, |rig| {
        rig.fs.unlink(rig.sub, "OTHER".as_bytes()).unwrap();
        rig.make_in(rig.sub, "oTHER", NewNode::Regular)
    });
    rig.expect(Reason::Spelling, |rig| {
        rig.fs.create(rig.sub, b"cut\xC3", NewNode::Regular, 0o644, 0, Creds::default()).unwrap();
        rig.sub
    });
}

/// chattr +j and -j empty the log, so the next commit is a full one whatever it is for; and as long
/// as a file has the flag, its fsync is never considered for a fast commit.
#[test]
fn a_changed_journal_flag_leaves_no_base() {
    let rig = Rig::new(&[], None);
    let flags = |flags: u32| {
        let flags = Some(0x8_0000 | flags); // EXTENTS stays
        rig.fs.setattr(rig.a, &SetAttr { flags, ..SetAttr::default() }).unwrap()
    };
    for wanted in [0x4000, 0] {
        flags(wanted);
        let (before, full) = (rig.fast(), rig.transactions());
        rig.fs.write(rig.a, 0, b"with the flag, or behind it").unwrap();
        rig.fs.fsync(rig.a, false).unwrap();
        assert_eq!(rig.fast().commits, before.commits);
        assert_eq!(rig.transactions(), full + 1);
    }
    rig.fs.write(rig.a, 0, b"once more").unwrap();
    rig.fs.fsync(rig.a, false).unwrap();
    assert_eq!(rig.fast().commits, 1);
}

#[test]
fn inline_data_is_counted() {
    let rig = Rig::new(&["inline_data"], None);
    rig.expect(Reason::InlineData, |rig| {
        let file = rig.make("small", NewNode::Regular);
        rig.fs.write(file, 0, b"inline").unwrap();
        file
    });
}

/// A transaction that finds no free inode but those that it freed itself takes them, and can say
/// nothing any more.
#[test]
fn a_used_slot_is_counted() {
    let rig = Rig::new(&[], Some(32));
    let create = |name: String| {
        rig.fs.create(rig.root, name.as_bytes(), NewNode::Regular, 0o644, 0, Creds::default()).ok()
    };
    let files: Vec<u32> =
        (0..).map_while(|n| create(format!("f{n}"))).map(|attr| attr.id.ino).collect();
    assert!(!files.is_empty(), "no inode was free");
    rig.expect(Reason::UsedSlot, |rig| {
        rig.fs.unlink(rig.root, b"f0").unwrap();
        rig.fs.forget(files[0], 1);
        assert_eq!(rig.make("again", NewNode::Regular), files[0]);
        rig.fs.write(rig.a, 0, b"of a file that has nothing to do with it").unwrap();
        rig.a
    });
}
