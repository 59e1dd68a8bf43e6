//! Encrypted directories through mounts and through the commands for files, with their key.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, symlink};
use std::path::{Path, PathBuf};

use extol_testkit::{
    ExtolMount, Image, KernelMount, Need, Scratch, add_encryption_key, e2fsck, encryption_nonce,
    encryption_policy, extol, extol_ok, refused, require, run_extol, run_ok, set_encryption_policy,
    text, tool,
};

const NEEDS: [Need; 6] = [
    Need::Root,
    Need::Loop,
    Need::Fuse,
    Need::Kernel("ext4"),
    Need::Tool("mke2fs"),
    Need::Tool("e2fsck"),
];
/// Its bytes are text, so that they are found wherever they are shown.
const KEY: &[u8; 64] = b"the bytes of a key that no output of any command has in it......";
const ENOKEY: i32 = 126;
const EPERM: i32 = 1;

struct Lab {
    scratch: Scratch,
    image: Image,
    /// A file with the key.
    key: PathBuf,
}

impl Lab {
    /// A volume with an encrypted directory `dir` that has a file in it.
    fn new() -> Option<Self> {
        if !require(&NEEDS) {
            return None;
        }
        let scratch = Scratch::new();
        let options = ["-t", "ext4", "-b", "1024", "-I", "256", "-O", "encrypt"];
        let image = Image::mke2fs(scratch.path(), "encrypted.img", 32 << 20, &options);
        let key = scratch.path().join("the, key");
        fs::write(&key, KEY).unwrap();
        let lab = Self { scratch, image, key };
        lab.with_linux(|at| {
            let identifier = add_encryption_key(at, None, KEY);
            fs::create_dir(at.join("dir")).unwrap();
            let policy = [&[2, 1, 4, 3, 0, 0, 0, 0][..], &identifier].concat();
            set_encryption_policy(&at.join("dir"), &policy).unwrap();
            fs::write(at.join("dir/of Linux"), "by Linux").unwrap();
        });
        Some(lab)
    }

    fn with_linux(&self, work: impl FnOnce(&Path)) {
        let at = self.scratch.dir("linux");
        let mount = KernelMount::mount(&self.image, &at, &[]);
        add_encryption_key(&at, None, KEY);
        work(&at);
        mount.unmount();
    }

    fn image(&self) -> &str {
        text(&self.image.path)
    }

    /// The mount option.
    fn option(&self) -> String {
        format!("key={}", text(&self.key).replace(',', "\\,"))
    }
}

#[test]
fn a_mount_with_the_key_has_all_of_an_encrypted_directory() {
    let Some(lab) = Lab::new() else { return };
    let dir = lab.scratch.dir("mnt");
    let mount = ExtolMount::start(&lab.image.path, &dir, &[&lab.option(), "noatime"]);
    assert_eq!(fs::read_to_string(dir.join("dir/of Linux")).unwrap(), "by Linux");
    let large: Vec<u8> = (0..3_000_000_u32).map(|i| (i % 253) as u8).collect();
    fs::write(dir.join("dir/large"), &large).unwrap();
    assert!(fs::read(dir.join("dir/large")).unwrap() == large);
    fs::create_dir(dir.join("dir/sub")).unwrap();
    fs::rename(dir.join("dir/of Linux"), dir.join("dir/sub/moved")).unwrap();
    symlink("a target", dir.join("dir/link")).unwrap();
    fs::write(dir.join("plain"), "x").unwrap();
    let crossed = fs::rename(dir.join("plain"), dir.join("dir/plain")).unwrap_err();
    assert_eq!(crossed.raw_os_error(), Some(18), "EXDEV");
    // Nothing of the key is shown.
    let shown = [
        mount.log(),
        fs::read_to_string("/proc/mounts").unwrap(),
        extol_ok(&["stat", "--json", text(&dir)]),
    ];
    for shown in shown {
        assert!(!shown.contains("the bytes of a key"), "{shown}");
    }
    extol_ok(&["remount", "-o", "commit=9", text(&dir)]);
    mount.unmount();
    e2fsck(&lab.image).assert_clean("a mount with the key");
    lab.with_linux(|at| {
        assert!(fs::read(at.join("dir/large")).unwrap() == large);
        assert_eq!(fs::read_to_string(at.join("dir/sub/moved")).unwrap(), "by Linux");
        assert_eq!(fs::read_link(at.join("dir/link")).unwrap(), Path::new("a target"));
    });
}

/// A mount that was read-only has its keys when it becomes writable.
#[test]
fn a_key_stays_when_a_mount_becomes_writable() {
    let Some(lab) = Lab::new() else { return };
    let dir = lab.scratch.dir("mnt");
    let mount = ExtolMount::start(&lab.image.path, &dir, &[&lab.option(), "ro"]);
    assert_eq!(fs::read_to_string(dir.join("dir/of Linux")).unwrap(), "by Linux");
    extol_ok(&["remount", "-o", "rw", text(&dir)]);
    fs::write(dir.join("dir/new"), "new").unwrap();
    mount.unmount();
    lab.with_linux(|at| assert_eq!(fs::read_to_string(at.join("dir/new")).unwrap(), "new"));
}

#[test]
fn a_mount_without_the_key_shows_names_and_no_contents() {
    let Some(lab) = Lab::new() else { return };
    let dir = lab.scratch.dir("mnt");
    let mount = ExtolMount::start(&lab.image.path, &dir, &[]);
    let entries = fs::read_dir(dir.join("dir")).unwrap();
    let paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(paths.len(), 1);
    assert_ne!(paths[0].file_name().unwrap(), "of Linux");
    let refused = fs::File::open(&paths[0]).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(ENOKEY));
    let refused = fs::write(dir.join("dir/new"), "new").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(ENOKEY));
    mount.unmount();
}

#[test]
fn commands_for_files_take_the_key() {
    let Some(lab) = Lab::new() else { return };
    let (image, key) = (lab.image(), text(&lab.key));
    assert_eq!(extol_ok(&["ls", "--key", key, image, "/dir"]), "of Linux\n");
    assert_eq!(extol_ok(&["ls", "-o", &lab.option(), image, "/dir"]), "of Linux\n");
    assert_ne!(extol_ok(&["ls", image, "/dir"]), "of Linux\n");
    assert_eq!(extol_ok(&["cat", "--key", key, image, "/dir/of Linux"]), "by Linux");
    let here = lab.scratch.path().join("here");
    fs::write(&here, "from here").unwrap();
    extol_ok(&["put", "--key", key, image, text(&here), "/dir/put"]);
    extol_ok(&["mkdir", "--key", key, image, "/dir/sub"]);
    extol_ok(&["mv", "--key", key, image, "/dir/of Linux", "/dir/sub/moved"]);
    let out = lab.scratch.path().join("out");
    extol_ok(&["cp", "--key", key, image, "/dir", text(&out)]);
    assert_eq!(fs::read_to_string(out.join("put")).unwrap(), "from here");
    assert_eq!(fs::read_to_string(out.join("sub/moved")).unwrap(), "by Linux");
    let archive = lab.scratch.path().join("dir.tar");
    extol_ok(&["tar", "--key", key, "-f", text(&archive), image, "/dir"]);
    let archive = fs::read(&archive).unwrap();
    assert!(archive.windows(9).any(|bytes| bytes == b"from here"));
    e2fsck(&lab.image).assert_clean("commands with the key");
    lab.with_linux(|at| {
        assert_eq!(fs::read_to_string(at.join("dir/put")).unwrap(), "from here");
        assert_eq!(fs::read_to_string(at.join("dir/sub/moved")).unwrap(), "by Linux");
    });
    let bytes = fs::read(&lab.image.path).unwrap();
    assert!(!bytes.windows(9).any(|part| part == b"from here"), "it is in clear text");
}

/// On a volume of Extol's own, by its image and by a mount, and Linux uses both trees.
#[test]
fn directories_are_encrypted_by_command() {
    let Some(lab) = Lab::new() else { return };
    let (image, key) = (lab.image(), text(&lab.key));
    extol_ok(&["mkfs", "-q", "-F", "-O", "encrypt,stable_inodes", image]);
    extol_ok(&["mkdir", image, "/one"]);
    extol_ok(&["encrypt", "set-policy", "--key", key, "--iv-ino-lblk-64", image, "/one"]);
    extol_ok(&["encrypt", "set-policy", "--key", key, "--iv-ino-lblk-64", image, "/one"]);
    let again = run_extol(&["encrypt", "set-policy", "--key", key, image, "/one"]);
    assert!(!again.success() && again.output.contains("/one: file exists"), "{}", again.output);
    let nothing = run_extol(&["encrypt", "set-policy", "--key", key, image, "/"]);
    assert!(!nothing.success() && nothing.output.contains("not empty"), "{}", nothing.output);

    let dir = lab.scratch.dir("mnt");
    let (at, option) = (text(&dir), lab.option());
    let mount = ExtolMount::start(&lab.image.path, &dir, &[&option]);
    fs::create_dir(dir.join("two")).unwrap();
    symlink("/two", dir.join("link")).unwrap();
    let v1 = ["--descriptor", "0123456789abcdef", "--padding", "4"];
    extol_ok(&[&["encrypt", "set-policy"], &v1[..], &[at, "/link"]].concat());
    fs::create_dir(dir.join("three")).unwrap();
    extol_ok(&["encrypt", "set-policy", "--key", key, at, "three"]);
    fs::write(dir.join("three/file"), "by Extol").unwrap();
    let policies = extol_ok(&["encrypt", "get-policy", at, "/one", "/two", "/three/file"]);
    for words in ["/one: policy of version 2", "0123456789abcdef (it is not there)", "64 bits"] {
        assert!(policies.contains(words), "{policies}");
    }
    assert_eq!(encryption_nonce(&dir.join("three")).len(), 16);
    let plain = encryption_policy(&dir.join("three")).unwrap_err();
    assert_eq!(plain.raw_os_error(), Some(25), "ENOTTY");
    let full = run_extol(&["encrypt", "set-policy", "--key", key, at, "/"]);
    assert!(!full.success() && full.output.contains("not empty"), "{}", full.output);
    let outside = run_extol(&["encrypt", "get-policy", at, "/../../etc"]);
    assert!(!outside.success() && outside.output.contains("No such file"), "{}", outside.output);
    mount.unmount();
    e2fsck(&lab.image).assert_clean("encrypted by command");
    let json = extol_ok(&["encrypt", "get-policy", "--json", "--key", key, image, "/three"]);
    assert!(json.contains("\"has_key\": true") || json.contains("\"has_key\":true"), "{json}");
    lab.with_linux(|at| {
        fs::write(at.join("one/file"), "by Linux").unwrap();
        assert_eq!(fs::read_to_string(at.join("three/file")).unwrap(), "by Extol");
        assert_eq!(encryption_policy(&at.join("two")).unwrap()[..4], [0, 1, 4, 0]);
    });
    assert_eq!(extol_ok(&["cat", "--key", key, image, "/one/file"]), "by Linux");
}

/// A key comes and goes while the volume is mounted, as in Linux.
#[test]
fn keys_come_and_go_on_a_mount() {
    let Some(lab) = Lab::new() else { return };
    let dir = lab.scratch.dir("mnt");
    let (at, key) = (text(&dir), text(&lab.key));
    let mount = ExtolMount::start(&lab.image.path, &dir, &[]);
    let tree = dir.join("dir");
    let names = || -> Vec<_> {
        let entries = fs::read_dir(&tree).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let encrypted = names();
    assert_ne!(encrypted, ["of Linux"]);
    assert!(fs::metadata(tree.join("of Linux")).is_err(), "the kernel knows that it is missing");
    assert_eq!(extol_ok(&["key", "list", at]), "");
    let refused = run_extol(&["key", "remove", "--key", key, at]);
    assert!(!refused.success() && refused.output.contains("key is not available"));

    let name = extol_ok(&["key", "add", "--key", key, at]);
    assert_eq!(name.trim().len(), 32);
    assert!(extol_ok(&["key", "list", at]).starts_with(name.trim()));
    assert_eq!(names(), ["of Linux"]);
    assert_eq!(fs::read_to_string(tree.join("of Linux")).unwrap(), "by Linux");
    assert!(fs::metadata(tree.join(&encrypted[0])).is_err(), "its name without the key");
    fs::write(tree.join("closed"), "in the kernel's cache").unwrap();
    symlink("a rather long target of a link", tree.join("link")).unwrap();
    let mut open = fs::File::options().read(true).write(true).open(tree.join("of Linux")).unwrap();

    // One file is open.
    let busy = run_extol(&["key", "remove", "--key", key, at]);
    assert!(!busy.success() && busy.output.contains("1 file that is open"), "{}", busy.output);
    assert!(!names().iter().any(|name| name == "of Linux"));
    assert!(fs::read(tree.join("closed")).is_err());
    for name in names() {
        let path = tree.join(name);
        if path.symlink_metadata().unwrap().is_symlink() {
            let (target, len) = (fs::read_link(&path).unwrap(), path.symlink_metadata().unwrap());
            assert_ne!(target, Path::new("a rather long target of a link"));
            assert_eq!(len.len(), target.as_os_str().len() as u64, "the size of its no-key name");
        } else {
            let refused = fs::File::open(&path).map(drop).or_else(|e| match e.raw_os_error() {
                Some(ENOKEY) => Err(()),
                _ => Ok(()),
            });
            // (That of the open file can be opened once more, as in Linux.)
            let is_open = path.symlink_metadata().unwrap().len() == 8;
            assert_eq!(refused.is_err(), !is_open, "{}", path.display());
        }
    }
    assert!(fs::write(tree.join("new"), "x").is_err());
    let mut read = String::new();
    open.read_to_string(&mut read).unwrap();
    assert_eq!(read, "by Linux");
    open.write_all(b", and by Extol").unwrap();
    open.sync_all().unwrap();
    assert!(extol_ok(&["key", "list", at]).contains("taken away while 1 file had it open"));
    drop(open);
    extol_ok(&["key", "remove", at, name.trim()]);
    assert_eq!(extol_ok(&["key", "list", at]), "");
    for name in names() {
        assert!(fs::read(tree.join(name)).is_err());
    }

    // It is as before when the key comes again.
    extol_ok(&["key", "add", "--key", key, at]);
    assert_eq!(fs::read_to_string(tree.join("of Linux")).unwrap(), "by Linux, and by Extol");
    assert_eq!(fs::read_to_string(tree.join("closed")).unwrap(), "in the kernel's cache");
    let log = mount.log();
    assert!(!log.contains("the bytes of a key"), "{log}");
    mount.unmount();
    e2fsck(&lab.image).assert_clean("keys came and went");
    lab.with_linux(|at| {
        assert_eq!(fs::read_to_string(at.join("dir/of Linux")).unwrap(), "by Linux, and by Extol");
    });
}

/// More keys than one answer of the daemon has room for.
#[test]
fn a_mount_lists_any_number_of_keys() {
    let Some(lab) = Lab::new() else { return };
    let dir = lab.scratch.dir("mnt");
    let mount = ExtolMount::start(&lab.image.path, &dir, &[]);
    let mut add = extol();
    add.args(["key", "add"]);
    for nr in 0..300_u32 {
        let file = lab.scratch.path().join(format!("key {nr}"));
        fs::write(&file, nr.to_le_bytes().repeat(16)).unwrap();
        add.arg("--key").arg(file);
    }
    let added = run_ok(add.arg(&dir));
    let listed = extol_ok(&["key", "list", text(&dir)]);
    // (Each stands there for policies of both versions.)
    assert_eq!(listed.lines().count(), 600, "{listed}");
    assert!(added.lines().all(|name| listed.contains(name)));
    mount.unmount();
}

/// The daemon's memory has no byte of a key that was taken away.
#[test]
fn a_key_that_is_taken_away_is_not_in_the_daemons_memory() {
    let Some(lab) = Lab::new() else { return };
    let dir = lab.scratch.dir("mnt");
    let (at, key) = (text(&dir), text(&lab.key));
    let mount = ExtolMount::start(&lab.image.path, &dir, &[]);
    let digits: String = KEY[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    let found = || {
        let memory = memory(&dir);
        [&KEY[..16], digits.as_bytes()].map(|part| contains(&memory, part))
    };
    extol_ok(&["key", "add", "--key", key, at]);
    assert_eq!(fs::read_to_string(dir.join("dir/of Linux")).unwrap(), "by Linux");
    assert_eq!(found(), [true, false], "the key alone, and not the request that brought it");
    extol_ok(&["key", "remove", "--key", key, at]);
    assert_eq!(found(), [false, false]);
    mount.unmount();
}

/// True if the memory has these bytes. (Most of its pages were never used.)
fn contains(memory: &[Vec<u8>], part: &[u8]) -> bool {
    const PAGE: usize = 4096;
    let found = |area: &[u8], at: usize| {
        let page = &area[at..area.len().min(at + PAGE + part.len())];
        page.iter().any(|byte| *byte != 0) && page.windows(part.len()).any(|bytes| bytes == part)
    };
    memory.iter().any(|area| (0..area.len()).step_by(PAGE).any(|at| found(area, at)))
}

/// What the daemon of a mount has in memory that it can write.
fn memory(dir: &Path) -> Vec<Vec<u8>> {
    let mut pid = [0; 32];
    let len = rustix::fs::getxattr(dir, "user.extol.daemon", &mut pid[..]).unwrap();
    let pid = std::str::from_utf8(&pid[..len]).unwrap();
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let mem = fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    let areas = maps.lines().filter_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (from, to) = range.split_once('-')?;
        let number = |digits| u64::from_str_radix(digits, 16).ok();
        let (from, to) = (number(from)?, number(to)?);
        let mut bytes = vec![0; usize::try_from(to - from).ok()?];
        (rest.starts_with("rw") && mem.read_exact_at(&mut bytes, from).is_ok()).then_some(bytes)
    });
    areas.collect()
}

/// A plain file and a plain directory that got names in an encrypted directory by another program.
#[test]
fn what_does_not_belong_into_an_encrypted_directory_is_not_opened() {
    let Some(lab) = Lab::new() else { return };
    extol_ok(&["mkdir", lab.image(), "/plain"]);
    let here = lab.scratch.path().join("here");
    fs::write(&here, "in clear text").unwrap();
    extol_ok(&["put", lab.image(), text(&here), "/plain/file"]);
    for request in ["ln /plain /dir/sixteen-letters-", "ln /plain/file /dir/-srettel-neetxis"] {
        let said = run_ok(tool("debugfs").args(["-w", "-R", request]).arg(&lab.image.path));
        assert!(!said.contains("ln:"), "{said}");
    }
    let dir = lab.scratch.dir("mnt");
    let mount = ExtolMount::start(&lab.image.path, &dir, &["ro"]);
    let mut errors = Vec::new();
    // (A listing brings attributes with it, and the kernel keeps them.)
    for entry in fs::read_dir(dir.join("dir")).unwrap().map(Result::unwrap) {
        let seen = entry.path().symlink_metadata().is_ok();
        let opened = fs::File::open(entry.path()).err().and_then(|error| error.raw_os_error());
        errors.push((seen, opened));
    }
    errors.sort_unstable();
    let wanted = [(false, Some(EPERM)), (true, Some(EPERM)), (true, Some(ENOKEY))];
    assert_eq!(errors, wanted);
    mount.unmount();
    let mount = ExtolMount::start(&lab.image.path, &dir, &["ro"]);
    assert_eq!(fs::read_to_string(dir.join("plain/file")).unwrap(), "in clear text");
    mount.unmount();
}

#[test]
fn a_file_that_is_no_key_is_refused_in_one_line() {
    let Some(lab) = Lab::new() else { return };
    let image = lab.image();
    let bad = lab.scratch.path().join("bad");
    for (len, words) in [(15, "16 to 64"), (65, "more than 64 bytes")] {
        fs::write(&bad, vec![b'k'; len]).unwrap();
        refused(&["ls", "--key", text(&bad), image], 1, &["bad: ", words]);
        let dir = lab.scratch.dir("mnt");
        let option = format!("key={}", text(&bad));
        refused(&["mount", "-o", &option, image, text(&dir)], 1, &["bad: ", words]);
    }
    refused(&["ls", "--key", "/no/key", image], 32, &["/no/key: "]);
    // Another key is as good as none.
    fs::write(&bad, [b'k'; 64]).unwrap();
    let listed = run_extol(&["ls", "--key", text(&bad), image, "/dir"]);
    assert!(listed.success() && listed.output != "of Linux\n", "{}", listed.output);
}
