//! Bitmaps that mark used blocks and inodes as free, with counts and checksums that agree: nothing
//! in use is handed out (AL-1).

use std::process::Command;
use std::sync::Arc;

use extol::vfs::{Creds, FileSystem as _, FsError, NewNode};
use extol::{Ext4, MountOptions};
use extol_block::MemDevice;
use extol_testkit::{Need, require};

const NEEDS: [Need; 3] = [Need::Tool("mke2fs"), Need::Tool("debugfs"), Need::Tool("e2fsck")];
/// With checksums and without.
const KINDS: [&[&str]; 3] = [
    &["-t", "ext4", "-O", "^orphan_file"],
    &["-t", "ext4", "-O", "^metadata_csum,^uninit_bg"],
    &["-t", "ext3", "-b", "1024"],
];

fn run(tool: &str, args: &[&str]) -> String {
    let out = Command::new(tool).args(args).output().unwrap();
    String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr)
}

struct Disk {
    _dir: tempfile::TempDir,
    path: String,
}

impl Disk {
    fn new(kind: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image").to_str().unwrap().to_owned();
        let args = [&["-q", "-F", "-N", "128", "-g", "2048"], kind, &[&path, "16M"]].concat();
        let said = run("mke2fs", &args);
        assert!(said.lines().all(|line| line.starts_with("Creating regular file")), "{said}");
        Self { _dir: dir, path }
    }

    fn debugfs(&self, requests: &[&str]) -> String {
        requests.iter().map(|request| run("debugfs", &["-w", "-R", request, &self.path])).collect()
    }

    /// Calls `work` with the volume, and keeps the image.
    fn with<T>(&self, work: impl FnOnce(&Arc<Ext4>) -> T) -> T {
        let dev = Arc::new(MemDevice::from_bytes(&std::fs::read(&self.path).unwrap()));
        let fs =
            Ext4::open(Arc::clone(&dev) as _, &MountOptions::parse("errors=continue").unwrap())
                .unwrap();
        let done = work(&fs);
        // (A skipped group may have had reserved space.)
        assert!(matches!(fs.unmount(), Ok(()) | Err(FsError::NoSpace)));
        std::fs::write(&self.path, dev.to_bytes()).unwrap();
        done
    }

    /// Block numbers in the output of debugfs.
    fn blocks(&self, file: &str) -> Vec<u64> {
        let text = self.debugfs(&[&format!("blocks {file}")]);
        let text =
            text.lines().filter(|line| !line.starts_with("debugfs")).collect::<Vec<_>>().join(" ");
        text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
    }
}

fn create(fs: &Ext4, name: &str, dir: bool) -> Result<u32, FsError> {
    let kind = if dir { NewNode::Directory } else { NewNode::Regular };
    fs.create(fs.root(), name.as_bytes(), kind, 0o755, 0, Creds::default()).map(|attr| attr.id.ino)
}

/// Creates files until no more fit: no inode is used twice, and the first error is that of the
/// bitmap and is reported.
fn use_all_inodes(fs: &Ext4, used: &[u32], dirs: bool, what: &str) {
    let mut given = Vec::new();
    let mut errors = Vec::new();
    for nr in 0..400 {
        match create(fs, &format!("new{nr}"), dirs) {
            Ok(ino) => given.push(ino),
            Err(e) => errors.push(e),
        }
    }
    for ino in &given {
        assert!(!used.contains(ino), "{what}: {ino} belongs to two files");
    }
    assert!(given.len() > 20, "{what}: the other groups are in use, not only {given:?}");
    let told = errors.iter().filter(|e| matches!(e, FsError::Corrupt { .. })).count();
    assert!(told > 0 && told < 5, "{what}: {told} times in {errors:?}");
    assert!(
        fs.first_error().is_some_and(|line| line.contains("inode")),
        "{what}: {:?}",
        fs.first_error()
    );
}

#[test]
fn an_inode_in_use_is_not_given_to_a_new_file() {
    if !require(&NEEDS) {
        return;
    }
    for (kind, dirs) in KINDS.iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        let disk = Disk::new(kind);
        let what = format!("{kind:?}, directories: {dirs}");
        let mine = disk.with(|fs| {
            fs.write_file("/kept", b"kept").unwrap();
            create(fs, "sub", true).unwrap()
        });
        let kept = disk.with(|fs| fs.lookup(fs.root(), b"kept").unwrap().id.ino);
        let used = [11, kept, mine];
        disk.debugfs(&used.map(|ino| format!("freei <{ino}>")).each_ref().map(String::as_str));
        disk.with(|fs| {
            use_all_inodes(fs, &used, dirs, &what);
            assert_eq!(fs.read_file("/kept").unwrap(), b"kept");
            assert_eq!(fs.lookup(fs.root(), b"lost+found").unwrap().id.ino, 11);
        });
        let sb = run("dumpe2fs", &["-h", &disk.path]);
        assert!(sb.contains("FS Error count") && sb.contains("clean with errors"), "{what}: {sb}");
        let repaired = run("e2fsck", &["-fy", &disk.path]);
        // The bits and their counts.
        let known = [
            "Pass ",
            "Fix? yes",
            "differences",
            "count wrong",
            "FILE SYSTEM WAS",
            " files (",
            "e2fsck 1",
        ];
        let odd = |line: &&str| !line.is_empty() && !known.iter().any(|known| line.contains(known));
        assert_eq!(repaired.lines().find(odd), None, "{what}: {repaired}");
        disk.with(|fs| assert_eq!(fs.read_file("/kept").unwrap(), b"kept"));
    }
}

/// A deleted file that is open has no links, but is in use.
#[test]
fn an_open_file_without_a_name_keeps_its_inode() {
    if !require(&NEEDS) {
        return;
    }
    for kind in KINDS {
        let disk = Disk::new(kind);
        disk.with(|fs| fs.write_file("/open", b"still here").unwrap());
        let ino = disk.with(|fs| fs.lookup(fs.root(), b"open").unwrap().id.ino);
        disk.debugfs(&[&format!("freei <{ino}>")]);
        disk.with(|fs| {
            let attr = fs.lookup(fs.root(), b"open").unwrap();
            fs.unlink(fs.root(), b"open").unwrap();
            use_all_inodes(fs, &[ino], false, &format!("{kind:?}"));
            let mut text = [0; 10];
            assert_eq!(fs.read(ino, 0, &mut text).unwrap(), 10);
            assert_eq!(&text, b"still here");
            fs.forget(attr.id.ino, 1);
        });
    }
}

/// The volume's own blocks: bitmaps, inode tables, descriptors, the journal.
#[test]
fn blocks_of_the_volume_itself_are_not_given_to_files() {
    if !require(&NEEDS) {
        return;
    }
    for kind in KINDS {
        let places = |disk: &Disk| {
            let text = run("dumpe2fs", &[&disk.path]);
            let number = |line: &str| {
                let after = line.split(" at ").nth(1)?;
                after.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok()
            };
            let named = |name: &str| {
                let lines = text.lines().filter(|line| line.trim_start().starts_with(name));
                lines.filter_map(number).nth(1).expect("a place of the second group")
            };
            let journal = disk.blocks("<8>");
            [
                ("block bitmap", named("Block bitmap")),
                ("inode table", named("Inode table at") + 1),
                ("descriptors", 1),
                ("journal", journal[journal.len() / 2]),
            ]
        };
        for (what, block) in places(&Disk::new(kind)) {
            let disk = Disk::new(kind);
            disk.debugfs(&[&format!("freeb {block}")]);
            disk.with(|fs| {
                let ino = create(fs, "file", false).unwrap();
                // (Some groups are skipped, with the reserved space in them.)
                for at in 0..20_000 {
                    if fs.write(ino, at * 4096, &[0xEE; 4096]).is_err() {
                        break;
                    }
                }
                let _ = fs.fsync(ino, false);
                let mut extents = fs.fiemap(ino, 0, u64::MAX).unwrap();
                extents.retain(|e| !e.delayed);
                let size = u64::from(fs.statfs().unwrap().block_size);
                let at = block * size;
                let hit =
                    extents.iter().find(|e| e.physical < at + size && at < e.physical + e.len);
                assert!(hit.is_none(), "{kind:?}: {what} {block} was given to a file");
                assert!(extents.iter().map(|e| e.len).sum::<u64>() > 1 << 20, "{kind:?}, {what}");
            });
        }
    }
}

/// A descriptor of the first group with the UNINIT flags.
#[test]
fn the_first_group_was_used() {
    if !require(&NEEDS) {
        return;
    }
    let disk = Disk::new(KINDS[0]);
    let said =
        disk.debugfs(&["set_bg 0 flags 7", "set_bg 0 itable_unused 16", "set_bg 0 checksum calc"]);
    assert!(!said.contains("invalid"), "{said}");
    disk.with(|fs| {
        fs.write_file("/file", [1; 100_000]).unwrap();
        assert_ne!(fs.lookup(fs.root(), b"file").unwrap().id.ino, 11);
        assert!(
            fs.first_error().is_some_and(|line| line.contains("never used")),
            "{:?}",
            fs.first_error()
        );
        assert_eq!(fs.lookup(fs.root(), b"lost+found").unwrap().id.ino, 11);
    });
}
