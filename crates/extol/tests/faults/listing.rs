//! A read that fails hides nothing but the names in its block, from a listing and from a search.

use std::collections::BTreeSet;
use std::sync::Arc;

use extol::device::{MemDevice, SharedDevice};
use extol::mkfs::{MkfsOptions, mkfs};
use extol::vfs::FsError;
use extol::{Ext4, MountOptions};

use crate::device::{Fault, Faulty, Kind};

const NAMES: usize = 200;
/// Names of 60 bytes in a block of 1024.
const IN_A_BLOCK: usize = 14;

fn volume(features: &str) -> MemDevice {
    let volume = Arc::new(MemDevice::new(5 << 20));
    let options = MkfsOptions {
        block_size: Some(1024),
        inodes: Some(288),
        features: vec![features.into()],
        ..MkfsOptions::default()
    };
    mkfs(&*volume, &options, &mut |_| {}).unwrap();
    let options = MountOptions::default().without_threads();
    let fs = Ext4::open(Arc::clone(&volume) as SharedDevice, &options).unwrap();
    fs.create_dir("/d").unwrap();
    (0..NAMES).for_each(|n| fs.write_file(format!("/d/{n:060}"), "").unwrap());
    fs.unmount().unwrap();
    volume.snapshot()
}

#[test]
fn unreadable_blocks_of_a_directory() {
    for features in ["^dir_index", "dir_index"] {
        let medium = volume(features);
        let mut lists_cut_short = 0;
        for nth in 0.. {
            let device = Faulty::new(medium.snapshot());
            let options = MountOptions::default().without_threads().read_only();
            let fs = Ext4::open(Arc::clone(&device) as SharedDevice, &options).unwrap();
            let dir = fs.read_dir("/d").unwrap();
            device.arm(Fault { kind: Kind::Read, nth, forever: false });
            let (mut names, mut error) = (BTreeSet::new(), None);
            for entry in dir {
                match entry {
                    Ok(entry) => assert!(names.insert(entry.file_name())),
                    Err(e) => error = Some(e),
                }
            }
            if !device.struck() {
                assert_eq!((names.len(), error), (NAMES, None));
                break;
            }
            // A read that failed once succeeds the second time, as when a linear search follows
            // the failed one in the index.
            assert!(matches!(error, Some(FsError::Io(_))), "{features}, read {nth}: {error:?}");
            assert!(
                names.len() + IN_A_BLOCK >= NAMES,
                "{features}, read {nth}: {} names",
                names.len()
            );
            lists_cut_short += usize::from(names.len() < NAMES);
            fs.unmount().unwrap();
        }
        assert!(lists_cut_short > 5, "{features}");
    }
}

/// A device that fails everywhere ends a listing.
#[test]
fn nothing_can_be_read() {
    let device = Faulty::new(volume("^dir_index"));
    let options = MountOptions::default().without_threads().read_only();
    let fs = Ext4::open(Arc::clone(&device) as SharedDevice, &options).unwrap();
    let dir = fs.read_dir("/d").unwrap();
    device.arm(Fault { kind: Kind::Read, nth: 0, forever: true });
    let all: Vec<_> = dir.collect();
    assert!(matches!(all[..], [Err(FsError::Io(_))]), "{} entries", all.len());
    assert!(matches!(fs.metadata(format!("/d/{:060}", 150)), Err(FsError::Io(_))));
}
