//! What volumes lie on.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use extol_block::open::{OpenName, Window, is_address};
use extol_block::{
    BlockDevice as _, DeviceError, FileDevice, MemDevice, OpenOptions, SharedDevice,
};
use extol_devices::{EmulatedMedia, Profile};

use super::VolumeSpec;
use super::stale::Stale;
use crate::medium::Served;
use crate::subject::Loop;
use crate::target::forget_file;
use crate::{BenchError, Programs, Result};

/// A medium.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Medium {
    /// Memory of this process; for mounts, a file in `/dev/shm`.
    Memory,
    /// A sparse file.
    Image,
    /// A block device, or the address of one of another host, which is overwritten.
    Device(PathBuf),
    /// Memory that is as slow as another medium.
    Emulated(Profile),
}

impl Medium {
    /// Understands the text of the command line.
    ///
    /// # Errors
    /// One line that says what is possible.
    pub fn parse(text: &str) -> Result<Self> {
        Ok(match text {
            "memory" => Self::Memory,
            "image" => Self::Image,
            _ if text.starts_with("/dev/") || is_address(Path::new(text)) => {
                Self::Device(text.into())
            }
            _ => Self::Emulated(Profile::from_text(text).map_err(|e| {
                BenchError(format!(
                    "{e}; or memory, image, or a block device under /dev or at an address \
                     (nbd://), which is overwritten"
                ))
            })?),
        })
    }
}

impl Medium {
    /// The name under which published figures are kept: that of the profile, or the text.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::Memory => "memory",
            Self::Image => "image",
            Self::Device(_) => "device",
            Self::Emulated(profile) => profile.name(),
        }
    }
}

impl fmt::Display for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::Image => f.write_str("image"),
            Self::Device(path) => write!(f, "{}", path.display()),
            Self::Emulated(profile) => write!(f, "{profile}"),
        }
    }
}

/// A medium and where its files go.
#[derive(Clone, Debug)]
pub struct Place {
    /// The medium.
    pub medium: Medium,
    /// Directory for images and mount points.
    pub dir: PathBuf,
    /// The programs that are started for mounts and media.
    pub programs: Programs,
}

/// A file that is removed when dropped.
#[derive(Debug)]
pub(super) struct Scratch(pub PathBuf);

impl Scratch {
    /// The kernel forgets the file's data.
    pub fn forget(&self) -> Result<()> {
        forget_file(&self.0).map_err(|e| BenchError(format!("{}: {e}", self.0.display())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Memory that is as slow as another medium.
pub(super) type Emulated = EmulatedMedia<SharedDevice>;

/// A fresh device for use in this process. `prepare` makes the volume before the medium's delays
/// begin.
pub(super) struct Inside {
    pub device: SharedDevice,
    /// The same, if it is emulated.
    pub emulated: Option<Arc<Emulated>>,
    /// After the device, so that the file goes last.
    pub file: Option<Scratch>,
}

/// A fresh device with a node, for mounts.
pub(super) struct Outside {
    pub source: String,
    /// A process that serves an emulated medium, with a loop device on it.
    pub served: Option<Served>,
    /// Before the file, so that the loop device goes first.
    pub _attached: Option<Loop>,
    pub file: Option<Scratch>,
}

impl Outside {
    /// The kernel forgets what it keeps of the device and of the file under it.
    pub fn forget(&self) -> Result<()> {
        if is_address(Path::new(&self.source)) {
            return Ok(());
        }
        forget_file(Path::new(&self.source))
            .map_err(|e| BenchError(format!("{}: {e}", self.source)))?;
        self.file.as_ref().map_or(Ok(()), Scratch::forget)
    }
}

impl Place {
    /// A device in this process, on which `prepare` has made a volume.
    pub(super) fn inside(
        &self,
        volume: &VolumeSpec,
        prepare: &dyn Fn(&SharedDevice) -> Result<()>,
    ) -> Result<Inside> {
        let size = volume.size;
        let aged = |device: SharedDevice| -> SharedDevice {
            if volume.stale { Arc::new(Stale::new(device)) } else { device }
        };
        match &self.medium {
            Medium::Memory => {
                let device = aged(Arc::new(MemDevice::new(size)));
                prepare(&device)?;
                Ok(Inside { device, emulated: None, file: None })
            }
            Medium::Emulated(profile) => {
                let memory = aged(Arc::new(MemDevice::new(size)));
                prepare(&memory)?;
                let emulated = Arc::new(Emulated::new(memory, profile.clone()));
                let device: SharedDevice = Arc::clone(&emulated) as SharedDevice;
                Ok(Inside { device, emulated: Some(emulated), file: None })
            }
            Medium::Image => {
                let file = self.scratch(&self.dir);
                let device = aged(open(&file.0, &OpenOptions::read_write().create_size(size))?);
                prepare(&device)?;
                Ok(Inside { device, emulated: None, file: Some(file) })
            }
            Medium::Device(path) => {
                let device = open(path, &OpenOptions::read_write())?;
                prepare(&device)?;
                Ok(Inside { device, emulated: None, file: None })
            }
        }
    }

    /// A device with a node, on which `prepare` has made a volume.
    pub(super) fn outside(
        &self,
        volume: &VolumeSpec,
        prepare: &dyn Fn(&SharedDevice) -> Result<()>,
    ) -> Result<Outside> {
        let dir = match &self.medium {
            Medium::Memory => Path::new("/dev/shm"),
            Medium::Image => &self.dir,
            Medium::Emulated(profile) => {
                let served = Served::start(&self.programs.bench, profile, volume.size)?;
                let source = served.device().display().to_string();
                prepare(&open(served.device(), &OpenOptions::read_write())?)?;
                return Ok(Outside { source, served: Some(served), _attached: None, file: None });
            }
            Medium::Device(path) => {
                prepare(&open(path, &OpenOptions::read_write())?)?;
                return Ok(Outside {
                    source: path.display().to_string(),
                    served: None,
                    _attached: None,
                    file: None,
                });
            }
        };
        let file = self.scratch(dir);
        prepare(&open(&file.0, &OpenOptions::read_write().create_size(volume.size))?)?;
        let attached = Loop::attach(&file.0)?;
        Ok(Outside {
            source: attached.device.clone(),
            served: None,
            _attached: Some(attached),
            file: Some(file),
        })
    }

    /// What a small write and a flush take on the device that mounts get: median of 32.
    ///
    /// # Errors
    /// If there is no such device here.
    pub fn flush_time(&self) -> Result<Duration> {
        const SIZE: u64 = 64 << 20;
        let volume = VolumeSpec { size: SIZE, ..VolumeSpec::default() };
        let node = self.outside(&volume, &|_| Ok(()))?;
        let device = open(Path::new(&node.source), &OpenOptions::read_write())?;
        let fail = |e: DeviceError| BenchError(e.to_string());
        let mut times = (0..32)
            .map(|n| {
                device.write_at(&[1; 4096], (n << 20) % SIZE).map_err(fail)?;
                let began = Instant::now();
                device.flush().map_err(fail)?;
                Ok(began.elapsed())
            })
            .collect::<Result<Vec<_>>>()?;
        times.sort_unstable();
        Ok(times[times.len() / 2])
    }

    fn scratch(&self, dir: &Path) -> Scratch {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        Scratch(dir.join(format!("extol-bench-{}-{n}.img", std::process::id())))
    }

    /// A directory to mount on; it is removed when dropped.
    pub(super) fn mount_point(&self) -> Result<MountPoint> {
        let fail =
            |e: std::io::Error| BenchError(format!("{}: {e} (see --dir)", self.dir.display()));
        // The table of mounts has absolute paths.
        let dir = self.scratch(&self.dir.canonicalize().map_err(fail)?).0.with_extension("mnt");
        std::fs::create_dir(&dir).map_err(fail)?;
        Ok(MountPoint(dir))
    }
}

/// An empty directory, removed when dropped.
#[derive(Debug)]
pub(super) struct MountPoint(pub PathBuf);

impl Drop for MountPoint {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// Opens a file, a block device, or a device of another host.
pub(super) fn open(path: &Path, how: &OpenOptions) -> Result<SharedDevice> {
    if is_address(path) {
        let opened = OpenName::parse(path, Window::default())
            .and_then(|name| extol_block::open::open(&name, how));
        return opened.map(|opened| opened.device).map_err(|e| BenchError(e.to_string()));
    }
    match FileDevice::open(path, how) {
        Ok(device) => Ok(Arc::new(device)),
        Err(e) => {
            let text = e.to_string();
            let name = path.display().to_string();
            Err(BenchError(if text.contains(&name) { text } else { format!("{name}: {text}") }))
        }
    }
}
