//! Access control lists: their tie to the mode, and what new files get, compared with Linux.

use extol_ondisk::FileType;
use extol_ondisk::acl::{Acl, AclEntry, AclTag};
use extol_testkit::{KernelMount, require};
use extol_vfs::FsError;

use super::lab::{Lab, NEEDS_LINUX, remove};
use crate::node::Node;
use crate::xattr::{acl, drop_all};

fn list_of(entries: &[(AclTag, u16)]) -> Acl {
    Acl { entries: entries.iter().map(|&(tag, perm)| AclEntry { tag, perm }).collect() }
}

fn named() -> Acl {
    list_of(&[
        (AclTag::UserObj, 7),
        (AclTag::User(1234), 6),
        (AclTag::GroupObj, 5),
        (AclTag::Group(4321), 1),
        (AclTag::Mask, 6),
        (AclTag::Other, 4),
    ])
}

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

#[test]
fn access_lists_and_modes() {
    let lab = Lab::new(&["-t", "ext4", "-O", "^has_journal"]);
    let mut file = lab.node("f0");
    lab.set(&mut file, ACCESS, &named().to_xattr()).unwrap();
    assert_eq!(file.raw.mode & 0o777, 0o764);
    assert_eq!(lab.get(&file, ACCESS).unwrap(), named().to_xattr());
    file.raw.mode = file.raw.mode & !0o777 | 0o640;
    lab.change(&mut file, acl::chmod).unwrap();
    let after = Acl::from_xattr(&lab.get(&file, ACCESS).unwrap()).unwrap();
    assert_eq!(after.entries[4], AclEntry { tag: AclTag::Mask, perm: 4 });
    assert_eq!(after.entries[2], AclEntry { tag: AclTag::GroupObj, perm: 5 });
    assert_eq!(lab.set(&mut file, DEFAULT, &named().to_xattr()), Err(FsError::AccessDenied));
    assert!(matches!(lab.set(&mut file, ACCESS, &[2, 0, 0, 0, 1]), Err(FsError::Invalid(_))));
    let mut unordered = named();
    unordered.entries.swap(0, 1);
    assert!(matches!(lab.set(&mut file, ACCESS, &unordered.to_xattr()), Err(FsError::Invalid(_))));
    lab.fsck("lists");

    // A list that a mode can say is not stored.
    let minimal = list_of(&[(AclTag::UserObj, 6), (AclTag::GroupObj, 0), (AclTag::Other, 4)]);
    lab.set(&mut file, ACCESS, &minimal.to_xattr()).unwrap();
    assert_eq!((file.raw.mode & 0o777, lab.get(&file, ACCESS)), (0o604, Err(FsError::NoAttribute)));
    assert_eq!(
        lab.change(&mut file, |vol, h, node, values| remove(
            vol,
            h,
            node,
            values,
            ACCESS.as_bytes()
        )),
        Ok(())
    );
}

/// New files get from Linux what `inherit` says.
#[test]
fn inherited_as_from_linux() {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
    if !require(&NEEDS_LINUX) {
        return;
    }
    let lab = Lab::new(&["-t", "ext4", "-O", "^has_journal"]);
    let mut parent = lab.node("d");
    let minimal = list_of(&[(AclTag::UserObj, 7), (AclTag::GroupObj, 5), (AclTag::Other, 1)]);
    let modes = [0o777, 0o666, 0o640, 0o600, 0o755, 0o071];
    for list in [named(), minimal] {
        lab.set(&mut parent, DEFAULT, &list.to_xattr()).unwrap();
        lab.save();
        let image = lab.image.copy_as("inherit.img");
        let mount = KernelMount::mount(&image, &lab.scratch.dir("inherit"), &[]);
        for mode in modes {
            for is_dir in [false, true] {
                let path = mount.path().join(format!("d/{mode:o}{is_dir}"));
                let kind = if is_dir { FileType::Directory } else { FileType::Regular };
                if is_dir {
                    std::fs::DirBuilder::new().mode(mode.into()).create(&path).unwrap();
                } else {
                    std::fs::OpenOptions::new()
                        .write(true)
                        .create(true)
                        .mode(mode.into())
                        .open(&path)
                        .unwrap();
                }
                let ours = acl::inherit(&lab.vol, &parent, kind.mode_bits() | mode, 0o022).unwrap();
                let theirs = std::fs::metadata(&path).unwrap();
                assert_eq!(u32::from(ours.mode), theirs.mode(), "{list:?} {mode:o}");
                let mut node =
                    Node { ino: parent.ino, raw: extol_ondisk::Inode::new_empty(&lab.vol.geo) };
                node.raw.mode = ours.mode;
                lab.run_unwritten(&mut node, |vol, h, node, values| {
                    ours.store(vol, h, node, values)
                });
                for which in [ACCESS, DEFAULT] {
                    let mut buffer = [0; 256];
                    let theirs = rustix::fs::getxattr(&path, which, &mut buffer)
                        .ok()
                        .map(|n| buffer[..n].to_vec());
                    let same = lab.get(&node, which).ok() == theirs;
                    assert!(same, "{which} of {mode:o}, directory {is_dir}: {theirs:?}");
                }
                lab.run_unwritten(&mut node, drop_all);
            }
        }
        mount.unmount();
    }
    lab.fsck("default lists");
}
