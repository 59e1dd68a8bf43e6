//! Sparse volumes of 16 TiB and beyond.
//!
//! Directories at the top of a tree are spread over the volume, so files in them get blocks all
//! over it; on a volume of more than 16 TiB most of these have numbers that need more than 32 bits.
//! Each file is read again after a crash, and e2fsprogs have a look at the end.
//!
//! The image lies in the given directory if its file system can hold a sparse file of that size
//! (ext4 ends 4 KiB short of 16 TiB), else in `/dev/shm`, else nowhere: then the device is memory
//! of this process, and e2fsprogs cannot look.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use extol::device::{BlockDevice as _, MemDevice, SharedDevice};
use extol::mkfs::{MkfsOptions, mkfs};
use extol::vfs::FileSystem as _;
use extol::{Ext4, MountOptions};
use extol_devices::CountingDevice;
use serde::Serialize;

use super::bed::{Image, fail, roomy};
use super::process::Process;
use super::{Progress, Scale};
use crate::report::{Cell, Goal, Report, Table};
use crate::{BenchError, Result};

/// Bytes of a file.
const FILE: usize = 64 << 10;
const SHM: &str = "/dev/shm";

/// One volume.
#[derive(Clone, Debug, Serialize)]
struct Row {
    bytes: u64,
    /// Where the image lay.
    place: String,
    mkfs_ms: f64,
    mount_ms: f64,
    create_us: f64,
    highest_block: u64,
    files: u32,
    /// Files with blocks that have numbers of more than 32 bits.
    beyond: u32,
    statfs_us: f64,
    statfs_blocks: u64,
    mount_dirty_ms: f64,
    /// Device reads of that mount.
    mount_dirty_reads: u64,
    read_us: f64,
    unmount_ms: f64,
    mount_clean_ms: f64,
    /// Bytes that the image takes.
    allocated: u64,
    peak: Option<u64>,
    e2fsck: Option<Checked>,
    dumpe2fs: Option<Checked>,
    check: Option<Checked>,
}

/// What another program said.
#[derive(Clone, Debug, Serialize)]
struct Checked {
    ms: f64,
    /// Exit code; `None`: it took too long.
    code: Option<i32>,
    /// Its last line.
    line: String,
}

/// Where the volume is.
enum Ground {
    Image(Image),
    Memory(Arc<MemDevice>),
}

impl Ground {
    fn device(&self) -> Result<Arc<CountingDevice<SharedDevice>>> {
        match self {
            Self::Image(image) => image.device(),
            Self::Memory(memory) => {
                Ok(Arc::new(CountingDevice::new(memory.clone() as SharedDevice)))
            }
        }
    }

    fn allocated(&self) -> Result<u64> {
        match self {
            Self::Image(image) => image.allocated(),
            Self::Memory(memory) => Ok(memory.allocated()),
        }
    }
}

pub(super) fn run(
    scale: &Scale,
    report: &mut Report,
    progress: &mut Progress<'_>,
) -> Result<serde_json::Value> {
    let mut rows = Vec::new();
    for bytes in &scale.large {
        progress.step(format!("a volume of {:.2} TiB", tib(*bytes)))?;
        rows.push(one(scale, *bytes, progress)?);
    }
    describe(report, &rows, scale);
    Ok(serde_json::to_value(&rows).unwrap_or_default())
}

fn tib(bytes: u64) -> f64 {
    bytes as f64 / (1_u64 << 40) as f64
}

fn ms(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e3
}

fn contents(n: u32) -> Vec<u8> {
    (0..FILE / 4).flat_map(|at| (at as u32 ^ n.wrapping_mul(0x9E37_79B1)).to_le_bytes()).collect()
}

fn open(device: &Arc<CountingDevice<SharedDevice>>) -> Result<Arc<Ext4>> {
    let options = MountOptions::parse("noinit_itable").map_err(BenchError)?;
    Ext4::open(device.clone(), &options).map_err(|e| fail("open")(&e))
}

fn one(scale: &Scale, bytes: u64, progress: &Progress<'_>) -> Result<Row> {
    let places = [scale.dir.clone(), PathBuf::from(SHM)];
    let (ground, place) = match roomy(&places, bytes) {
        Some(dir) => (Ground::Image(Image::new(dir, bytes)?), dir.display().to_string()),
        None => (Ground::Memory(Arc::new(MemDevice::new(bytes))), "memory of this process".into()),
    };
    let volume = |e: extol::FsError| BenchError(format!("a volume of {:.2} TiB: {e}", tib(bytes)));
    let device = ground.device()?;
    let mut options = MkfsOptions::default();
    options.extended.prezeroed = true;
    let began = Instant::now();
    mkfs(&*device, &options, &mut |_| {}).map_err(|e| fail("mkfs")(&e))?;
    let mkfs_ms = ms(began);
    Process::Own.reset_peak();

    let began = Instant::now();
    let fs = open(&device)?;
    let mount_ms = ms(began);
    let began = Instant::now();
    let mut highest = 0;
    let mut beyond = 0;
    for n in 0..scale.dirs {
        progress.check()?;
        let dir = format!("dir{n}");
        fs.create_dir(&dir).map_err(volume)?;
        let file = fs.create_file(format!("{dir}/file")).map_err(volume)?;
        file.write_all_at(&contents(n), 0).map_err(volume)?;
        file.sync_data().map_err(volume)?;
        let extents = fs.fiemap(file.inode().ino(), 0, FILE as u64).map_err(volume)?;
        let top = extents.iter().map(|e| (e.physical + e.len - 1) / 4096).max().unwrap_or(0);
        highest = highest.max(top);
        beyond += u32::from(top > u64::from(u32::MAX));
    }
    let create_us = ms(began) * 1e3 / f64::from(scale.dirs.max(1));
    let began = Instant::now();
    let statfs = fs.statfs().map_err(volume)?;
    let statfs_us = ms(began) * 1e3;
    fs.sync().map_err(volume)?;
    fs.crash();
    drop(fs);

    let before = device.stats().reads;
    let began = Instant::now();
    let fs = open(&device)?;
    let mount_dirty_ms = ms(began);
    let mount_dirty_reads = device.stats().reads - before;
    let began = Instant::now();
    for n in 0..scale.dirs {
        let found = fs.read_file(format!("dir{n}/file")).map_err(volume)?;
        if found != contents(n) {
            return Err(BenchError(format!(
                "a volume of {:.2} TiB: dir{n}/file has other contents",
                tib(bytes)
            )));
        }
    }
    let read_us = ms(began) * 1e3 / f64::from(scale.dirs.max(1));
    let began = Instant::now();
    fs.unmount().map_err(volume)?;
    let unmount_ms = ms(began);
    drop(fs);
    let began = Instant::now();
    let fs = open(&device)?;
    let mount_clean_ms = ms(began);
    let peak = Process::Own.memory().map(|m| m.peak);
    fs.unmount().map_err(volume)?;
    drop(fs);
    device.flush().map_err(|e| fail("image")(&e))?;
    // A checker opens the image for itself.
    drop(device);

    let mut row = Row {
        bytes,
        place,
        mkfs_ms,
        mount_ms,
        create_us,
        highest_block: highest,
        files: scale.dirs,
        beyond,
        statfs_us,
        statfs_blocks: statfs.blocks,
        mount_dirty_ms,
        mount_dirty_reads,
        read_us,
        unmount_ms,
        mount_clean_ms,
        allocated: ground.allocated()?,
        peak,
        e2fsck: None,
        dumpe2fs: None,
        check: None,
    };
    if let Ground::Image(image) = &ground
        && scale.fsck_seconds > 0
    {
        let limit = Duration::from_secs(scale.fsck_seconds);
        let path = image.path();
        row.e2fsck = checked_by(Path::new("e2fsck"), &["-fn"], path, limit, progress)?;
        row.dumpe2fs = checked_by(Path::new("dumpe2fs"), &["-h"], path, limit, progress)?;
        row.check = checked_by(&scale.programs.extol, &["check"], path, limit, progress)?;
    }
    Ok(row)
}

/// Runs a checker; `None` if it is not installed.
fn checked_by(
    program: &Path,
    words: &[&str],
    image: &Path,
    limit: Duration,
    progress: &Progress<'_>,
) -> Result<Option<Checked>> {
    let at = |e: std::io::Error| BenchError(format!("{}: {e}", program.display()));
    let output = tempfile::tempfile().map_err(at)?;
    let began = Instant::now();
    let child = Command::new(program)
        .args(words)
        .arg(image)
        .stdin(Stdio::null())
        .stdout(output.try_clone().map_err(at)?)
        .stderr(output.try_clone().map_err(at)?)
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(at(e)),
    };
    let code = loop {
        if let Some(status) = child.try_wait().map_err(at)? {
            break status.code();
        }
        if began.elapsed() > limit || progress.check().is_err() {
            let _ = child.kill();
            child.wait().map_err(at)?;
            progress.check()?;
            break None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let took = ms(began);
    Ok(Some(Checked { ms: took, code, line: last_line(output) }))
}

fn last_line(mut output: std::fs::File) -> String {
    use std::io::{Read as _, Seek as _};
    let mut text = Vec::new();
    let read = output.rewind().and_then(|()| output.read_to_end(&mut text));
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("");
    read.map_or_else(|e| e.to_string(), |_| line.chars().take(120).collect())
}

fn describe(report: &mut Report, rows: &[Row], scale: &Scale) {
    let mut table = Table::new(
        "large sparse volumes",
        &[
            "TiB",
            "image in",
            "mkfs ms",
            "mount ms",
            "create + 64 KiB + fsync us",
            "files",
            "beyond 2^32",
            "highest block",
            "statfs us",
            "mount after a crash ms",
            "reads",
            "read file us",
            "unmount ms",
            "mount ms",
            "allocated MiB",
            "peak MiB",
        ],
    );
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    for row in rows {
        table.row(vec![
            Cell::number(tib(row.bytes), 2),
            row.place.as_str().into(),
            Cell::number(row.mkfs_ms, 1),
            Cell::number(row.mount_ms, 1),
            Cell::number(row.create_us, 1),
            Cell::number(f64::from(row.files), 0),
            Cell::number(f64::from(row.beyond), 0),
            Cell::number(row.highest_block as f64, 0),
            Cell::number(row.statfs_us, 1),
            Cell::number(row.mount_dirty_ms, 1),
            Cell::number(row.mount_dirty_reads as f64, 0),
            Cell::number(row.read_us, 1),
            Cell::number(row.unmount_ms, 1),
            Cell::number(row.mount_clean_ms, 1),
            Cell::number(mib(row.allocated), 1),
            Cell::number(row.peak.map(mib), 1),
        ]);
        if row.bytes > 1 << 45 && row.files > 0 {
            let what = format!("{:.0} TiB: files with blocks beyond 2^32", tib(row.bytes));
            report.goals.push(Goal::at_least(what, f64::from(row.beyond), 1.0));
        }
        if row.place != scale.dir.display().to_string() {
            report.notes.push(format!(
                "{:.2} TiB: {} cannot hold a sparse file of that size; the image was in {}",
                tib(row.bytes),
                scale.dir.display(),
                row.place
            ));
        }
    }
    report.tables.push(table);
    let mut table =
        Table::new("what checkers say", &["TiB", "program", "s", "exit code", "last line"]);
    for row in rows {
        let all = [
            ("e2fsck -fn", &row.e2fsck),
            ("dumpe2fs -h", &row.dumpe2fs),
            ("extol check", &row.check),
        ];
        for (name, checked) in all {
            let Some(checked) = checked else { continue };
            table.row(vec![
                Cell::number(tib(row.bytes), 2),
                name.into(),
                Cell::number(checked.ms / 1e3, 2),
                checked.code.map_or_else(|| "took too long".into(), |code| code.to_string()).into(),
                checked.line.as_str().into(),
            ]);
            if let Some(code) = checked.code {
                let what = format!("{:.2} TiB: {name}, exit code", tib(row.bytes));
                report.goals.push(Goal::at_most(what, f64::from(code), 0.0));
            }
        }
    }
    if !table.rows.is_empty() {
        report.tables.push(table);
    }
}
