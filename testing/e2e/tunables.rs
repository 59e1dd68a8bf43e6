//! Label and tunables of a mounted volume: what programs are told, the permission to set them, and
//! that they stay. Linux is asked the same.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use extol_testkit::{
    ExtolMount, Image, KernelMount, Need, Scratch, as_user, dump_super, e2fsck, raw_ioctl, require,
    run, run_extol, text, tool, without_capabilities,
};

const NEEDS: [Need; 6] = [
    Need::Root,
    Need::Fuse,
    Need::Loop,
    Need::Kernel("ext4"),
    Need::Tool("mke2fs"),
    Need::Tool("dumpe2fs"),
];

const GET_LABEL: u32 = 0x8100_9431;
const SET_LABEL: u32 = 0x4100_9432;
const GET_TUNE: u32 = 0x80e8_662d;
const SET_TUNE: u32 = 0x40e8_662e;

/// Lines of dumpe2fs that these ioctls change.
const SHOWN: [&str; 12] = [
    "Filesystem volume name",
    "Filesystem UUID",
    "Filesystem state",
    "Errors behavior",
    "Reserved block count",
    "Mount count",
    "Maximum mount count",
    "Check interval",
    "Reserved blocks uid",
    "Reserved blocks gid",
    "RAID stride",
    "Default mount options",
];

fn ask(dir: &Path, number: u32, argument: &mut [u8]) -> i32 {
    let root = File::open(dir).unwrap();
    raw_ioctl(&root, number, argument).map_or_else(|error| error.raw_os_error().unwrap(), |()| 0)
}

/// The label, up to the end that Linux fills.
fn label(dir: &Path) -> (i32, String) {
    let mut bytes = [0; 256];
    let done = ask(dir, GET_LABEL, &mut bytes);
    (done, String::from_utf8_lossy(&bytes[..17]).trim_end_matches('\0').to_owned())
}

fn set_label(dir: &Path, text: &str) -> i32 {
    let mut bytes = [0; 256];
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    ask(dir, SET_LABEL, &mut bytes)
}

/// `struct ext4_tune_sb_params` as it comes, without the masks of features that each can set.
fn tunables(dir: &Path) -> (i32, Vec<u8>) {
    let mut bytes = [0; 232];
    let done = ask(dir, GET_TUNE, &mut bytes);
    bytes[..4].fill(0);
    bytes[76..100].fill(0);
    (done, bytes.to_vec())
}

/// Sets fields of it: which, and for each its place and bytes.
fn set(dir: &Path, fields: u32, values: &[(usize, &[u8])]) -> i32 {
    let mut bytes = [0; 232];
    bytes[..4].copy_from_slice(&fields.to_ne_bytes());
    for (at, value) in values {
        bytes[*at..at + value.len()].copy_from_slice(value);
    }
    ask(dir, SET_TUNE, &mut bytes)
}

/// All that a program can ask for and change.
fn program(dir: &Path) -> Vec<String> {
    let mut said = Vec::new();
    let mut note =
        |what: &str, answer: &dyn std::fmt::Debug| said.push(format!("{what}: {answer:?}"));
    note("label", &label(dir));
    note("a new one", &set_label(dir, "renamed"));
    note("label", &label(dir));
    note("of 16 bytes", &set_label(dir, "0123456789abcdef"));
    note("label", &label(dir));
    note("of 17 bytes", &set_label(dir, "0123456789abcdefg"));
    note("label", &label(dir));
    as_user(1000, 1000, &[], 0o22, || {
        note("a user asks", &label(dir));
        note("a user sets", &set_label(dir, "mine"));
        note("a user tunes", &set(dir, 0x4, &[(12, &[9, 0])]));
    });
    without_capabilities(|| note("root without capabilities", &set_label(dir, "mine")));
    note("back", &set_label(dir, "kept"));

    note("tunables", &tunables(dir));
    note("errors", &set(dir, 0x1, &[(8, &[2, 0])]));
    note("wrong errors", &set(dir, 0x1, &[(8, &[4, 0])]));
    note("mounts", &set(dir, 0x2 | 0x4, &[(10, &[3, 0]), (12, &[77, 0])]));
    note("interval", &set(dir, 0x8, &[(4, &[0, 0x51, 1, 0])]));
    note("last check", &set(dir, 0x10, &[(16, &[0, 0, 0, 0x50, 0, 0, 0, 0])]));
    note("reserved blocks", &set(dir, 0x20, &[(24, &[0, 4, 0, 0, 0, 0, 0, 0])]));
    note("too many", &set(dir, 0x20, &[(24, &[0, 0, 0, 1, 0, 0, 0, 0])]));
    note("ids", &set(dir, 0x40 | 0x80, &[(44, &[5, 0, 0, 0]), (48, &[6, 0, 0, 0])]));
    note("default options", &set(dir, 0x100, &[(40, &[0x0c, 0, 0, 0])]));
    note("hash", &set(dir, 0x200, &[(60, &[2])]));
    note("wrong hash", &set(dir, 0x200, &[(60, &[9])]));
    note("stride", &set(dir, 0x400 | 0x800, &[(14, &[16, 0]), (52, &[64, 0, 0, 0])]));
    note("an unknown field", &set(dir, 0x8000_0000, &[]));
    note("an endless text", &set(dir, 0x1000, &[(100, &[b'x'; 64])]));
    // Last: Linux 6.18 overwrites this text with each request, whatever fields it names.
    note("mount options", &set(dir, 0x1000, &[(100, b"nodelalloc")]));
    note("tunables", &tunables(dir));
    said
}

fn shown(image: &Image) -> Vec<String> {
    let all = dump_super(image);
    all.lines()
        .filter(|line| SHOWN.iter().any(|name| line.starts_with(name)))
        .map(str::to_owned)
        .collect()
}

#[test]
fn label_and_tunables_are_those_of_linux() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("mnt");
    let image = Image::mke2fs(scratch.path(), "a.img", 64 << 20, &["-t", "ext4", "-L", "made"]);
    let copy = image.copy_as("linux.img");
    let linux = KernelMount::mount(&copy, &dir, &[]);
    if tunables(&dir).0 != 0 {
        println!("SKIP: this kernel has no EXT4_IOC_GET_TUNE_SB_PARAM");
        return linux.unmount();
    }
    let theirs = program(&dir);
    linux.unmount();
    let ours = ExtolMount::start(&image.path, &dir, &["allow_other"]);
    let here = program(&dir);
    for (theirs, here) in theirs.iter().zip(&here) {
        assert_eq!(theirs, here, "Linux, and here");
    }
    // A program that reads the device sees it already.
    let told = run(tool("e2label").arg(&image.path), Duration::from_secs(60));
    assert_eq!(told.output.trim(), "kept", "while it is mounted");
    ours.unmount();
    assert_eq!(shown(&image), shown(&copy));
    e2fsck(&image).assert_clean("at the end");
}

/// What dumpe2fs says after a name.
fn property(image: &Image, name: &str) -> String {
    let all = dump_super(image);
    let line = all.lines().find_map(|line| line.strip_prefix(name)).expect(name);
    line.trim_start_matches(':').trim().to_owned()
}

/// `extol tune` on a mount, and the refusals of what needs an unmount; then what it makes of the
/// volume, Linux mounts.
#[test]
fn tune_on_a_mount_and_off_it() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("mnt");
    let image = Image::mke2fs(scratch.path(), "a.img", 64 << 20, &["-t", "ext4"]);
    let mount = ExtolMount::start(&image.path, &dir, &["allow_other"]);
    std::fs::write(dir.join("file"), "contents").unwrap();
    let tune = |words: &[&str], at: &Path| run_extol(&[&["tune"], words, &[text(at)]].concat());
    let done =
        tune(&["-L", "a b", "-m", "1", "-o", "^acl,discard", "-c", "7", "-e", "panic"], &dir);
    assert!(done.success() && done.output.contains("label: none -> a b"), "{}", done.output);
    assert!(done.output.contains("default mount options: discard ^acl"), "{}", done.output);
    assert_eq!(label(&dir), (0, "a b".to_owned()));
    let again = tune(&["-L", "a b"], &dir);
    assert!(again.success() && again.output.contains("nothing to do"), "{}", again.output);
    for (words, why) in [
        (&["-O", "fast_commit"][..], "unmount it"),
        (&["-U", "random"], "unmount it"),
        (&["-r", "99999999"], "at most half"),
        (&["-L", "12345678901234567", "-r", "99999999"], "at most half"),
    ] {
        let refused = tune(words, &dir);
        assert!(!refused.success() && refused.output.contains(why), "{}", refused.output);
        let in_use = tune(words, &image.path);
        assert!(!in_use.success(), "the image is mounted: {}", in_use.output);
    }
    as_user(1000, 1000, &[], 0o22, || {
        let refused = tune(&["-L", "mine"], &dir);
        assert!(!refused.success(), "an ordinary user: {}", refused.output);
    });
    let cut = tune(&["-L", "averyveryverylonglabel", "-i", "1w"], &dir);
    assert!(cut.success() && cut.output.contains("cut to 'averyveryverylon'"), "{}", cut.output);
    assert!(cut.output.contains("check interval: none -> 1w"), "{}", cut.output);
    assert!(tune(&["-L", "a b"], &dir).success());
    mount.unmount();
    let same = tune(&["-O", "filetype,^casefold,sparse_super"], &image.path);
    assert!(same.success() && same.output.contains("nothing to do"), "{}", same.output);
    let other = tune(&["-O", "^extent"], &image.path);
    assert!(!other.success() && other.output.contains("a new volume"), "{}", other.output);
    assert_eq!(property(&image, "Filesystem volume name"), "a b");
    assert_eq!(property(&image, "Maximum mount count"), "7");
    assert_eq!(property(&image, "Errors behavior"), "Panic");

    let features = "orphan_file,fast_commit,large_dir";
    let features = if property(&image, "Filesystem features").contains("orphan_file") {
        "^orphan_file,fast_commit,large_dir"
    } else {
        features
    };
    let done = tune(&["--json", "-e", "continue", "-U", "random", "-O", features], &image.path);
    assert!(done.success() && done.output.contains("\"features\""), "{}", done.output);
    e2fsck(&image).assert_clean("tuned");
    let linux = KernelMount::mount(&image, &dir, &[]);
    assert_eq!(std::fs::read(dir.join("file")).unwrap(), b"contents");
    std::fs::write(dir.join("more"), "of Linux").unwrap();
    let foreign = tune(&["-L", "x"], &dir);
    assert!(!foreign.success() && foreign.output.contains("not on a volume"), "{}", foreign.output);
    linux.unmount();
    e2fsck(&image).assert_clean("after Linux");
    let mount = ExtolMount::start(&image.path, &dir, &[]);
    assert_eq!(std::fs::read(dir.join("more")).unwrap(), b"of Linux");
    mount.unmount();
    // A damaged volume keeps its features.
    let mut clear = tool("debugfs");
    clear.args(["-w", "-R", "clri file"]).arg(&image.path);
    assert!(run(&mut clear, Duration::from_secs(60)).success());
    let refused = tune(&["-O", "^fast_commit"], &image.path);
    assert!(!refused.success() && refused.output.contains("damaged"), "{}", refused.output);
    let listed = tune(&["-l"], &image.path);
    assert!(
        listed.success() && listed.output.contains("Filesystem volume name:   a b"),
        "{listed:?}"
    );
}

/// A volume gets a journal and loses it, by the options of tune2fs; `-l` names what is mounted on a
/// directory, by Extol or by Linux.
#[test]
fn a_journal_comes_and_goes() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("mnt");
    let image = Image::mke2fs(scratch.path(), "a.img", 64 << 20, &["-t", "ext2", "-L", "made"]);
    let tune = |words: &[&str], at: &Path| run_extol(&[&["tune"], words, &[text(at)]].concat());
    let none = tune(&["-l"], Path::new("/proc"));
    assert!(!none.success() && none.output.contains("no ext4 volume"), "{}", none.output);
    let linux = KernelMount::mount(&image, &dir, &[]);
    std::fs::write(dir.join("file"), "contents").unwrap();
    let listed = tune(&["-l"], &dir);
    assert!(listed.success() && listed.output.contains("volume name:   made"), "{listed:?}");
    linux.unmount();

    for (words, why) in [
        (&["-J", "size=9999"][..], "too full"),
        (&["-J", "device=/dev/null"], "the journal device /dev/null: "),
        (&["-J", "size=4", "-O", "^has_journal"], "one of the two"),
        (&["-I", "512"], "all inodes would move"),
        (&["-Q", "usrquota"], "give it one (-j)"),
    ] {
        let refused = tune(words, &image.path);
        assert!(!refused.success() && refused.output.contains(why), "{words:?}: {refused:?}");
    }
    let done = tune(&["-J", "size=4", "-O", "fast_commit,extent"], &image.path);
    assert!(done.success() && done.output.contains("has_journal"), "{}", done.output);
    e2fsck(&image).assert_clean("with a journal");
    assert_eq!(property(&image, "Journal inode"), "8");
    let mount = ExtolMount::start(&image.path, &dir, &["fast_commit"]);
    let listed = tune(&["-l"], &dir);
    assert!(listed.success() && listed.output.contains("has_journal"), "{}", listed.output);
    let live = tune(&["-O", "^has_journal"], &dir);
    assert!(!live.success() && live.output.contains("unmount it"), "{}", live.output);
    assert_eq!(std::fs::read(dir.join("file")).unwrap(), b"contents");
    mount.unmount();
    let again = tune(&["-J", "size=8"], &image.path);
    assert!(!again.success() && again.output.contains("a journal already"), "{}", again.output);

    let done = tune(&["-O", "^has_journal", "-c", "random"], &image.path);
    assert!(done.success() && done.output.contains("^has_journal"), "{}", done.output);
    assert!(done.output.contains("fast_commit goes with the journal"), "{}", done.output);
    e2fsck(&image).assert_clean("without a journal");
    let most: u32 = property(&image, "Maximum mount count").parse().unwrap();
    assert!((20..=40).contains(&most), "{most}");
    let linux = KernelMount::mount(&image, &dir, &[]);
    assert_eq!(std::fs::read(dir.join("file")).unwrap(), b"contents");
    linux.unmount();
    e2fsck(&image).assert_clean("after Linux");
}

/// A number from a row that a seed begins.
struct Row(u64);

impl Row {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) as usize % below
    }

    fn one<'w>(&mut self, words: &'w str) -> &'w str {
        let count = words.split(' ').count();
        words.split(' ').nth(self.next(count)).expect("a word")
    }

    /// Up to three of them with commas between.
    fn list(&mut self, words: &str) -> String {
        let count = 1 + self.next(3);
        (0..count).map(|_| self.one(words)).collect::<Vec<_>>().join(",")
    }

    /// Options of a tune, most of which can be.
    fn options(&mut self) -> Vec<String> {
        const FEATURES: &str = "dir_index ^dir_index ^dir_nlink extent ^extra_isize fast_commit \
            ^fast_commit flex_bg has_journal ^has_journal ^huge_file large_dir ^large_file \
            metadata_csum_seed ^metadata_csum_seed mmp orphan_file ^orphan_file project \
            ^resize_inode stable_inodes ^64bit casefold ^casefold read-only";
        const EXTENDED: &str = "encoding=utf8 encoding_flags=strict force_fsck hash_alg=tea \
            mmp_update_interval=7 stride=8 test_fs mount_opts=nodelalloc orphan_file_size=64k \
            orphan_file_size=9m mmp_update_interval=999";
        const JOURNAL: &str = "size=1 size=4 size=60 fast_commit_size=256 location=999999999";
        const PLAIN: &str = "-Llabel -Lx -Urandom -m5 -m60 -r99999999 -j -c5 -i1w -epanic -u7 -C9";
        let mut options = Vec::new();
        for _ in 0..=self.next(3) {
            options.push(match self.next(7) {
                0..3 => format!("-O{}", self.list(FEATURES)),
                3 => format!("-E{}", self.list(EXTENDED)),
                4 => format!("-J{}", self.list(JOURNAL)),
                5 => format!("-o{}", self.list("debug ^acl journal_data discard nobarrier")),
                _ => self.one(PLAIN).to_owned(),
            });
        }
        options
    }
}

/// What is refused has changed no byte, whatever is asked of whatever volume.
#[test]
fn a_refused_tune_writes_nothing() {
    if !require(&[Need::Tool("mke2fs"), Need::Tool("e2fsck")]) {
        return;
    }
    let scratch = Scratch::new();
    let tree = scratch.dir("tree");
    for number in 0..300 {
        std::fs::write(tree.join(format!("{}{number}", "name".repeat(20))), "x").unwrap();
    }
    let ballast = scratch.join("ballast");
    std::fs::write(&ballast, vec![1; 11 << 20]).unwrap();
    let mut volumes = Vec::new();
    for (name, args) in [
        ("ext2", &["-t", "ext2"][..]),
        ("ext3", &["-t", "ext3"]),
        ("without", &["-t", "ext4", "-b", "1024", "-O", "^has_journal"]),
        ("descriptors", &["-t", "ext4", "-O", "^metadata_csum,uninit_bg", "-J", "size=1"]),
        ("full", &["-t", "ext4", "-b", "1024", "-O", "fast_commit", "-J", "size=2"]),
    ] {
        let image = Image::mke2fs(scratch.path(), name, 16 << 20, args);
        assert!(run_extol(&["put", text(&image.path), text(&tree), "/"]).success());
        if name == "full" {
            assert!(run_extol(&["put", text(&image.path), text(&ballast), "/"]).success());
        }
        volumes.push((name, std::fs::read(&image.path).unwrap()));
    }
    let image = Image::existing(scratch.join("tuned"));
    let mut ended = [0, 0];
    for seed in 0..120 {
        let mut row = Row(seed);
        let options = row.options();
        let (name, before) = &volumes[row.next(volumes.len())];
        std::fs::write(&image.path, before).unwrap();
        let words: Vec<&str> = options.iter().map(String::as_str).collect();
        let done = run_extol(&[&["tune"], &words[..], &[text(&image.path)]].concat());
        ended[usize::from(done.success())] += 1;
        if done.success() {
            e2fsck(&image).assert_clean(&format!("seed {seed}: {name} {options:?}"));
        } else {
            let same = std::fs::read(&image.path).unwrap() == *before;
            assert!(same, "seed {seed}: {name} {options:?} was written to: {}", done.output);
        }
    }
    assert!(ended.iter().all(|count| *count > 20), "{ended:?}");
    // What only the open volume tells.
    for (volume, options, why) in [
        (0, &["-Jsize=60"][..], "too full"),
        (0, &["-Oextent,^dir_index"], "needs dir_index"),
        (2, &["-j", "-Jfast_commit_size=256"], "add -O fast_commit"),
        (4, &["-O^has_journal,^dir_index"], "needs dir_index"),
    ] {
        let (name, before) = &volumes[volume];
        std::fs::write(&image.path, before).unwrap();
        let refused = run_extol(&[&["tune"], options, &[text(&image.path)]].concat());
        assert!(!refused.success() && refused.output.contains(why), "{name}: {}", refused.output);
        assert!(std::fs::read(&image.path).unwrap() == *before, "{name} {options:?}");
    }
}
