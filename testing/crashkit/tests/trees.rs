//! Why files with tree blocks are committed in full: e2fsck's replay of a range takes new tree
//! blocks where later records have data.

use extol::{Ext4, FileSystem as _};
use extol_block::{BlockDevice as _, MemDevice};
use extol_crashkit::outside::{load_all, save_all};
use extol_crashkit::tape::{Change, Tape};
use extol_crashkit::variant::Variant;
use extol_jbd2::planted::{Bug, set};
use extol_testkit::{Need, Scratch, e2fsck_fix, require};

const DATA: [u8; 4096] = [0xB0; 4096];

/// A file with a tree block, whose leaf has room, is appended to and synced; then a new file is.
/// Gives the volume as the last fsync left it, and how many of the two fsyncs were fast commits.
fn volume(variant: &Variant) -> (MemDevice, u64) {
    let base = variant.make().unwrap().into_devices().remove(0);
    let tape = Tape::new(vec![base.snapshot()]);
    let fs = Ext4::open(tape.device(0), &variant.load_options(None, false).unwrap()).unwrap();
    let torn = fs.create_file("torn").unwrap();
    for block in 0..8 {
        torn.write_at(&DATA, block * 2 * 4096).unwrap();
        torn.sync_all().unwrap();
    }
    // The holes around its first block are filled.
    for nr in 0..40 {
        fs.create_file(format!("fill{nr}")).unwrap().write_at(&DATA, 0).unwrap();
    }
    fs.sync().unwrap();
    // The first fsync behind that is a full commit.
    for name in ["a", "b", "c"] {
        fs.create_file(name).unwrap().sync_all().unwrap();
    }
    let before = fs.stats().journal.fast_commit.commits;
    torn.write_at(&DATA, 16 * 4096).unwrap();
    torn.sync_all().unwrap();
    let new = fs.create_file("new").unwrap();
    new.write_at(&DATA, 0).unwrap();
    new.sync_all().unwrap();
    let fast = fs.stats().journal.fast_commit.commits - before;
    for event in tape.finish().0 {
        match &event.change {
            Change::Write { offset, data } => base.write_at(data, *offset).unwrap(),
            Change::Zero { offset, len } => base.zero_range(*offset, *len).unwrap(),
            Change::Size(bytes) => base.set_size(*bytes).unwrap(),
            Change::Flush { .. } | Change::Settled { .. } => {}
        }
    }
    (base, fast)
}

/// What e2fsck had to repair, and what the new file holds then.
fn repaired(state: MemDevice, variant: &Variant) -> (Option<String>, Vec<u8>) {
    let dir = Scratch::in_memory();
    let image = save_all(&[state], dir.path(), "state").unwrap();
    let repairs = e2fsck_fix(&image).unexpected_repairs();
    let device = load_all(&image).unwrap().remove(0);
    let fs = Ext4::open(std::sync::Arc::new(device), &variant.recovery_options(None)).unwrap();
    (repairs, fs.read_file("new").unwrap())
}

#[test]
fn ranges_of_trees_would_cost_others_their_data() {
    if !require(&[Need::Tool("e2fsck")]) {
        return;
    }
    let variant = Variant::by_name("fc-4k").unwrap();
    let (state, fast) = volume(&variant);
    assert_eq!(fast, 1, "only that of the new file");
    let (repairs, new) = repaired(state, &variant);
    assert_eq!((repairs, new == DATA), (None, true));

    set(Some(Bug::TreesRecorded));
    let (state, fast) = volume(&variant);
    set(None);
    assert_eq!(fast, 2);
    let (repairs, new) = repaired(state, &variant);
    assert!(repairs.is_some(), "e2fsck finds nothing wrong");
    assert!(new != DATA, "acknowledged data outlives e2fsck's replay");
}
