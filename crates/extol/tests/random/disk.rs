//! Volumes for the tests, checked by e2fsck.

use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use extol::device::{BlockDevice, MemDevice, SharedDevice};
use extol::mkfs::{JournalDevice, MkfsOptions, mkfs};
use extol::{Ext4, MountOptions};
use extol_devices::RecordingDevice;
use rand::Rng;
use rand::rngs::SmallRng;

/// A kind of volume, and how it is mounted.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    pub name: &'static str,
    /// Arguments of mke2fs.
    pub args: &'static [&'static str],
    /// Mount options.
    pub options: &'static str,
    /// The journal is on a device of its own.
    pub external: bool,
}

impl Variant {
    pub const fn new(name: &'static str, args: &'static [&'static str]) -> Self {
        Self { name, args, options: "", external: false }
    }

    pub const fn with(self, options: &'static str) -> Self {
        Self { options, ..self }
    }

    pub fn has_journal(&self) -> bool {
        !self.args.contains(&"ext2") && !self.args.iter().any(|a| a.contains("^has_journal"))
    }
}

/// The device that a mount works on.
#[derive(Debug)]
enum Under {
    /// What is written is there.
    Plain,
    /// What was not flushed may be lost by a crash.
    Recorded(Arc<RecordingDevice>),
}

/// A volume: its bytes between mounts, and its device while it is mounted.
#[derive(Debug)]
pub struct Disk {
    variant: Variant,
    volume: Arc<MemDevice>,
    log: Option<Arc<MemDevice>>,
    under: Under,
}

impl Disk {
    pub fn new(variant: Variant, size: &str) -> Self {
        if !variant.external {
            let volume = made_by_mke2fs(size, variant.args);
            return Self { variant, volume, log: None, under: Under::Plain };
        }
        let log = Arc::new(MemDevice::new(8 << 20));
        let journal = MkfsOptions {
            features: vec!["journal_dev".into()],
            block_size: Some(4096),
            ..MkfsOptions::default()
        };
        mkfs(&*log, &journal, &mut |_| {}).unwrap();
        let volume = Arc::new(MemDevice::new(64 << 20));
        let mut options = MkfsOptions { block_size: Some(4096), ..MkfsOptions::default() };
        options.journal.device_path = Some("the journal".into());
        options.journal.device =
            Some(JournalDevice { device: Arc::clone(&log) as SharedDevice, rdev: 0 });
        mkfs(&*volume, &options, &mut |_| {}).unwrap();
        Self { variant, volume, log: Some(log), under: Under::Plain }
    }

    pub fn block_size(&self) -> u64 {
        let mut byte = [0];
        self.volume.read_at(&mut byte, 1024 + 0x18).unwrap();
        1024 << byte[0]
    }

    /// Without bigalloc, the block size.
    pub fn cluster_size(&self) -> u64 {
        let mut byte = [0];
        self.volume.read_at(&mut byte, 1024 + 0x1C).unwrap();
        1024 << byte[0]
    }

    pub fn has_extents(&self) -> bool {
        let mut byte = [0];
        self.volume.read_at(&mut byte, 1024 + 0x60).unwrap();
        byte[0] & 0x40 != 0
    }

    pub fn has_small_inodes(&self) -> bool {
        let mut size = [0; 2];
        self.volume.read_at(&mut size, 1024 + 0x58).unwrap();
        u16::from_le_bytes(size) <= 128
    }

    /// Mounts it; sometimes so that a crash loses what was not flushed.
    pub fn mount(&mut self, rng: &mut SmallRng) -> Arc<Ext4> {
        let mut options = MountOptions::parse(self.variant.options).unwrap();
        options.journal.device = self.log.clone().map(|log| log as SharedDevice);
        let record = self.log.is_none() && self.variant.has_journal() && rng.random_bool(0.5);
        let device: SharedDevice = if record {
            let recording = Arc::new(RecordingDevice::new(self.volume.snapshot()));
            self.under = Under::Recorded(Arc::clone(&recording));
            recording
        } else {
            self.under = Under::Plain;
            Arc::clone(&self.volume) as SharedDevice
        };
        Ext4::open(device, &options).unwrap()
    }

    /// The mount ended cleanly.
    pub fn unmounted(&mut self) {
        if let Under::Recorded(device) = std::mem::replace(&mut self.under, Under::Plain) {
            self.volume = Arc::new(device.current());
        }
    }

    /// Cuts the power. Called with the file system mounted, which must then crash as well.
    pub fn power_cut(&mut self, rng: &mut SmallRng) {
        if let Under::Recorded(device) = std::mem::replace(&mut self.under, Under::Plain) {
            let survival = [0.0, 0.1, 0.5, 0.9, 1.0][rng.random_range(0..5)];
            let torn = rng.random_bool(0.5);
            let cut = device.position();
            self.volume = Arc::new(if torn {
                device.torn_image_at(cut, |_, _| rng.random_bool(survival))
            } else {
                device.image_at(cut, |_| rng.random_bool(survival))
            });
        }
    }

    /// e2fsck must find nothing in the unmounted volume.
    pub fn assert_clean(&self, what: &str) {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        save(&self.volume, &image);
        let mut e2fsck = Command::new("e2fsck");
        if let Some(log) = &self.log {
            let journal = dir.path().join("journal");
            save(log, &journal);
            e2fsck.arg("-j").arg(journal);
        }
        let out = e2fsck.arg("-fn").arg(&image).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout);
        let errors = String::from_utf8_lossy(&out.stderr);
        if out.status.code() != Some(0) {
            if let Some(keep) = std::env::var_os("EXTOL_KEEP_IMAGE") {
                save(&self.volume, Path::new(&keep));
            }
            panic!("{what}: e2fsck says\n{text}{errors}");
        }
    }
}

fn made_by_mke2fs(size: &str, args: &[&str]) -> Arc<MemDevice> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let out =
        Command::new("mke2fs").args(["-q", "-F"]).args(args).arg(&path).arg(size).output().unwrap();
    assert!(out.status.success(), "mke2fs: {}", String::from_utf8_lossy(&out.stderr));
    Arc::new(MemDevice::from_bytes(&std::fs::read(&path).unwrap()))
}

/// Writes a device into a sparse file.
pub fn save(device: &MemDevice, path: &Path) {
    const STEP: usize = 64 << 10;
    let mut file = std::fs::File::create(path).unwrap();
    file.set_len(device.size()).unwrap();
    let copy = device.snapshot();
    let mut buf = vec![0; STEP];
    let mut at = 0;
    while at < copy.size() {
        let n = (copy.size() - at).min(STEP as u64) as usize;
        copy.read_at(&mut buf[..n], at).unwrap();
        if buf[..n].iter().any(|b| *b != 0) {
            file.seek(SeekFrom::Start(at)).unwrap();
            file.write_all(&buf[..n]).unwrap();
        }
        at += n as u64;
    }
}
