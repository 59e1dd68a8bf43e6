//! Linux reads what Extol has enabled, and Extol what Linux has.

use super::*;
use extol_guest::Guest;
use std::fmt::Write as _;

const SIZES: [usize; 6] = [0, 1, 4096, 4097, 530_000, 1_500_001];

fn sum(contents: &[u8]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    std::fs::write(&path, contents).unwrap();
    let out = tool("md5sum").arg(&path).output().unwrap();
    String::from_utf8(out.stdout).unwrap()[..32].to_owned()
}

/// A file inside its inode, on the volume that has such. Linux 6.1 moves the contents to a block by
/// way of the journal, and reads the block from the device when it hashes: zeros.
fn is_inline(kind: usize, len: usize) -> bool {
    kind == 1 && len == 1
}

#[test]
fn linux_and_extol_read_each_others_files() {
    let needs = [Need::Guest, Need::Tool("fsverity"), Need::Tool("md5sum")];
    if !require(&needs) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (mut guest, mut script, mut wanted) = (Guest::new(), "set -e\n".to_owned(), Vec::new());
    // (Linux before 6.3 has blocks of the size of a page only.)
    let kinds: [&[&str]; 2] = [KINDS[0], &["-O", "verity,inline_data,fast_commit", "-b", "4096"]];
    for (k, kind) in kinds.iter().enumerate() {
        let dev = volume(kind);
        let fs = open(&dev, "");
        let block = fs.statfs().unwrap().block_size.min(4096);
        let drive = char::from(b'a' + k as u8);
        writeln!(script, "mount -t ext4 /dev/vd{drive} /mnt").unwrap();
        for (n, len) in SIZES.into_iter().enumerate() {
            let contents = bytes(len as u64, len);
            let with = how([SHA256, SHA512][n % 2], block, &bytes(3, n * 5)[..]);
            let ino = make(&fs, &format!("ours {n}"), &contents);
            let is_enabled_by_linux = !is_inline(k, len);
            if is_enabled_by_linux {
                make(&fs, &format!("theirs {n}"), &contents);
            }
            fs.enable_verity(ino, &with).unwrap();
            wanted.push(format!("{} ours", measured(&fs, ino)));
            wanted.push(format!("{} ours", sum(&contents)));
            writeln!(script, "measure 'ours {n}' ours").unwrap();
            if !is_enabled_by_linux {
                continue;
            }
            wanted.push(format!("{} theirs", expected(&contents, &with)));
            let salt = with.salt.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            let salt = if salt.is_empty() { salt } else { format!("--salt={salt}") };
            let name = ["sha256", "sha512"][n % 2];
            writeln!(
                script,
                "fsverity enable '/mnt/theirs {n}' --hash-alg={name} --block-size={block} {salt}"
            )
            .unwrap();
            wanted.push(format!("{} theirs", sum(&contents)));
            writeln!(script, "measure 'theirs {n}' theirs").unwrap();
        }
        writeln!(script, "(echo x >>'/mnt/ours 4') 2>/dev/null && echo appended").unwrap();
        writeln!(script, "umount /mnt").unwrap();
        fs.unmount().unwrap();
        let path = dir.path().join(format!("{k}.img"));
        std::fs::write(&path, dev.to_bytes()).unwrap();
        guest = guest.drive(&path);
    }
    let measure = "measure() {
        fsverity measure \"/mnt/$1\" | while read -r digest rest; do echo \"$digest $2\"; done
        md5sum <\"/mnt/$1\" | while read -r sum rest; do echo \"$sum $2\"; done
    }\n";
    let script = measure.to_owned() + &script.replace("&& echo appended", "&& exit 9 || true");
    let report = guest.program("fsverity").module("sha512_generic").run(&script);
    assert_eq!(report.lines(), wanted);
    for k in 0..kinds.len() {
        let path = dir.path().join(format!("{k}.img"));
        let dev = Arc::new(MemDevice::from_bytes(&std::fs::read(&path).unwrap()));
        assert_clean(&dev, "after the guest");
        let fs = open(&dev, "");
        for (n, len) in SIZES.into_iter().enumerate().filter(|(_, len)| !is_inline(k, *len)) {
            let of = |name: &str| fs.lookup(fs.root(), name.as_bytes()).unwrap().id.ino;
            let (ours, theirs) = (of(&format!("ours {n}")), of(&format!("theirs {n}")));
            assert_eq!(measured(&fs, theirs), measured(&fs, ours), "{len} bytes");
            assert!(read_all(&fs, theirs).unwrap() == bytes(len as u64, len), "{len} bytes");
            let blocks = |ino| fs.getattr(ino).unwrap().blocks;
            assert_eq!(blocks(theirs), blocks(ours), "{len} bytes");
        }
    }
}
