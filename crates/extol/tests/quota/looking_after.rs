//! What administrators do: report, limits and grace times, usage that is wrong.

use std::sync::Arc;

use extol::Ext4;
use extol::quotas::{Kind, Limits};
use extol::vfs::{Creds, FileSystem, FsError, NewNode};
use extol_block::MemDevice;

use crate::common::*;
use crate::{ROOT, opened, used, work};

fn worked() -> Arc<MemDevice> {
    let dev = image("16M", &["-t", "ext4", "-b", "1024", "-O", "quota,project"]);
    let fs = opened(&dev, "");
    work(&fs, 21, 300);
    fs.unmount().unwrap();
    dev
}

#[test]
fn a_report_says_what_debugfs_says() {
    let dev = worked();
    for options in ["ro", ""] {
        let fs = opened(&dev, options);
        let quotas = fs.quotas().unwrap();
        assert_eq!(quotas.iter().map(|quota| quota.kind).collect::<Vec<_>>(), Kind::ALL);
        for quota in quotas {
            assert_eq!((quota.space_grace, quota.inode_grace), (604_800, 604_800));
            let said = used(&dev, quota.kind.name());
            let ours = quota.entries.iter().map(|entry| (entry.id, (entry.space, entry.inodes)));
            assert_eq!(ours.collect::<std::collections::BTreeMap<_, _>>(), said, "{options}");
        }
    }
    let plain = image("16M", &["-t", "ext4"]);
    let why = opened(&plain, "").quotas().unwrap_err().to_string();
    assert!(why.contains("tune -O quota"), "{why}");
}

#[test]
fn limits_are_stored_with_new_ids_and_survive_a_power_cut() {
    let dev = worked();
    let fs = opened(&dev, "");
    let limits = Limits {
        space_soft: Some(1),
        space_hard: Some(u64::from(u32::MAX) + 5),
        inode_soft: Some(7),
        inode_hard: None,
    };
    let ids = [1, 4_000_000_001];
    fs.set_limits(Kind::User, &ids, limits).unwrap();
    fs.set_grace(Kind::User, None, Some(60)).unwrap();
    fs.crash();
    let fs = opened(&dev, "");
    let quota = fs.quotas().unwrap().remove(0);
    assert_eq!((quota.space_grace, quota.inode_grace), (604_800, 60));
    for id in ids {
        let entry = quota.entries.iter().find(|entry| entry.id == id).unwrap();
        assert_eq!((entry.space_soft, entry.inode_soft, entry.inode_hard), (1, 7, 0));
        assert_eq!(entry.space_hard, u64::from(u32::MAX) + 5);
        // The time of one that is exceeded already begins.
        assert_eq!(entry.space_time > 0, entry.space > 1024, "{entry:?}");
    }
    // Beyond what the format holds.
    let most = Limits { inode_hard: Some(u64::MAX), ..Limits::default() };
    assert!(fs.set_limits(Kind::User, &ids, most).is_err());
    assert_eq!(fs.quotas().unwrap().remove(0), quota);
    fs.unmount().unwrap();
    assert_clean(&dev, "with limits");
}

/// Changes what the file of users says about an id.
fn spoil(dev: &MemDevice, id: u32, by: u64) {
    let bytes = dev.to_bytes();
    let fs = Ext4::open(Arc::new(MemDevice::from_bytes(&bytes)), &read_only()).unwrap();
    let entry = fs.quotas().unwrap()[0].entries.iter().find(|entry| entry.id == id).copied();
    let entry = entry.unwrap();
    let mut pattern = id.to_le_bytes().to_vec();
    pattern.extend([0; 20]);
    pattern.extend(entry.inodes.to_le_bytes());
    pattern.extend([0; 16]);
    pattern.extend(entry.space.to_le_bytes());
    let found: Vec<usize> =
        (0..bytes.len() - pattern.len()).filter(|at| bytes[*at..].starts_with(&pattern)).collect();
    // (The one in the log, too, if there is one: nothing is replayed.)
    assert!(!found.is_empty(), "{entry:?}");
    for at in found {
        let wrong = (entry.space + by).to_le_bytes();
        extol_block::BlockDevice::write_at(dev, &wrong, (at + 48) as u64).unwrap();
    }
}

fn read_only() -> extol::MountOptions {
    extol::MountOptions::default().read_only()
}

#[test]
fn wrong_usage_is_found_and_set_right() {
    let dev = worked();
    let fs = opened(&dev, "");
    let creds = Creds { uid: 77, gid: 78 };
    fs.create(ROOT, b"of 77", NewNode::Directory, 0o755, 0, creds).unwrap();
    assert_eq!(fs.wrong_usage(), Ok(Vec::new()));
    fs.unmount().unwrap();
    spoil(&dev, 77, 5 << 10);
    assert_ne!(e2fsck(&dev).0, 0);
    let fs = opened(&dev, "ro");
    let wrong = fs.wrong_usage().unwrap();
    let [found] = wrong[..] else { panic!("{wrong:?}") };
    assert_eq!((found.kind, found.id), (Kind::User, 77));
    assert_eq!((found.stated, found.used), ((6 << 10, 1), (1 << 10, 1)));
    assert_eq!(fs.correct_usage(&wrong), Err(FsError::ReadOnly));
    drop(fs);
    let fs = opened(&dev, "");
    fs.correct_usage(&wrong).unwrap();
    assert_eq!(fs.wrong_usage(), Ok(Vec::new()));
    fs.crash();
    let fs = opened(&dev, "");
    assert_eq!(fs.wrong_usage(), Ok(Vec::new()));
    fs.unmount().unwrap();
    assert_clean(&dev, "set right");
}
