//! Opens files and block devices: kind, claims, size, and whether direct I/O works.

use super::direct::DirectIo;
use super::opens::Opens;
use super::options::{Direct, OpenOptions, describe, refuse};
use super::pool::BufferPool;
use super::uring::Rings;
use super::{FileDevice, Held, Writable, busy, device_users, discard};
use crate::aligned::AlignedBuf;
use crate::coalesce::FlushCoalescer;
use crate::range_lock::RangeLock;
use crate::{BlockDevice, Result, sys};
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, OnceLock};

/// With larger alignments nearly every request is a read-modify-write: no direct I/O.
const MAX_ALIGNMENT: usize = 4096;

pub(super) fn open(path: &Path, options: &OpenOptions) -> Result<FileDevice> {
    let failed = |e: io::Error| refuse(path, e.kind(), describe(&e));
    let create = options.create_size.is_some() && !options.read_only;
    // Checked before it is opened: opening a pipe would wait, opening a tape would move it.
    let is_block_device = match std::fs::metadata(path) {
        Ok(meta) => kind_of(path, &meta)?,
        Err(e) if create && e.kind() == io::ErrorKind::NotFound => false,
        Err(e) => return Err(failed(e)),
    };
    let claimed = is_block_device && options.exclusive && !options.read_only;
    let held = if claimed { hold(path)? } else { Held::No };
    let mut open = File::options();
    open.read(true).write(!options.read_only).create(create && !is_block_device);
    let file = open.open(path).map_err(failed)?;
    if kind_of(path, &file.metadata().map_err(failed)?)? != is_block_device {
        return Err(refuse(path, io::ErrorKind::Other, "was replaced while it was being opened"));
    }
    if is_block_device && !options.read_only && device_users::is_write_protected(&file) {
        let why = "is write-protected: open it read-only";
        return Err(refuse(path, io::ErrorKind::ReadOnlyFilesystem, why));
    }
    let mut claims = busy::Claims::none();
    if options.exclusive {
        claims = busy::claim(&file, is_block_device, options.read_only, options.part)
            .map_err(|why| refuse(path, io::ErrorKind::ResourceBusy, why))?;
    }
    let size = match options.create_size {
        Some(wanted) if create && !is_block_device && wanted > length(&file).map_err(failed)? => {
            file.set_len(wanted).map_err(failed)?;
            wanted
        }
        _ => length(&file).map_err(failed)?,
    };
    if size == 0 && (is_block_device || !options.may_be_empty) {
        return Err(refuse(path, io::ErrorKind::InvalidInput, "is empty"));
    }
    let sector = if is_block_device { sector_size(&file) } else { 1 };
    let has_fua = is_block_device && discard::queue_attribute(&file, "fua") == Some(1);
    let mut device = FileDevice {
        file,
        path: path.to_owned(),
        size: size.into(),
        is_block_device,
        has_fua,
        read_only: options.read_only,
        writable: OnceLock::new(),
        exclusive: options.exclusive,
        direct: None,
        unit: sector.max(1) as u64,
        dsync_works: AtomicBool::new(true),
        flushes: FlushCoalescer::new(),
        rings: Rings::default(),
        claims,
        opens: Opens::default(),
        held: Mutex::new(held),
    };
    if !is_block_device && !options.read_only && options.exclusive {
        device.opens = Opens::of(&device.file);
    }
    choose_direct(&mut device, sector, options.direct)?;
    if is_block_device && device.direct.is_some() {
        device.dsync_works = AtomicBool::new(false);
    }
    Ok(device)
}

/// Makes I/O direct where that is asked for or possible.
fn choose_direct(device: &mut FileDevice, sector: usize, direct: Direct) -> Result<()> {
    let is_wanted = match direct {
        Direct::Off => false,
        Direct::Devices => device.is_block_device,
        Direct::Auto | Direct::On => true,
    };
    if !is_wanted {
        return Ok(());
    }
    match go_direct(device, sector) {
        Err(why) if direct == Direct::On => {
            let why = format!("direct I/O is not possible here ({why})");
            Err(refuse(device.path(), io::ErrorKind::Unsupported, why))
        }
        _ => Ok(()),
    }
}

/// Lengthens a disk image that was opened without direct I/O, and chooses anew whether it is
/// direct.
pub(super) fn lengthen(device: &mut FileDevice, bytes: u64, direct: Direct) -> Result<()> {
    let path = device.path();
    let failed = |e: io::Error| refuse(path, e.kind(), describe(&e));
    device.file.set_len(bytes).map_err(failed)?;
    device.size = bytes.into();
    choose_direct(device, 1, direct)
}

/// Claims a block device. The error names what holds it.
pub(super) fn hold(path: &Path) -> Result<Held> {
    match busy::hold_exclusively(path) {
        Ok(open) => Ok(Held::Here { _open: open }),
        Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {
            Err(refuse(path, e.kind(), device_users::device_holder(path)))
        }
        Err(e) => Err(refuse(path, e.kind(), describe(&e))),
    }
}

/// Claims what an open for writing would claim and this device has not yet.
pub(super) fn keep_others_out(device: &FileDevice) -> Result<()> {
    if !device.exclusive || device.is_block_device {
        // (The claim on a block device is held all the time.)
        return Ok(());
    }
    let more = device.writable.get().map(|writable| &writable.claims);
    busy::claim_new_loops(device.file(), &device.claims.loops, more, &device.claims.part)
        .map_err(|why| refuse(device.path(), io::ErrorKind::ResourceBusy, why))
}

/// Claims the part that is used, and leaves direct I/O if its ends are no multiples of a sector:
/// the rest of the sector belongs to others.
pub(super) fn claim_part(
    device: &mut FileDevice,
    range: std::ops::Range<u64>,
    names: &dyn Fn(&FileDevice) -> Vec<OsString>,
    direct: Direct,
) -> Result<()> {
    let refuse = |kind, why: String| refuse(device.path(), kind, why);
    if device.exclusive {
        let busy = |why| refuse(io::ErrorKind::ResourceBusy, why);
        let names = || names(device);
        busy::claim_part(&device.file, &device.claims, device.read_only, range.clone(), &names)
            .map_err(busy)?;
    }
    let Some(sector) = device.direct.as_ref().map(|direct| direct.sector as u64) else {
        return Ok(());
    };
    if range.start.is_multiple_of(sector) && range.end.is_multiple_of(sector) {
        return Ok(());
    }
    if direct == Direct::On {
        let why = format!(
            "direct I/O is not possible here (a part with ends that are no multiples \
                           of {sector} bytes)"
        );
        return Err(refuse(io::ErrorKind::Unsupported, why));
    }
    let failed = |e: rustix::io::Errno| refuse(io::ErrorKind::Other, describe(&e.into()));
    sys::set_direct(&device.file, false).map_err(failed)?;
    device.direct = None;
    device.dsync_works = AtomicBool::new(true);
    Ok(())
}

/// Opens a device for writing that is open read-only. Fails while another process reads it.
pub(super) fn again(device: &FileDevice) -> Result<Writable> {
    let path = device.path();
    let failed = |e: io::Error| refuse(path, e.kind(), describe(&e));
    let mut held = device.held();
    let unclaimed = matches!(*held, Held::No) && device.is_block_device && device.exclusive;
    let claim = if unclaimed { Some(hold(path)?) } else { None };
    let mut open = File::options();
    let file = open.read(true).write(true).open(path).map_err(failed)?;
    if device.direct.is_some() {
        sys::set_direct(&file, true).map_err(|e| failed(e.into()))?;
    }
    let (old, new) = (device.file.metadata().map_err(failed)?, file.metadata().map_err(failed)?);
    if (old.dev(), old.ino(), old.rdev()) != (new.dev(), new.ino(), new.rdev()) {
        return Err(refuse(
            path,
            io::ErrorKind::Other,
            "is another file now: unmount it and mount it again",
        ));
    }
    if device.is_block_device && device_users::is_write_protected(&file) {
        return Err(refuse(path, io::ErrorKind::ReadOnlyFilesystem, "is write-protected"));
    }
    let mut claims = busy::Loops::default();
    if device.exclusive {
        claims = busy::claim_more(&device.file, &file, device.is_block_device, &device.claims)
            .map_err(|why| refuse(path, io::ErrorKind::ResourceBusy, why))?;
    }
    if let Some(claim) = claim {
        *held = claim;
    }
    let is_watched = !device.is_block_device && device.exclusive;
    let opens = if is_watched { Opens::of(&file) } else { Opens::default() };
    Ok(Writable { file, claims, opens })
}

/// True for a block device, false for a regular file, an error for anything else.
fn kind_of(path: &Path, meta: &Metadata) -> Result<bool> {
    let kind = meta.file_type();
    match (kind.is_block_device(), kind.is_file()) {
        (true, _) => Ok(true),
        (_, true) => Ok(false),
        _ if kind.is_dir() => Err(refuse(
            path,
            io::ErrorKind::IsADirectory,
            "is a directory, not a disk image or block device",
        )),
        _ => Err(refuse(
            path,
            io::ErrorKind::InvalidInput,
            "is neither a disk image nor a block device",
        )),
    }
}

/// Length of the file or device. (Seeking to the end of a block device gives what `BLKGETSIZE64`
/// gives.)
pub(super) fn length(mut file: &File) -> io::Result<u64> {
    file.seek(SeekFrom::End(0))
}

fn sector_size(file: &File) -> usize {
    let size = sys::sector_size(file).map_or(512, |size| size as usize);
    if size.is_power_of_two() { size.max(512) } else { 512 }
}

/// Makes all further I/O of the device direct. The lock stays with the descriptor, so the flag is
/// set in place.
fn go_direct(device: &mut FileDevice, sector: usize) -> std::result::Result<(), String> {
    // Dirty pages of earlier buffered writes do no harm: direct reads flush them range by range,
    // and direct writes drop them.
    sys::set_direct(&device.file, true).map_err(|e| e.to_string())?;
    let alignment = alignment(device, sector).and_then(|(sector, memory)| {
        if sector.max(memory) > MAX_ALIGNMENT {
            Err(format!("it would need an alignment of {} bytes", sector.max(memory)))
        } else if !BlockDevice::size(device).is_multiple_of(sector as u64) {
            Err(format!("the size is no multiple of {sector} bytes"))
        } else {
            Ok((sector, memory))
        }
    });
    match alignment {
        Ok((sector, memory)) => {
            let buffers = BufferPool::new(memory.max(MAX_ALIGNMENT));
            device.direct = Some(DirectIo { sector, memory, buffers, locks: RangeLock::default() });
            Ok(())
        }
        Err(why) => match sys::set_direct(&device.file, false) {
            Ok(()) => Err(why),
            Err(e) => Err(format!("{why}; and it cannot be switched off: {e}")),
        },
    }
}

/// The alignments for direct I/O, of offsets and lengths and of memory, checked by a read.
fn alignment(device: &FileDevice, sector: usize) -> std::result::Result<(usize, usize), String> {
    let candidates = match sys::direct_alignments(&device.file) {
        Some((0, _) | (_, 0)) => return Err("the file system has no direct I/O".into()),
        Some((offset, memory)) if offset.is_power_of_two() && memory.is_power_of_two() => {
            vec![(offset, memory)]
        }
        _ if device.is_block_device => vec![(sector, sector)],
        _ => vec![(512, 512), (1024, 1024), (2048, 2048), (4096, 4096)],
    };
    let mut last = String::from("no alignment works");
    for (sector, memory) in candidates {
        if sector > MAX_ALIGNMENT
            || memory > MAX_ALIGNMENT
            || BlockDevice::size(device) < 2 * sector as u64
        {
            last = format!("it would need an alignment of {} bytes", sector.max(memory));
            continue;
        }
        // Memory and offset are aligned no better than that, so that success shows that it
        // suffices.
        let mut probe = AlignedBuf::new(memory + sector, 2 * MAX_ALIGNMENT);
        match device.file.read_at(&mut probe[memory..], sector as u64) {
            Ok(n) if n == sector => return Ok((sector, memory)),
            Ok(n) => last = format!("a test read gave {n} bytes"),
            Err(e) => last = describe(&e),
        }
    }
    Err(last)
}
