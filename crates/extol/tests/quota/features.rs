//! Usage where a feature says what a file takes: clusters, and attribute values in inodes of their
//! own.

use extol::vfs::VolumeControl;

use super::*;

/// What `extol check` and e2fsck say, and the usage of users.
fn checked(dev: &Arc<MemDevice>, what: &str) -> BTreeMap<u32, (u64, u64)> {
    assert_clean(dev, what);
    let options = extol_check::CheckOptions::default();
    let report = extol_check::check(Arc::clone(dev) as _, &options, &mut |_| {}).unwrap();
    assert!(report.findings.is_empty(), "{what}: {:#?}", report.findings);
    used(dev, "user")
}

#[test]
fn a_file_uses_whole_clusters() {
    const CLUSTER: u64 = 8 << 10;
    let dev = image("32M", &["-t", "ext4", "-b", "1024", "-O", "quota,bigalloc", "-C", "8192"]);
    let fs = opened(&dev, "");
    let creds = Creds { uid: 10, gid: 20 };
    let ino = fs.create(ROOT, b"file", NewNode::Regular, 0o644, 0, creds).unwrap().id.ino;
    fs.write(ino, 5000, &[1; 10]).unwrap();
    fs.fsync(ino, false).unwrap();
    // Into the same cluster, and the third.
    fs.write(ino, 0, &[2; 10]).unwrap();
    fs.write(ino, 3 * CLUSTER - 1, &[3; 1]).unwrap();
    fs.unmount().unwrap();
    assert_eq!(checked(&dev, "two clusters")[&10], (2 * CLUSTER, 1));
    let fs = opened(&dev, "");
    fs.fallocate(ino, Fallocate::PunchHole, 4096, CLUSTER - 4096).unwrap();
    fs.sync().unwrap();
    fs.setattr(ino, &SetAttr { uid: Some(11), ..SetAttr::default() }).unwrap();
    fs.unmount().unwrap();
    let users = checked(&dev, "one half of a cluster is a hole");
    assert_eq!((users[&10], users[&11]), ((0, 0), (2 * CLUSTER, 1)));
    let fs = opened(&dev, "");
    fs.fallocate(ino, Fallocate::PunchHole, 0, CLUSTER).unwrap();
    fs.unmount().unwrap();
    assert_eq!(checked(&dev, "the first cluster is gone")[&11], (CLUSTER, 1));
}

#[test]
fn quota_files_of_a_volume_with_clusters_grow_inside_their_clusters() {
    for (block, cluster) in [("1024", "4096"), ("2048", "65536"), ("4096", "8192")] {
        let form = ["-t", "ext4", "-b", block, "-O", "quota,project,bigalloc", "-C", cluster];
        let dev = image("48M", &form);
        let fs = opened(&dev, "");
        for n in 0..500u32 {
            let creds = Creds { uid: n.wrapping_mul(0x0101_0101), gid: n };
            let name = format!("file {n}").into_bytes();
            fs.create(ROOT, &name, NewNode::Regular, 0o644, 0, creds).unwrap();
        }
        assert_eq!(fs.stats().journal.overdrafts, 0);
        fs.unmount().unwrap();
        assert_eq!(checked(&dev, cluster).len(), 500);
    }
}

#[test]
fn a_value_in_an_inode_is_paid_for_by_all_that_refer_to_it() {
    for form in ["quota,project,ea_inode", "quota,project,ea_inode,bigalloc"] {
        let dev = image("32M", &["-t", "ext4", "-b", "1024", "-O", form]);
        let cluster = if form.contains("bigalloc") { 16 << 10 } else { 1 << 10 };
        let value = vec![7; 20_000];
        let space = 20_000u64.next_multiple_of(cluster);
        let fs = opened(&dev, "");
        let inos = [1u32, 2, 2].into_iter().enumerate().map(|(n, uid)| {
            let name = format!("file{n}").into_bytes();
            let creds = Creds { uid, gid: 0 };
            let ino = fs.create(ROOT, &name, NewNode::Regular, 0o644, 0, creds).unwrap().id.ino;
            fs.setxattr(ino, b"user.large", &value, XattrSet::Any).unwrap();
            ino
        });
        let inos: Vec<u32> = inos.collect();
        fs.sync().unwrap();
        let seen = checked(&Arc::new(frozen(&fs, &dev)), "three files have it");
        assert_eq!((seen[&1], seen[&2]), ((space, 2), (2 * space, 4)), "{form}");
        fs.setattr(inos[1], &SetAttr { uid: Some(3), ..SetAttr::default() }).unwrap();
        let seen = checked(&Arc::new(frozen(&fs, &dev)), "one has another owner");
        assert_eq!((seen[&2], seen[&3]), ((space, 2), (space, 2)), "{form}");
        fs.setxattr(inos[0], b"user.large", b"short", XattrSet::Any).unwrap();
        fs.removexattr(inos[2], b"user.large").unwrap();
        let seen = checked(&Arc::new(frozen(&fs, &dev)), "one file has it");
        assert_eq!((seen[&1], seen[&2], seen[&3]), ((0, 1), (0, 1), (space, 2)), "{form}");
        fs.unlink(ROOT, b"file1").unwrap();
        inos.into_iter().for_each(|ino| fs.forget(ino, 1));
        assert_eq!(fs.stats().journal.overdrafts, 0);
        fs.unmount().unwrap();
        assert_eq!(checked(&dev, "no file has it")[&3], (0, 0), "{form}");
    }
}

/// What is on the device, with an empty log.
fn frozen(fs: &Ext4, dev: &MemDevice) -> MemDevice {
    fs.freeze().unwrap();
    let image = dev.snapshot();
    fs.thaw().unwrap();
    image
}

#[test]
fn a_new_file_pays_for_the_long_access_list_that_it_inherits() {
    let dev = image("32M", &["-t", "ext4", "-b", "1024", "-O", "quota,ea_inode"]);
    let list = crate::acl::of_many_users();
    let fs = opened(&dev, "");
    let creds = Creds { uid: 1, gid: 0 };
    let dir = fs.create(ROOT, b"dir", NewNode::Directory, 0o755, 0, creds).unwrap().id.ino;
    fs.setxattr(dir, b"system.posix_acl_default", &list, XattrSet::Any).unwrap();
    for (uid, kind) in [(2, NewNode::Regular), (3, NewNode::Directory)] {
        let name = format!("{uid}").into_bytes();
        let creds = Creds { uid, gid: 0 };
        let ino = fs.create(dir, &name, kind, 0o755, 0, creds).unwrap().id.ino;
        fs.forget(ino, 1);
    }
    let seen = checked(&Arc::new(frozen(&fs, &dev)), "inherited");
    assert_eq!([1, 2, 3].map(|uid| seen[&uid].1), [2, 2, 3], "{seen:?}");
    // The list changes with the mode, in the handle that changes the owner.
    let set = SetAttr { uid: Some(4), perm: Some(0o700), ..SetAttr::default() };
    let ino = fs.lookup(dir, b"2").unwrap().id.ino;
    fs.setattr(ino, &set).unwrap();
    fs.forget(ino, 1);
    let seen = checked(&Arc::new(frozen(&fs, &dev)), "and given away");
    assert_eq!([2, 4].map(|uid| seen[&uid].1), [0, 2], "{seen:?}");
    fs.unlink(dir, b"2").unwrap();
    fs.rmdir(dir, b"3").unwrap();
    fs.unmount().unwrap();
    let seen = checked(&dev, "and deleted");
    assert_eq!([1, 2, 3, 4].map(|uid| seen[&uid].1), [2, 0, 0, 0], "{seen:?}");
}
