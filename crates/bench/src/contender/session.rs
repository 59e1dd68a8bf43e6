//! One volume from mkfs to unmount.

use std::path::PathBuf;
use std::sync::Arc;

use extol::mkfs::{MkfsOptions, mkfs};
use extol::{Ext4, MountOptions};
use extol_device::{CountingDevice, SharedDevice};

use super::medium::{Emulated, MountPoint, Outside, Scratch};
use super::reading::{DeviceReading, Reading, cpu_of, kernel_transactions, own_cpu};
use super::{Contender, Place, VolumeSpec};
use crate::subject::{Mounted, SubjectKind};
use crate::target::{Dir, Library, Target};
use crate::{BenchError, Result};

/// A contender that is ready to run on a fresh volume. Dropping it cleans up, too; [`finish`](Self::finish) says whether
/// it worked.
pub struct Session {
    target: Arc<dyn Target>,
    kind: Kind,
}

enum Kind {
    Library {
        fs: Arc<Ext4>,
        device: Arc<CountingDevice<SharedDevice>>,
        emulated: Option<Arc<Emulated>>,
        _file: Option<Scratch>,
    },
    Mounted {
        mounted: Mounted,
        extol: PathBuf,
        source: Outside,
        _dir: MountPoint,
    },
    Dir(PathBuf),
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

impl Session {
    /// Makes the volume and opens or mounts it.
    ///
    /// # Errors
    /// One line: what cannot be made, opened or mounted.
    pub fn start(contender: &Contender, place: &Place, volume: &VolumeSpec) -> Result<Self> {
        match contender {
            Contender::Library(options) => Self::library(place, volume, options),
            Contender::Mounted(kind, options) => Self::mounted(place, volume, *kind, options),
            Contender::Dir(path) => Self::dir(path),
        }
    }

    fn library(place: &Place, volume: &VolumeSpec, options: &str) -> Result<Self> {
        let options = MountOptions::parse(options).map_err(BenchError)?;
        let inside = place.inside(volume.size, &|device| make(device, volume))?;
        let device = Arc::new(CountingDevice::new(inside.device));
        let fs = Ext4::open(device.clone(), &options).map_err(|e| BenchError(e.to_string()))?;
        let target = Arc::new(Library::new(Arc::clone(&fs)));
        Ok(Self {
            target,
            kind: Kind::Library { fs, device, emulated: inside.emulated, _file: inside._file },
        })
    }

    fn mounted(place: &Place, volume: &VolumeSpec, kind: SubjectKind, options: &str) -> Result<Self> {
        let source = place.outside(volume.size, &|device| make(device, volume))?;
        let dir = place.mount_point()?;
        let mounted = Mounted::mount(kind, &source.source, &dir.0, &place.extol, options)?;
        let target = Dir::open(&dir.0).map_err(|e| BenchError(format!("{}: {e}", dir.0.display())))?;
        let kind = Kind::Mounted { mounted, extol: place.extol.clone(), source, _dir: dir };
        Ok(Self { target: Arc::new(target), kind })
    }

    fn dir(path: &std::path::Path) -> Result<Self> {
        let dir = path.join(format!("extol-bench-{}", std::process::id()));
        let fail = |e: std::io::Error| BenchError(format!("{}: {e}", dir.display()));
        std::fs::create_dir(&dir).map_err(fail)?;
        let target = Dir::open(&dir).map_err(fail)?;
        Ok(Self { target: Arc::new(target), kind: Kind::Dir(dir) })
    }

    /// Where loads run.
    #[must_use]
    pub fn target(&self) -> &Arc<dyn Target> {
        &self.target
    }

    /// The volume, if it is open in this process.
    #[must_use]
    pub fn volume(&self) -> Option<&Arc<Ext4>> {
        match &self.kind {
            Kind::Library { fs, .. } => Some(fs),
            _ => None,
        }
    }

    /// The counters now.
    #[must_use]
    pub fn reading(&self) -> Reading {
        let mut reading = Reading { own_cpu: own_cpu(), ..Reading::default() };
        match &self.kind {
            Kind::Library { fs, device, emulated, .. } => {
                reading.medium = emulated.as_ref().map(|m| m.medium_stats());
                reading.device = Some(device.stats().into());
                reading.stats = serde_json::to_value(fs.stats()).ok();
            }
            Kind::Mounted { mounted, source, .. } => {
                reading.daemon_cpu = mounted.daemon().and_then(cpu_of);
                reading.device = DeviceReading::of_node(&source.source);
                reading.stats = mounted.stats();
                reading.transactions = kernel_transactions(&source.source);
            }
            Kind::Dir(_) => {}
        }
        reading.transactions = reading.counter("/journal/transactions").or(reading.transactions);
        reading
    }

    /// Writes everything and unmounts.
    ///
    /// # Errors
    /// If something could not be written, or the volume met damage while it was open.
    pub fn finish(self) -> Result<()> {
        let Self { target, kind } = self;
        drop(target);
        match kind {
            Kind::Library { fs, .. } => {
                let trouble = fs.trouble();
                fs.unmount().map_err(|e| BenchError(format!("unmount: {e}")))?;
                trouble.map_or(Ok(()), |line| Err(BenchError(line)))
            }
            Kind::Mounted { mounted, extol, source, _dir } => mounted.unmount(&extol, &source.source),
            Kind::Dir(dir) => std::fs::remove_dir_all(&dir)
                .map_err(|e| BenchError(format!("cannot remove {}: {e}", dir.display()))),
        }
    }
}

/// Makes the volume.
fn make(device: &SharedDevice, spec: &VolumeSpec) -> Result<()> {
    let mut options = MkfsOptions { size: Some(spec.size), ..MkfsOptions::default() };
    options.journal.size_mib = spec.journal_mib;
    options.extended.lazy_itable_init = Some(spec.lazy);
    options.extended.lazy_journal_init = spec.lazy;
    mkfs(&**device, &options, &mut |_| {}).map(drop).map_err(|e| BenchError(format!("mkfs: {e}")))
}
