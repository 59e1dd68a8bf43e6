//! What is no ext4 volume is named, and the advice is right.

use crate::disk::Disk;
use crate::{MIB, failed};
use extol_testkit::{
    Finished, Image, LoopDevice, Need, Scratch, extol_ok, require, run_extol, run_ok, text, tool,
};
use std::path::{Path, PathBuf};

/// A program that makes something in a file, and what that is called.
struct Maker {
    /// The program, its arguments, and `FILE`, which stands for the file.
    line: &'static str,
    mib: u64,
    /// The word of blkid(8); empty if it has none.
    blkid: &'static str,
    said: &'static str,
}

const fn maker(line: &'static str, mib: u64, blkid: &'static str, said: &'static str) -> Maker {
    Maker { line, mib, blkid, said }
}

const MAKERS: &[Maker] = &[
    maker("mkfs.xfs -q -f FILE", 300, "xfs", "an XFS file system"),
    maker("mkfs.btrfs -q FILE", 128, "btrfs", "a btrfs file system"),
    maker("mkswap -q FILE", 8, "swap", "Linux swap space"),
    maker("mkswap -q -p 65536 FILE", 8, "swap", "Linux swap space"),
    maker("mkfs.vfat FILE", 16, "vfat", "a FAT file system"),
    maker("mkfs.vfat -F 32 FILE", 64, "vfat", "a FAT file system"),
    maker("mkntfs -q -F FILE", 16, "ntfs", "an NTFS file system"),
    maker("mkfs.f2fs -q FILE", 128, "f2fs", "an F2FS file system"),
    maker("mksquashfs /etc/hostname FILE -quiet -noappend", 0, "squashfs", "a squashfs"),
    maker("mkfs.minix -1 FILE", 1, "minix", "a MINIX file system"),
    maker("mkfs.minix -2 FILE", 1, "minix", "a MINIX file system"),
    maker("mkfs.minix -3 FILE", 8, "minix", "a MINIX file system"),
    maker("mkfs.nilfs2 -q FILE", 160, "nilfs2", "a NILFS2 file system"),
    maker("bzip2 -k FILE", 1, "", "a bzip2 file"),
    maker("tar -cf FILE /etc/hostname", 0, "", "a tar archive"),
];

/// The file that a maker has made.
fn make(maker: &Maker, dir: &Path) -> PathBuf {
    let file = dir.join("made");
    let _ = std::fs::remove_file(&file);
    if maker.mib > 0 {
        let made = std::fs::File::create(&file).expect("a file");
        made.set_len(maker.mib * MIB).expect("its size");
    }
    let mut words = maker.line.split(' ');
    let program = words.next().expect("a program");
    let mut command = tool(program);
    for word in words {
        if word == "FILE" {
            command.arg(&file)
        } else {
            command.arg(word)
        };
    }
    run_ok(&mut command);
    let packed = ["bz2"].map(|end| file.with_extension(end));
    packed.into_iter().find(|path| path.exists()).unwrap_or(file)
}

/// It is said what it is, nothing advises e2fsck, and nothing has written.
fn is_named(file: &Path, said: &str) {
    let before = std::fs::read(file).expect("read");
    let dir = file.with_extension("mnt");
    let _ = std::fs::create_dir(&dir);
    let name = text(file);
    let kept = |done: &Finished, code, word: &str| {
        failed(done, code, &[said, word]);
        assert!(!done.output.contains("e2fsck"), "{}", done.output);
        assert!(std::fs::read(file).expect("read") == before, "{said} was written to");
    };
    kept(&run_extol(&["info", name]), 32, "and not an ext2, ext3 or ext4 volume");
    kept(&run_extol(&["check", name]), 8, "and not an ext2, ext3 or ext4 volume");
    kept(&run_extol(&["put", name, "/etc/hostname", "/"]), 32, "and not an ext2");
    kept(&run_extol(&["replay", name]), 32, "and not an ext2");
    let done = run_extol(&["mount", name, text(&dir)]);
    kept(&done, 32, "and not an ext2, ext3 or ext4 volume");
    assert!(done.stderr.contains(name), "{}", done.output);
    kept(&run_extol(&["mkfs", "-q", name]), 32, "-F overwrites it");
    std::fs::remove_dir(&dir).expect("a directory");
}

#[test]
fn what_is_no_volume_is_named() {
    let scratch = Scratch::new();
    for maker in MAKERS {
        let program = maker.line.split(' ').next().expect("a program");
        if !require(&[Need::Tool(program), Need::Tool("blkid"), Need::Root, Need::Fuse]) {
            continue;
        }
        let made = make(maker, scratch.path());
        is_named(&made, maker.said);
        let blkid = extol_testkit::run(
            tool("blkid").args(["-p", "-o", "value", "-s", "TYPE"]).arg(&made),
            std::time::Duration::from_secs(20),
        );
        assert_eq!(blkid.output.trim(), maker.blkid, "{}", maker.line);
        std::fs::remove_file(made).expect("remove");
    }
}

/// Encrypted volumes and members of volume groups, which need their device.
#[test]
fn members_are_named() {
    let scratch = Scratch::new();
    if require(&[Need::Tool("cryptsetup"), Need::Root, Need::Fuse]) {
        for kind in ["luks1", "luks2"] {
            let image = Image::sparse(scratch.join("luks"), 32 * MIB);
            let key = scratch.join("key");
            std::fs::write(&key, "a key").expect("key");
            let mut make = tool("cryptsetup");
            make.args(["luksFormat", "-q", "--type", kind, "--pbkdf", "pbkdf2"]);
            make.args(["--pbkdf-force-iterations", "1000"]).arg(&image.path).arg(&key);
            run_ok(&mut make);
            is_named(&image.path, "a LUKS encrypted volume");
            let done = run_extol(&["info", text(&image.path)]);
            assert!(done.output.contains("cryptsetup open"), "{}", done.output);
            image.remove();
        }
    }
    if require(&[Need::Tool("pvcreate"), Need::Loop, Need::Root, Need::Fuse]) {
        let image = Image::sparse(scratch.join("lvm"), 32 * MIB);
        let device = LoopDevice::attach(&image.path);
        run_ok(
            tool("pvcreate").args(["-q", "-y", "--devices"]).arg(device.path()).arg(device.path()),
        );
        device.detach();
        is_named(&image.path, "an LVM physical volume");
    }
}

/// A file system made over an ext4 volume leaves copies of its superblock: they are no reason to
/// advise a repair. Where the volume itself is damaged they are, and the advice works.
#[test]
fn the_advice_is_right() {
    let tools = ["mke2fs", "mkfs.xfs", "e2fsck", "sfdisk"].map(Need::Tool);
    if !require(&[&tools[..], &[Need::Root, Need::Fuse]].concat()) {
        return;
    }
    let scratch = Scratch::new();
    let ext4 = ["-t", "ext4", "-b", "4096"];
    let image = Image::mke2fs(scratch.path(), "a.img", 320 * MIB, &ext4);
    run_ok(tool("mkfs.xfs").args(["-q", "-f", "-K"]).arg(&image.path));
    assert_eq!(image.read_at(32768 * 4096 + 0x38, 2), [0x53, 0xEF], "no copy is left");
    is_named(&image.path, "an XFS file system");

    let script = "label: gpt\nsize=40M\nsize=270M,name=root\n";
    let disk = Disk::new(&scratch, "it's \"a\" $disk.img", 320, script);
    let root = disk.part("root");
    extol_ok(&["mkfs", "-q", "-b", "4096", &root]);
    extol_ok(&["put", &root, "/etc/hostname", "/"]);
    let start = disk.places()[1].1;
    disk.image.write_at(start + 1024, &[0; 1024]);
    let said = run_extol(&["ls", &root]);
    failed(&said, 32, &["its superblock is damaged", "e2fsck -b 32768 -B 4096 "]);
    let line = said.stderr.split_once("e2fsck ").expect("a command").1;
    let line = format!("e2fsck -fy {line}");
    let repaired =
        extol_testkit::run(tool("bash").args(["-c", &line]), std::time::Duration::from_secs(60));
    assert_eq!(repaired.code, Some(1), "{line}: {}", repaired.output);
    extol_ok(&["check", &root]);
    assert!(extol_ok(&["ls", &root]).contains("hostname"));

    // What is left of partitions is no reason against it.
    let over = Disk::new(&scratch, "over.img", 160, "label: gpt\nsize=40M\n");
    run_ok(tool("mke2fs").args(["-q", "-F", "-t", "ext4", "-b", "4096", over.name()]));
    over.image.write_at(0, &[0; 4096]);
    failed(&run_extol(&["ls", over.name()]), 32, &["e2fsck -b 32768 -B 4096 "]);
    let zeros = Image::sparse(scratch.join("zeros"), 64 * MIB);
    let done = run_extol(&["info", text(&zeros.path)]);
    failed(&done, 32, &["nothing but zeros", "extol mkfs"]);
}
