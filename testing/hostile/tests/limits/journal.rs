//! Journals with absurd numbers, and with blocks that lead round in circles.

use extol_block::BlockDevice;
use extol_check::Kind as Finding;
use extol_hostile::layout::{Kind, read};
use extol_hostile::seal::log_block;
use extol_ondisk::InodeNr;

use crate::craft::{Craft, put16, put32, put32_be};
use crate::prove::Case;

const JOURNAL: u32 = InodeNr::JOURNAL.0;

/// One field of the journal superblock, on a volume that needs recovery.
#[test]
fn superblocks_of_journals_with_absurd_numbers() {
    let fields: &[(&str, usize, &[u32])] = &[
        ("block size", 0x0C, &[0, 1, 512, 2048, 1 << 31, u32::MAX]),
        ("s_maxlen", 0x10, &[0, 1, 1023, 1025, 1 << 31, u32::MAX]),
        ("s_first", 0x14, &[0, 1023, 1024, u32::MAX]),
        ("s_sequence", 0x18, &[0, u32::MAX, u32::MAX - 1, 1 << 31]),
        ("s_start", 0x1C, &[1023, 1024, 1 << 31, u32::MAX]),
        ("features", 0x28, &[0x20, 0x3F, u32::MAX]),
        ("s_num_fc_blks", 0x54, &[1, 1023, 1 << 31, u32::MAX]),
        ("s_head", 0x58, &[u32::MAX]),
        ("users", 0x40, &[0, 49, u32::MAX]),
    ];
    for &(name, at, values) in fields {
        for &value in values {
            for with_fast_commits in [false, true] {
                let v = Craft::new("dirty");
                v.edit(v.all(JOURNAL, |k| k == Kind::JournalSuper)[0], |b| {
                    if with_fast_commits {
                        b[0x2B] |= 0x20;
                    }
                    put32_be(b, at, value);
                });
                Case::new(name, v).focus(&[JOURNAL]).prove();
            }
        }
    }
    for (at, value, words) in [
        (0x10, u32::MAX, &["journal", "s_maxlen"][..]),
        (0x14, 0, &["journal"]),
        (0x1C, u32::MAX, &["journal"]),
        (0x0C, 512, &["journal"]),
    ] {
        let v = Craft::new("dirty");
        v.edit(v.all(JOURNAL, |k| k == Kind::JournalSuper)[0], |b| put32_be(b, at, value));
        Case::new("refused", v)
            .says(&words[..1])
            .finds(&[Finding::JournalSuperblock, Finding::JournalReplay, Finding::JournalInode])
            .prove();
    }
}

/// The whole log is full of blocks of the transaction that is expected, and none ends it.
#[test]
fn logs_without_an_end() {
    for kind in [1u32, 2, 5] {
        for flags in [0u16, 2, 10] {
            let v = Craft::new("dirty");
            let jsb = v.base.layout.journal.clone().expect("a journal");
            for at in v.base.layout.log.iter().skip(1) {
                let mut b = vec![0; v.bs()];
                put32_be(&mut b, 0, 0xC03B_3998);
                put32_be(&mut b, 4, kind);
                put32_be(&mut b, 8, jsb.sequence.0);
                if kind == 5 {
                    put32_be(&mut b, 12, 1020);
                }
                let size = jsb.features.tag_size();
                if kind == 1 {
                    for i in 0..(v.bs() - 16) / size {
                        put32_be(&mut b, 12 + size * i, 30 + i as u32);
                        b[12 + size * i + 6..12 + size * i + 8]
                            .copy_from_slice(&flags.to_be_bytes());
                    }
                }
                let t = v.all(JOURNAL, |k| k == Kind::JournalDesc)[0];
                let sealed = extol_hostile::layout::Target {
                    kind: if kind == 2 { Kind::JournalCommit } else { Kind::JournalDesc },
                    at: *at,
                    ..t
                };
                log_block(&v.base.layout, &sealed, &mut b);
                v.dev.write_at(&b, *at).expect("write");
            }
            Case::new("log without an end", v).prove();
        }
    }
}

/// A revoke block says that it has more records than fit; a descriptor sends its copies to the log,
/// to the superblock, out of the volume.
#[test]
fn blocks_of_the_log_that_lie() {
    for count in [0u32, 15, 17, 1021, 1024, 1 << 31, u32::MAX] {
        let v = Craft::new("dirty");
        for t in v.all(JOURNAL, |k| k == Kind::JournalRevoke) {
            v.edit(t, |b| put32_be(b, 12, count));
        }
        Case::new("revoke count", v).prove();
    }
    for home in [0u32, 1, 3, 2000, 6143, 6144, u32::MAX] {
        let v = Craft::new("dirty");
        for t in v.all(JOURNAL, |k| k == Kind::JournalDesc) {
            v.edit(t, |b| put32_be(b, 12, home));
        }
        Case::new("home", v).prove();
    }
    let v = Craft::new("dirty");
    let to = (v.base.layout.log[3] / 1024) as u32;
    for t in v.all(JOURNAL, |k| k == Kind::JournalDesc) {
        v.edit(t, |b| put32_be(b, 12, to));
    }
    Case::new("into the log", v).says(&["journal"]).prove();
}

/// The journal's inode: its blocks lie over the group descriptors, over each other, nowhere; its
/// size is absurd.
#[test]
fn journal_inodes_that_lie() {
    type Change = fn(&mut [u8]);
    let changes: &[(&str, Change)] = &[
        ("over the superblock", |b| put32(b, 0x28 + 20, 1)),
        ("over the descriptors", |b| put32(b, 0x28 + 20, 2)),
        ("over the inode table", |b| put32(b, 0x28 + 20, 40)),
        ("behind the end", |b| put32(b, 0x28 + 20, 6000)),
        ("far behind the end", |b| put16(b, 0x28 + 18, 0xFFFF)),
        ("long", |b| put16(b, 0x28 + 16, 32768)),
        ("of length 0", |b| put16(b, 0x28 + 16, 0)),
        ("unwritten", |b| put16(b, 0x28 + 16, 0xFFFF)),
        ("with a hole", |b| put32(b, 0x28 + 12, 5)),
        ("deep", |b| put16(b, 0x28 + 6, 3)),
        ("of no size", |b| put32(b, 4, 0)),
        ("of absurd size", |b| put32(b, 0x6C, 0xFFFF)),
        ("a directory", |b| put16(b, 0, 0x41C0)),
        ("free", |b| put16(b, 0x1A, 0)),
        ("without a map", |b| b[0x28..0x64].fill(0)),
        ("of block pointers", |b| put32(b, 0x20, 0)),
    ];
    for variant in ["ext4-1k", "dirty"] {
        for (name, change) in changes {
            let v = Craft::new(variant);
            v.edit_ino(JOURNAL, change);
            let before = read(&v.dev, 1024, 4096);
            let case = Case::new(name, v).focus(&[JOURNAL]);
            case.finds(&[
                Finding::JournalInode,
                Finding::JournalReplay,
                Finding::JournalSuperblock,
                Finding::BlockShared,
                Finding::BlockOnMetadata,
                Finding::ExtentRange,
                Finding::ExtentNode,
                Finding::ExtentOrder,
                Finding::InodeSize,
                Finding::InodeBlocks,
                Finding::BlockMap,
                Finding::InodeFlags,
            ])
            .prove();
            assert_eq!(before.len(), 4096);
        }
    }
    // Another inode is the journal, or none.
    for ino in [0, 1, 2, 7, 11, 100, u32::MAX] {
        let v = Craft::new("ext4-1k");
        v.edit_super(|b| put32(b, 0xE0, ino));
        Case::new("another inode", v).says(&["journal"]).prove();
    }
}
