//! A tree with something of everything, the same for the same seed on every file system.
//!
//! Made twice, once through Linux and once through the subject, it is the input of the
//! interoperability tests. It is made in a way that also leaves traces: directories shrink and
//! grow, files are renamed and deleted in between, and all modification times are set last.

use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags,
};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// How much of everything.
#[derive(Clone, Copy, Debug)]
pub struct TreeSpec {
    /// Decides contents, sizes and names.
    pub seed: u64,
    /// Ordinary small files.
    pub files: usize,
    /// Entries of the wide directory.
    pub wide: usize,
    /// Levels of the deep path.
    pub depth: usize,
    /// Bytes of the large file.
    pub large: u64,
    /// The highest offset at which the sparse file has data.
    pub sparse_to: u64,
    /// Longest symbolic link target.
    pub symlink: usize,
    /// Largest attribute value; 0 for a volume without attributes beside the small ones.
    pub xattr: usize,
    /// Whether files are cut, made longer, and written again behind the cut. Linux 6.18 loses that
    /// last write on volumes with inline_data, so it cannot be the oracle there.
    pub regrow: bool,
}

impl TreeSpec {
    /// A few hundred files, a second's work.
    #[must_use]
    pub fn small(seed: u64) -> Self {
        Self {
            seed,
            files: 150,
            wide: 300,
            depth: 20,
            large: 3 << 20,
            sparse_to: 80 << 20,
            symlink: 900,
            xattr: 400,
            regrow: true,
        }
    }

    /// Thousands of files.
    #[must_use]
    pub fn standard(seed: u64) -> Self {
        Self {
            seed,
            files: 1200,
            wide: 1500,
            depth: 60,
            large: 16 << 20,
            sparse_to: 1 << 30,
            symlink: 900,
            xattr: 700,
            regrow: true,
        }
    }

    /// The full size: a directory of 5000 names and a file of 64 MiB.
    #[must_use]
    pub fn full(seed: u64) -> Self {
        Self { files: 3000, wide: 5000, large: 64 << 20, ..Self::standard(seed) }
    }
}

/// An ACL in the form in which Linux passes it: entries of (tag, permissions, id).
#[must_use]
pub fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(perm.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// Makes the tree in a directory. Needs root.
///
/// # Panics
/// If any step fails; the message names it.
pub fn make_tree(root: &Path, spec: &TreeSpec) {
    let mut maker = Maker {
        root: root.to_owned(),
        rng: SmallRng::seed_from_u64(spec.seed),
        made: vec![PathBuf::new()],
    };
    maker.small_files(spec.files, spec.regrow);
    maker.wide(spec.wide);
    maker.deep(spec.depth);
    maker.large(spec.large);
    maker.sparse(spec.sparse_to);
    maker.links(spec.symlink);
    maker.special();
    maker.xattrs(spec.xattr);
    maker.names();
    maker.modes();
    maker.set_times();
}

struct Maker {
    root: PathBuf,
    rng: SmallRng,
    made: Vec<PathBuf>,
}

/// Unwraps with the step and the path in the message.
trait Step<T> {
    fn step(self, what: &str, path: &Path) -> T;
}

impl<T, E: std::fmt::Display> Step<T> for Result<T, E> {
    #[track_caller]
    fn step(self, what: &str, path: &Path) -> T {
        self.unwrap_or_else(|e| panic!("{what} {}: {e}", path.display()))
    }
}

impl Maker {
    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.rng.fill_bytes(&mut bytes);
        bytes
    }

    fn add(&mut self, path: impl Into<PathBuf>) -> PathBuf {
        let path = path.into();
        let full = self.root.join(&path);
        self.made.push(path);
        full
    }

    fn mkdir(&mut self, path: impl Into<PathBuf>) {
        let full = self.add(path);
        std::fs::create_dir(&full).step("mkdir", &full);
    }

    fn file(&mut self, path: impl Into<PathBuf>, bytes: &[u8]) -> PathBuf {
        let full = self.add(path);
        std::fs::write(&full, bytes).step("write", &full);
        full
    }

    /// Files of many sizes in a few dozen directories, with deletions and renames in between.
    fn small_files(&mut self, count: usize, regrow: bool) {
        let dirs = (count / 60).clamp(2, 50);
        for d in 0..dirs {
            self.mkdir(format!("d{d:02}"));
        }
        for n in 0..count {
            let len = match self.rng.random_range(0..10) {
                0 => 0,
                1..=3 => self.rng.random_range(1..200),
                4..=7 => self.rng.random_range(200..5000),
                8 => 1024 * self.rng.random_range(1..12usize),
                _ => self.rng.random_range(5000..40000),
            };
            let dir = self.rng.random_range(0..dirs);
            let bytes = self.bytes(len);
            match self.rng.random_range(0..12) {
                0 => {
                    let gone = self.root.join(format!("d{dir:02}/gone{n}"));
                    std::fs::write(&gone, &bytes).step("write", &gone);
                    std::fs::remove_file(&gone).step("unlink", &gone);
                }
                1 => {
                    let old = self.root.join(format!("d{dir:02}/old{n}"));
                    std::fs::write(&old, &bytes).step("write", &old);
                    let to = self.rng.random_range(0..dirs);
                    let new = self.add(format!("d{to:02}/moved{n}"));
                    std::fs::rename(&old, &new).step("rename", &new);
                }
                2 if regrow => {
                    // Written in two parts and cut: the tail must read as zeros when the file grows
                    // again.
                    let path = self.file(format!("d{dir:02}/cut{n}"), &bytes);
                    let file = File::options().write(true).open(&path).step("open", &path);
                    file.set_len(len as u64 / 2).step("truncate", &path);
                    file.set_len(len as u64 / 2 + 3000).step("extend", &path);
                    file.write_all_at(b"end", len as u64 / 2 + 2000).step("write", &path);
                }
                _ => {
                    self.file(format!("d{dir:02}/f{n}"), &bytes);
                }
            }
        }
    }

    /// One directory with very many names of different lengths; every ninth is deleted again.
    fn wide(&mut self, count: usize) {
        self.mkdir("wide");
        let mut gone = Vec::new();
        for n in 0..count {
            let pad = self.rng.random_range(0..40);
            let name = format!("wide/entry-{n:05}-{}", "x".repeat(pad));
            if n % 9 == 4 {
                let full = self.root.join(name);
                File::create(&full).step("create", &full);
                gone.push(full);
            } else if n % 50 == 7 {
                self.mkdir(name);
            } else {
                let bytes = self.bytes(n % 30);
                self.file(name, &bytes);
            }
        }
        for path in gone {
            std::fs::remove_file(&path).step("unlink", &path);
        }
    }

    fn deep(&mut self, levels: usize) {
        let mut path = PathBuf::from("deep");
        self.mkdir(&path);
        for level in 0..levels {
            path.push(format!("level{level}"));
            self.mkdir(&path);
        }
        self.file(path.join("bottom"), b"at the bottom");
    }

    fn large(&mut self, size: u64) {
        let full = self.add("large");
        let mut file = File::create(&full).step("create", &full);
        let mut left = size;
        while left > 0 {
            let chunk = self.bytes(left.min(1 << 20) as usize);
            file.write_all(&chunk).step("write", &full);
            left -= chunk.len() as u64;
        }
    }

    /// Data at the places where block maps change levels, holes between them, unwritten and punched
    /// ranges.
    fn sparse(&mut self, to: u64) {
        self.mkdir("sparse");
        let full = self.add("sparse/islands");
        let file = File::create(&full).step("create", &full);
        for offset in
            [0, 11 << 10, 12 << 10, 47 << 10, 48 << 10, 268 << 10, 4 << 20, 65 << 20, 1 << 29, to]
        {
            if offset <= to {
                let bytes = self.bytes(100);
                file.write_all_at(&bytes, offset).step("write", &full);
            }
        }
        let full = self.add("sparse/comb");
        let file = File::create(&full).step("create", &full);
        for tooth in 0..400u64 {
            let bytes = self.bytes(700);
            file.write_all_at(&bytes, tooth * 8192).step("write", &full);
        }
        let full = self.add("sparse/only-a-size");
        File::create(&full).and_then(|f| f.set_len(to + 12345)).step("truncate", &full);

        let full = self.add("sparse/punched");
        let data = self.bytes(200 << 10);
        std::fs::write(&full, data).step("write", &full);
        let file = File::options().write(true).open(&full).step("open", &full);
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // ext2 and ext3 maps can punch, too; other file systems under test may not offer it.
        match rustix::fs::fallocate(&file, punch, 30 << 10, 50 << 10) {
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
            Err(e) => panic!("punch {}: {e}", full.display()),
        }
        let full = self.add("sparse/unwritten");
        let file = File::create(&full).step("create", &full);
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 300 << 10) {
            Ok(()) => {}
            Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(300 << 10).step("truncate", &full),
            Err(e) => panic!("fallocate {}: {e}", full.display()),
        }
        let bytes = self.bytes(5000);
        file.write_all_at(&bytes, 100 << 10).step("write", &full);
    }

    fn links(&mut self, longest: usize) {
        self.mkdir("links");
        let first = self.file("links/first", b"one inode, many names");
        for n in 0..60 {
            let dir = if n % 2 == 0 { "links" } else { "deep" };
            let full = self.add(format!("{dir}/name{n}"));
            std::fs::hard_link(&first, &full).step("link", &full);
        }
        for len in [1, 20, 58, 59, 60, 61, 100, 300, longest] {
            let full = self.add(format!("links/sym{len}"));
            std::os::unix::fs::symlink("t".repeat(len.min(longest)), &full).step("symlink", &full);
        }
    }

    fn special(&mut self) {
        self.mkdir("special");
        let nodes = [
            ("fifo", FileType::Fifo, 0, 0),
            ("socket", FileType::Socket, 0, 0),
            ("null", FileType::CharacterDevice, 1, 3),
            ("large-minor", FileType::CharacterDevice, 10, 70000),
            ("disk", FileType::BlockDevice, 8, 17),
            ("large-major", FileType::BlockDevice, 1500, 300),
        ];
        for (name, kind, major, minor) in nodes {
            let full = self.add(format!("special/{name}"));
            let device = rustix::fs::makedev(major, minor);
            rustix::fs::mknodat(CWD, &full, kind, Mode::from_raw_mode(0o640), device)
                .step("mknod", &full);
        }
    }

    /// Attributes inside the inode, in a block of their own, shared between files, changed,
    /// removed; ACLs with inheritance.
    fn xattrs(&mut self, largest: usize) {
        self.mkdir("xattr");
        let set = |full: &Path, name: &str, value: &[u8]| {
            rustix::fs::lsetxattr(full, name, value, XattrFlags::empty()).step("setxattr", full);
        };
        for n in 0..12 {
            let full = self.file(format!("xattr/few{n}"), b"x");
            let value = self.bytes(n * 3);
            set(&full, "user.small", &value);
            set(&full, "trusted.other", b"");
        }
        if largest > 0 {
            let shared = self.bytes(largest / 2);
            for n in 0..8 {
                // The same attributes on many files: one block with a reference count.
                let full = self.file(format!("xattr/shared{n}"), b"");
                set(&full, "user.shared", &shared);
            }
            let full = self.root.join("xattr/shared3");
            set(&full, "user.shared", b"no longer the same");
            let full = self.file("xattr/large", b"");
            let value = self.bytes(largest);
            set(&full, "user.large", &value);
            let full = self.file("xattr/many", b"");
            for n in 0..20 {
                set(&full, &format!("user.name{n}"), format!("v{n}").as_bytes());
            }
            for n in (0..20).step_by(3) {
                rustix::fs::lremovexattr(&full, format!("user.name{n}")).step("removexattr", &full);
            }
            let full = self.add("xattr/symlink");
            std::os::unix::fs::symlink("nowhere", &full).step("symlink", &full);
            set(&full, "trusted.on-a-link", b"yes");
        }
        const NONE: u32 = u32::MAX;
        let access = acl(&[
            (1, 6, NONE),
            (2, 7, 1234),
            (4, 4, NONE),
            (8, 5, 4321),
            (16, 7, NONE),
            (32, 0, NONE),
        ]);
        let default =
            acl(&[(1, 7, NONE), (2, 5, 77777), (4, 5, NONE), (16, 5, NONE), (32, 1, NONE)]);
        let full = self.file("xattr/acl", b"");
        set(&full, "system.posix_acl_access", &access);
        self.mkdir("xattr/inherit");
        set(&self.root.join("xattr/inherit"), "system.posix_acl_default", &default);
        self.mkdir("xattr/inherit/dir");
        self.file("xattr/inherit/dir/file", b"inherits");
    }

    fn names(&mut self) {
        self.mkdir("names");
        let long = "é".repeat(127) + "x";
        let odd: [&[u8]; 14] = [
            b" ",
            b"...",
            b".hidden",
            b"new\nline",
            b"tab\tand\\backslash",
            b"\xff\xfe not UTF-8 \x80",
            "файл с именем".as_bytes(),
            "文件名".as_bytes(),
            "👩‍🚀".as_bytes(),
            b"*?[]{}'\"$`",
            b"-rf",
            b"a",
            long.as_bytes(),
            &[b'N'; 255],
        ];
        for name in odd {
            let path = Path::new("names").join(OsStr::from_bytes(name));
            self.file(path, name);
        }
    }

    fn modes(&mut self) {
        self.mkdir("modes");
        for (n, mode) in
            [0, 0o400, 0o644, 0o777, 0o1755, 0o2755, 0o4755, 0o6711, 0o7777].into_iter().enumerate()
        {
            let full = self.file(format!("modes/file{mode:o}"), b"");
            let owner = [0, 1000, 65534, 65536, 3_000_000_000][n % 5];
            let (uid, gid) = (Uid::from_raw(owner), Gid::from_raw(owner / 2));
            rustix::fs::chown(&full, Some(uid), Some(gid)).step("chown", &full);
            rustix::fs::chmod(&full, Mode::from_raw_mode(mode)).step("chmod", &full);
            self.mkdir(format!("modes/dir{mode:o}"));
            let full = self.root.join(format!("modes/dir{mode:o}"));
            rustix::fs::chmod(&full, Mode::from_raw_mode(mode)).step("chmod", &full);
        }
    }

    /// Every name gets its own modification time; some lie at the edges of what the format can
    /// hold.
    fn set_times(&mut self) {
        const EDGES: [i64; 8] = [
            -(1 << 31),
            -1,
            0,
            (1 << 31) - 1,
            1 << 31,
            (1 << 32) + 5,
            (1 << 33) + 6,
            // The last second that ext4 can store, in the year 2446.
            15_032_385_535,
        ];
        let made = std::mem::take(&mut self.made);
        // Deepest last-made first: setting a file's time must not touch its directory, and a test
        // of just that.
        for (n, path) in made.iter().enumerate().rev() {
            let full = self.root.join(path);
            let seconds = if n % 40 == 13 {
                EDGES[(n / 40) % EDGES.len()]
            } else {
                1_000_000_000 + n as i64 * 86_400
            };
            // Linux drops the fraction at both ends of the range.
            let at_an_end = seconds == EDGES[0] || seconds == EDGES[7];
            let nanos = if at_an_end { 0 } else { (n as i64 * 7_654_321) % 1_000_000_000 };
            let time = Timespec { tv_sec: seconds, tv_nsec: nanos };
            let times = Timestamps { last_access: time, last_modification: time };
            rustix::fs::utimensat(CWD, &full, &times, AtFlags::SYMLINK_NOFOLLOW)
                .step("utimensat", &full);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Image, KernelMount, Need, Scratch, Tree, e2fsck, require};

    #[test]
    fn linux_makes_the_same_tree_twice() {
        if !require(&[Need::Root, Need::Loop, Need::Kernel("ext4"), Need::Tool("mke2fs")]) {
            return;
        }
        let scratch = Scratch::new();
        let trees: Vec<Tree> = ["a", "b"]
            .into_iter()
            .map(|name| {
                let image = Image::mke2fs(
                    scratch.path(),
                    &format!("{name}.img"),
                    128 << 20,
                    &["-t", "ext4", "-b", "1024"],
                );
                let mount = KernelMount::mount(&image, &scratch.dir(name), &[]);
                make_tree(mount.path(), &TreeSpec::small(7));
                mount.unmount();
                e2fsck(&image).assert_clean(name);
                let mount = KernelMount::mount(&image, &scratch.dir(name), &["ro"]);
                Tree::of(mount.path())
            })
            .collect();
        trees[0].assert_same(&trees[1], "first", "second");
        assert!(trees[0].len() > 500, "{} names", trees[0].len());
        let kinds: std::collections::BTreeSet<char> =
            trees[0].nodes.values().map(|n| n.kind).collect();
        assert_eq!(kinds.into_iter().collect::<String>(), "-bcdlps");
        let acl = &trees[0].nodes[Path::new("xattr/inherit/dir/file")].xattrs;
        assert!(acl.contains_key(&b"system.posix_acl_access"[..]), "{acl:?}");
    }
}
