//! A volume in a sparse file that is opened and closed many times.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use extol::device::{FileDevice, SharedDevice};
use extol::mkfs::{MkfsOptions, mkfs};
use extol::vfs::FileSystem as _;
use extol::{Ext4, MountOptions};
use extol_devices::CountingDevice;
use tempfile::{Builder, NamedTempFile, TempDir};

use super::process::Process;
use crate::contender::{Contender, DeviceReading};
use crate::subject::{Loop, Mounted, SubjectKind};
use crate::target::{Dir, Library, Target};
use crate::{BenchError, Programs, Result};

/// A target that can use a volume in an image: this process, or a mount.
pub(super) fn target(text: &str) -> Result<Contender> {
    match Contender::parse(text)? {
        target @ (Contender::Library(_) | Contender::Mounted(..)) => Ok(target),
        _ => Err(BenchError(format!(
            "target \"{text}\" does not take part here: library, mount, before, kernel or fuse2fs \
             (each may be followed by :OPTIONS)"
        ))),
    }
}

pub(super) fn fail(
    what: impl std::fmt::Display,
) -> impl FnOnce(&dyn std::fmt::Display) -> BenchError {
    move |e| BenchError(format!("{what}: {e}"))
}

/// A sparse file for a volume; removed when dropped.
#[derive(Debug)]
pub(super) struct Image {
    file: NamedTempFile,
}

impl Image {
    /// An empty one of this size.
    pub fn new(dir: &Path, size: u64) -> Result<Self> {
        let at = |e: std::io::Error| BenchError(format!("{}: {e} (see --dir)", dir.display()));
        let file =
            Builder::new().prefix("extol-bench-").suffix(".img").tempfile_in(dir).map_err(at)?;
        file.as_file().set_len(size).map_err(at)?;
        Ok(Self { file })
    }

    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Another one with the same bytes, holes where it has holes or zeros.
    pub fn copy(&self, dir: &Path) -> Result<Self> {
        let copy = Self::new(dir, 0)?;
        let [from, to] = [self.path(), copy.path()];
        let words = ["--sparse=always".as_ref(), from.as_os_str(), to.as_os_str()];
        crate::subject::run("cp", &words)?;
        Ok(copy)
    }

    /// Bytes that the host's file system gave it.
    pub fn allocated(&self) -> Result<u64> {
        use std::os::unix::fs::MetadataExt as _;
        Ok(self.file.as_file().metadata().map_err(|e| BenchError(e.to_string()))?.blocks() * 512)
    }

    /// It, as a device whose requests are counted.
    pub fn device(&self) -> Result<Arc<CountingDevice<SharedDevice>>> {
        let how = extol::device::OpenOptions::read_write();
        let file = FileDevice::open(self.path(), &how).map_err(|e| fail("image")(&e))?;
        Ok(Arc::new(CountingDevice::new(Arc::new(file) as SharedDevice)))
    }

    /// Makes a volume on it; gives how long that took.
    pub fn mkfs(&self, options: &MkfsOptions) -> Result<Duration> {
        let device = self.device()?;
        let began = Instant::now();
        mkfs(&*device, options, &mut |_| {}).map_err(|e| fail("mkfs")(&e))?;
        Ok(began.elapsed())
    }

    /// Levels of the index of a directory on a volume that is not open now; 0 if it has none.
    pub fn htree_levels(&self, path: &str) -> Result<u32> {
        let device: SharedDevice = self.device()?;
        let mut options = MountOptions::default().read_only().without_threads();
        options.access.norecovery = true;
        let fs = Ext4::open(Arc::clone(&device), &options).map_err(|e| fail("open")(&e))?;
        let found = || -> extol::vfs::Result<Option<u64>> {
            let dir = fs.inode(path)?;
            let map = fs.fiemap(dir.ino(), 0, 4096)?;
            let size = dir.attr()?.size;
            let block = u64::from(fs.statfs()?.block_size);
            Ok(map.first().map(|extent| extent.physical).filter(|_| size > block))
        };
        let Some(at) = found().map_err(|e| fail(path)(&e))? else { return Ok(0) };
        // The root's information follows `.` and `..` (12 bytes each): reserved, hash version,
        // length, levels below.
        let mut root = vec![0; 4096];
        device.read_at(&mut root, at).map_err(|e| fail("image")(&e))?;
        Ok(1 + u32::from(root[30]))
    }
}

/// The volume in use.
pub(super) struct Open<'a> {
    target: Arc<dyn Target>,
    kind: Kind<'a>,
}

enum Kind<'a> {
    Library {
        fs: Arc<Ext4>,
        device: Arc<CountingDevice<SharedDevice>>,
    },
    Mount {
        mounted: Mounted,
        worker: Option<Process>,
        attached: Loop,
        _dir: TempDir,
        extol: &'a Path,
    },
}

impl<'a> Open<'a> {
    /// Opens or mounts; gives how long that took.
    pub fn new(
        image: &Image,
        way: &Contender,
        dir: &Path,
        programs: &'a Programs,
    ) -> Result<(Self, Duration)> {
        match way {
            Contender::Library(options) => {
                let options = MountOptions::parse(options).map_err(BenchError)?;
                Self::library(image, &options)
            }
            Contender::Mounted(kind, options) => {
                let extol = programs.mounts(*kind)?;
                let dir = dir
                    .canonicalize()
                    .map_err(|e| BenchError(format!("{}: {e}", dir.display())))?;
                let point = Builder::new().prefix("extol-bench-").suffix(".mnt").tempdir_in(&dir);
                let point =
                    point.map_err(|e| BenchError(format!("{}: {e} (see --dir)", dir.display())))?;
                let attached = Loop::attach(image.path())?;
                let began = Instant::now();
                let mounted =
                    Mounted::mount(*kind, &attached.device, point.path(), extol, options)?;
                let took = began.elapsed();
                let target = Dir::open(point.path()).map_err(|e| fail("mount point")(&e))?;
                // What works for the mount, beside the callers.
                let worker = match kind {
                    SubjectKind::Kernel => Process::jbd2(&attached.device),
                    _ => mounted.daemon().map(Process::Other),
                };
                let kind = Kind::Mount { mounted, worker, attached, _dir: point, extol };
                Ok((Self { target: Arc::new(target), kind }, took))
            }
            other => Err(BenchError(format!("{} uses no volume in an image", other.name()))),
        }
    }

    /// Opens it in this process.
    pub fn library(image: &Image, options: &MountOptions) -> Result<(Self, Duration)> {
        Self::on(image.device()?, options)
    }

    /// Opens a volume on a device that was opened before. (A file is opened by one at a time.)
    pub fn on(
        device: Arc<CountingDevice<SharedDevice>>,
        options: &MountOptions,
    ) -> Result<(Self, Duration)> {
        let began = Instant::now();
        let fs = Ext4::open(device.clone(), options).map_err(|e| fail("open")(&e))?;
        let took = began.elapsed();
        let target = Arc::new(Library::new(Arc::clone(&fs)));
        Ok((Self { target, kind: Kind::Library { fs, device } }, took))
    }

    pub fn target(&self) -> &dyn Target {
        &*self.target
    }

    /// The volume, if it is open in this process.
    pub fn volume(&self) -> Option<&Arc<Ext4>> {
        match &self.kind {
            Kind::Library { fs, .. } => Some(fs),
            Kind::Mount { .. } => None,
        }
    }

    /// The process whose memory grows; the kernel's has no figure.
    pub fn process(&self) -> Option<Process> {
        match &self.kind {
            Kind::Library { .. } => Some(Process::Own),
            Kind::Mount { mounted, .. } => mounted.daemon().map(Process::Other),
        }
    }

    /// Processor time used so far by this process and by the daemon, or by the kernel's thread for
    /// the journal.
    pub fn cpu(&self) -> Duration {
        let worker = match &self.kind {
            Kind::Library { .. } => None,
            Kind::Mount { worker, .. } => worker.map(Process::cpu),
        };
        Process::Own.cpu() + worker.unwrap_or_default()
    }

    /// Requests to the device so far.
    pub fn device(&self) -> Option<DeviceReading> {
        match &self.kind {
            Kind::Library { device, .. } => Some(device.stats().into()),
            Kind::Mount { attached, .. } => DeviceReading::of_node(&attached.device),
        }
    }

    /// Extol's counters.
    pub fn stats(&self) -> Option<serde_json::Value> {
        match &self.kind {
            Kind::Library { fs, .. } => serde_json::to_value(fs.stats()).ok(),
            Kind::Mount { mounted, .. } => mounted.stats(),
        }
    }

    /// Writes everything and closes; gives how long that took.
    pub fn close(self) -> Result<Duration> {
        let Self { target, kind } = self;
        drop(target);
        let began = Instant::now();
        match kind {
            Kind::Library { fs, .. } => {
                let error = fs.first_error();
                fs.unmount().map_err(|e| fail("unmount")(&e))?;
                let took = began.elapsed();
                error.map_or(Ok(took), |line| Err(BenchError(line)))
            }
            Kind::Mount { mounted, attached, _dir, extol, .. } => {
                mounted.unmount(extol, &attached.device)?;
                Ok(began.elapsed())
            }
        }
    }

    /// Stops as a power cut would; only a volume in this process can. False: it was closed instead.
    pub fn crash(self) -> Result<bool> {
        if let Kind::Library { fs, .. } = &self.kind {
            fs.crash();
            return Ok(true);
        }
        self.close().map(|_| false)
    }
}

/// Whether a directory's file system can hold a sparse file of this size.
pub(super) fn holds(dir: &Path, size: u64) -> bool {
    let file: std::io::Result<std::fs::File> =
        Builder::new().prefix("extol-bench-").tempfile_in(dir).map(|f| f.into_file());
    file.is_ok_and(|f| f.set_len(size).is_ok())
}

/// The first of these directories that can hold a sparse file of this size.
pub(super) fn roomy(dirs: &[PathBuf], size: u64) -> Option<&PathBuf> {
    dirs.iter().find(|dir| holds(dir, size))
}

/// Drops what the host keeps of a file in its page cache.
pub(super) fn drop_cached(path: &Path) {
    if let Ok(file) = OpenOptions::new().read(true).write(true).open(path) {
        let _ = file.sync_data();
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    }
}
