//! Recovery: how long it takes for how much log.
//!
//! A log is filled and left as a power cut would leave it. Full commits: blocks of a file, in
//! random order, each once, 256 in a transaction, with `data=journal`, so that the log holds as
//! many different blocks as fit and none is home. Fast commits: a new file of 4 KiB in one of
//! several directories, and fsync. Then the recovery alone is timed, and the mount that follows.
//!
//! Beside it stands the time that the device needs for reading a file of the size of what is dirty,
//! in pieces of 1 MiB. (Recovery reads a copy twice, when it looks for the log's end and when it
//! brings it home, and writes it home.)
//!
//! With targets that are mounts (Extol's, the kernel's), each of them mounts a copy of the same
//! dirty volume, and then the same copy again when it is clean; the difference is recovery. These
//! are times of whole commands, on a loop device.

use std::sync::Arc;
use std::time::Instant;

use extol::device::{BlockDevice as _, SharedDevice};
use extol::mkfs::MkfsOptions;
use extol::vfs::FileSystem as _;
use extol::{Ext4, MountOptions};
use extol_devices::CountingDevice;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use serde::Serialize;

use super::bed::{Image, Open, drop_cached, fail};
use super::{Progress, Scale};
use crate::contender::Contender;
use crate::report::{Cell, Chart, Report, Table};
use crate::{BenchError, Result};

const BLOCK: usize = 4096;
/// Blocks per transaction.
const TOGETHER: usize = 256;
/// A log is filled to this part.
const FULL: f64 = 0.8;
/// Directories with new files.
const DIRS: u64 = 64;

/// One crash and its recovery.
#[derive(Clone, Debug, Serialize)]
struct Row {
    /// `full` or `fast`.
    commits: &'static str,
    /// Size of the log, or of the fast-commit area.
    log_mib: u32,
    /// What recovery had to look at.
    dirty_mib: f64,
    transactions: u32,
    blocks: u32,
    fast_commits: u32,
    records: u64,
    recovery_ms: f64,
    ms_per_mib: f64,
    read_mib: f64,
    written_mib: f64,
    requests: u64,
    device_ms: Option<f64>,
    /// The mount that follows.
    mount_ms: f64,
    /// Others, of copies of the same volume.
    mounts: Vec<MountTimes>,
}

/// What one way to mount the volume took.
#[derive(Clone, Debug, Serialize)]
struct MountTimes {
    way: String,
    /// As the crash left it.
    dirty_ms: f64,
    /// After that.
    clean_ms: f64,
}

/// Every target that is a mount, on a copy of the volume.
fn mounts(scale: &Scale, image: &Image, progress: &Progress<'_>) -> Result<Vec<MountTimes>> {
    let ways = scale.targets.iter().filter(|way| matches!(way, Contender::Mounted(..)));
    ways.map(|way| {
        progress.check()?;
        let copy = image.copy(&scale.dir)?;
        let mount = || -> Result<f64> {
            drop_cached(copy.path());
            let (open, took) = Open::new(&copy, way, &scale.dir, &scale.programs)?;
            open.close()?;
            Ok(took.as_secs_f64() * 1e3)
        };
        Ok(MountTimes { way: way.name(), dirty_ms: mount()?, clean_ms: mount()? })
    })
    .collect()
}

pub(super) fn run(
    scale: &Scale,
    report: &mut Report,
    progress: &mut Progress<'_>,
) -> Result<serde_json::Value> {
    let mut rows = Vec::new();
    for mib in &scale.logs {
        progress.step(format!("recovery of a log of {mib} MiB"))?;
        rows.push(full(scale, *mib, progress)?);
    }
    for mib in &scale.areas {
        progress.step(format!("recovery of {mib} MiB of fast commits"))?;
        rows.push(fast(scale, *mib, progress)?);
    }
    describe(report, &rows);
    Ok(serde_json::to_value(&rows).unwrap_or_default())
}

fn io(e: &std::io::Error) -> BenchError {
    BenchError(format!("filling the log: {e}"))
}

/// Mount options for filling: nothing goes home by itself, and memory holds all of the log.
fn filling(list: &str) -> Result<MountOptions> {
    let mut options = MountOptions::parse(list).map_err(BenchError)?;
    options.background.threads = false;
    options.cache.metadata_bytes = 4 << 30;
    Ok(options)
}

fn full(scale: &Scale, mib: u32, progress: &Progress<'_>) -> Result<Row> {
    let image = Image::new(&scale.dir, u64::from(mib) * (4 << 20) + (64 << 20))?;
    let mut options = MkfsOptions { block_size: Some(BLOCK as u32), ..MkfsOptions::default() };
    options.journal.size_mib = Some(mib);
    options.extended.prezeroed = true;
    image.mkfs(&options)?;
    // The blocks of the file are there before, so that no transaction has to allocate.
    prepare(&image, mib, progress)?;
    let blocks = u64::from(mib) << 8;
    let mut order: Vec<u64> = (0..blocks).collect();
    order.shuffle(&mut StdRng::seed_from_u64(blocks));
    let (open, _) = Open::library(&image, &filling("data=journal,commit=300")?)?;
    {
        let file = open.target().open("file").map_err(|e| io(&e))?;
        for (n, together) in order.chunks(TOGETHER).enumerate() {
            progress.check()?;
            let data = vec![n as u8; BLOCK];
            for block in together {
                file.write_at(&data, block * BLOCK as u64).map_err(|e| io(&e))?;
            }
            file.sync(false).map_err(|e| io(&e))?;
            let journal = open.volume().map(|fs| fs.stats().journal);
            if journal.is_none_or(|j| {
                let left = f64::from(j.log_free) / f64::from(j.log_blocks.max(1));
                left < 1.0 - FULL || j.log_free < 2 * TOGETHER as u32
            }) {
                break;
            }
        }
    }
    crash_and_recover(scale, &image, open, ("full", mib), progress)
}

/// Makes a file as large as the log.
fn prepare(image: &Image, mib: u32, progress: &Progress<'_>) -> Result<()> {
    let (open, _) = Open::library(image, &MountOptions::default())?;
    {
        let file = open.target().create("file").map_err(|e| io(&e))?;
        let piece = vec![1; 1 << 20];
        for n in 0..u64::from(mib) {
            progress.check()?;
            file.write_at(&piece, n << 20).map_err(|e| io(&e))?;
        }
    }
    open.close().map(drop)
}

fn fast(scale: &Scale, mib: u32, progress: &Progress<'_>) -> Result<Row> {
    let image = Image::new(&scale.dir, u64::from(mib) * (8 << 20) + (256 << 20))?;
    let mut options = MkfsOptions {
        block_size: Some(BLOCK as u32),
        features: vec!["fast_commit".into()],
        ..MkfsOptions::default()
    };
    options.journal.size_mib = Some(16);
    options.journal.fast_commit_kib = Some(mib << 10);
    options.extended.prezeroed = true;
    image.mkfs(&options)?;
    prepare(&image, mib, progress)?;
    let (open, _) = Open::library(&image, &filling("commit=300,fast_commit")?)?;
    {
        (0..DIRS)
            .try_for_each(|n| open.target().create_dir(&format!("dir{n}")))
            .map_err(|e| io(&e))?;
        open.target().sync().map_err(|e| io(&e))?;
        let stats = || {
            let journal = open.volume().map(|fs| fs.stats().journal);
            journal.ok_or_else(|| BenchError("the volume is not in this process".into()))
        };
        let mut since = stats()?;
        let most = u64::from(since.fast_commit.area_blocks);
        let data = [7; BLOCK];
        // A full commit in between makes the area void: then it begins anew, a few times at most.
        for n in 0..4 * most {
            progress.check()?;
            let file =
                open.target().create(&format!("dir{}/file{n}", n % DIRS)).map_err(|e| io(&e))?;
            file.write_at(&data, 0).map_err(|e| io(&e))?;
            file.sync(false).map_err(|e| io(&e))?;
            let now = stats()?;
            if now.transactions != since.transactions {
                since = now;
            } else if (now.fast_commit.blocks - since.fast_commit.blocks) as f64
                >= FULL * most as f64
            {
                break;
            }
        }
    }
    crash_and_recover(scale, &image, open, ("fast", mib), progress)
}

fn crash_and_recover(
    scale: &Scale,
    image: &Image,
    open: Open<'_>,
    (commits, log_mib): (&'static str, u32),
    progress: &Progress<'_>,
) -> Result<Row> {
    open.crash()?;
    let mounts = mounts(scale, image, progress)?;
    drop_cached(image.path());
    let device = image.device()?;
    let shared: SharedDevice = device.clone();
    let before = device.stats();
    let began = Instant::now();
    let done =
        extol::replay(&shared, &MountOptions::default()).map_err(|e| fail("recovery")(&e))?;
    let recovery_ms = began.elapsed().as_secs_f64() * 1e3;
    let after = device.stats();
    if !done.was_needed {
        return Err(BenchError("recovery: the volume needed none".into()));
    }
    // Descriptors and commit blocks are a hundredth.
    let logged =
        if commits == "full" { u64::from(done.blocks) } else { u64::from(done.fast_commits) };
    let dirty_mib = (logged * BLOCK as u64) as f64 / f64::from(1 << 20);
    drop(shared);
    let (open, mount) = Open::on(Arc::clone(&device), &MountOptions::default())?;
    let device_ms = open.volume().and_then(|fs| read_file(fs, &device, dirty_mib));
    open.close()?;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    Ok(Row {
        commits,
        log_mib,
        dirty_mib,
        transactions: done.transactions,
        blocks: done.blocks,
        fast_commits: done.fast_commits,
        records: done.fast_commit_records,
        recovery_ms,
        ms_per_mib: recovery_ms / dirty_mib.max(1e-9),
        read_mib: mib(after.read_bytes - before.read_bytes),
        written_mib: mib(after.write_bytes - before.write_bytes),
        requests: after.reads + after.writes - before.reads - before.writes,
        device_ms,
        mount_ms: mount.as_secs_f64() * 1e3,
        mounts,
    })
}

/// Milliseconds that the device needs for reading so much of the file's blocks.
fn read_file(fs: &Arc<Ext4>, device: &CountingDevice<SharedDevice>, mib: f64) -> Option<f64> {
    let mut left = (mib * f64::from(1 << 20)) as u64;
    let file = fs.inode("file").ok()?;
    let extents = fs.fiemap(file.ino(), 0, 1 << 40).ok()?;
    let mut piece = vec![0; 1 << 20];
    let began = Instant::now();
    for extent in extents {
        let (mut at, end) = (extent.physical, extent.physical + extent.len.min(left));
        left -= end - at;
        while at < end {
            // (What is dirty are whole blocks.)
            let count = (end - at).min(piece.len() as u64);
            device.read_at(piece.get_mut(..count as usize)?, at).ok()?;
            at += count;
        }
    }
    Some(began.elapsed().as_secs_f64() * 1e3)
}

fn describe_mounts(report: &mut Report, rows: &[Row]) {
    let mut table = Table::new(
        "mounts of the same dirty volume",
        &[
            "commits",
            "log MiB",
            "dirty MiB",
            "target",
            "mount ms",
            "mount when clean ms",
            "recovery, ms per MiB",
        ],
    );
    for row in rows {
        for mount in &row.mounts {
            table.row(vec![
                row.commits.into(),
                Cell::number(f64::from(row.log_mib), 0),
                Cell::number(row.dirty_mib, 2),
                mount.way.as_str().into(),
                Cell::number(mount.dirty_ms, 1),
                Cell::number(mount.clean_ms, 1),
                Cell::number((mount.dirty_ms - mount.clean_ms) / row.dirty_mib.max(1e-9), 2),
            ]);
        }
    }
    if !table.rows.is_empty() {
        report.tables.push(table);
    }
}

fn describe(report: &mut Report, rows: &[Row]) {
    let mut table = Table::new(
        "recovery by size of the dirty log",
        &[
            "commits",
            "log MiB",
            "dirty MiB",
            "transactions",
            "blocks",
            "fast commits",
            "records",
            "recovery ms",
            "ms per MiB",
            "device reads as much in ms",
            "read MiB",
            "written MiB",
            "requests",
            "mount after it ms",
        ],
    );
    for row in rows {
        table.row(vec![
            row.commits.into(),
            Cell::number(f64::from(row.log_mib), 0),
            Cell::number(row.dirty_mib, 2),
            Cell::number(f64::from(row.transactions), 0),
            Cell::number(f64::from(row.blocks), 0),
            Cell::number(f64::from(row.fast_commits), 0),
            Cell::number(row.records as f64, 0),
            Cell::number(row.recovery_ms, 1),
            Cell::number(row.ms_per_mib, 2),
            Cell::number(row.device_ms, 1),
            Cell::number(row.read_mib, 1),
            Cell::number(row.written_mib, 1),
            Cell::number(row.requests as f64, 0),
            Cell::number(row.mount_ms, 1),
        ]);
    }
    report.tables.push(table);
    describe_mounts(report, rows);
    for commits in ["full", "fast"] {
        let rows: Vec<&Row> = rows.iter().filter(|r| r.commits == commits).collect();
        let of = |value: fn(&Row) -> Option<f64>| rows.iter().map(|r| value(r)).collect::<Vec<_>>();
        report.charts.push(Chart {
            title: format!("recovery of {commits} commits"),
            x: "MiB of log to recover".into(),
            y: "milliseconds".into(),
            places: rows.iter().map(|r| format!("{:.1}", r.dirty_mib)).collect(),
            series: vec![
                ("recovery".into(), of(|r| Some(r.recovery_ms))),
                ("the device reads as much".into(), of(|r| r.device_ms)),
                ("mount after it".into(), of(|r| Some(r.mount_ms))),
            ],
            log: true,
        });
    }
}
