//! The builder against its checkers: extol-check and e2fsck find nothing, Linux reads back what
//! went in, and the same files give the same bytes.

mod bytes;
mod linux;
mod quota;
mod random;
mod sizes;
mod verity;

use super::*;
use crate::mkfs::tests::harness;
use crate::source::{DirOptions, DirSource, FileData};
use crate::tree::{DataRef, Meta, OtherTimes};
use extol_block::MemDevice;
use extol_ondisk::Time;
use extol_vfs::Rdev;
use std::io;
use std::sync::Arc;

/// What a file of a [`Made`] source is.
#[derive(Clone, Debug)]
enum What {
    Dir,
    File(Vec<u8>),
    /// So many bytes, of which these pieces are not zeros.
    Sparse(u64, Vec<(u64, Vec<u8>)>),
    Link(Vec<u8>),
    Hard(&'static str),
    Char(u32, u32),
    Block(u32, u32),
    Fifo,
    Socket,
}

type Attributes = Vec<(&'static str, Vec<u8>)>;

/// A source in memory.
#[derive(Clone, Debug, Default)]
struct Made {
    entries: Vec<(Vec<u8>, What, Attributes)>,
    /// Whether it tells where its holes are.
    tells_holes: bool,
    files: Vec<What>,
}

impl Made {
    fn add(&mut self, path: impl AsRef<[u8]>, what: What) -> &mut Self {
        self.entries.push((path.as_ref().to_vec(), what, Vec::new()));
        self
    }

    fn with(&mut self, name: &'static str, value: &[u8]) -> &mut Self {
        self.entries.last_mut().expect("an entry").2.push((name, value.to_vec()));
        self
    }
}

impl Source for Made {
    fn scan(&mut self, into: &mut TreeBuilder) -> Result<()> {
        for (nr, (path, what, xattrs)) in self.entries.iter().enumerate() {
            let times = OtherTimes { atime: Some(Time { sec: 5, nsec: 6 }), ..Default::default() };
            let xattrs = xattrs.iter().map(|(name, value)| {
                (name.as_bytes().to_vec().into(), value.clone().into_boxed_slice())
            });
            let mut all: crate::tree::XattrSet = xattrs.collect();
            all.sort();
            // From the name, so that the order of entries changes nothing.
            let sum = path.iter().fold(7u32, |n, c| n.wrapping_mul(31) + u32::from(*c));
            let meta = Meta {
                mode: 0o400 + (sum % 0o400) as u16,
                uid: 70_000 + sum % 100,
                gid: sum % 5,
                mtime: Time { sec: 1_600_000_000 + i64::from(sum % 1000), nsec: sum % 1_000_000 },
                times: if sum % 2 == 0 { into.times(times)? } else { Default::default() },
                xattrs: into.xattrs(all)?,
                implied: false,
                verity: false,
            };
            let rdev = |major, minor| Rdev { major, minor };
            let data = DataRef(nr as u64);
            let kind = match what {
                What::Dir => Kind::Dir,
                What::File(bytes) => Kind::File { size: bytes.len() as u64, data },
                What::Sparse(size, _) => Kind::File { size: *size, data },
                What::Link(target) => Kind::Symlink(into.target(path, target)?),
                What::Hard(target) => {
                    into.link(path, target.as_bytes())?;
                    continue;
                }
                What::Char(major, minor) => Kind::Char(rdev(*major, *minor)),
                What::Block(major, minor) => Kind::Block(rdev(*major, *minor)),
                What::Fifo => Kind::Fifo,
                What::Socket => Kind::Socket,
            };
            into.add(path, meta, kind)?;
        }
        self.files = self.entries.iter().map(|(_, what, _)| what.clone()).collect();
        Ok(())
    }

    fn reader(&self, data: DataRef) -> Result<Box<dyn FileData + '_>> {
        let what = self.files.get(data.0 as usize).expect("a file of the source");
        Ok(Box::new(Reader { what, tells_holes: self.tells_holes }))
    }
}

struct Reader<'a> {
    what: &'a What,
    tells_holes: bool,
}

impl FileData for Reader<'_> {
    fn read_at(&mut self, at: u64, buf: &mut [u8]) -> io::Result<usize> {
        match self.what {
            What::File(bytes) => {
                let rest = bytes.get(at as usize..).unwrap_or_default();
                let len = rest.len().min(buf.len()).min(100_000);
                buf[..len].copy_from_slice(&rest[..len]);
                Ok(len)
            }
            What::Sparse(size, pieces) => {
                let len = ((size - at) as usize).min(buf.len());
                buf[..len].fill(0);
                for (start, bytes) in pieces {
                    for (i, byte) in (*start..).zip(bytes) {
                        if (at..at + len as u64).contains(&i) {
                            buf[(i - at) as usize] = *byte;
                        }
                    }
                }
                Ok(len)
            }
            other => panic!("{other:?} is read"),
        }
    }

    fn data_from(&mut self, at: u64) -> io::Result<Option<Range<u64>>> {
        match self.what {
            What::Sparse(_, pieces) if self.tells_holes => Ok(pieces
                .iter()
                .map(|(start, bytes)| *start..start + bytes.len() as u64)
                .find(|piece| piece.end > at)
                .map(|piece| piece.start.max(at)..piece.end)),
            _ => Ok(Some(at..u64::MAX)),
        }
    }
}

/// Some bytes that are no zeros.
fn noise(len: usize, seed: u32) -> Vec<u8> {
    let mut state = seed | 1;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8 | 1
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// cap_net_bind_service=ep, in the form of an attribute.
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Some of everything.
fn everything() -> Made {
    let mut made = Made::default();
    made.add(".", What::Dir).add("etc", What::Dir).add("empty", What::File(Vec::new()));
    made.add("etc/passwd", What::File(b"root:x:0:0::/:/bin/sh\n".to_vec()));
    made.add("bin/sh", What::File(noise(1_000_000, 3))).add("bin/bash", What::Hard("bin/sh"));
    made.add("lib", What::Link(b"usr/lib".to_vec()));
    made.add("long", What::Link(noise(59, 1))).add("longer", What::Link(noise(60, 1)));
    made.add("longest", What::Link(noise(1000, 1)));
    made.add("dev/null", What::Char(1, 3)).add("dev/sda", What::Block(8, 0));
    made.add("dev/large", What::Char(300, 70_000));
    made.add("dev/fifo", What::Fifo).add("dev/socket", What::Socket);
    made.add(b"odd \xFF\n name", What::File(noise(5000, 9)));
    made.add("x".repeat(255), What::File(noise(70_000, 11)));
    let pieces = vec![(0, noise(10, 1)), (300_000, noise(9000, 2)), (40_000_000, noise(1, 3))];
    made.add("sparse", What::Sparse(50_000_000, pieces));
    made.add("hole", What::Sparse(123_456_789, Vec::new()));
    let zigzag = (0..40).map(|i| (i * 300_000, noise(3000, i as u32))).collect();
    made.add("zigzag", What::Sparse(12_000_000, zigzag));
    for i in 0..2000 {
        made.add(format!("many/file number {i}"), What::File(noise(i % 700, i as u32)));
    }
    for i in 0..60 {
        made.add(format!("dirs/{i}"), What::Dir);
        made.add(format!("dirs/{i}/deep/er/file"), What::File(noise(i * 100, 1)));
    }
    made.add("cap", What::File(noise(100, 5))).with("security.capability", &CAPABILITY);
    made.add("labelled", What::Dir).with("security.selinux", b"system_u:object_r:etc_t:s0\0");
    for i in 0..1100 {
        made.add(format!("shared/{i}"), What::File(noise(3, i)))
            .with("user.large", &noise(600, 1))
            .with("user.small", b"x");
    }
    let acl =
        [2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 4, 0, 4, 0, 255, 255, 255, 255, 32, 0, 0]
            .into_iter()
            .chain([0, 255, 255, 255, 255]);
    made.add("acl", What::File(Vec::new()))
        .with("system.posix_acl_access", &acl.collect::<Vec<u8>>());
    made
}

fn options(words: &str) -> BuildOptions {
    let mkfs = harness::options(words).expect("options");
    BuildOptions { mkfs, keep_times: true, ..Default::default() }
}

fn go_on(_: BuildProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Builds into memory.
fn made(source: &Made, size: u64, options: &BuildOptions) -> Result<(Arc<MemDevice>, Built)> {
    let device = Arc::new(MemDevice::new(size));
    let built = build(&device, &mut source.clone(), options, &mut go_on)?;
    Ok((device, built))
}

/// Fails unless the checker finds nothing.
fn check(device: &Arc<MemDevice>, what: &str) {
    let options = extol_check::CheckOptions::default();
    let device = Arc::clone(device) as extol_block::SharedDevice;
    let report = extol_check::check(device, &options, &mut |_| {}).expect("a report");
    assert!(report.clean && report.notes == 0, "{what}: {:#?}", report.findings);
}

/// Sets of options that change the layout.
const VARIANTS: &[&str] = &[
    "",
    "-b 1024",
    "-b 2048",
    "-b 4096",
    "-t ext2 -b 1024",
    "-t ext2 -b 4096",
    "-t ext3 -b 2048",
    "-t ext3 -b 4096 -I 128",
    "-b 4096 -O ^metadata_csum",
    "-b 1024 -O ^metadata_csum,uninit_bg",
    "-b 4096 -O ^64bit",
    "-b 4096 -O ^extent,^64bit",
    "-b 4096 -O ^flex_bg",
    "-b 4096 -O ^has_journal",
    "-b 1024 -O fast_commit",
    "-b 4096 -O meta_bg,^resize_inode",
    "-b 4096 -O sparse_super2",
    "-b 4096 -O ^sparse_super,^resize_inode",
    "-b 4096 -O ^dir_index",
    "-b 1024 -O ^dir_index",
    "-b 4096 -O ^dir_nlink,^filetype",
    "-b 1024 -O large_dir",
    "-b 4096 -O ^metadata_csum_seed,^orphan_file",
    "-b 4096 -O inline_data",
    "-b 4096 -O mmp",
    "-b 4096 -O project,ea_inode",
    "-b 4096 -O quota",
    "-b 1024 -O quota,project,^orphan_file",
    "-b 4096 -O quota,project,ea_inode -E root_owner=5:6",
    "-b 1024 -O bigalloc,quota,ea_inode -C 8192",
    "-t ext2 -b 2048 -O quota",
    "-b 4096 -O quota -E quotatype=prjquota",
    "-b 4096 -O casefold",
    "-b 4096 -O encrypt,stable_inodes",
    "-b 1024 -O bigalloc -C 4096",
    "-b 1024 -O bigalloc,ea_inode -C 32768",
    "-b 4096 -O bigalloc,^metadata_csum,^flex_bg -C 16384",
    "-b 4096 -I 512 -G 4",
    "-b 1024 -g 1024 -G 2",
    "-b 4096 -E packed_meta_blocks=1",
    "-b 4096 -E nodiscard,lazy_itable_init=0",
    "-b 16384 -F",
    "-b 65536 -F",
];

#[test]
fn all_variants_are_sound() {
    let source = everything();
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("img");
    let has_e2fsck = harness::have("e2fsck");
    for words in VARIANTS {
        // Each small file takes a block, or a cluster.
        let large = words.contains("65536") || words.contains("32768");
        let size = if large { 400 << 20 } else { 100 << 20 };
        let (device, built) = made(&source, size, &options(words)).expect(words);
        check(&device, words);
        assert!(built.notes.is_empty(), "{words}: {:?}", built.notes);
        if has_e2fsck {
            std::fs::write(&path, device.to_bytes()).expect("image");
            harness::assert_clean(&path, words);
        }
    }
}

/// Nothing relies on what the device held before.
#[test]
fn old_contents_of_a_device_do_no_harm() {
    let source = everything();
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("img");
    for words in [
        "-b 4096 -E nodiscard",
        "-b 4096 -E nodiscard,lazy_itable_init=0",
        "-b 1024 -E nodiscard -O ^metadata_csum,^uninit_bg",
        "-b 4096 -E nodiscard -t ext3",
        "-b 4096 -E nodiscard,lazy_journal_init=1",
    ] {
        let device = Arc::new(MemDevice::from_bytes(&vec![0xA5; 100 << 20]));
        build(&device, &mut source.clone(), &options(words), &mut go_on).expect("built");
        check(&device, words);
        if harness::have("e2fsck") {
            std::fs::write(&path, device.to_bytes()).expect("image");
            harness::assert_clean(&path, words);
        }
    }
}

#[test]
fn a_lost_and_found_of_the_source_is_the_volumes() {
    let mut source = Made::default();
    source.add("a", What::Dir).add("lost+found", What::Dir);
    for i in 0..500 {
        source.add(format!("lost+found/#{i}"), What::File(noise(10, i)));
        source.add(format!("z{i}"), What::File(noise(10, i)));
    }
    for words in ["-b 1024", "-b 4096 -t ext2"] {
        let (device, _) = made(&source, 30 << 20, &options(words)).expect("built");
        check(&device, words);
    }
    source.entries.retain(|(path, ..)| !path.starts_with(b"lost+found"));
    source.add("lost+found", What::File(Vec::new()));
    let error = made(&source, 30 << 20, &options("")).expect_err("refused");
    assert_eq!(
        error.to_string(),
        "lost+found: must be a directory: the checker puts files into it"
    );
}

#[test]
fn an_empty_source_is_an_empty_volume() {
    let (device, built) = made(&Made::default(), 8 << 20, &options("-b 1024")).expect("built");
    check(&device, "empty");
    assert_eq!((built.files, built.bytes, built.data), (1, 0, 0));
}

#[test]
fn what_cannot_be_stored_is_refused_by_name() {
    let one = |path: &str, what: What| {
        let mut made = Made::default();
        made.add(path, what);
        made
    };
    let mut attributes = one("a/b", What::File(Vec::new()));
    attributes.with("user.a", &noise(3000, 1)).with("user.b", &noise(3000, 1));
    let huge = one("d/huge", What::Sparse(1 << 43, Vec::new()));
    for (source, words, needle) in [
        (attributes, "-b 4096", "a/b: all attributes of a file must fit into one block"),
        (huge, "-b 4096 -t ext2", "d/huge: its 8796093022208 bytes are more than"),
        (one("l", What::Link(noise(1024, 1))), "-b 1024", "l: its target of 1024 bytes"),
        (one("f", What::Fifo), "-N 12 -b 4096 -O orphan_file -I 2048", ""),
        (one("f", What::Fifo), "-O journal_dev", "a journal device cannot hold files"),
    ] {
        match made(&source, 64 << 20, &options(words)) {
            Err(error) => {
                let line = error.to_string();
                assert!(line.contains(needle) && !line.contains('\n'), "{line}");
                assert!(!needle.is_empty(), "{words}: {line}");
            }
            Ok(_) => assert!(needle.is_empty(), "{words} should be refused: {needle}"),
        }
    }
    let mut odd = one("f", What::Fifo);
    odd.with("com.apple.quarantine", b"x");
    let (device, built) = made(&odd, 8 << 20, &options("")).expect("built");
    check(&device, "odd attribute");
    let note = "f: the attribute com.apple.quarantine is left out: it has a name that ext4 cannot \
                hold";
    assert_eq!(built.notes, [note]);
}

/// More subdirectories than can be counted, and not one more than can be without dir_nlink.
#[test]
fn many_subdirectories() {
    let mut source = Made::default();
    for i in 0..65_001 {
        source.add(format!("d/{i}"), What::Dir);
    }
    let (device, _) = made(&source, 400 << 20, &options("-b 1024")).expect("built");
    check(&device, "65001 subdirectories");
    let error = made(&source, 400 << 20, &options("-b 1024 -O ^dir_nlink")).expect_err("refused");
    assert_eq!(
        error.to_string(),
        "d: 65001 subdirectories need the features dir_index and dir_nlink"
    );
}

/// Each request fails once; what is left is no file system.
#[test]
fn a_failing_device_leaves_no_file_system() {
    use extol_block::DeviceOp;
    use extol_devices::{Fault, FaultDevice};
    let mut source = everything();
    let device = FaultDevice::new(MemDevice::new(64 << 20), []);
    let options = options("-b 4096");
    mkfs::mkfs(&device, &options.mkfs, &mut |_| {}).expect("an old volume");
    let mut failed = 0;
    for nth in (0..12).chain((12..200).step_by(7)) {
        device.arm(Fault::once(DeviceOp::Write, nth));
        let built = build(&device, &mut source, &options, &mut go_on);
        device.disarm();
        let Err(error) = built else { continue };
        failed += 1;
        assert!(matches!(error, BuildError::Device(_)), "{error}");
        if nth > 0 {
            assert_eq!(mkfs::existing_contents(&device), None, "failed at write {nth}");
        }
    }
    assert!(failed > 10, "{failed}");
    device.arm(Fault::from_then_on(DeviceOp::Flush, 1));
    assert!(build(&device, &mut source, &options, &mut go_on).is_err());
    device.disarm();
    assert_eq!(mkfs::existing_contents(&device), None);
}

#[test]
fn the_caller_can_stop_it() {
    let device = MemDevice::new(100 << 20);
    let stop = &mut |p: BuildProgress| match p.stage {
        BuildStage::Data => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let error = build(&device, &mut everything(), &options(""), stop).expect_err("stopped");
    assert!(matches!(error, BuildError::Stopped));
    assert_eq!(mkfs::existing_contents(&device), None);
}
