//! Quota files whose tree does not lead to an entry that is there.

use extol::vfs::{FileSystem as _, SetAttr};
use extol::{Ext4, MountOptions};
use extol_check::Kind;
use extol_testkit::{Image, Need, Scratch, require};

use crate::cases::checked;
use crate::editor::{ImageEditor, Part, le32};

/// Owners: more than one block of entries holds, and two far from the others.
const OWNERS: [u32; 22] = {
    let mut all = [0; 22];
    let mut n = 0;
    while n < 20 {
        all[n] = n as u32;
        n += 1;
    }
    all[20] = 0x0102_0304;
    all[21] = 0x0102_0405;
    all
};
/// Blocks of a quota file are as long as those of the volume here; its second one is the root.
const BLOCK: usize = 1024;
const ROOT: usize = 1;
/// Levels of tables above the entries.
const LEVELS: usize = 4;

/// A volume with files of all owners.
fn volume(scratch: &Scratch) -> ImageEditor {
    let options = ["-t", "ext4", "-b", "1024", "-O", "quota"];
    let image = Image::mke2fs(scratch.path(), "quota.img", 16 << 20, &options);
    let fs = Ext4::open_path(&image.path, &MountOptions::default()).expect("open");
    for owner in OWNERS {
        let name = format!("/file of {owner}");
        fs.write_file(&name, vec![7; 1 + owner as usize % 5000]).expect("write");
        let ino = fs.inode(&name).expect("the file").ino();
        let owner = SetAttr { uid: Some(owner), gid: Some(owner), ..SetAttr::default() };
        fs.setattr(ino, &owner).expect("chown");
    }
    fs.unmount().expect("unmount");
    ImageEditor::new(image)
}

/// Where the blocks of each quota file are in the image.
fn files(v: &ImageEditor) -> Vec<Vec<usize>> {
    let mut files: Vec<Vec<usize>> = Vec::new();
    for part in &v.parts {
        let Part::Quota(_, is_first) = part else { continue };
        if *is_first {
            files.push(Vec::new());
        }
        files.last_mut().expect("a first block").push(v.range(*part).0);
    }
    files
}

/// Where the numbers in the tables of a file's tree are, with their levels.
fn pointers(v: &ImageEditor, file: &[usize]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut tables = vec![ROOT];
    for level in 0..LEVELS {
        let mut below = Vec::new();
        for table in tables {
            let at = file[table];
            let places = (at..at + BLOCK).step_by(4).filter(|at| le32(&v.bytes, *at) != 0);
            for place in places {
                found.push((level, place));
                below.push(le32(&v.bytes, place) as usize);
            }
        }
        below.dedup();
        tables = below;
    }
    found
}

/// e2fsck takes all entries of a block that it comes to, also those that no table leads to: Linux
/// does not find them.
#[test]
fn numbers_in_a_tree_that_are_gone() {
    if !require(&[Need::Tool("mke2fs"), Need::Tool("e2fsck"), Need::NewE2fsck]) {
        return;
    }
    let scratch = Scratch::in_memory();
    let mut v = volume(&scratch);
    assert_eq!(checked(&v.image, "undamaged").errors, 0);
    let files = files(&v);
    assert_eq!(files.len(), 2, "users and groups");
    let (mut accepted, mut common) = (0, 0);
    for file in &files {
        let pointers = pointers(&v, file);
        assert!(pointers.len() > OWNERS.len() + LEVELS, "{pointers:?}");
        for (level, place) in pointers {
            v.put32(place, 0);
            let report = checked(&v.image, &format!("level {level}, byte {place:#x}"));
            assert!(report.has(Kind::QuotaUsage), "{report}");
            let is_accepted = report.errors_of_e2fsck == 0;
            let says_so = report.to_string().contains("DAMAGED, though e2fsck accepts it");
            assert_eq!(is_accepted, says_so, "{report}");
            *(if is_accepted { &mut accepted } else { &mut common }) += 1;
            v.restore();
        }
    }
    assert!(accepted > 40 && common >= 6, "{accepted} accepted, {common} not");
    v.image.remove();
}
