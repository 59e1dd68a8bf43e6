//! Volumes of many kinds, with trees made by Linux and by Extol.

use std::path::Path;
use std::sync::Arc;

use extol::vfs::{
    Creds, EnableVerity, FileSystem as _, NewNode, SetAttr, VolumeControl as _, XattrSet,
};
use extol::{Ext4, FsError, MountOptions};
use extol_block::{MemDevice, SharedDevice};
use extol_testkit::{
    Image, KernelMount, Scratch, TreeSpec, add_encryption_key, make_tree, set_encryption_policy,
};

/// A kind of volume: name, size in MiB, arguments for mke2fs.
pub type Variant = (&'static str, u64, &'static [&'static str]);

/// The kinds.
pub const VARIANTS: &[Variant] = &[
    ("ext4-1k", 16, &["-t", "ext4", "-b", "1024"]),
    ("ext4-4k", 24, &["-t", "ext4", "-b", "4096"]),
    ("ext4-2k", 16, &["-t", "ext4", "-b", "2048"]),
    ("uninit-bg", 16, &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,uninit_bg"]),
    ("no-csum", 16, &["-t", "ext4", "-b", "4096", "-O", "^metadata_csum,^uninit_bg"]),
    ("orphan-file", 16, &["-t", "ext4", "-b", "1024", "-O", "orphan_file"]),
    ("orphan-file-no-csum", 16, &["-t", "ext4", "-b", "1024", "-O", "orphan_file,^metadata_csum"]),
    ("inline-1k", 16, &["-t", "ext4", "-b", "1024", "-O", "inline_data"]),
    ("inline-4k", 16, &["-t", "ext4", "-b", "4096", "-O", "inline_data", "-I", "512"]),
    ("no-journal", 12, &["-t", "ext4", "-b", "1024", "-O", "^has_journal"]),
    ("32bit", 16, &["-t", "ext4", "-b", "1024", "-O", "^64bit"]),
    ("block-maps", 16, &["-t", "ext4", "-b", "1024", "-O", "^64bit,^extents", "-I", "128"]),
    ("ext3-1k", 16, &["-t", "ext3", "-b", "1024"]),
    ("ext3-4k", 24, &["-t", "ext3", "-b", "4096"]),
    ("ext2-1k", 12, &["-t", "ext2", "-b", "1024"]),
    ("revision-0", 12, &["-t", "ext2", "-b", "1024", "-r", "0", "-O", "none"]),
    ("no-ext-attr", 12, &["-t", "ext2", "-b", "1024", "-I", "128", "-O", "^ext_attr"]),
    ("ext2-4k", 16, &["-t", "ext2", "-b", "4096"]),
    ("bigalloc", 32, &["-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "16384"]),
    ("bigalloc-1k", 24, &["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "8192"]),
    ("meta-bg", 16, &["-t", "ext4", "-b", "1024", "-g", "1024", "-O", "meta_bg,^resize_inode"]),
    ("no-flex", 16, &["-t", "ext4", "-b", "1024", "-O", "^flex_bg"]),
    ("small-groups", 16, &["-t", "ext4", "-b", "1024", "-g", "2048", "-G", "4"]),
    ("sparse2", 16, &["-t", "ext4", "-b", "1024", "-g", "2048", "-O", "sparse_super2"]),
    ("large-dir", 16, &["-t", "ext4", "-b", "1024", "-O", "large_dir"]),
    ("ea-inode", 16, &["-t", "ext4", "-b", "1024", "-O", "ea_inode"]),
    ("csum-seed", 16, &["-t", "ext4", "-b", "1024", "-O", "metadata_csum_seed"]),
    ("mmp", 16, &["-t", "ext4", "-b", "1024", "-O", "mmp"]),
    ("quota", 16, &["-t", "ext4", "-b", "1024", "-O", "quota,project"]),
    ("quota-values", 16, &["-t", "ext4", "-b", "1024", "-O", "quota,ea_inode"]),
    ("quota-clusters", 24, &["-t", "ext4", "-b", "1024", "-O", "quota,bigalloc", "-C", "4096"]),
    ("casefold", 16, &["-t", "ext4", "-b", "1024", "-O", "casefold"]),
    (
        "casefold-no-csum",
        16,
        &["-t", "ext4", "-b", "1024", "-O", "casefold,^metadata_csum,uninit_bg"],
    ),
    ("encrypt", 16, &["-t", "ext4", "-b", "4096", "-O", "encrypt"]),
    ("encrypt-no-csum", 16, &["-t", "ext4", "-b", "4096", "-O", "encrypt,^metadata_csum"]),
    ("shared-blocks", 16, &["-t", "ext4", "-b", "1024", "-O", "^has_journal"]),
    ("external-journal", 16, &["-t", "ext4", "-b", "1024", "-O", "has_journal"]),
    ("verity", 16, &["-t", "ext4", "-b", "1024", "-O", "verity"]),
    ("hurd", 16, &["-t", "ext2", "-b", "1024", "-o", "hurd"]),
    ("no-index", 16, &["-t", "ext4", "-b", "1024", "-O", "^dir_index"]),
    ("no-filetype", 16, &["-t", "ext4", "-b", "1024", "-O", "^filetype"]),
    (
        "no-sparse",
        16,
        &["-t", "ext4", "-b", "1024", "-g", "4096", "-O", "^sparse_super,^resize_inode"],
    ),
];

/// A variant by name.
pub fn variant(name: &str) -> Variant {
    *VARIANTS.iter().find(|v| v.0 == name).expect("a known variant")
}

/// An empty volume. The tables are left for later, as mke2fs does by default, for every second
/// kind.
pub fn empty(dir: &Path, (name, mib, args): Variant) -> Image {
    if name == "external-journal" {
        return Image::mke2fs_external(dir, "external", mib << 20, 4 << 20, 1024, args);
    }
    let lazy = name.len() % 2;
    let image = Image::sparse(dir.join(format!("{name}.img")), mib << 20);
    let mut command = extol_testkit::tool("mke2fs");
    let lazy = format!("lazy_itable_init={lazy},hash_seed=11111111-2222-3333-4444-555555555555");
    command.args(["-q", "-F", "-U", "6d1ab5fc-4cd0-4d07-8b1f-0a5b3b8b2c11", "-E", &lazy]);
    extol_testkit::run_ok(command.args(args).arg(&image.path));
    image
}

fn spec(name: &str, seed: u64) -> TreeSpec {
    TreeSpec {
        files: 50,
        wide: if name.ends_with("4k") { 250 } else { 120 },
        depth: 5,
        large: 700 << 10,
        sparse_to: 5 << 20,
        regrow: !name.starts_with("inline"),
        ..TreeSpec::small(seed)
    }
}

/// Fills a volume through Linux. False if Linux does not mount it.
pub fn fill_by_linux(scratch: &Scratch, image: &Image, (name, ..): Variant, seed: u64) -> bool {
    let dir = scratch.dir(&format!("mnt-{name}"));
    let Ok(mount) = KernelMount::try_mount(image, &dir, &["noinit_itable"]) else { return false };
    make_tree(mount.path(), &spec(name, seed));
    if name == "ea-inode" {
        for (n, len) in [1500usize, 3000, 9000].into_iter().enumerate() {
            let file = mount.path().join(format!("big-value-{n}"));
            std::fs::write(&file, b"x").expect("write");
            let value = vec![n as u8; len];
            rustix_setxattr(&file, &value);
        }
    }
    if name.starts_with("encrypt") {
        encrypted(mount.path());
    }
    // Fragments, so that extent trees get levels.
    let comb = mount.path().join("fragments");
    let file = std::fs::File::create(comb).expect("create");
    for n in 0..120u64 {
        use std::os::unix::fs::FileExt as _;
        file.write_all_at(b"tooth", n * 16_384).expect("write");
    }
    drop(file);
    mount.unmount();
    true
}

/// An encrypted tree.
fn encrypted(root: &Path) {
    let dir = root.join("secret");
    std::fs::create_dir(&dir).expect("mkdir");
    let key: Vec<u8> = (1..=64).collect();
    let identifier = add_encryption_key(root, None, &key);
    let policy: Vec<u8> = [2, 1, 4, 3, 0, 0, 0, 0].into_iter().chain(identifier).collect();
    set_encryption_policy(&dir, &policy).expect("a policy");
    for n in 0..60_usize {
        let file = dir.join(format!("file-{n}-{}", "n".repeat(n * 3)));
        std::fs::write(file, vec![n as u8; n * 700]).expect("write");
        let link = dir.join(format!("link-{n}"));
        std::os::unix::fs::symlink("t".repeat(1 + n * 40), link).expect("symlink");
    }
    let inner = dir.join("inner");
    std::fs::create_dir(&inner).expect("mkdir");
    std::fs::hard_link(dir.join("file-0-"), inner.join("linked")).expect("link");
}

fn rustix_setxattr(file: &Path, value: &[u8]) {
    let name = "user.large-value";
    let done = rustix::fs::setxattr(file, name, value, rustix::fs::XattrFlags::empty());
    done.expect("setxattr");
}

/// Fills a volume in memory through Extol. False if Extol does not mount it.
pub fn fill_by_extol(device: &SharedDevice, seed: u64) -> bool {
    let Ok(fs) = Ext4::open(Arc::clone(device), &MountOptions::default()) else { return false };
    let mut x = seed | 1;
    let mut random = |below: u64| {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x >> 33) % below
    };
    let must = "a step of Extol";
    for d in 0..6 {
        fs.create_dir_all(format!("/d{d}/inner")).expect(must);
        for f in 0..40 {
            let len = random(if f % 9 == 0 { 30_000 } else { 900 }) as usize;
            let name = format!("/d{d}/file-{f:03}-{}", "n".repeat(random(40) as usize));
            fs.write_file(&name, vec![f as u8; len]).expect(must);
            match random(8) {
                0 => fs.remove_file(&name).expect(must),
                1 => fs.rename_path(&name, format!("/d{d}/inner/moved{f}")).expect(must),
                2 => fs.hard_link(&name, format!("/d{d}/inner/link{f}")).expect(must),
                3 => {
                    let value = vec![b'v'; random(300) as usize];
                    fs.set_xattr(&name, "user.some", value, XattrSet::Any).expect(must);
                }
                _ => {}
            }
        }
    }
    fill_casefolded(&fs);
    fill_verified(&fs);
    let mut file = fs.create_file("/sparse").expect(must);
    for n in 0..60 {
        file.write_all_at(b"tooth", n * 12_288).expect(must);
    }
    std::io::Write::flush(&mut file).expect(must);
    drop(file);
    fs.symlink("d0/inner", "/short").expect(must);
    fs.symlink("x".repeat(300), "/long").expect(must);
    let owner = Creds { uid: 3, gid: 4 };
    fs.create_node("/pipe", NewNode::Fifo, 0o600, owner).expect(must);
    fs.remove_dir_all("/d5").expect(must);
    for n in 0..3u8 {
        let name = format!("/large value {n}");
        fs.write_file(&name, b"x").expect(must);
        // The same value in two files. Without ea_inode a small block has no room for it.
        let value = vec![n / 2; 3000];
        match fs.set_xattr(&name, "user.large", value, XattrSet::Any) {
            Ok(()) | Err(FsError::NoSpace) => {}
            Err(e) => panic!("{must}: {e}"),
        }
    }
    fs.unmount().expect(must);
    true
}

/// A directory with an index, if the volume can have a casefolded one.
fn fill_casefolded(fs: &Arc<Ext4>) {
    const CASEFOLD: u32 = 0x4000_0000;
    let must = "a step of Extol";
    fs.create_dir("/folded").expect(must);
    let ino = fs.inode("/folded").expect(must).ino();
    let flags = Some(fs.getattr(ino).expect(must).flags | CASEFOLD);
    if fs.setattr(ino, &SetAttr { flags, ..SetAttr::default() }).is_err() {
        return;
    }
    for n in 0..200 {
        fs.write_file(format!("/folded/Name Of A File {n}"), b"").expect(must);
    }
}

/// Files of fs-verity, if the volume has the feature.
fn fill_verified(fs: &Arc<Ext4>) {
    let must = "a step of Extol";
    for (n, len) in [0, 900, 70_000].into_iter().enumerate() {
        let name = format!("/verified{n}");
        fs.write_file(&name, vec![n as u8; len]).expect(must);
        let how = EnableVerity { algorithm: 1, block_size: 1024, ..EnableVerity::default() };
        let ino = fs.inode(&name).expect(must).ino();
        if fs.enable_verity(ino, &how).is_err() {
            fs.remove_file(&name).expect(must);
            break;
        }
    }
}

/// The bytes of an image as a device in memory.
pub fn in_memory(image: &Image) -> SharedDevice {
    Arc::new(MemDevice::from_bytes(&std::fs::read(&image.path).expect("read image")))
}
