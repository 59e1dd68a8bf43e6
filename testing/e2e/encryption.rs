//! Encrypted directories through mounts and through the commands for files, with their key.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use extol_testkit::{
    ExtolMount, Image, KernelMount, Need, Scratch, add_encryption_key, e2fsck, extol_ok, refused,
    require, run_extol, set_encryption_policy, text,
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
