//! Compressed images: each command expands one once, into a file without a name, and reads that.
//!
//! The file is beside the image, or in the directory that `TMPDIR` names. It is bounded: by
//! `-o expand=` ([`MOST`]), and by the free space there, of which [`SPARED`] is left. Zeros are
//! holes in it, which take none; an empty volume is packed a thousand times smaller and more, so
//! how far bytes become more is no bound.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use extol::image::BuildError;
use extol::image::source::{Compression, decoder};
use extol::image::tree::Limits;
use extol_block::BlockDevice;
use extol_block::open::{Claimed, Known, OpenName};
use extol_cli_common::{Failure, Result, progress};
use extol_proc::Shown as _;
use rustix::fs::{Mode, OFlags};

/// Most bytes that an image may have when it is expanded, unless `-o expand=` says otherwise.
const MOST: u64 = 64 << 30;
/// Free space that is left to others.
const SPARED: u64 = 1 << 30;
const CHUNK: usize = 256 << 10;

/// A file for the contents of a compressed image, opened before any byte of it is decoded.
#[derive(Debug)]
pub struct Room {
    known: Known,
    file: File,
    /// Most bytes of the contents.
    most: u64,
    /// Most of them that take space.
    space: u64,
}

impl Room {
    /// For what was opened, if it is compressed.
    ///
    /// # Errors
    /// It was opened for writing, or there is no room for it.
    pub fn of(claimed: &Claimed, name: &OpenName) -> Result<Option<Self>> {
        let Some(known) = claimed.compression() else { return Ok(None) };
        let fail = |why: &dyn std::fmt::Display| {
            Failure::about(name.typed.shown(), format_args!("is {}, {why}", known.what))
        };
        if !claimed.device().is_read_only() {
            return Err(fail(&format_args!("which is only read: {}", known.advice)));
        }
        let dirs = dirs(claimed.path());
        let opened = dirs.iter().find_map(|dir| Some((unnamed(dir).ok()?, dir)));
        let Some((file, dir)) = opened else {
            return Err(fail(&"and there is no directory for its contents: set TMPDIR"));
        };
        let space = rustix::fs::fstatvfs(&file).map(|fs| fs.f_bavail.saturating_mul(fs.f_frsize));
        let space = space.unwrap_or(u64::MAX).saturating_sub(SPARED);
        if space == 0 {
            let why = format!("and {} has no space for its contents: set TMPDIR", dir.shown());
            return Err(fail(&why));
        }
        Ok(Some(Self { known, file, most: name.expand.unwrap_or(MOST), space }))
    }

    /// Expands the image.
    ///
    /// # Errors
    /// It is damaged, or larger than the room.
    pub fn fill(self, claimed: Claimed, name: &OpenName) -> Result<Claimed> {
        let fail = |why: String| {
            Failure::about(name.typed.shown(), format_args!("is {}: {why}", self.known.what))
        };
        self.expand(claimed.device()).map_err(fail)?;
        Ok(claimed.with_contents(self.file))
    }

    fn expand(&self, from: &dyn BlockDevice) -> std::result::Result<(), String> {
        let mut first = [0; Compression::PREFIX];
        let len = first.len().min(usize::try_from(from.size()).unwrap_or(usize::MAX));
        from.read_at(&mut first[..len], 0).map_err(|error| error.to_string())?;
        let mut limits = Limits::default();
        (limits.expand, limits.expand_ratio) = (self.most, u64::MAX);
        let input = BufReader::with_capacity(CHUNK, Contents { device: from, at: 0 });
        let mut decoder =
            decoder(Compression::of(&first), input, &limits).map_err(|error| error.to_string())?;
        let bar = progress::bytes("expanding");
        let mut buf = vec![0; CHUNK];
        let (mut at, mut stored) = (0, 0);
        loop {
            let len = fill(&mut decoder, &mut buf).map_err(why)?;
            let Some(bytes) = buf.get(..len).filter(|bytes| !bytes.is_empty()) else { break };
            if bytes.iter().any(|byte| *byte != 0) {
                stored += len as u64;
                if stored > self.space {
                    return Err("there is no space for its contents: set TMPDIR".to_owned());
                }
                self.file.write_all_at(bytes, at).map_err(|error| error.to_string())?;
            }
            at += len as u64;
            bar.set_position(at);
        }
        bar.finish_and_clear();
        self.file.set_len(at).map_err(|error| error.to_string())
    }
}

/// Where contents may be kept.
fn dirs(image: &Path) -> Vec<PathBuf> {
    let beside = image.canonicalize().ok().and_then(|path| Some(path.parent()?.to_owned()));
    let asked = std::env::var_os("TMPDIR").map(PathBuf::from);
    asked.into_iter().chain(beside).chain([std::env::temp_dir()]).collect()
}

fn unnamed(dir: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR)?))
}

/// What stops a decoder.
fn why(error: io::Error) -> String {
    match error.downcast::<BuildError>() {
        Ok(BuildError::Limit { what, limit, .. }) => {
            format!("it has more than {limit} {what}: allow more with -o expand=SIZE")
        }
        Ok(other) => other.to_string(),
        Err(error) => error.to_string(),
    }
}

/// Reads until the buffer is full or nothing is left.
fn fill(from: &mut dyn Read, buf: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match from.read(rest)? {
            0 => break,
            len => done += len,
        }
    }
    Ok(done)
}

/// A device from its start to its end.
struct Contents<'d> {
    device: &'d dyn BlockDevice,
    at: u64,
}

impl Read for Contents<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.device.size() - self.at).unwrap_or(usize::MAX);
        let len = left.min(buf.len());
        let part = buf.get_mut(..len).unwrap_or_default();
        self.device.read_at(part, self.at).map_err(io::Error::other)?;
        self.at += len as u64;
        Ok(len)
    }
}
