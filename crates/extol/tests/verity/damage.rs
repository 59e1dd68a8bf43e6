//! Damage is found at the read that meets it, and stops nothing else.

use super::*;
use extol_block::BlockDevice;

/// A volume with one file, and where the blocks of the file are: (byte of the file, of the device).
fn prepared(len: usize) -> (Arc<MemDevice>, Vec<(u64, u64)>) {
    let dev = volume(&["-O", "verity", "-b", "1024"]);
    let fs = open(&dev, "");
    let ino = make(&fs, "file", &bytes(1, len));
    fs.enable_verity(ino, &how(SHA512, 1024, b"salt")).unwrap();
    make(&fs, "other", b"other");
    let mut blocks = Vec::new();
    for extent in fs.fiemap(ino, 0, 1 << 40).unwrap() {
        for at in (0..extent.len).step_by(1024) {
            blocks.push((extent.logical + at, extent.physical + at));
        }
    }
    fs.unmount().unwrap();
    (dev, blocks)
}

fn flip(dev: &MemDevice, at: u64) {
    let mut byte = [0];
    dev.read_at(&mut byte, at).unwrap();
    dev.write_at(&[byte[0] ^ 0x20], at).unwrap();
}

/// Which blocks of the file cannot be read; what can be is right.
fn unreadable(dev: &Arc<MemDevice>, len: usize) -> Vec<usize> {
    let fs = open(dev, "");
    let contents = bytes(1, len);
    let ino = fs.lookup(fs.root(), b"file").unwrap().id.ino;
    let mut failed = Vec::new();
    for (nr, block) in contents.chunks(1024).enumerate() {
        let mut buf = vec![0xEE; 1024];
        match fs.read(ino, nr as u64 * 1024, &mut buf) {
            Ok(n) => assert!(buf[..n] == *block, "wrong bytes in block {nr}"),
            Err(FsError::Io(text)) => {
                assert!(text.contains("fs-verity"), "{text}");
                let given = &buf[..block.len()];
                assert!(given.iter().all(|byte| *byte == 0), "bytes that were not verified");
                failed.push(nr);
            }
            Err(e) => panic!("{e}"),
        }
    }
    // The volume is in order.
    make(&fs, "new", b"new");
    fs.unlink(fs.root(), b"new").unwrap();
    let other = fs.lookup(fs.root(), b"other").unwrap().id.ino;
    assert_eq!(read_all(&fs, other).unwrap(), b"other");
    fs.unmount().unwrap();
    failed
}

#[test]
fn one_flipped_bit_anywhere_is_found() {
    const LEN: usize = 40_500;
    let (dev, blocks) = prepared(LEN);
    assert_eq!(unreadable(&dev, LEN), Vec::<usize>::new());
    // 40 blocks; 3 leaves of 16 hashes, and the root; the descriptor.
    let data: Vec<_> = blocks.iter().filter(|(at, _)| *at < LEN as u64).collect();
    let tree: Vec<_> = blocks.iter().filter(|(at, _)| *at >= 65_536).collect();
    assert_eq!((data.len(), tree.len()), (40, 5));
    for (nr, (_, at)) in data.iter().enumerate() {
        let damaged = Arc::new(dev.snapshot());
        flip(&damaged, at + 100);
        assert_eq!(unreadable(&damaged, LEN), vec![nr]);
    }
    for (nr, below) in [(0, 0..40), (1, 0..16), (2, 16..32), (3, 32..40)] {
        let damaged = Arc::new(dev.snapshot());
        flip(&damaged, tree[nr].1 + 7);
        let found = unreadable(&damaged, LEN);
        let below: Vec<usize> = below.collect();
        // Of the root only the hash of the first leaf has changed, but all of it is hashed.
        assert_eq!(found, below, "block {nr} of the tree");
    }
    // Every field of the descriptor, and its length.
    for byte in [0, 1, 2, 3, 4, 8, 16, 80, 112, 255, 1021, 1022, 1023] {
        let damaged = Arc::new(dev.snapshot());
        flip(&damaged, tree[4].1 + byte);
        assert_eq!(unreadable(&damaged, LEN).len(), 40, "byte {byte}");
        let fs = open(&damaged, "");
        let ino = fs.lookup(fs.root(), b"file").unwrap().id.ino;
        let measured = fs.measure_verity(ino);
        // A wrong root hash or salt is another digest, which its reader compares.
        assert!(matches!(measured, Err(FsError::Io(_))) || byte == 16 || byte == 80, "{byte}");
    }
}

#[test]
fn an_empty_file_needs_a_descriptor_to_be_measured() {
    let dev = volume(KINDS[0]);
    let fs = open(&dev, "");
    let ino = make(&fs, "file", b"");
    fs.enable_verity(ino, &how(SHA256, 4096, b"")).unwrap();
    let extents = fs.fiemap(ino, 0, 1 << 40).unwrap();
    fs.unmount().unwrap();
    flip(&dev, extents[0].physical);
    let fs = open(&dev, "");
    let ino = fs.lookup(fs.root(), b"file").unwrap().id.ino;
    assert!(matches!(fs.measure_verity(ino), Err(FsError::Io(_))));
    assert_eq!(fs.read(ino, 0, &mut [0; 10]), Ok(0));
}

/// The flag on files that have nothing behind their end, in every form that a file may have.
#[test]
fn a_flag_without_a_tree_makes_a_file_unreadable() {
    for kind in [KINDS[0], KINDS[3], &["-O", "verity,^extents,^64bit"][..]] {
        let dev = volume(kind);
        let fs = open(&dev, "");
        let inos = [(0, "none"), (20, "tiny"), (5000, "small"), (70_000, "large")]
            .map(|(len, name)| (make(&fs, name, &bytes(1, len)), len));
        fs.unmount().unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("image");
        std::fs::write(&path, dev.to_bytes()).unwrap();
        for (ino, _) in inos {
            let shown = tool("debugfs").arg("-R").arg(format!("stat <{ino}>")).arg(&path).output();
            let shown = String::from_utf8(shown.unwrap().stdout).unwrap();
            let flags = shown.split("Flags: 0x").nth(1).unwrap().split_whitespace().next().unwrap();
            let flags = u32::from_str_radix(flags, 16).unwrap() | VERITY;
            let request = format!("set_inode_field <{ino}> flags 0x{flags:x}");
            let set = tool("debugfs").args(["-w", "-R", &request]).arg(&path).output().unwrap();
            assert!(set.status.success());
        }
        let dev = Arc::new(MemDevice::from_bytes(&std::fs::read(&path).unwrap()));
        let fs = open(&dev, "");
        for (ino, len) in inos {
            let read = fs.read(ino, 0, &mut [0; 100]);
            if len == 0 {
                assert_eq!(read, Ok(0));
            } else {
                assert!(matches!(&read, Err(FsError::Io(_))), "{kind:?}, {len}: {read:?}");
            }
            assert!(matches!(fs.measure_verity(ino), Err(FsError::Io(_))));
            assert_eq!(fs.write(ino, 0, b"x"), Err(FsError::NotPermitted));
        }
        for name in ["none", "tiny", "small", "large"] {
            fs.unlink(fs.root(), name.as_bytes()).unwrap();
        }
        fs.unmount().unwrap();
        assert_clean(&dev, "removed");
    }
}
