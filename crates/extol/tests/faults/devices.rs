//! The failing devices of one run, and what is on their media.

use std::sync::Arc;

use extol::device::{BlockDevice, MemDevice, SharedDevice};
use extol::mkfs::{JournalDevice, MkfsOptions, mkfs};
use extol::{Ext4, MountOptions};
use extol_ondisk::Superblock;
use rand::Rng;
use rand::rngs::SmallRng;

use crate::device::Faulty;
use crate::ledger::Ledger;

/// Directories with a ledger each. The last ones are not touched by a single thread, and must not
/// change.
const LEDGERS: usize = 4;
/// Operations in each that happened before.
const BEFORE: usize = 25;
/// A kind of volume, and how it is mounted.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    pub name: &'static str,
    pub options: &'static str,
    pub external: bool,
}

/// Which device fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    Volume,
    Log,
}

/// A volume with some contents, and its journal if that is a device of its own.
#[derive(Clone, Debug)]
pub struct Base {
    volume: Arc<MemDevice>,
    log: Option<Arc<MemDevice>>,
    /// Where the journal's superblock is on its device.
    journal_at: u64,
    pub ledgers: Vec<Ledger>,
}

impl Base {
    pub fn new(external: bool) -> Self {
        let volume = Arc::new(MemDevice::new(5 << 20));
        let mut options = MkfsOptions {
            block_size: Some(1024),
            blocks_per_group: Some(2048),
            inodes: Some(288),
            ..MkfsOptions::default()
        };
        let log = external.then(|| {
            let log = Arc::new(MemDevice::new((1 << 20) + (64 << 10)));
            let journal = MkfsOptions {
                features: vec!["journal_dev".into()],
                block_size: Some(1024),
                ..MkfsOptions::default()
            };
            mkfs(&*log, &journal, &mut |_| {}).unwrap();
            log
        });
        match &log {
            Some(log) => {
                options.journal.device_path = Some("the journal".into());
                options.journal.device =
                    Some(JournalDevice { device: Arc::clone(log) as SharedDevice, rdev: 0 });
            }
            None => options.journal.size_mib = Some(1),
        }
        mkfs(&*volume, &options, &mut |_| {}).unwrap();
        let journal_at = find_journal(log.as_deref().unwrap_or(&volume));
        let log_device = log.clone().map(|l| l as SharedDevice);
        let options = MountOptions::default().without_threads().with_journal(log_device);
        let fs = Ext4::open(Arc::clone(&volume) as SharedDevice, &options).unwrap();
        let mut ledgers: Vec<_> = (0..LEDGERS)
            .map(|n| Ledger::begin(&fs, &format!("/d{n}"), n as u64).unwrap())
            .collect();
        for ledger in &mut ledgers {
            (0..BEFORE).for_each(|_| ledger.step(&fs).unwrap());
        }
        fs.unmount().unwrap();
        ledgers.iter_mut().for_each(Ledger::closed);
        Self { volume, log, journal_at, ledgers }
    }
}

/// The journal's superblock: magic number and type.
fn find_journal(device: &MemDevice) -> u64 {
    let mut head = [0; 8];
    (0..device.size() / 1024)
        .map(|n| n * 1024)
        .find(|at| {
            device.read_at(&mut head, *at).unwrap();
            head == [0xC0, 0x3B, 0x39, 0x98, 0, 0, 0, 4]
        })
        .expect("a journal superblock")
}

/// What is on the media.
pub struct Media {
    pub volume: MemDevice,
    pub log: Option<MemDevice>,
}

impl Media {
    pub fn superblock(&self) -> Superblock {
        let mut bytes = [0; 1024];
        self.volume.read_at(&mut bytes, 1024).unwrap();
        Superblock::decode(&bytes).unwrap()
    }

    pub fn journal_errno(&self, base: &Base) -> i32 {
        let mut bytes = [0; 4];
        self.log
            .as_ref()
            .unwrap_or(&self.volume)
            .read_at(&mut bytes, base.journal_at + 0x20)
            .unwrap();
        i32::from_be_bytes(bytes)
    }

    pub fn shared(self) -> (Arc<MemDevice>, Option<Arc<MemDevice>>) {
        (Arc::new(self.volume), self.log.map(Arc::new))
    }
}

/// The devices of one run.
pub struct Devices {
    pub variant: Variant,
    pub base: Base,
    pub volume: Arc<Faulty>,
    pub log: Option<Arc<Faulty>>,
}

impl Devices {
    pub fn new(variant: Variant, base: &Base) -> Self {
        let volume = Faulty::new(base.volume.snapshot());
        let log = base.log.as_ref().map(|l| Faulty::new(l.snapshot()));
        Self { variant, base: base.clone(), volume, log }
    }

    pub fn mount(&self, threads: bool) -> Arc<Ext4> {
        let mut options = MountOptions::parse(self.variant.options).unwrap();
        options.background.threads = threads;
        options.journal.device = self.log.clone().map(|l| l as SharedDevice);
        // Reads must reach the device.
        options.cache.metadata_bytes = 1 << 20;
        Ext4::open(Arc::clone(&self.volume) as SharedDevice, &options).unwrap()
    }

    pub fn device(&self, side: Side) -> &Arc<Faulty> {
        match (side, &self.log) {
            (Side::Log, Some(log)) => log,
            _ => &self.volume,
        }
    }

    pub fn written(&self) -> Media {
        Media { volume: self.volume.written(), log: self.log.as_ref().map(|l| l.written()) }
    }

    /// The media after a power cut. `survival`: the share of unflushed writes that survive.
    pub fn cut(&self, survival: f64, rng: &mut SmallRng) -> Media {
        let volume = self.volume.cut(|| rng.random_bool(survival));
        Media { volume, log: self.log.as_ref().map(|l| l.cut(|| rng.random_bool(survival))) }
    }

    pub fn panics(&self) -> bool {
        self.variant.options.contains("errors=panic")
    }
}
