//! Limits that Extol sets, enforced by Linux; and the same refused by both at the same byte.

use extol::quotas::{Kind, Limits};
use extol::vfs::{Creds, FileSystem, NewNode};
use extol::{Ext4, MountOptions};
use extol_guest::{End, Guest};
use extol_testkit::{Image, Need, Scratch, e2fsck, require};

const USER: Creds = Creds { uid: 1000, gid: 1000 };

fn open(image: &Image) -> std::sync::Arc<Ext4> {
    Ext4::open_path(&image.path, &MountOptions::default()).unwrap()
}

#[test]
fn linux_enforces_the_limits_and_extol_reads_what_it_leaves() {
    if !require(&[Need::Guest, Need::Tool("mke2fs"), Need::Tool("setpriv")]) {
        return;
    }
    let scratch = Scratch::new();
    let args = ["-t", "ext4", "-b", "1024", "-O", "quota,project"];
    let image = Image::mke2fs(scratch.path(), "a.img", 16 << 20, &args);
    let fs = open(&image);
    let home = fs.create(fs.root(), b"home", NewNode::Directory, 0o755, 0, USER).unwrap();
    fs.forget(home.id.ino, 1);
    let limits = Limits {
        space_soft: Some(11),
        space_hard: Some(101),
        inode_soft: Some(3),
        inode_hard: Some(4),
    };
    fs.set_limits(Kind::User, &[1000], limits).unwrap();
    fs.unmount().unwrap();
    // (QEMU wants the image for itself.)
    drop(fs);
    let report = Guest::new()
        .drive(&image.path)
        .program("setpriv")
        .program("fallocate")
        .module("quota_v2")
        .try_run(
            "mount -t ext4 -o usrquota,grpquota,prjquota /dev/vda /mnt || exit 1
             cd /mnt/home
             as='setpriv --reuid 1000 --regid 1000 --clear-groups'
             # Preallocation exceeds a soft limit like any write.
             $as fallocate -l 40960 a && echo allocated
             $as dd if=/dev/zero of=b bs=1024 count=200 2>&1 | grep -o 'quota exceeded'
             sync
             stat -c '%n %b' a b
             $as touch c && echo made
             $as touch d 2>&1 | grep -o 'quota exceeded'
             touch of-root && chown 1000 of-root && echo root may
             true",
        )
        .unwrap();
    assert_eq!(report.end, End::Code(0), "{}\n{}", report.output, report.console);
    assert_eq!(
        report.lines(),
        ["allocated", "quota exceeded", "a 80", "b 120", "made", "quota exceeded", "root may"]
    );
    e2fsck(&image).assert_clean("after Linux");
    let fs = open(&image);
    assert_eq!(fs.wrong_usage(), Ok(Vec::new()));
    let quota = fs.quotas().unwrap().remove(0);
    let entry = quota.entries.iter().find(|entry| entry.id == 1000).unwrap();
    assert_eq!((entry.space, entry.inodes), (101 << 10, 5), "{entry:?}");
    assert_eq!((entry.space_hard, entry.inode_hard), (101, 4));
    assert!(entry.space_time > 0 && entry.inode_time > 0, "{entry:?}");
    fs.unmount().unwrap();
}
