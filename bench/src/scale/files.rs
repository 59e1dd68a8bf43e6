//! Files, more and more of them on one volume.
//!
//! One volume grows from size to size. At each size:
//!
//! ```text
//!   fill ─ close ─ open (clean) ─ lookup cold ─ lookup warm ─ create new ─ unlink these
//!     ─ unlink old, make them again
//!     ─ list all ─ sync ─ crash ─ open (dirty) ─ close ─ next size
//! ```
//!
//! A volume is used in this process, or through a mount of its own (Extol's, the kernel's) with
//! system calls. What is *cold* was closed or unmounted before, so that neither Extol, nor the
//! kernel, nor the loop device knows anything of it; a *warm* look-up through a mount is answered
//! by the kernel's cache of names, without a request to the file system.
//!
//! *Old* are files chosen at random among all that are there, so their inodes are hardly in memory;
//! *new* ones were made a moment ago. A mount cannot be crashed from here; it is closed instead.

use std::time::{Duration, Instant};

use extol::MountOptions;
use extol::mkfs::MkfsOptions;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use serde::Serialize;

use super::bed::{Image, Open, drop_cached};
use super::process::{Memory, Process};
use super::{Layout, PER_DIR, Progress, Scale, files_report};
use crate::contender::{Contender, check_dir};
use crate::report::Report;
use crate::spread::Spread;
use crate::target::Target;
use crate::workload::{Cancel, Footprint};
use crate::{BenchError, Result};

/// What an operation cost.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Cost {
    /// Wall time in us per operation, over the samples.
    pub wall_us: Spread,
    /// Processor time in us per operation, all threads, on average.
    pub cpu_us: f64,
    /// Device reads per operation.
    pub reads: Option<f64>,
}

/// All that was measured at one size.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub way: String,
    /// Goals are for Extol, not for its peers.
    pub ours: bool,
    pub layout: &'static str,
    pub files: u64,
    /// Of the index of a directory with files.
    pub htree_levels: u32,
    /// Filling up to this size, in us per file: wall and processor time.
    pub fill_us: f64,
    pub fill_cpu_us: f64,
    pub create: Cost,
    pub lookup_warm: Cost,
    pub lookup_cold: Cost,
    pub unlink: Cost,
    pub unlink_old: Cost,
    /// Per entry.
    pub list: Cost,
    pub mount_ms: f64,
    pub mount_dirty_ms: Option<f64>,
    pub unmount_ms: f64,
    /// Bytes; of the process that works. The peak is that of filling or of the operations,
    /// whichever is nearer to its bound.
    pub resident: Option<u64>,
    pub peak: Option<u64>,
    pub bound: Option<u64>,
    /// Metadata blocks and inodes in memory.
    pub cached_blocks: Option<u64>,
    pub cached_inodes: Option<u64>,
}

/// A process in the middle of its work has at most this much beside caches that are counted.
const IDLE: u64 = 30 << 20;
/// A decoded inode with its lock and its place in the table, and a known one's place.
const CELL: u64 = 1024;
const KNOWN: u64 = 64;

pub(super) fn run(
    scale: &Scale,
    report: &mut Report,
    progress: &mut Progress<'_>,
) -> Result<serde_json::Value> {
    report.set("files", format!("empty, {PER_DIR} per directory when they are spread"));
    let most = scale.files.last().copied().unwrap_or(0);
    let needs = Footprint { bytes: most.saturating_mul(ON_VOLUME), files: most };
    check_dir(&scale.dir, "scale", needs)?;
    let mut rows = Vec::new();
    for way in &scale.targets {
        for layout in &scale.layouts {
            grow(scale, way, *layout, &mut rows, progress)?;
        }
    }
    files_report::describe(report, &rows);
    Ok(serde_json::to_value(&rows).unwrap_or_default())
}

/// Bytes that a file without data has on a volume, at least: its inode, and its name.
const ON_VOLUME: u64 = 256 + 16;

/// Size and number of inodes of a volume for so many files.
fn volume(files: u64) -> (u64, MkfsOptions) {
    // Inode and directory entry, half of it to spare; the rest is for the log and what mkfs wants.
    let size = (files * 512 + (512 << 20)).next_multiple_of(1 << 20);
    let inodes = files + files / 50 + 65_536;
    let mut options =
        MkfsOptions { block_size: Some(4096), inodes: Some(inodes), ..MkfsOptions::default() };
    options.journal.size_mib = Some(64);
    options.extended.prezeroed = true;
    (size, options)
}

fn path(layout: Layout, n: u64) -> String {
    match layout {
        Layout::One => format!("one/file{n}"),
        Layout::Spread => format!("spread/d{}/file{n}", n / PER_DIR),
    }
}

/// One layout on one volume, through all sizes.
fn grow(
    scale: &Scale,
    way: &Contender,
    layout: Layout,
    rows: &mut Vec<Row>,
    progress: &mut Progress<'_>,
) -> Result<()> {
    let most = scale.files.last().copied().unwrap_or(0);
    let (size, options) = volume(most + scale.batch * scale.samples);
    let image = Image::new(&scale.dir, size)?;
    image.mkfs(&options)?;
    let mut present = 0;
    for files in &scale.files {
        progress.step(format!("{} files, {}, {}", files, layout.name(), way.name()))?;
        rows.push(at_size(scale, way, layout, &image, present, *files, progress)?);
        present = *files;
    }
    Ok(())
}

fn at_size(
    scale: &Scale,
    way: &Contender,
    layout: Layout,
    image: &Image,
    present: u64,
    files: u64,
    progress: &Progress<'_>,
) -> Result<Row> {
    let reopen = || Open::new(image, way, &scale.dir, &scale.programs);
    let base = Process::Own.memory().unwrap_or_default();
    let (open, _) = reopen()?;
    let used = Used { way, base };
    used.begin(&open);
    let (began, cpu) = (Instant::now(), open.cpu());
    fill(open.target(), layout, present, files, progress)?;
    let each = 1e6 / (files - present).max(1) as f64;
    let fill_us = began.elapsed().as_secs_f64() * each;
    let fill_cpu_us = open.cpu().saturating_sub(cpu).as_secs_f64() * each;
    let filling = used.end(&open);
    open.close()?;
    let dir = if layout == Layout::One { "one".to_owned() } else { "spread/d0".to_owned() };
    let htree_levels = image.htree_levels(&dir)?;
    drop_cached(image.path());

    let (open, mount) = reopen()?;
    used.begin(&open);
    let mut rng = StdRng::seed_from_u64(files);
    // As many operations at each size as the smallest one allows: each touches as many inodes, and
    // caches are as warm.
    let smallest = scale.files.first().copied().unwrap_or(files);
    let batch = scale.batch.min(smallest / 4).max(1);
    let samples = scale.samples.min(smallest / batch / 2).max(1);
    let mut chosen = || -> Vec<String> {
        let all = usize::try_from(files).unwrap_or(usize::MAX);
        let some = rand::seq::index::sample(&mut rng, all, ((batch * samples) as usize).min(all));
        some.into_iter().map(|n| path(layout, n as u64)).collect()
    };
    let meter = Meter { open: &open, batch: batch as usize, cancel: &scale.cancel };
    let target = open.target();
    let stat = |name: &String| target.size_of(name).map(drop);
    let names = chosen();
    let lookup_cold = meter.each(&names, stat)?;
    let lookup_warm = meter.each(&names, stat)?;
    // The last directory goes on growing when files are spread: it has the files that come next.
    let mut new: Vec<String> = (files..files + batch * samples).map(|n| path(layout, n)).collect();
    directories(target, layout, files, files + batch * samples)?;
    let create = meter.each(&new, |name| target.create(name).map(drop))?;
    new.shuffle(&mut StdRng::seed_from_u64(!files));
    let unlink = meter.each(&new, |name| target.remove(name))?;
    let old = chosen();
    let unlink_old = meter.each(&old, |name| target.remove(name))?;
    old.iter()
        .try_for_each(|name| target.create(name).map(drop))
        .map_err(|e| failed("create", &e))?;
    let list = list(&open, layout, files, batch * samples)?;
    let memory = used.end(&open);
    let most =
        [filling, memory].into_iter().flatten().max_by(|a, b| a.share().total_cmp(&b.share()));
    let stats = open.stats();
    let counter = |pointer: &str| stats.as_ref()?.pointer(pointer)?.as_u64();
    let row = Row {
        way: way.name(),
        ours: way.is_ours(),
        layout: layout.name(),
        files,
        htree_levels,
        fill_us,
        fill_cpu_us,
        create,
        lookup_warm,
        lookup_cold,
        unlink,
        unlink_old,
        list,
        mount_ms: ms(mount),
        mount_dirty_ms: None,
        unmount_ms: 0.0,
        resident: memory.map(|m| m.memory.resident),
        peak: most.map(|m| m.memory.peak),
        bound: most.and_then(|m| m.bound),
        cached_blocks: counter("/journal/cached_blocks"),
        cached_inodes: counter("/inodes_cached"),
    };
    target.sync().map_err(|e| failed("sync", &e))?;
    if way_can_crash(way) {
        open.crash()?;
        drop_cached(image.path());
        let (open, dirty) = reopen()?;
        directories(open.target(), layout, files, files + 1)?;
        let unmount = open.close()?;
        return Ok(Row { mount_dirty_ms: Some(ms(dirty)), unmount_ms: ms(unmount), ..row });
    }
    Ok(Row { unmount_ms: ms(open.close()?), ..row })
}

fn way_can_crash(way: &Contender) -> bool {
    matches!(way, Contender::Library(_))
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn failed(what: &str, e: &std::io::Error) -> BenchError {
    BenchError(format!("{what}: {e}"))
}

/// Memory of the process that works, while it works.
struct Used<'a> {
    way: &'a Contender,
    /// What this process had before, for a volume that is open in it.
    base: Memory,
}

/// What was used, and what was allowed.
#[derive(Clone, Copy)]
struct Peak {
    memory: Memory,
    bound: Option<u64>,
}

impl Peak {
    fn share(&self) -> f64 {
        self.bound.map_or(0.0, |bound| self.memory.peak as f64 / bound as f64)
    }
}

impl Used<'_> {
    /// The peak counts from now on.
    fn begin(&self, open: &Open<'_>) {
        if let Some(process) = open.process() {
            process.reset_peak();
        }
    }

    fn end(&self, open: &Open<'_>) -> Option<Peak> {
        let memory = open.process().and_then(Process::memory)?;
        let known = open.stats().and_then(|stats| stats.pointer("/inodes_known")?.as_u64());
        Some(Peak { memory, bound: self.bound(known) })
    }

    /// What the process may take: what it had before, and the bounds of its caches.
    fn bound(&self, known: Option<u64>) -> Option<u64> {
        let (idle, options) = match self.way {
            Contender::Library(options) => (self.base.resident, options),
            Contender::Mounted(crate::SubjectKind::Extol, options) => (0, options),
            _ => return None,
        };
        let options = MountOptions::parse(options).ok()?;
        let clean = match self.way {
            Contender::Library(_) => options.cache.data_bytes(),
            // The kernel keeps it.
            _ => options.cache.data.unwrap_or(0),
        };
        let caches = options.cache.metadata_bytes + options.data.dirty_bytes + clean;
        Some(
            idle + IDLE
                + caches as u64
                + options.cache.inodes as u64 * CELL
                + known.unwrap_or(0) * KNOWN,
        )
    }
}

/// Makes the directories that files `from..to` need.
fn directories(target: &dyn Target, layout: Layout, from: u64, to: u64) -> Result<()> {
    let make = |name: &str| match target.create_dir(name) {
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        result => result.map_err(|e| failed("mkdir", &e)),
    };
    match layout {
        Layout::One => make("one"),
        Layout::Spread => {
            make("spread")?;
            (from / PER_DIR..to.div_ceil(PER_DIR)).try_for_each(|n| make(&format!("spread/d{n}")))
        }
    }
}

/// Makes files `from..to`.
fn fill(
    target: &dyn Target,
    layout: Layout,
    from: u64,
    to: u64,
    progress: &Progress<'_>,
) -> Result<()> {
    directories(target, layout, from, to)?;
    for n in from..to {
        if n % 4096 == 0 {
            progress.check()?;
        }
        target.create(&path(layout, n)).map_err(|e| failed("create", &e))?;
    }
    Ok(())
}

/// Lists everything, several times where that is soon done.
fn list(open: &Open<'_>, layout: Layout, files: u64, more: u64) -> Result<Cost> {
    let dirs: Vec<String> = match layout {
        Layout::One => vec!["one".into()],
        Layout::Spread => (0..files.div_ceil(PER_DIR)).map(|n| format!("spread/d{n}")).collect(),
    };
    let repeat = (100_000 / files.max(1)).clamp(1, 5);
    let mut total = Totals::start(open);
    let mut walls = Vec::new();
    let mut seen = 0;
    for _ in 0..repeat {
        let began = Instant::now();
        let mut count = 0;
        for dir in &dirs {
            count += open.target().list(dir).map_err(|e| failed("list", &e))? as u64;
        }
        if !(files..=files + more + 3 * dirs.len() as u64).contains(&count) {
            return Err(BenchError(format!("list: {count} entries, there are {files} files")));
        }
        walls.push(began.elapsed().as_secs_f64() * 1e6 / count as f64);
        seen += count;
    }
    total.stop(open);
    total.cost(walls, seen)
}

/// Sums from start to stop.
struct Totals {
    cpu: Duration,
    reads: Option<u64>,
}

impl Totals {
    fn start(open: &Open<'_>) -> Self {
        Self { cpu: open.cpu(), reads: open.device().map(|d| d.reads) }
    }

    fn stop(&mut self, open: &Open<'_>) {
        self.cpu = open.cpu().saturating_sub(self.cpu);
        self.reads =
            open.device().zip(self.reads).map(|(now, then)| now.reads.saturating_sub(then));
    }

    fn cost(&self, walls: Vec<f64>, done: u64) -> Result<Cost> {
        let each = 1.0 / done.max(1) as f64;
        Ok(Cost {
            wall_us: Spread::of(walls).ok_or_else(|| BenchError("nothing was measured".into()))?,
            cpu_us: self.cpu.as_secs_f64() * 1e6 * each,
            reads: self.reads.map(|n| n as f64 * each),
        })
    }
}

/// Takes the cost of operations.
struct Meter<'a, 'o> {
    open: &'a Open<'o>,
    batch: usize,
    cancel: &'a Cancel,
}

impl Meter<'_, '_> {
    /// Does it to each name; a sample is a batch.
    fn each(
        &self,
        names: &[String],
        work: impl Fn(&String) -> std::io::Result<()>,
    ) -> Result<Cost> {
        let mut walls = Vec::new();
        let mut total = Totals::start(self.open);
        for sample in names.chunks(self.batch) {
            super::check(self.cancel)?;
            let began = Instant::now();
            sample.iter().try_for_each(&work).map_err(|e| failed("a measured operation", &e))?;
            walls.push(began.elapsed().as_secs_f64() * 1e6 / sample.len() as f64);
        }
        total.stop(self.open);
        total.cost(walls, names.len() as u64)
    }
}
