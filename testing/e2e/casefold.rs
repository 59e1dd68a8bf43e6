//! Casefolded directories on a mount, whose names the kernel remembers, and on Linux, in the guest.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use extol_guest::Guest;
use extol_testkit::{
    ExtolMount, Image, Need, Scratch, e2fsck, extol_ok, require, run_ok, text, tool,
};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

const NEEDS: [Need; 4] = [Need::Root, Need::Fuse, Need::Tool("chattr"), Need::Tool("e2fsck")];

/// A volume of ours with casefold.
fn volume(scratch: &Scratch, name: &str, size: u64) -> Image {
    let image = Image::sparse(scratch.join(name), size);
    extol_ok(&["mkfs", "-q", "-O", "casefold", text(&image.path)]);
    image
}

fn folding(mount: &ExtolMount, name: &str) -> PathBuf {
    let dir = mount.path().join(name);
    fs::create_dir(&dir).expect("mkdir");
    run_ok(tool("chattr").arg("+F").arg(&dir));
    dir
}

fn missing(path: &Path) -> bool {
    fs::metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

#[test]
fn the_kernel_remembers_no_wrong_name() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = volume(&scratch, "remembered.img", 64 << 20);
    let mount = ExtolMount::start(&image.path, &scratch.dir("mnt"), &[]);
    let d = mount.path().join("d");
    fs::create_dir(&d).expect("mkdir");
    assert!(missing(&d.join("foo")), "before the flag");
    run_ok(tool("chattr").arg("+F").arg(&d));
    fs::write(d.join("FOO"), "one").expect("write");
    assert_eq!(fs::read(d.join("foo")).expect("the missing name was remembered"), b"one");
    assert_eq!(fs::read(d.join("Foo")).expect("read"), b"one");
    fs::remove_file(d.join("fOO")).expect("unlink");
    for name in ["FOO", "foo", "Foo", "fOO"] {
        assert!(missing(&d.join(name)), "{name} was remembered");
    }
    // From a directory whose names are what they are.
    fs::write(mount.path().join("bar"), "two").expect("write");
    fs::rename(mount.path().join("bar"), d.join("bar")).expect("rename");
    fs::remove_file(d.join("BAR")).expect("unlink");
    assert!(missing(&d.join("bar")), "the name that was moved was remembered");
    // Directories, and what is below them.
    fs::create_dir_all(d.join("Sub/Deep")).expect("mkdir");
    fs::write(d.join("sub/deep/File"), "three").expect("write");
    assert_eq!(fs::read(d.join("SUB/DEEP/FILE")).expect("read"), b"three");
    assert_eq!(fs::read(d.join("Sub/Deep/File")).expect("read"), b"three");
    fs::rename(d.join("SUB"), d.join("other")).expect("rename");
    assert!(missing(&d.join("Sub")) && missing(&d.join("sub/deep")));
    assert_eq!(fs::read(d.join("OTHER/deep/file")).expect("read"), b"three");
    let taken = fs::create_dir(d.join("Other")).expect_err("the name is taken");
    assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
    mount.unmount();
    e2fsck(&image).assert_clean("after names in all spellings");
}

/// Names of all planes that differ when they are folded; some are malformed. Those that are cut
/// short have no hash for e2fsck.
fn names(seed: u64, count: usize, cut_short: bool) -> Vec<Vec<u8>> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut found = BTreeMap::new();
    while found.len() < count {
        let len = rng.random_range(1..20);
        let name: String = (0..len)
            .map(|_| match rng.random_range(0..6) {
                0 => rng.random_range('\u{A0}'..='\u{24F}'),
                1 => rng.random_range('\u{300}'..='\u{1FFF}'),
                2 => rng.random_range('가'..='힣'),
                3 => rng.random_range('\u{80}'..=char::MAX),
                _ => rng.random_range('0'..='z'),
            })
            .collect();
        let mut name = name.into_bytes();
        match rng.random_range(0..16) {
            0 => name.push(rng.random_range(0x80..0xC0)),
            1 => name.insert(0, rng.random_range(0x80..0xC0)),
            2 if cut_short => name.push(rng.random_range(0xC0..=0xFF)),
            _ => {}
        }
        let form = extol_casefold::fold(&name);
        let form = form.unwrap_or_else(|| name.clone());
        if !form.is_empty() && name != b"." && !name.contains(&b'/') && name.len() < 200 {
            found.entry(form).or_insert(name);
        }
    }
    found.into_values().collect()
}

/// Another spelling of a name.
fn respelled(name: &[u8]) -> Vec<u8> {
    match std::str::from_utf8(name) {
        Ok(text) => {
            let upper = text.to_uppercase();
            let other =
                if extol_casefold::equal(name, upper.as_bytes()) { upper } else { text.into() };
            format!("{other}\u{34F}").into_bytes()
        }
        Err(_) => name.to_vec(),
    }
}

fn list(names: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    names.into_iter().flat_map(|name| [name, vec![0]].concat()).collect()
}

fn path(dir: &Path, name: &[u8]) -> PathBuf {
    dir.join(OsStr::from_bytes(name))
}

/// Looks all names up in their directory as they are and in other spellings, and makes new ones.
const WORK: &str = "
set -e
work() {
    mount -t ext4 $1 /mnt
    cd /mnt/extol
    xargs -0 stat -c %i -- <$2/of-extol >/tmp/plain
    xargs -0 stat -c %i -- <$2/respelled >/tmp/respelled
    cmp /tmp/plain /tmp/respelled
    wc -l </tmp/plain
    mkdir /mnt/linux
    chattr +F /mnt/linux
    cd /mnt/linux
    xargs -0 touch -- <$2/of-linux
    cd /
    umount /mnt
}
work /dev/vda /all
work /dev/vdb /cut
";

/// A volume, and the names that Extol and Linux make on it.
struct Subject {
    image: Image,
    ours: Vec<Vec<u8>>,
    theirs: Vec<Vec<u8>>,
    cut_short: bool,
}

impl Subject {
    fn new(scratch: &Scratch, name: &str, count: usize, cut_short: bool) -> Self {
        let image = volume(scratch, name, (256 << 20).max(count as u64 * 40_960));
        let (ours, theirs) = (names(1, count, cut_short), names(2, count, cut_short));
        let mount = ExtolMount::start(&image.path, &scratch.dir("mnt"), &[]);
        let folded = folding(&mount, "extol");
        for name in &ours {
            fs::write(path(&folded, name), "").unwrap_or_else(|e| panic!("{name:?}: {e}"));
        }
        mount.unmount();
        let subject = Self { image, ours, theirs, cut_short };
        subject.check("names of Extol");
        subject
    }

    /// In the guest, with its names in this directory.
    fn add_to(&self, guest: Guest, dir: &str) -> Guest {
        let respelled = self.ours.iter().map(|name| respelled(name));
        guest
            .drive(&self.image.path)
            .file(&format!("{dir}/of-extol"), list(self.ours.clone()))
            .file(&format!("{dir}/respelled"), list(respelled))
            .file(&format!("{dir}/of-linux"), list(self.theirs.clone()))
    }

    fn check(&self, what: &str) {
        if !self.cut_short {
            e2fsck(&self.image).assert_clean(what);
        }
        let said = extol_ok(&["check", text(&self.image.path)]);
        assert!(said.contains("clean: 0 errors"), "{what}: {said}");
    }

    /// Finds and removes the names that Linux has made.
    fn use_names_of_linux(&self, scratch: &Scratch) {
        self.check("names of Linux");
        let mount = ExtolMount::start(&self.image.path, &scratch.dir("mnt"), &[]);
        let folded = mount.path().join("linux");
        let number = |name: &[u8]| fs::metadata(path(&folded, name)).map(|meta| meta.ino());
        for name in &self.theirs {
            let as_made = number(name).unwrap_or_else(|e| panic!("{name:?}: {e}"));
            assert_eq!(number(&respelled(name)).ok(), Some(as_made), "{name:?}");
        }
        for name in self.theirs.iter().step_by(2) {
            fs::remove_file(path(&folded, &respelled(name))).expect("unlink");
        }
        let left = fs::read_dir(&folded).expect("list").count();
        assert_eq!(left, self.theirs.len() / 2);
        mount.unmount();
        self.check("names of Linux removed");
    }
}

#[test]
fn extol_and_linux_find_each_others_names() {
    if !require(&NEEDS) || !require(&[Need::Guest]) {
        return;
    }
    let count = if std::env::var_os("EXTOL_LONG").is_some() { 100_000 } else { 10_000 };
    let scratch = Scratch::new();
    let all = Subject::new(&scratch, "all.img", count, false);
    let cut = Subject::new(&scratch, "cut.img", 1000, true);
    // (The xargs of busybox repeats parts of names.)
    let guest = all.add_to(Guest::new().program("chattr").program("xargs"), "/all");
    let report = cut.add_to(guest, "/cut").limit(Duration::from_secs(3600)).run(WORK);
    assert_eq!(report.lines(), [count.to_string(), "1000".to_owned()]);
    all.use_names_of_linux(&scratch);
    cut.use_names_of_linux(&scratch);
}

/// What is asked and done in a casefolded directory, with an ordinary one beside it. Each name is
/// asked for before it comes, as it is there, and behind it, so that a name that is remembered
/// wrongly shows.
const NAMES_COME_AND_GO: &str = r#"
look() {
    for name in "$@"; do
        if [ -e "$name" ]; then echo "$name: $(busybox cat "$name" 2>&1)"; else echo "$name: -"; fi
    done
    busybox ls | busybox sort | busybox tr '\n' ' '
    echo
}
try() { "$@" 2>/dev/null; echo "$1 $2: $?"; }
look foo FOO Foo
echo one >FOO
look foo FOO Foo
try busybox mv foo Foo
look foo FOO Foo
try busybox mv Foo between
look foo FOO Foo between BETWEEN
try busybox mv Between foo
look foo FOO Foo between BETWEEN
rm fOO
look foo FOO Foo
echo again >Foo
look foo FOO Foo
echo two >../plain/bar
look bar Bar BAR
try busybox mv ../plain/bar bar
look bar Bar BAR ../plain/bar
try busybox mv BAR ../plain/Bar
look bar Bar BAR ../plain/bar ../plain/Bar
look Sub/File sub/file
mkdir Sub
echo three >sub/File
look SUB/FILE Sub/File sub/file
try busybox mv SUB other
look SUB/FILE Sub/File sub/file other/FILE OTHER/file
try busybox mkdir Other
try busybox rmdir OTHER
try busybox ln oTHER/fILE Link
look LINK link Link other/file
rm other/FILE
look LINK other/file OTHER/File
try busybox rmdir OTHER
look Other other
echo new >../plain/x
echo old >Target
look TARGET target
try busybox mv ../plain/x tARGET
look Target TARGET target
soft=$(printf 'so\302\255ft')
look soft SOFT
echo ignored >"$soft"
[ -e soft ] && [ -e SOFT ] && [ -e "$soft" ] && echo all
rm Soft
[ -e soft ] || [ -e SOFT ] || [ -e "$soft" ] || echo none
small=$(printf 'x\377') large=$(printf 'X\377')
[ -e "$small" ] || [ -e "$large" ] || echo none
echo bytes >"$small"
[ -e "$small" ] && [ ! -e "$large" ] && echo one
rm "$small"
[ -e "$small" ] || echo none
"#;

#[test]
fn names_come_and_go_as_with_linux() {
    let tools = [Need::Tool("busybox"), Need::Guest];
    if !require(&NEEDS) || !require(&tools) {
        return;
    }
    let scratch = Scratch::new();
    let ours = volume(&scratch, "ours.img", 64 << 20);
    let mount = ExtolMount::start(&ours.path, &scratch.dir("mnt"), &[]);
    let d = folding(&mount, "d");
    fs::create_dir(mount.path().join("plain")).expect("mkdir");
    let here = run_ok(tool("sh").arg("-c").arg(NAMES_COME_AND_GO).current_dir(&d));
    mount.unmount();
    e2fsck(&ours).assert_clean("names came and went");

    let theirs = volume(&scratch, "theirs.img", 64 << 20);
    let enter = "mount -t ext4 /dev/vda /mnt\nmkdir /mnt/plain /mnt/d\nchattr +F /mnt/d\ncd /mnt/d";
    let script = format!("{enter}\n{NAMES_COME_AND_GO}\ncd /\numount /mnt\n");
    let there = Guest::new().program("chattr").drive(&theirs.path).run(&script);
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(lines(&here), lines(&there.output));
    assert!(here.contains("all\nnone\n") && here.contains("FOO: one"), "{here}");
}
