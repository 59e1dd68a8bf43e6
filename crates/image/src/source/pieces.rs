//! Contents of files that lie somewhere in a file of the host: in an archive, or in a spool.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::{FileData, read_full};
use crate::error::{BuildError, Result, shown};
use crate::sys::{Stamp, stamp};
use crate::tree::{DataRef, TreeBuilder};

/// No map: all bytes are there.
const WHOLE: u32 = u32::MAX;
/// What a run costs in memory.
const RUN_COST: u64 = size_of::<Run>() as u64;

/// Contents of files.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    files: Vec<Holder>,
    all: Vec<Piece>,
    maps: Vec<Box<[Run]>>,
}

/// A file of the host that holds contents.
#[derive(Debug)]
struct Holder {
    file: Arc<File>,
    name: Vec<u8>,
    /// What tells that it is still the same; `None` for a spool, which no other process has.
    stamp: Option<Stamp>,
}

/// The number of a holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct HolderNr(u16);

#[derive(Clone, Copy, Debug)]
struct Piece {
    at: u64,
    /// The size of the file, with its holes.
    size: u64,
    map: u32,
    holder: HolderNr,
}

/// A run of data in a sparse file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Run {
    /// Where it is in the file.
    pub at: u64,
    pub len: u64,
    /// Where it is in the piece.
    pub data: u64,
}

impl Pieces {
    /// A file of the host that holds pieces. If it is an archive, it must not change.
    pub fn holder(&mut self, file: Arc<File>, name: &[u8], archive: bool) -> Result<HolderNr> {
        let failed = |error| BuildError::entry(name, error);
        let stamp = if archive { Some(stamp(&file).map_err(failed)?) } else { None };
        let Ok(nr) = u16::try_from(self.files.len()) else {
            return Err(BuildError::Refused("the source has more than 65535 layers".into()));
        };
        self.files.push(Holder { file, name: name.to_owned(), stamp });
        Ok(HolderNr(nr))
    }

    /// The file of a holder.
    pub fn file(&self, holder: HolderNr) -> &Arc<File> {
        &self.files[usize::from(holder.0)].file
    }

    /// Contents that are there as they are.
    pub fn whole(&mut self, holder: HolderNr, at: u64, size: u64) -> DataRef {
        self.all.push(Piece { at, size, map: WHOLE, holder });
        DataRef(self.all.len() as u64 - 1)
    }

    /// Contents of which only these runs are there, one after the other.
    pub fn sparse(
        &mut self,
        holder: HolderNr,
        at: u64,
        size: u64,
        runs: Vec<Run>,
        tree: &mut TreeBuilder,
    ) -> Result<DataRef> {
        tree.charge(runs.len() as u64 * RUN_COST)?;
        let map = self.maps.len() as u32;
        self.maps.push(runs.into_boxed_slice());
        self.all.push(Piece { at, size, map, holder });
        Ok(DataRef(self.all.len() as u64 - 1))
    }

    /// Where contents are that are there as they are: holder, place and length.
    pub fn place(&self, data: DataRef) -> Option<(HolderNr, u64, u64)> {
        let piece = self.all.get(usize::try_from(data.0).ok()?)?;
        (piece.map == WHOLE).then_some((piece.holder, piece.at, piece.size))
    }

    /// Reads contents.
    pub fn reader(&self, data: DataRef) -> Result<Box<dyn FileData + '_>> {
        let piece = usize::try_from(data.0).ok().and_then(|nr| self.all.get(nr));
        let Some(&piece) = piece else {
            return Err(BuildError::Refused("no such file in the source".into()));
        };
        let holder = &self.files[usize::from(piece.holder.0)];
        let map = self.maps.get(piece.map as usize).map(|map| &**map);
        Ok(Box::new(PieceData { holder, piece, map }))
    }
}

/// The contents of one file.
struct PieceData<'p> {
    holder: &'p Holder,
    piece: Piece,
    map: Option<&'p [Run]>,
}

impl PieceData<'_> {
    fn read_exact(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        let done = read_full(&self.holder.file, self.piece.at + at, buf)?;
        // A spool ends before zeros that were left out.
        if self.holder.stamp.is_none() {
            buf[done..].fill(0);
        } else if done < buf.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }
}

impl FileData for PieceData<'_> {
    fn read_at(&mut self, at: u64, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.piece.size.saturating_sub(at).min(buf.len() as u64) as usize;
        if len == 0 {
            return Ok(0);
        }
        let buf = &mut buf[..len];
        let Some(map) = self.map else {
            self.read_exact(at, buf)?;
            return Ok(len);
        };
        buf.fill(0);
        let end = at + len as u64;
        let first = map.partition_point(|run| run.at + run.len <= at);
        for run in map[first..].iter().take_while(|run| run.at < end) {
            let (from, to) = (run.at.max(at), (run.at + run.len).min(end));
            let part = &mut buf[(from - at) as usize..(to - at) as usize];
            self.read_exact(run.data + (from - run.at), part)?;
        }
        Ok(len)
    }

    fn data_from(&mut self, at: u64) -> io::Result<Option<Range<u64>>> {
        let Some(map) = self.map else {
            return Ok((at < self.piece.size).then_some(at..self.piece.size));
        };
        let next = map.get(map.partition_point(|run| run.at + run.len <= at));
        Ok(next.map(|run| run.at.max(at)..run.at + run.len))
    }

    fn end(&mut self) -> Result<()> {
        let Some(listed) = self.holder.stamp else { return Ok(()) };
        match stamp(&self.holder.file) {
            Ok(present) if present == listed => Ok(()),
            Ok(_) => Err(BuildError::Changed { entry: shown(&self.holder.name) }),
            Err(error) => Err(BuildError::entry(&self.holder.name, error)),
        }
    }
}
