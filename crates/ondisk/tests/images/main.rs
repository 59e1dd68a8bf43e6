//! Volumes that mke2fs made, read by this crate: every checksum verifies, geometry agrees with
//! dumpe2fs, and what was decoded encodes to the same bytes.

mod checks;
mod image;
mod quota;

use checks::{check_dumpe2fs, check_groups, check_inodes, check_orphan_file_and_mmp, check_super};
use extol_ondisk::{
    Compat, FileType, Geometry, Incompat, Inode, InodeNr, Superblock, dirent, xattr,
};
use image::Image;
use std::path::PathBuf;
use std::process::Command;

struct Scratch {
    dir: tempfile::TempDir,
}

impl Scratch {
    fn new() -> Self {
        // In memory where that can be: mke2fs and debugfs sync each small image, and disks make
        // them wait for it.
        let memory = std::path::Path::new("/dev/shm");
        let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        Self { dir: dir.expect("temporary directory") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

fn run(program: &str, args: &[&str], ok: &[i32]) -> String {
    let out = Command::new(program)
        .args(args)
        .env("PATH", format!("{}:/sbin:/usr/sbin", std::env::var("PATH").unwrap_or_default()))
        .output()
        .unwrap_or_else(|e| panic!("{program} (package e2fsprogs) does not run: {e}"));
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let code = out.status.code().unwrap_or(-1);
    assert!(
        ok.contains(&code),
        "{program} {args:?}: {code}\n{text}\n{}",
        String::from_utf8_lossy(&out.stderr)
    );
    text
}

/// Makes an image with files, wide directories, links and attributes.
fn make(scratch: &Scratch, options: &[&str], size: &str) -> PathBuf {
    let image = scratch.path("image");
    let mut args = vec!["-q", "-F"];
    args.extend(options);
    let name = image.to_string_lossy().into_owned();
    args.extend([name.as_str(), size]);
    run("mke2fs", &args, &[0]);

    let small = scratch.path("small");
    std::fs::write(&small, b"0123456789 small contents\n").expect("write");
    let large = scratch.path("large");
    std::fs::write(&large, vec![0x5A; 700_000]).expect("write");
    let mut script = String::new();
    let (small, large) = (small.display(), large.display());
    script += "mkdir deep\ncd deep\nmkdir deeper\n";
    script += &format!("write {small} small\nwrite {large} large\nsymlink fast target\n");
    script += &format!("symlink slow {}\n", "x/".repeat(80));
    script += "mknod pipe p\nmknod disk b 8 17\nmknod far c 300 60000\n";
    script += "ea_set small user.note \"a value\"\nea_set small user.other \"and another one\"\n";
    script += &format!("ea_set large user.big \"{}\"\n", "v".repeat(400));
    script += "mkdir /wide\ncd /wide\n";
    for i in 0..400 {
        script += &format!(
            "mkdir entry_with_a_rather_long_name_to_fill_the_blocks_{i:04}_\u{e9}\u{f6}\n"
        );
    }
    let commands = scratch.path("commands");
    std::fs::write(&commands, script).expect("write");
    let commands = format!("-wf{}", commands.display());
    run("debugfs", &[&commands, &name], &[0]);
    // Sorts and indexes the directories; 1 means that it did.
    run("e2fsck", &["-fyD", &name], &[0, 1]);
    run("e2fsck", &["-fn", &name], &[0]);
    image
}

fn check(options: &[&str], size: &str) -> Image {
    let scratch = Scratch::new();
    let path = make(&scratch, options, size);
    let image = Image::load(&path);
    check_super(&image);
    check_groups(&image);
    check_dumpe2fs(&image, &path);
    let hashed = check_inodes(&image);
    let indexed = image.geo.compat().contains(Compat::DIR_INDEX);
    // One directory has enough entries to be hashed.
    if indexed && image.geo.block_len() <= 4096 {
        assert!(hashed > 0, "{options:?}");
    }
    check_orphan_file_and_mmp(&image);
    image
}

/// The file that the script wrote under this name in /deep.
fn deep_file(image: &Image, name: &str) -> (InodeNr, Inode) {
    let find = |dir: InodeNr, name: &str| {
        let inode = image.inode(dir);
        for (_, nr) in image.file_blocks(dir, &inode) {
            let area = &image.block(nr)[..dirent::area_len(&image.geo)];
            if let Ok(Some(hit)) = dirent::find(area, name.as_bytes()) {
                return hit.ino;
            }
        }
        panic!("{name} is missing");
    };
    let ino = find(find(InodeNr::ROOT, "deep"), name);
    (ino, image.inode(ino))
}

#[test]
fn old_layouts() {
    let image = check(&["-t", "ext2", "-b", "1024"], "24M");
    assert!(!image.geo.has_gdt_csum());
    check(&["-t", "ext2", "-b", "1024", "-r", "0"], "16M");
    check(&["-t", "ext2", "-b", "4096", "-O", "^sparse_super,^resize_inode", "-g", "1024"], "16M");
    check(&["-t", "ext3", "-b", "2048"], "40M");
    check(&["-t", "ext3", "-b", "1024", "-I", "128"], "40M");
}

#[test]
fn block_and_inode_sizes() {
    for bs in ["1024", "2048", "4096"] {
        for inode in ["128", "256", "512"] {
            let image = check(&["-t", "ext4", "-b", bs, "-I", inode], "40M");
            assert!(image.geo.has_metadata_csum());
            assert_eq!(image.geo.want_extra_isize, if inode == "128" { 0 } else { 32 });
        }
    }
    check(&["-t", "ext4", "-b", "65536", "-O", "^has_journal"], "64M");
    check(&["-t", "ext4", "-b", "1024", "-I", "1024"], "40M");
}

#[test]
fn descriptor_forms() {
    let image = check(&["-t", "ext4", "-b", "1024", "-O", "^64bit"], "48M");
    assert_eq!(image.geo.desc_size, 32);
    check(&["-t", "ext4", "-b", "1024", "-O", "^64bit,^metadata_csum,uninit_bg"], "48M");
    check(&["-t", "ext4", "-b", "1024", "-O", "64bit,^metadata_csum,uninit_bg"], "48M");
    check(&["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"], "48M");
    check(&["-t", "ext4", "-O", "metadata_csum_seed"], "40M");
    check(&["-t", "ext4", "-E", "desc_size=128"], "40M");
}

#[test]
fn layouts() {
    let image =
        check(&["-t", "ext4", "-b", "1024", "-O", "meta_bg,^resize_inode", "-g", "512"], "40M");
    assert!(image.geo.desc_blocks() > 2);
    check(&["-t", "ext4", "-b", "1024", "-O", "sparse_super2", "-g", "1024"], "40M");
    check(
        &["-t", "ext4", "-b", "1024", "-O", "sparse_super2", "-E", "num_backup_sb=1", "-g", "1024"],
        "40M",
    );
    check(
        &["-t", "ext4", "-b", "1024", "-O", "sparse_super2,meta_bg,^resize_inode", "-g", "512"],
        "40M",
    );
    check(&["-t", "ext4", "-b", "1024", "-O", "^flex_bg", "-g", "1024"], "40M");
    check(&["-t", "ext4", "-b", "1024", "-G", "4", "-g", "1024"], "40M");
    check(&["-t", "ext4", "-O", "bigalloc", "-C", "16384"], "48M");
    check(&["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "4096"], "48M");
}

#[test]
fn other_features() {
    check(&["-t", "ext4", "-O", "orphan_file"], "40M");
    check(&["-t", "ext4", "-O", "orphan_file,^metadata_csum"], "40M");
    check(&["-t", "ext4", "-O", "mmp"], "40M");
    check(&["-t", "ext4", "-O", "inline_data"], "40M");
    check(&["-t", "ext4", "-O", "large_dir,quota,project,ea_inode,verity"], "40M");
}

#[test]
fn contents_of_inodes() {
    let image = check(&["-t", "ext4", "-b", "1024"], "40M");
    assert_eq!(deep_file(&image, "disk").1.rdev(), (8, 17));
    assert_eq!(deep_file(&image, "far").1.rdev(), (300, 60000));
    assert_eq!(deep_file(&image, "disk").1.kind(), Some(FileType::BlockDevice));
    let (_, fast) = deep_file(&image, "fast");
    assert!(fast.is_fast_symlink());
    assert_eq!(&fast.i_block[..fast.size as usize], b"target");
    let (ino, slow) = deep_file(&image, "slow");
    assert!(!slow.is_fast_symlink() && slow.maps_blocks());
    let target = image.block(image.file_blocks(ino, &slow)[0].1);
    assert_eq!(&target[..160], "x/".repeat(80).as_bytes());
    let (ino, small) = deep_file(&image, "small");
    let attrs = image.xattrs(ino, &small);
    let value = |name: &[u8]| {
        attrs.iter().find(|e| e.is(xattr::index::USER, name)).map(|e| e.value.clone())
    };
    assert_eq!(value(b"note").as_deref(), Some(&b"a value"[..]));
    assert_eq!(value(b"other").as_deref(), Some(&b"and another one"[..]));
    let (ino, large) = deep_file(&image, "large");
    assert_ne!(large.file_acl, 0);
    assert_eq!(image.xattrs(ino, &large)[0].value, vec![b'v'; 400]);
}

#[test]
fn external_journal_superblock() {
    let scratch = Scratch::new();
    let path = scratch.path("journal");
    run(
        "mke2fs",
        &["-q", "-F", "-O", "journal_dev", "-b", "4096", &path.to_string_lossy(), "8M"],
        &[0],
    );
    let bytes = std::fs::read(&path).expect("image");
    let sb = Superblock::decode(&bytes[1024..2048]).expect("superblock");
    assert!(sb.feature_incompat.contains(Incompat::JOURNAL_DEV));
    assert!(Geometry::new(&sb, Some(bytes.len() as u64)).is_err());
}
