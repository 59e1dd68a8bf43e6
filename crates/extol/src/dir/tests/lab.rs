//! A volume in memory with one directory to work on, and a model of what the directory should hold.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use extol_block::{MemDevice, SharedDevice};
use extol_jbd2::{Handle, Journal, JournalConfig, Services};
use extol_ondisk::{FileType, Geometry, InodeNr, Superblock};
use extol_task::SystemClock;
use extol_testkit::{Image, KernelMount, Need, Scratch, debugfs, e2fsck, require};
use extol_vfs::{DirEntry, FsError, Result};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::alloc::{AllocOptions, Allocator, SuperCell};
use crate::dir;
use crate::map::{self, Mapping};
use crate::node::Node;
use crate::volume::Volume;

/// Files that names can lead to. (One file cannot have more than 65000 names.)
pub const FILES: usize = 4;

/// See the module.
pub struct Lab {
    pub scratch: Scratch,
    pub image: Image,
    device: Arc<MemDevice>,
    pub vol: Volume,
    cell: SuperCell,
    _services: Services,
    pub dir: Node,
    pub files: [InodeNr; FILES],
    pub model: BTreeMap<Vec<u8>, InodeNr>,
    pub rng: SmallRng,
}

/// How the volume is made.
pub struct Recipe<'a> {
    pub size: u64,
    pub mke2fs: &'a [&'a str],
    /// `debugfs` requests after that, for what mke2fs has no option for.
    pub tune: &'a [&'a str],
}

impl Lab {
    pub fn new(recipe: &Recipe<'_>) -> Self {
        let scratch = Scratch::new();
        let image = Image::mke2fs(scratch.path(), "dir.img", recipe.size, recipe.mke2fs);
        let some = scratch.join("some");
        std::fs::write(&some, b"").unwrap();
        for request in recipe.tune {
            write_by_debugfs(&image, request);
        }
        write_by_debugfs(&image, "mkdir d");
        write_by_debugfs(&image, "mkdir files");
        for i in 0..FILES {
            write_by_debugfs(&image, &format!("write {} files/f{i}", some.display()));
        }
        Self::open(scratch, image)
    }

    /// Opens the image as it is, with an empty model.
    fn open(scratch: Scratch, image: Image) -> Self {
        let bytes = std::fs::read(&image.path).unwrap();
        let device = Arc::new(MemDevice::from_bytes(&bytes));
        let shared: SharedDevice = device.clone();
        let sb = Superblock::decode(&bytes[1024..2048]).unwrap();
        let geo = Geometry::new(&sb, Some(bytes.len() as u64)).unwrap();
        let journal = Journal::open(JournalConfig {
            device: shared.clone(),
            block_size: geo.block_size,
            blocks: geo.blocks(),
            log: None,
            barrier: true,
            commit_interval: Duration::from_secs(5),
            async_commit: false,
            cache_bytes: 64 << 20,
            clock: Arc::new(SystemClock::new()),
        })
        .unwrap();
        let alloc = Allocator::open(journal.clone(), &geo, &sb, AllocOptions::default()).unwrap();
        let services = Services::start(&journal).unwrap();
        let cell = SuperCell::new(sb, &geo);
        let vol = Volume::new(shared, journal, geo, alloc);
        let root = Node { ino: InodeNr::ROOT, raw: vol.read_inode(InodeNr::ROOT).unwrap() };
        let open = |parent: &Node, name: &str| {
            let (ino, _) = dir::lookup(&vol, parent, name.as_bytes()).unwrap().unwrap();
            Node { ino, raw: vol.read_inode(ino).unwrap() }
        };
        let files_dir = open(&root, "files");
        let files = std::array::from_fn(|i| open(&files_dir, &format!("f{i}")).ino);
        let dir = open(&root, "d");
        let rng = SmallRng::seed_from_u64(20_240_229);
        Self {
            scratch,
            image,
            device,
            vol,
            cell,
            _services: services,
            dir,
            files,
            model: BTreeMap::new(),
            rng,
        }
    }

    /// Saves the volume, lets `change` work on the bytes of one block of the directory, and opens
    /// it again.
    pub fn with_block_changed(mut self, lblk: u32, change: impl FnOnce(&mut [u8])) -> Self {
        self.save();
        let Mapping::Mapped { pblk, .. } = map::lookup(&self.vol, &self.dir, lblk).unwrap() else {
            panic!("block {lblk} is a hole")
        };
        let at = pblk.offset(self.vol.geo.block_size);
        let mut bytes = self.image.read_at(at, self.vol.geo.block_len());
        change(&mut bytes);
        self.image.write_at(at, &bytes);
        let Self { scratch, image, model, .. } = self;
        Self { model, ..Self::open(scratch, image) }
    }

    /// One operation in a handle of its own, with the credits that the module says it needs.
    fn run<R>(
        &mut self,
        credits: u32,
        f: impl FnOnce(&Volume, &mut Handle, &mut Node) -> Result<R>,
    ) -> Result<R> {
        let mut h = self.vol.journal.start(credits + 1).unwrap();
        let result = f(&self.vol, &mut h, &mut self.dir);
        self.vol
            .write_inode(
                &mut h,
                self.dir.ino,
                &self.dir.raw,
                crate::fast_commit::eligibility::Change::default(),
            )
            .unwrap();
        h.stop().unwrap();
        result
    }

    /// An operation that may fail in any way.
    pub fn attempt(
        &mut self,
        f: impl FnOnce(&Volume, &mut Handle, &mut Node) -> Result<()>,
    ) -> Result<()> {
        self.run(dir::credits_add(&self.vol, &self.dir), f)
    }

    /// Frees a block of the directory, and forgets the names in it.
    pub fn punch(&mut self, lblk: u32) {
        let gone = self.list(usize::MAX);
        let done = self
            .run(100, |vol, h, dir| map::remove(vol, h, dir, lblk, lblk + 1, map::Discard::Free));
        assert_eq!(done, Ok(map::Progress::Done));
        let left: Vec<_> = self.list(usize::MAX).into_iter().map(|e| e.name).collect();
        assert!(left.len() < gone.len());
        self.model.retain(|name, _| left.contains(name));
    }

    /// Adds a name, in the directory and in the model.
    pub fn add(&mut self, name: &[u8]) -> Result<()> {
        let file = self.files[self.model.len() * FILES / 200_000];
        let credits = dir::credits_add(&self.vol, &self.dir);
        self.run(credits, |vol, h, dir| dir::add(vol, h, dir, name, file, FileType::Regular))?;
        assert_eq!(self.model.insert(name.to_vec(), file), None);
        Ok(())
    }

    /// Removes a name.
    pub fn remove(&mut self, name: &[u8]) -> Result<()> {
        let gone = self.run(dir::REMOVE_CREDITS, |vol, h, dir| dir::remove(vol, h, dir, name))?;
        assert_eq!(self.model.remove(name), Some(gone));
        Ok(())
    }

    /// Lets a name lead to another file.
    pub fn replace(&mut self, name: &[u8], file: usize) -> Result<()> {
        let ino = self.files[file];
        self.run(dir::REMOVE_CREDITS, |vol, h, dir| {
            dir::replace(vol, h, dir, name, ino, FileType::Regular)
        })?;
        self.model.insert(name.to_vec(), ino);
        Ok(())
    }

    /// Lets `..` lead to another directory.
    pub fn set_dotdot(&mut self, parent: InodeNr) {
        self.run(dir::REMOVE_CREDITS, |vol, h, dir| dir::set_dotdot(vol, h, dir, parent)).unwrap();
    }

    pub fn lookup(&self, name: &[u8]) -> Option<InodeNr> {
        dir::lookup(&self.vol, &self.dir, name).unwrap().map(|(ino, _)| ino)
    }

    /// A name of the model, if it has any.
    pub fn some_name(&mut self) -> Option<Vec<u8>> {
        let skip = self.rng.random_range(0..self.model.len().max(1));
        self.model.keys().nth(skip).cloned()
    }

    /// A random name of this length, with bytes above 127 among others.
    pub fn new_name(&mut self, len: usize) -> Vec<u8> {
        loop {
            let name: Vec<u8> = (0..len)
                .map(|_| match self.rng.random_range(0..40u8) {
                    n @ 0..26 => b'a' + n,
                    n @ 26..36 => b'0' + (n - 26),
                    _ => self.rng.random_range(128..=255u8),
                })
                .collect();
            if !self.model.contains_key(&name) {
                return name;
            }
        }
    }

    /// Lists the directory `step` entries at a time.
    pub fn list(&self, step: usize) -> Vec<DirEntry> {
        let mut all = Vec::new();
        let mut cookie = 0;
        loop {
            let mut taken = 0;
            dir::iterate(&self.vol, &self.dir, cookie, &mut |entry| {
                if taken == step {
                    return false;
                }
                taken += 1;
                cookie = entry.cookie;
                all.push(entry);
                true
            })
            .unwrap();
            if taken < step {
                return all;
            }
        }
    }

    /// Everything that the directory says must be what the model says.
    pub fn check(&mut self) {
        for step in [7, usize::MAX] {
            let listed = self.list(step);
            assert_eq!((listed[0].name.as_slice(), listed[0].ino), (&b"."[..], self.dir.ino.0));
            assert_eq!(listed[1].name, b"..");
            let mut names: Vec<(Vec<u8>, InodeNr)> =
                listed[2..].iter().map(|e| (e.name.clone(), InodeNr(e.ino))).collect();
            names.sort();
            let wanted: Vec<_> = self.model.iter().map(|(n, i)| (n.clone(), *i)).collect();
            assert!(names == wanted, "listing: {} names instead of {}", names.len(), wanted.len());
        }
        for (name, ino) in &self.model {
            assert_eq!(self.lookup(name), Some(*ino), "{}", name.escape_ascii());
        }
        assert_eq!(dir::is_empty(&self.vol, &self.dir).unwrap(), self.model.is_empty());
    }

    /// Writes link counts, commits and checkpoints everything, and writes the image file.
    pub fn save(&mut self) {
        let mut h = self.vol.journal.start(FILES as u32 + 2).unwrap();
        for file in self.files {
            let mut raw = self.vol.read_inode(file).unwrap();
            raw.links = 1 + self.model.values().filter(|ino| **ino == file).count() as u16;
            self.vol
                .write_inode(&mut h, file, &raw, crate::fast_commit::eligibility::Change::default())
                .unwrap();
        }
        self.vol.alloc.flush_super(&mut h, &self.cell).unwrap();
        h.stop().unwrap();
        self.vol.journal.commit_all().unwrap();
        std::fs::write(&self.image.path, self.device.to_bytes()).unwrap();
    }

    /// Checks the image with e2fsck.
    #[track_caller]
    pub fn fsck(&mut self, what: &str) {
        self.save();
        e2fsck(&self.image).assert_clean(what);
    }

    /// Lets Linux list and look up the names, if the machine can.
    pub fn ask_linux(&mut self) {
        use std::os::unix::ffi::{OsStrExt, OsStringExt};
        // Linux mounts no blocks that are larger than its pages.
        if self.vol.geo.block_len() > 4096
            || !require(&[Need::Root, Need::Loop, Need::Kernel("ext4")])
        {
            return;
        }
        self.save();
        let mount = KernelMount::mount(&self.image, &self.scratch.dir("mnt"), &["ro"]);
        let dir = mount.path().join("d");
        let mut names: Vec<Vec<u8>> =
            std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name().into_vec()).collect();
        names.sort();
        assert!(names.iter().eq(self.model.keys()), "Linux lists other names");
        for name in self.model.keys() {
            assert!(
                dir.join(std::ffi::OsStr::from_bytes(name)).exists(),
                "{}",
                name.escape_ascii()
            );
        }
        mount.unmount();
    }

    /// Lets Linux add and remove names, and opens the volume again. `None` if the machine cannot.
    pub fn changed_by_linux(mut self, add: usize, remove: usize) -> Option<Self> {
        use std::os::unix::ffi::OsStrExt;
        if !require(&[Need::Root, Need::Loop, Need::Kernel("ext4")]) {
            return None;
        }
        self.save();
        let mount = KernelMount::mount(&self.image, &self.scratch.dir("mnt"), &[]);
        let dir = mount.path().join("d");
        let place = |name: &[u8]| dir.join(std::ffi::OsStr::from_bytes(name));
        for n in 0..add {
            let name = self.new_name(10 + n % 100);
            std::fs::hard_link(mount.path().join("files/f1"), place(&name)).unwrap();
            let file = self.files[1];
            self.model.insert(name, file);
        }
        for _ in 0..remove {
            let name = self.some_name().unwrap();
            std::fs::remove_file(place(&name)).unwrap();
            self.model.remove(&name);
        }
        mount.unmount();
        let Self { scratch, image, model, rng, .. } = self;
        Some(Self { model, rng, ..Self::open(scratch, image) })
    }

    /// Lets Linux add names to its view of the directory, and gives the size that it then has.
    /// `None` if the machine cannot.
    pub fn size_by_linux(&mut self, names: &[Vec<u8>]) -> Option<u64> {
        use std::os::unix::ffi::OsStrExt;
        if !require(&[Need::Root, Need::Loop, Need::Kernel("ext4")]) {
            return None;
        }
        self.save();
        let mount = KernelMount::mount(&self.image, &self.scratch.dir("mnt"), &[]);
        let dir = mount.path().join("d");
        for name in names {
            let place = dir.join(std::ffi::OsStr::from_bytes(name));
            std::fs::hard_link(mount.path().join("files/f1"), place).unwrap();
        }
        let size = std::fs::metadata(&dir).unwrap().len();
        mount.unmount();
        Some(size)
    }

    /// A few thousand random operations.
    pub fn play(&mut self, operations: usize, longest: usize, grow: f64) {
        for _ in 0..operations {
            let len = self.rng.random_range(1..=longest);
            let dice: f64 = self.rng.random();
            if dice < grow {
                let name = self.new_name(len.max(2));
                assert_eq!(self.lookup(&name), None);
                self.add(&name).unwrap();
            } else if dice < grow + 0.03 {
                let Some(name) = self.some_name() else { continue };
                assert_eq!(self.add(&name), Err(FsError::Exists));
            } else if dice < grow + 0.06 {
                let Some(name) = self.some_name() else { continue };
                let file = self.rng.random_range(0..FILES);
                self.replace(&name, file).unwrap();
            } else if dice < grow + 0.08 {
                let name = self.new_name(len);
                assert_eq!(self.remove(&name), Err(FsError::NotFound));
                assert_eq!(self.replace(&name, 0), Err(FsError::NotFound));
            } else {
                let Some(name) = self.some_name() else { continue };
                self.remove(&name).unwrap();
                assert_eq!(self.lookup(&name), None);
            }
        }
    }
}

/// One request that changes an image.
fn write_by_debugfs(image: &Image, request: &str) {
    let mut command = extol_testkit::tool("debugfs");
    command.arg("-w").arg("-R").arg(request).arg(&image.path);
    let done = extol_testkit::run(&mut command, Duration::from_secs(60));
    assert!(done.success(), "debugfs {request}: {done:?}");
}

/// What debugfs says of the directory's index.
pub fn htree_dump(lab: &mut Lab) -> String {
    lab.save();
    debugfs(&lab.image, "htree_dump /d")
}
