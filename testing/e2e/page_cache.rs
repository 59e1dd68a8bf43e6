//! Data that is in the kernel's page cache alone: of shared mappings, and with a write-back cache
//! of every write. Programs that look for data find it, and what says that all is durable waits for
//! it.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use extol_testkit::{
    ExtolMount, Image, KernelMount, Need, Scratch, e2fsck, extol, require, run_ok, tool,
    while_mapped,
};
use rustix::fs::SeekFrom;

const NEEDS: [Need; 7] = [
    Need::Root,
    Need::Loop,
    Need::Fuse,
    Need::Kernel("ext4"),
    Need::Tool("mke2fs"),
    Need::Tool("e2fsck"),
    Need::Tool("tar"),
];
const MIB: u64 = 1 << 20;
const AT: u64 = 262_144;
/// The ways in which Extol's mounts use the page cache and get requests.
const MODES: [&[&str]; 4] =
    [&[], &["noio_uring"], &["writeback_cache"], &["writeback_cache", "noio_uring"]];

/// A file of 1 MiB without blocks.
fn hole(path: &Path) -> OwnedFd {
    let file = File::options().read(true).write(true).create_new(true).open(path).expect("create");
    file.set_len(MIB).expect("set its size");
    file.into()
}

/// The expected contents of a file: zeros but for these bytes.
fn expected(bytes: &[u8]) -> Vec<u8> {
    let mut all = vec![0; MIB as usize];
    all[AT as usize..AT as usize + bytes.len()].copy_from_slice(bytes);
    all
}

/// A program that copies one file.
type Copy = fn(&Path, &Path) -> Command;

fn cp(sparse: &str, from: &Path, to: &Path) -> Command {
    let mut command = tool("cp");
    command.arg(format!("--sparse={sparse}")).args([from, to]);
    command
}

/// By way of an archive, which tar makes with holes.
fn by_tar(from: &Path, to: &Path) -> Command {
    let mut command = tool("sh");
    let script = "tar -C \"$1\" -Scf - \"$2\" | tar -xOf - >\"$3\"";
    command.args(["-c", script, "sh"]).arg(from.parent().expect("a directory"));
    command.arg(from.file_name().expect("a name")).arg(to);
    command
}

fn look_while_mapped(dir: &Path, out: &Path, what: &str) {
    let copies: [(&str, Copy); 4] = [
        ("cp", |from, to| cp("auto", from, to)),
        ("cp --sparse=never", |from, to| cp("never", from, to)),
        ("cp --sparse=always", |from, to| cp("always", from, to)),
        ("tar -S", by_tar),
    ];
    for (n, (name, copy)) in copies.into_iter().enumerate() {
        let (from, to) = (dir.join(format!("from{n}")), out.join(format!("{n}")));
        while_mapped(hole(&from), AT, b"hello", || run_ok(&mut copy(&from, &to))).expect("map");
        assert!(std::fs::read(&to).expect("the copy") == expected(b"hello"), "{what}: {name}");
        std::fs::remove_file(&to).expect("remove the copy");
    }
    let path = dir.join("sought");
    let file = hole(&path);
    let reader = File::open(&path).expect("open");
    let seek = |from| rustix::fs::seek(&reader, from);
    let found = while_mapped(file, AT, b"hello", || {
        (seek(SeekFrom::Data(0)), seek(SeekFrom::Hole(AT)), seek(SeekFrom::Data(AT + 4096)))
    });
    let found = found.expect("map");
    assert_eq!(found, (Ok(AT), Ok(AT + 4096), Err(rustix::io::Errno::NXIO)), "{what}");
    let path = dir.join("counted");
    let stat = while_mapped(hole(&path), AT, b"hello", || rustix::fs::stat(&path).expect("stat"));
    assert_eq!(stat.expect("map").st_blocks, 8, "{what}");
}

/// Linux's ext4 first: what is asked of Extol is what it does.
#[test]
fn data_of_mappings_is_found() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let (dir, out) = (scratch.dir("mnt"), scratch.dir("out"));
    let image = Image::mke2fs(scratch.path(), "linux.img", 64 * MIB, &["-t", "ext4"]);
    let linux = KernelMount::mount(&image, &dir, &[]);
    look_while_mapped(&dir, &out, "Linux");
    linux.unmount();
    for options in MODES {
        let image = Image::mke2fs(scratch.path(), "a.img", 64 * MIB, &["-t", "ext4"]);
        let mount = ExtolMount::start(&image.path, &dir, options);
        look_while_mapped(&dir, &out, &format!("{options:?}"));
        mount.unmount();
        e2fsck(&image).assert_clean(&format!("{options:?}"));
    }
}

/// Bytes of file number `n` in round `round`.
fn contents(n: usize, round: usize) -> Vec<u8> {
    (0..2 * MIB as usize / 8).flat_map(|i| (i ^ (n << 40) ^ (round << 50)).to_le_bytes()).collect()
}

/// A process that waits to become a command. (It is started before files are opened: a fork copies
/// descriptors, and each close of one writes the file's pages back.)
struct Waiting(Child);

impl Waiting {
    fn to_run(command: &Command) -> Self {
        let mut shell = tool("sh");
        shell.args(["-c", "read go; exec \"$@\" 2>&1", "sh"]).arg(command.get_program());
        shell.args(command.get_args()).stdin(Stdio::piped()).stdout(Stdio::piped());
        Self(shell.spawn().expect("start a shell"))
    }

    /// Lets it run, which must succeed.
    fn go(mut self, what: &str) {
        self.0.stdin.take().expect("a pipe").write_all(b"\n").expect("tell it");
        let done = self.0.wait_with_output().expect("wait for it");
        assert!(done.status.success(), "{what}: {}", String::from_utf8_lossy(&done.stdout));
    }
}

/// Files that stay open while a command says that all is durable, and the daemon is killed.
#[test]
fn commands_wait_for_open_files() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("mnt");
    for (round, (command, options)) in [
        ("sync", MODES[2]),
        ("freeze", MODES[2]),
        ("checkpoint", MODES[2]),
        ("sync", MODES[3]),
        ("freeze", MODES[3]),
    ]
    .into_iter()
    .enumerate()
    {
        let image = Image::mke2fs(scratch.path(), "a.img", 256 * MIB, &["-t", "ext4"]);
        let options = [options, &["commit=1000"]].concat();
        let mut mount = ExtolMount::start(&image.path, &dir, &options);
        let path = |n: usize| dir.join(format!("f{n}"));
        let waiting = Waiting::to_run(extol().arg(command).arg(&dir));
        let open: Vec<File> = (0..60)
            .map(|n| {
                let mut file = File::create(path(n)).expect("create");
                file.write_all(&contents(n, round)).expect("write");
                file
            })
            .collect();
        waiting.go(command);
        mount.kill9();
        drop((open, mount));
        let mount = ExtolMount::start(&image.path, &dir, &[]);
        let lost: Vec<PathBuf> = (0..60)
            .filter(|n| std::fs::read(path(*n)).ok() != Some(contents(*n, round)))
            .map(path)
            .collect();
        assert!(lost.is_empty(), "{command} {options:?}: lost {lost:?}");
        mount.unmount();
        e2fsck(&image).assert_clean(command);
    }
}

/// The same for what a shared mapping holds.
#[test]
fn commands_wait_for_mappings() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("mnt");
    for (round, (command, options)) in
        ["sync", "freeze", "checkpoint"].into_iter().flat_map(|c| MODES.map(|m| (c, m))).enumerate()
    {
        let image = Image::mke2fs(scratch.path(), "a.img", 64 * MIB, &["-t", "ext4"]);
        let options = [options, &["commit=1000"]].concat();
        let mut mount = ExtolMount::start(&image.path, &dir, &options);
        let path = dir.join("mapped");
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path);
        let file: OwnedFd = file.expect("create").into();
        rustix::fs::ftruncate(&file, 2 * MIB).expect("set its size");
        let waiting = Waiting::to_run(extol().arg(command).arg(&dir));
        while_mapped(file, 0, &contents(7, round), || {
            waiting.go(&format!("{command} {options:?}"));
            mount.kill9();
        })
        .expect("map");
        drop(mount);
        let mount = ExtolMount::start(&image.path, &dir, &[]);
        let is_whole = std::fs::read(&path).expect("read") == contents(7, round);
        assert!(is_whole, "{command} {options:?}");
        mount.unmount();
    }
}
