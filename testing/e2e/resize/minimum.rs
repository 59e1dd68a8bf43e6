//! `--minimum` on volumes whose files and free space are in many pieces, against what
//! `resize2fs -M` makes of a copy.

use super::*;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

/// What is on a volume.
#[derive(Clone, Copy)]
enum Contents {
    /// Files whose blocks take turns, and the holes of those that were removed.
    Pieces,
    /// Unwritten extents between written blocks.
    Unwritten,
    /// A file with a hole behind every block, so that its map is large.
    Sparse,
}

use Contents::{Pieces, Sparse, Unwritten};

/// The block size in bytes, the volume in MiB, the options of mke2fs, and the contents.
const VOLUMES: [(usize, u64, &[&str], &[Contents]); 5] = [
    (1024, 96, &["-t", "ext4", "-O", "^flex_bg,^64bit"], &[Unwritten, Pieces]),
    (1024, 96, &["-t", "ext4"], &[Pieces, Sparse]),
    (2048, 96, &["-t", "ext4", "-O", "meta_bg,^resize_inode"], &[Unwritten, Pieces]),
    (4096, 128, &["-t", "ext4"], &[Pieces, Unwritten]),
    (1024, 96, &["-t", "ext3"], &[Sparse, Pieces]),
];

fn make(dir: &Path, block: usize, contents: Contents) {
    let bytes = vec![b'x'; block];
    let create = |name: &str| File::create(dir.join(name)).expect("create");
    match contents {
        Pieces => {
            let files = ["piece0", "piece1", "piece2", "piece3"].map(create);
            for at in 0..(6 << 20) / block / 4 {
                for file in &files {
                    file.write_all_at(&bytes, (at * block) as u64).expect("write");
                }
                // Blocks are taken when they are written back.
                if at % 16 == 15 {
                    files.iter().for_each(|file| file.sync_data().expect("sync"));
                }
            }
            for name in ["piece1", "piece3"] {
                std::fs::remove_file(dir.join(name)).expect("remove");
            }
        }
        Unwritten => {
            let file = create("unwritten");
            let bytes_of_file = 8 << 20;
            let path = dir.join("unwritten");
            run_ok(tool("fallocate").arg("-l").arg(bytes_of_file.to_string()).arg(&path));
            for at in (0..bytes_of_file / block).step_by(16) {
                file.write_all_at(&bytes, (at * block) as u64).expect("write");
            }
        }
        Sparse => {
            let file = create("sparse_file");
            for at in 0..(4 << 20) / block {
                file.write_all_at(&bytes, (2 * at * block) as u64).expect("write");
            }
        }
    }
    run_ok(tool("sync").arg("-f").arg(dir));
}

/// A volume whose files lie behind a hole.
fn volume(scratch: &Scratch, nr: usize) -> (Image, Tree) {
    let (block, mib, options, contents) = VOLUMES[nr];
    let size = block.to_string();
    let options = [options, &["-b", &size]].concat();
    let image = Image::mke2fs(scratch.path(), "a.img", mib << 20, &options);
    let dir = scratch.dir("mnt");
    let mount = KernelMount::mount(&image, &dir, &[]);
    let pad = mount.path().join("pad");
    std::fs::write(&pad, vec![b'p'; (mib as usize / 3) << 20]).expect("write");
    run_ok(tool("sync").arg("-f").arg(mount.path()));
    for contents in contents {
        make(mount.path(), block, *contents);
    }
    make_tree(mount.path(), &TreeSpec::small(nr as u64));
    std::fs::remove_file(&pad).expect("remove");
    mount.unmount();
    e2fsck(&image).assert_clean("as it is made");
    let tree = tree(scratch, &image);
    (image, tree)
}

fn tree(scratch: &Scratch, image: &Image) -> Tree {
    let mount = KernelMount::mount(image, &scratch.dir("mnt"), &["ro"]);
    let tree = Tree::of(mount.path());
    mount.unmount();
    tree
}

/// What `resize2fs -M` makes of a copy.
fn theirs(scratch: &Scratch, image: &Image) -> u64 {
    let path = scratch.path().join("theirs.img");
    run_ok(tool("cp").arg("--sparse=always").arg(&image.path).arg(&path));
    let copy = Image { path, journal: None };
    let before = blocks(&copy);
    run_ok(tool("resize2fs").args(["-f", "-M"]).arg(&copy.path));
    let blocks = blocks(&copy);
    assert!(blocks < before, "resize2fs did not make it smaller");
    blocks
}

/// The superblock and all groups, but for what a mount alone changes.
fn layout(image: &Image) -> String {
    let text = run_ok(tool("dumpe2fs").arg(&image.path));
    let mount = ["Mount count", "Last ", "Lifetime writes", "Checksum:", "Journal "];
    let kept = text.lines().filter(|line| !mount.iter().any(|start| line.starts_with(start)));
    kept.map(|line| format!("{line}\n")).collect()
}

#[derive(serde::Deserialize)]
struct Smallest {
    minimum: u64,
}

/// No more blocks than resize2fs needs; what is printed before is what is made; nothing is left to
/// do, or lost.
#[test]
fn minimum_of_volumes_in_pieces() {
    if !require(&NEEDS) || !require(&[Need::Tool("fallocate")]) {
        return;
    }
    for (nr, (block, _, options, _)) in VOLUMES.iter().enumerate() {
        let what = format!("{options:?}, blocks of {block}");
        let scratch = Scratch::new();
        let (image, before) = volume(&scratch, nr);
        let theirs = theirs(&scratch, &image);
        let said = run_ok(extol().args(["resize", "--print-minimum", "--json"]).arg(&image.path));
        let said: Smallest = serde_json::from_str(&said).expect("JSON");
        run_ok(extol().args(["resize", "--minimum"]).arg(&image.path));
        assert_eq!(blocks(&image), said.minimum, "{what}");
        assert!(said.minimum <= theirs, "{what}: {} of {theirs} blocks", said.minimum);
        assert_eq!(image.size(), said.minimum * *block as u64, "{what}");
        e2fsck(&image).assert_clean(&what);
        before.assert_same(&tree(&scratch, &image), "before", &what);
        let groups = layout(&image);
        let again = run_ok(extol().args(["resize", "--minimum"]).arg(&image.path));
        assert!(again.contains("nothing to do"), "{what}: {again}");
        assert_eq!(blocks(&image), said.minimum, "{what}");
        assert_eq!(layout(&image), groups, "{what}: was changed again");
        before.assert_same(&tree(&scratch, &image), "before", &what);
    }
}
