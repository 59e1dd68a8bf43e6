//! One volume from mkfs to unmount.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use extol::mkfs::{MkfsOptions, mkfs};
use extol::{Ext4, MountOptions};
use extol_block::{BlockNr, OpenOptions, SharedDevice};
use extol_devices::{CountingDevice, DeviceStats, MediumStats};
use extol_jbd2::batching::BatchPolicy;
use extol_ondisk::{Geometry, GroupDesc, GroupFlags, GroupNr, Superblock};

use super::dirty::DirtyBound;
use super::medium::{Emulated, MountPoint, Outside, Scratch, open};
use super::reading::{DeviceReading, KernelFast, Reading, cpu_of, kernel_transactions, own_cpu};
use super::stale::OLD;
use super::{Contender, Place, VolumeSpec};
use crate::nfs::{Address, Client, Serving};
use crate::noop;
use crate::subject::{Mounted, SubjectKind};
use crate::target::{Dir, Library, Raw, Target, forget_pages};
use crate::workload::Meter;
use crate::{BenchError, Result};

/// A contender that is ready to run on a fresh volume. Dropping it cleans up, too;
/// [`finish`](Self::finish) says whether it worked.
pub struct Session {
    target: Arc<dyn Target>,
    kind: Kind,
}

enum Kind {
    Library {
        fs: Arc<Ext4>,
        device: Arc<CountingDevice<SharedDevice>>,
        under: Under,
        options: String,
        export: Option<Export>,
    },
    Server,
    Mounted {
        mounted: Mounted,
        extol: PathBuf,
        /// Before the device, to which it belongs.
        bound: Option<DirtyBound>,
        source: Outside,
        dir: MountPoint,
        options: String,
    },
    Noop(noop::Mounted),
    Raw {
        device: Arc<CountingDevice<SharedDevice>>,
        source: Outside,
    },
    Dir(PathBuf),
}

/// An export of a volume, and the network to it.
struct Export {
    /// Ends before the volume is closed.
    serving: Serving,
    delay: Duration,
}

/// What lies under a volume that is open in this process; it goes after the volume.
struct Under {
    emulated: Option<Arc<Emulated>>,
    /// What was changed about the node.
    _prepared: Option<Box<dyn Send>>,
    node: Option<Outside>,
    file: Option<Scratch>,
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
            Contender::Node(options) => {
                Self::library_on_node(place, volume, options, &|_| Ok(Box::new(())))
            }
            Contender::Exported(options, delay) => {
                Self::library(place, volume, options)?.exported(*delay)
            }
            Contender::Server(address) => {
                Ok(Self { target: Arc::new(connect(address)?), kind: Kind::Server })
            }
            Contender::Mounted(kind, options) => Self::mounted(place, volume, *kind, options),
            Contender::Noop(options) => Self::noop(place, options),
            Contender::Raw => Self::raw(place, volume),
            Contender::Dir(path) => Self::dir(path),
        }
    }

    fn library(place: &Place, volume: &VolumeSpec, options: &str) -> Result<Self> {
        Self::library_through(place, volume, options, &|device| device)
    }

    /// The library on a medium, with a decorator between them.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub(crate) fn library_through(
        place: &Place,
        volume: &VolumeSpec,
        options: &str,
        wrap: &dyn Fn(SharedDevice) -> SharedDevice,
    ) -> Result<Self> {
        let inside = place.inside(volume, &|device| make(device, volume))?;
        let under =
            Under { emulated: inside.emulated, _prepared: None, node: None, file: inside.file };
        Self::open_library(wrap(inside.device), options, under)
    }

    /// The library on a block device with a node, on which the kernel schedules requests: the loop
    /// device over an image, or the device itself. `prepare` gets the node before the volume is
    /// opened.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub(crate) fn library_on_node(
        place: &Place,
        volume: &VolumeSpec,
        options: &str,
        prepare: &dyn Fn(&str) -> Result<Box<dyn Send>>,
    ) -> Result<Self> {
        let node = place.outside(volume, &|device| make_outside(device, volume))?;
        let prepared = prepare(&node.source)?;
        let device = open(Path::new(&node.source), &OpenOptions::read_write())?;
        Self::open_library(
            device,
            options,
            Under { emulated: None, _prepared: Some(prepared), node: Some(node), file: None },
        )
    }

    fn open_library(device: SharedDevice, options: &str, under: Under) -> Result<Self> {
        let device = Arc::new(CountingDevice::new(device));
        Self::reopen_library(device, options, under)
    }

    fn reopen_library(
        device: Arc<CountingDevice<SharedDevice>>,
        options: &str,
        under: Under,
    ) -> Result<Self> {
        let parsed = library_options(options)?;
        let fs = Ext4::open(device.clone(), &parsed).map_err(|e| BenchError(e.to_string()))?;
        let target = Arc::new(Library::new(Arc::clone(&fs)));
        let options = options.to_owned();
        let kind = Kind::Library { fs, device, under, options, export: None };
        Ok(Self { target, kind })
    }

    /// Puts a server and a client above the volume.
    fn exported(mut self, delay: Duration) -> Result<Self> {
        if let Kind::Library { fs, export, .. } = &mut self.kind {
            let serving = Serving::start(Arc::clone(fs))?;
            let socket = serving.address;
            self.target = Arc::new(connect(&Address { socket, handle: None, delay })?);
            *export = Some(Export { serving, delay });
        }
        Ok(self)
    }

    fn mounted(
        place: &Place,
        volume: &VolumeSpec,
        kind: SubjectKind,
        options: &str,
    ) -> Result<Self> {
        let extol = place.programs.mounts(kind)?.to_owned();
        let source = place.outside(volume, &|device| make_outside(device, volume))?;
        let dir = place.mount_point()?;
        Self::mount_again(kind, options, extol, source, dir)
    }

    fn mount_again(
        kind: SubjectKind,
        options: &str,
        extol: PathBuf,
        source: Outside,
        dir: MountPoint,
    ) -> Result<Self> {
        let (known, bound) = match kind {
            SubjectKind::Kernel => DirtyBound::take(options, &source.source)?,
            _ => (options.to_owned(), None),
        };
        let mounted = Mounted::mount(kind, &source.source, &dir.0, &extol, &known)?;
        let target =
            Dir::open(&dir.0).map_err(|e| BenchError(format!("{}: {e}", dir.0.display())))?;
        let kind =
            Kind::Mounted { mounted, extol, bound, source, dir, options: options.to_owned() };
        Ok(Self { target: Arc::new(target), kind })
    }

    /// Empties all caches above the medium: unmounts and mounts again, and what the kernel keeps of
    /// an image or a device goes, too. A directory, and a file system that does nothing, stay
    /// mounted and lose their files' pages. The caller has no file open.
    ///
    /// # Errors
    /// If it cannot be unmounted or mounted.
    pub fn go_cold(self) -> Result<Self> {
        let fail = |what: &Path, e: std::io::Error| BenchError(format!("{}: {e}", what.display()));
        let Self { target, kind } = self;
        match kind {
            Kind::Library { fs, device, under, options, export } => {
                drop(target);
                let delay = export.map(Export::end);
                close(&fs)?;
                drop(fs);
                under.forget()?;
                let again = Self::reopen_library(device, &options, under)?;
                match delay {
                    Some(delay) => again.exported(delay),
                    None => Ok(again),
                }
            }
            // Its caches are beyond reach.
            Kind::Server => Ok(Self { target, kind }),
            Kind::Mounted { mounted, extol, bound, source, dir, options } => {
                drop((target, bound));
                let kind = mounted.kind();
                mounted.unmount(&extol, &source.source)?;
                source.forget()?;
                Self::mount_again(kind, &options, extol, source, dir)
            }
            Kind::Raw { device, source } => {
                source.forget()?;
                Ok(Self { target, kind: Kind::Raw { device, source } })
            }
            Kind::Noop(mounted) => {
                forget_pages(mounted.dir()).map_err(|e| fail(mounted.dir(), e))?;
                Ok(Self { target, kind: Kind::Noop(mounted) })
            }
            Kind::Dir(dir) => {
                forget_pages(&dir).map_err(|e| fail(&dir, e))?;
                Ok(Self { target, kind: Kind::Dir(dir) })
            }
        }
    }

    /// Processor time of this process and the daemon.
    #[must_use]
    pub fn meter(&self) -> Meter {
        let daemon = match &self.kind {
            Kind::Mounted { mounted, .. } => mounted.daemon(),
            Kind::Noop(mounted) => Some(mounted.pid()),
            _ => None,
        };
        Meter::new(move || own_cpu() + daemon.and_then(cpu_of).unwrap_or_default())
    }

    fn noop(place: &Place, options: &str) -> Result<Self> {
        let mounted = noop::Mounted::start(&place.programs.bench, options)?;
        let target = Dir::open(mounted.dir())
            .map_err(|e| BenchError(format!("{}: {e}", mounted.dir().display())))?;
        Ok(Self { target: Arc::new(target), kind: Kind::Noop(mounted) })
    }

    fn raw(place: &Place, volume: &VolumeSpec) -> Result<Self> {
        let source = place.outside(volume, &|_| Ok(()))?;
        let device = open(Path::new(&source.source), &OpenOptions::read_write())?;
        let device = Arc::new(CountingDevice::new(device));
        let target = Arc::new(Raw::new(Arc::clone(&device) as SharedDevice));
        Ok(Self { target, kind: Kind::Raw { device, source } })
    }

    fn dir(path: &Path) -> Result<Self> {
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

    /// What the device of a volume that is open in this process was asked so far.
    pub(crate) fn device_stats(&self) -> Option<DeviceStats> {
        match &self.kind {
            Kind::Library { device, .. } => Some(device.stats()),
            _ => None,
        }
    }

    /// The counters now.
    #[must_use]
    pub fn reading(&self) -> Reading {
        let mut reading = Reading { own_cpu: own_cpu(), ..Reading::default() };
        match &self.kind {
            Kind::Library { fs, device, under, .. } => {
                let served = under.node.as_ref().and_then(served_stats);
                reading.medium = under.emulated.as_ref().map(|m| m.medium_stats()).or(served);
                reading.device = Some(device.stats().into());
                reading.stats = serde_json::to_value(fs.stats()).ok();
            }
            Kind::Mounted { mounted, source, .. } => {
                reading.daemon_cpu = mounted.daemon().and_then(cpu_of);
                reading.device = DeviceReading::of_node(&source.source);
                reading.medium = served_stats(source);
                reading.stats = mounted.stats();
                reading.transactions = kernel_transactions(&source.source);
                reading.kernel_fast = KernelFast::of_node(&source.source);
            }
            Kind::Noop(mounted) => reading.daemon_cpu = cpu_of(mounted.pid()),
            Kind::Raw { device, source } => {
                reading.device = Some(device.stats().into());
                reading.medium = served_stats(source);
            }
            Kind::Dir(_) | Kind::Server => {}
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
            Kind::Library { fs, export, .. } => {
                export.map(Export::end);
                close(&fs)
            }
            Kind::Server => Ok(()),
            Kind::Mounted { mounted, extol, source, dir: _dir, .. } => {
                mounted.unmount(&extol, &source.source)
            }
            Kind::Noop(mounted) => {
                drop(mounted);
                Ok(())
            }
            Kind::Raw { device, source } => {
                drop(device);
                drop(source);
                Ok(())
            }
            Kind::Dir(dir) => std::fs::remove_dir_all(&dir)
                .map_err(|e| BenchError(format!("cannot remove {}: {e}", dir.display()))),
        }
    }
}

impl Export {
    /// Ends it, and tells the delay.
    fn end(self) -> Duration {
        drop(self.serving);
        self.delay
    }
}

fn connect(address: &Address) -> Result<Client> {
    Client::new(address).map_err(|e| BenchError(format!("NFS server {}: {e}", address.socket)))
}

impl Under {
    /// The kernel forgets what it keeps of the medium.
    fn forget(&self) -> Result<()> {
        if let Some(file) = &self.file {
            file.forget()?;
        }
        self.node.as_ref().map_or(Ok(()), Outside::forget)
    }
}

/// Writes everything; an error, too, if the volume met damage while it was open.
fn close(fs: &Ext4) -> Result<()> {
    let error = fs.first_error();
    fs.unmount().map_err(|e| BenchError(format!("unmount: {e}")))?;
    error.map_or(Ok(()), |line| Err(BenchError(line)))
}

/// The times of a medium that is served by a process of its own.
fn served_stats(outside: &Outside) -> Option<MediumStats> {
    let stats = outside.served.as_ref()?.stats().ok()?;
    Some(MediumStats {
        modelled: Duration::from_secs_f64(stats.modelled_seconds),
        late: Duration::from_secs_f64(stats.late_seconds),
        ..MediumStats::default()
    })
}

/// Makes the volume on a device that other programs see, which [`Stale`](super::stale) cannot lie
/// over: old bytes go into the inode tables that are left to be zeroed.
pub(super) fn make_outside(device: &SharedDevice, spec: &VolumeSpec) -> Result<()> {
    make(device, spec)?;
    if spec.stale && spec.lazy {
        age_inode_tables(device).map_err(|e| BenchError(format!("old inode tables: {e}")))?;
    }
    Ok(())
}

fn age_inode_tables(device: &SharedDevice) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut bytes = [0; 1024];
    device.read_at(&mut bytes, 1024)?;
    let geo = Geometry::new(&Superblock::decode(&bytes)?, Some(device.size()))?;
    let old = vec![OLD; geo.inode_table_blocks as usize * geo.block_len()];
    let mut bytes = vec![0; usize::from(geo.desc_size)];
    for group in (0..geo.groups()).map(GroupNr) {
        let (block, offset) = geo.desc_block(group);
        device.read_at(&mut bytes, block.offset(geo.block_size) + offset as u64)?;
        let desc = GroupDesc::decode(&bytes, &geo, group)?;
        if desc.flags.contains(GroupFlags::INODE_UNINIT)
            && !desc.flags.contains(GroupFlags::INODE_ZEROED)
        {
            device.write_at(&old, BlockNr(desc.inode_table).offset(geo.block_size))?;
        }
    }
    device.flush()?;
    Ok(())
}

/// Makes the volume.
pub(super) fn make(device: &SharedDevice, spec: &VolumeSpec) -> Result<()> {
    let mut options = MkfsOptions {
        size: Some(spec.size),
        features: spec.features.clone(),
        ..MkfsOptions::default()
    };
    options.journal.size_mib = spec.journal_mib;
    options.extended.lazy_itable_init = Some(spec.lazy);
    options.extended.lazy_journal_init = spec.lazy;
    // A discarded file reads as zeros: mkfs would leave nothing to zero.
    options.extended.discard = spec.stale.then_some(false);
    mkfs(&**device, &options, &mut |_| {}).map(drop).map_err(|e| BenchError(format!("mkfs: {e}")))
}

/// Mount options, and `fsync_batching=POLICY`: how the library's group commit waits, which no mount
/// option chooses.
fn library_options(list: &str) -> Result<MountOptions> {
    let (policies, others): (Vec<&str>, Vec<&str>) =
        list.split(',').partition(|word| word.starts_with(POLICY));
    let mut options = MountOptions::parse(&others.join(",")).map_err(BenchError)?;
    for word in policies {
        let policy = word.strip_prefix(POLICY).and_then(BatchPolicy::by_name);
        options.journal.batching.policy = policy.ok_or_else(|| {
            BenchError(format!("{word}: use fsync_batching=none, static or adaptive"))
        })?;
    }
    Ok(options)
}

const POLICY: &str = "fsync_batching=";
