//! A volume in memory with a few files to give attributes to.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use extol_block::{MemDevice, SharedDevice};
use extol_jbd2::{Handle, Journal, JournalConfig};
use extol_ondisk::xattr::BlockHeader;
use extol_ondisk::{Geometry, InodeNr, Superblock, Time};
use extol_task::SystemClock;
use extol_testkit::{Image, KernelMount, Need, Scratch, e2fsck};
use extol_vfs::{Result, XattrSet};

use crate::alloc::{AllocOptions, Allocator, SuperCell};
use crate::dir;
use crate::node::Node;
use crate::volume::Volume;
use crate::xattr::{CREDITS, MAX_VALUE, OrphanCheck, Values, credits, get, set};

pub const FILES: usize = 12;
pub const NEEDS_LINUX: [Need; 3] = [Need::Root, Need::Loop, Need::Kernel("ext4")];

/// When all values are made.
const NOW: Time = Time { sec: 1_700_000_000, nsec: 0 };

struct NoOrphans;

impl OrphanCheck for NoOrphans {
    fn is_orphan(&self, _: InodeNr) -> bool {
        false
    }
}

/// A volume with files `f0` to `f11`, a directory `d` and a symbolic link `s`.
pub struct Lab {
    pub scratch: Scratch,
    pub image: Image,
    pub device: Arc<MemDevice>,
    pub vol: Volume,
    pub cell: SuperCell,
}

impl Lab {
    pub fn new(mke2fs: &[&str]) -> Self {
        let scratch = Scratch::new();
        let image = Image::mke2fs(scratch.path(), "xattr.img", 16 << 20, mke2fs);
        let some = scratch.join("some");
        std::fs::write(&some, vec![b'x'; 5000]).unwrap();
        let mut script: String =
            (0..FILES).map(|i| format!("write {} f{i}\n", some.display())).collect();
        script += "mkdir d\nsymlink s target\n";
        let commands = scratch.join("commands");
        std::fs::write(&commands, script).unwrap();
        extol_testkit::run_ok(
            extol_testkit::tool("debugfs").arg("-w").arg("-f").arg(&commands).arg(&image.path),
        );
        Self::open(scratch, image)
    }

    pub fn open(scratch: Scratch, image: Image) -> Self {
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
            cache_bytes: 16 << 20,
            clock: Arc::new(SystemClock::new()),
        })
        .unwrap();
        let alloc = Allocator::open(journal.clone(), &geo, &sb, AllocOptions::default()).unwrap();
        let cell = SuperCell::new(sb, &geo);
        let vol = Volume::new(shared, journal, geo, alloc);
        Self { scratch, image, device, vol, cell }
    }

    /// Writes the image and opens it anew.
    pub fn reopen(self) -> Self {
        self.save();
        let Self { scratch, image, .. } = self;
        Self::open(scratch, image)
    }

    pub fn node(&self, name: &str) -> Node {
        let root = Node { ino: InodeNr::ROOT, raw: self.vol.read_inode(InodeNr::ROOT).unwrap() };
        let (ino, _) = dir::lookup(&self.vol, &root, name.as_bytes()).unwrap().unwrap();
        Node { ino, raw: self.vol.read_inode(ino).unwrap() }
    }

    /// One operation in a handle of its own.
    pub fn run<R>(
        &self,
        node: &mut Node,
        f: impl FnOnce(&Volume, &mut Handle, &mut Node) -> Result<R>,
    ) -> Result<R> {
        self.change(node, |vol, h, node, _| f(vol, h, node))
    }

    /// The same with what a change of attributes needs.
    pub fn change<R>(
        &self,
        node: &mut Node,
        f: impl FnOnce(&Volume, &mut Handle, &mut Node, &mut Values<'_>) -> Result<R>,
    ) -> Result<R> {
        let credits = credits(&self.vol, node, MAX_VALUE) + CREDITS + 1;
        let mut h = self.vol.journal.start(credits).unwrap();
        let mut values = self.values();
        let result = f(&self.vol, &mut h, node, &mut values);
        assert_eq!(values.into_left(), [], "the transaction has room");
        self.vol
            .write_inode(
                &mut h,
                node.ino,
                &node.raw,
                crate::fast_commit::eligibility::Change::default(),
            )
            .unwrap();
        h.stop().unwrap();
        result
    }

    /// The same with an inode that exists only here.
    pub fn run_unwritten(
        &self,
        node: &mut Node,
        f: impl FnOnce(&Volume, &mut Handle, &mut Node, &mut Values<'_>) -> Result<()>,
    ) {
        let mut h = self.vol.journal.start(2 * CREDITS).unwrap();
        f(&self.vol, &mut h, node, &mut self.values()).unwrap();
        h.stop().unwrap();
    }

    pub fn set(&self, node: &mut Node, name: &str, value: &[u8]) -> Result<()> {
        self.change(node, |vol, h, node, values| {
            set(vol, h, node, values, name.as_bytes(), Some(value), XattrSet::Any)
        })
    }

    pub fn get(&self, node: &Node, name: &str) -> Result<Vec<u8>> {
        get(&self.vol, node, name.as_bytes())
    }

    pub fn values(&self) -> Values<'static> {
        Values::new(&NoOrphans, NOW)
    }

    pub fn save(&self) {
        let mut h = self.vol.journal.start(1).unwrap();
        self.vol.alloc.flush_super(&mut h, &self.cell).unwrap();
        h.stop().unwrap();
        self.vol.journal.commit_all().unwrap();
        assert_eq!(self.vol.journal.stats().overdrafts, 0, "a budget was too small");
        std::fs::write(&self.image.path, self.device.to_bytes()).unwrap();
    }

    #[track_caller]
    pub fn fsck(&self, what: &str) {
        self.save();
        e2fsck(&self.image).assert_clean(what);
    }

    pub fn free(&self) -> u64 {
        self.vol.journal.commit_all().unwrap();
        self.vol.alloc.free_blocks()
    }

    pub fn users(&self, node: &Node) -> u32 {
        let buf = self.vol.journal.read(extol_block::BlockNr(node.raw.file_acl)).unwrap();
        BlockHeader::decode(&buf.data()).unwrap().refcount
    }

    /// Lets Linux do something on the volume.
    pub fn with_linux(&self, options: &[&str], f: impl FnOnce(&Path)) {
        let mount = KernelMount::mount(&self.image, &self.scratch.dir("mnt"), options);
        f(mount.path());
        mount.unmount();
    }
}

/// Removes an attribute; `NoAttribute` if it is not there.
pub fn remove(
    vol: &Volume,
    h: &mut Handle,
    node: &mut Node,
    values: &mut Values<'_>,
    name: &[u8],
) -> Result<()> {
    set(vol, h, node, values, name, None, XattrSet::Replace)
}
