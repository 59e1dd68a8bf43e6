//! Inodes whose slots or links are not as they should be.

use std::sync::Arc;

use extol_block::{BlockDevice, MemDevice};
use extol_jbd2::Tid;

use extol_task::SystemClock;
use extol_vfs::{Creds, FileSystem, NewNode};

use super::Rig;
use crate::fast_commit::Tracker;
use crate::fast_commit::{Collected, Delta, Reason, SyncTarget};

/// Puts something into the slot of an inode that was never used.
fn scribble(dev: &MemDevice, rig: &Rig, ino: u32, at: usize, bytes: &[u8]) {
    let vol = &rig.fs.inner().vol;
    let (group, index) = vol.geo.group_of_inode(extol_ondisk::InodeNr(ino));
    let slot = u64::from(index) * u64::from(vol.geo.inode_size) + at as u64;
    let table = vol.alloc.inode_table(group).unwrap().offset(vol.geo.block_size);
    dev.write_at(bytes, table + slot).unwrap();
}

/// A file whose slot held that before.
fn victim(rig: &Rig, at: usize, bytes: &[u8]) -> u32 {
    let first = rig.file("first");
    // Far enough that its block of the table was not read.
    let ino = first + 40;
    scribble(&rig.dev, rig, ino, at, bytes);
    for i in first + 1..ino {
        rig.file(&format!("f{i}"));
    }
    let victim = rig.file("victim");
    assert_eq!(victim, ino, "inodes are handed out from the front");
    victim
}

#[test]
fn slots_with_remains() {
    for (at, bytes, all) in [
        (0x28, &[0x0A, 0xF3, 1, 0, 4, 0, 0, 0][..], false),
        (0xC0, &[1], false),
        (0x28, &[0x0A, 0xF3, 0, 0, 4, 0, 0, 0], false),
        (0x1A, &[1], true),
        (0, &[0, 0x80], true),
    ] {
        let rig = Rig::with(&["-E", "lazy_itable_init=1,nodiscard"], "noinit_itable");
        let victim = victim(&rig, at, bytes);
        let next = rig.file("next");
        let harmless = at == 0x28 && bytes[2] == 0;
        match (harmless, all) {
            (true, _) => assert_eq!(rig.records(victim), "INODE CREAT:victim INODE"),
            (false, false) => {
                assert_eq!(rig.ask(victim), Collected::Full(Reason::UsedSlot));
                assert_eq!(rig.records(next), "INODE CREAT:next INODE");
            }
            (false, true) => rig.refused(next, Reason::UsedSlot),
        }
    }
}

/// In a table that was zeroed, what was left in a slot concerns only the inode that gets it.
/// (With links it is no remains: that inode is in use, and not given away.)
#[test]
fn remains_in_a_zeroed_table() {
    let rig = Rig::with(&["-E", "lazy_itable_init=0,nodiscard"], "");
    let victim = victim(&rig, 0, &[0, 0x80]);
    let next = rig.file("next");
    assert_eq!(rig.ask(victim), Collected::Full(Reason::UsedSlot));
    assert_eq!(rig.records(next), "INODE CREAT:next INODE");
}

/// An image whose links are not those of its names would leave a wrong count, or an inode without a
/// name.
#[test]
fn links_that_no_name_explains() {
    let tracker = Tracker::new(Arc::new(SystemClock::new()));
    let told = |ino, links, born, was: Option<u32>, is: Option<u32>| {
        let image = vec![0; 160].into();
        let inode = Delta::Inode { ino, image, born, data: true, links };
        let name = Delta::Name { dir: 2, name: format!("n{ino}").into_bytes().into(), was, is };
        tracker.apply(Tid(7), vec![inode, name], true);
        tracker.collect(Tid(7), &[SyncTarget { ino, data_only: false }])
    };
    // A new one: two links and one name; and one that is as it should be.
    assert_eq!(told(12, 2, true, None, Some(12)), Collected::Full(Reason::Failed));
    assert!(matches!(told(13, 1, true, None, Some(13)), Collected::Records(_)));
    // An old one that had no name before.
    assert_eq!(told(14, 1, false, None, Some(14)), Collected::Full(Reason::Failed));
    assert!(matches!(told(15, 1, false, Some(15), None), Collected::Records(_)));
}

#[test]
fn a_number_that_changes_hands_within_a_transaction() {
    let rig = Rig::with(&["-N", "16"], "");
    let make = |n: usize| {
        let name = format!("f{n}");
        rig.fs.create(rig.root, name.as_bytes(), NewNode::Regular, 0o644, 0, Creds::default()).ok()
    };
    let files: Vec<u32> = (0..).map_while(make).map(|attr| attr.id.ino).collect();
    rig.commit();
    rig.fs.unlink(rig.root, b"f0").unwrap();
    rig.fs.forget(files[0], 1);
    let again = rig.file("again");
    assert_eq!(again, files[0]);
    rig.write(files[1], 0, 1);
    rig.refused(files[1], Reason::UsedSlot);
}
