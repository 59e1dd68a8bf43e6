//! Bitmaps and group descriptors that lie, metadata over metadata, orphans in circles.

use extol::vfs::FileSystem;
use extol_check::Kind as Finding;
use extol_hostile::layout::{Kind, le32};

use crate::craft::{Craft, put16, put32};
use crate::prove::{Case, message};

/// Everything is free, everything is in use; the counts agree or lie. Nothing of the volume's own
/// is given away.
#[test]
fn bitmaps_that_lie() {
    for variant in ["ext4-1k", "ext4-1k-nocsum", "ext2-4k", "groups"] {
        for kind in [Kind::BlockBitmap(0), Kind::InodeBitmap(0)] {
            for (fill, count) in [(0, true), (0, false), (0xFF, true), (0xFF, false), (0x55, true)]
            {
                let v = Craft::new(variant);
                v.bitmap(kind, fill, count);
                Case::new("bitmap", v)
                    .then(|fs| {
                        let mut said = Vec::new();
                        for i in 0..40 {
                            let contents = b"XtolData".repeat(500);
                            said.extend(message(fs.write_file(format!("/t/new{i}"), contents)));
                        }
                        said.extend(message(fs.remove_dir_all("/t")));
                        said.extend(message(fs.sync()));
                        said
                    })
                    .finds(&[
                        Finding::BlockBitmap,
                        Finding::InodeBitmap,
                        Finding::BlockBitmapPadding,
                        Finding::InodeBitmapPadding,
                    ])
                    .prove();
            }
        }
    }
}

/// Free counts that are more than the group has, or nothing.
#[test]
fn counts_that_lie() {
    for (at, value) in [
        (0x0C, 0),
        (0x0C, 0xFFFF),
        (0x0E, 0),
        (0x0E, 0xFFFF),
        (0x10, 0xFFFF),
        (0x1C, 0xFFFF),
        (0x1C, 700),
        (0x12, 7),
    ] {
        let v = Craft::new("ext4-1k");
        v.edit(v.all(0, |k| k == Kind::Desc(0))[0], |b| put16(b, at, value));
        Case::new("count", v).prove();
    }
}

/// Each pointer of a group descriptor leads to other metadata.
#[test]
fn metadata_over_metadata() {
    for variant in ["ext4-1k", "ext4-1k-nocsum", "groups"] {
        for field in [0x00, 0x04, 0x08] {
            for other in [0x00, 0x04, 0x08, 0xFF, 0xFE, 0xFD] {
                if field == other {
                    continue;
                }
                let v = Craft::new(variant);
                let log = (v.base.layout.log[4] / v.bs() as u64) as u32;
                v.edit(v.all(0, |k| k == Kind::Desc(0))[0], |b| {
                    let to = match other {
                        0xFF => 1,
                        0xFE => 2,
                        0xFD => log,
                        at => le32(b, at),
                    };
                    put32(b, field, to);
                });
                Case::new("overlap", v)
                    .then(|fs| {
                        let mut said: Vec<String> =
                            message(fs.write_file("/new", b"XtolDataXtolData"))
                                .into_iter()
                                .collect();
                        said.extend(message(fs.create_dir_all("/a/b/c")));
                        said.extend(message(fs.sync()));
                        said
                    })
                    .prove();
            }
        }
    }
}

/// The list of orphans leads back to itself, to what was never an orphan, to nowhere.
#[test]
fn orphans_in_a_circle() {
    let small = ["small0", "small2", "small4"];
    for (len, links) in [(1, 1u16), (2, 1), (3, 1), (1, 0), (2, 0), (3, 0)] {
        let v = Craft::new("ext4-1k");
        let inos: Vec<u32> = small[..len].iter().map(|n| v.ino(n)).collect();
        for (i, ino) in inos.iter().enumerate() {
            let next = inos[(i + 1) % len];
            v.edit_ino(*ino, |b| {
                put32(b, 0x14, next);
                put16(b, 0x1A, links);
            });
        }
        v.edit_super(|b| put32(b, 0xE8, inos[0]));
        Case::new("circle of orphans", v)
            .focus(&inos)
            .says(&["orphan"])
            .finds(&[Finding::OrphanList, Finding::InodeDeletion])
            .prove();
    }
    for ino in [1, 2, 7, 8, 9, 11, 600, u32::MAX] {
        let v = Craft::new("ext4-1k");
        v.edit_super(|b| put32(b, 0xE8, ino));
        Case::new("orphan", v).focus(&[ino]).prove();
    }
    // An orphan file that names one inode over and over, and reserved ones.
    for ino in [2u32, 8, 12, 30, u32::MAX] {
        let v = Craft::new("dirty-orphanfile");
        let file = v
            .base
            .layout
            .targets
            .iter()
            .find(|t| t.kind == Kind::Orphans)
            .expect("an orphan file")
            .ino;
        for t in v.all(file, |k| k == Kind::Orphans) {
            v.edit(t, |b| {
                b[..1016].chunks_exact_mut(4).for_each(|w| w.copy_from_slice(&ino.to_le_bytes()))
            });
        }
        Case::new("orphan file", v).focus(&[ino]).prove();
    }
}
