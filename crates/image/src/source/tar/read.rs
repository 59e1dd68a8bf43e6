//! An archive, entry by entry.

use extol_ondisk::Time;
use extol_vfs::Rdev;

use super::header::{self, BLOCK, Block, Header};
use super::input::Input;
use super::pax::Extended;
use super::sparse::{self, Sparse};
use crate::error::{BuildError, Result};
use crate::source::pieces::Pieces;
use crate::tree::{DataRef, Kind, Meta, OtherTimes, TreeBuilder, XattrSetId};

/// The most bytes of names and records that may stand in front of one entry.
const EXTENSIONS: u64 = 1 << 20;

/// So far is looked behind the first blocks of zeros for what is none.
const EMPTY: usize = 128 << 10;

/// An entry of an archive.
#[derive(Debug)]
pub(in crate::source) struct Entry {
    pub path: Vec<u8>,
    pub meta: Meta,
    pub what: What,
}

/// What an entry is.
#[derive(Debug)]
pub(in crate::source) enum What {
    Dir,
    File {
        size: u64,
        data: DataRef,
    },
    Symlink(Vec<u8>),
    /// One more name of the file that has this one.
    Link(Vec<u8>),
    Char(Rdev),
    Block(Rdev),
    Fifo,
}

impl Entry {
    /// Adds it to a tree.
    pub fn add(self, tree: &mut TreeBuilder) -> Result<()> {
        let kind = match self.what {
            What::Link(target) => return tree.link(&self.path, &target),
            What::Symlink(target) => Kind::Symlink(tree.target(&self.path, &target)?),
            What::Dir => Kind::Dir,
            What::File { size, data } => Kind::File { size, data },
            What::Char(rdev) => Kind::Char(rdev),
            What::Block(rdev) => Kind::Block(rdev),
            What::Fifo => Kind::Fifo,
        };
        tree.add(&self.path, self.meta, kind).map(|_| ())
    }
}

/// A reader of an archive. What it needs to keep goes into the pieces and the tree.
pub(in crate::source) struct Archive<'a, 'i> {
    input: Input<'i>,
    pieces: &'a mut Pieces,
    /// What global headers say.
    globals: Extended,
    /// Where it begins.
    start: u64,
    /// Nothing of it can be missing.
    is_whole: bool,
    /// What stands in front of the next entry: its bytes.
    extensions: u64,
    entries: u64,
}

impl<'a, 'i> Archive<'a, 'i> {
    pub fn new(input: Input<'i>, pieces: &'a mut Pieces) -> Self {
        let start = input.at();
        let globals = Extended::default();
        Self { input, pieces, globals, start, extensions: 0, entries: 0, is_whole: false }
    }

    /// Its digest is compared: it is not cut off.
    pub fn of_digest(self) -> Self {
        Self { is_whole: true, ..self }
    }

    /// The next entry. `None` at the end.
    pub fn next(&mut self, tree: &mut TreeBuilder) -> Result<Option<Entry>> {
        let mut records = Vec::new();
        let (mut long_name, mut long_link) = (None, None);
        self.extensions = 0;
        loop {
            let Some((header, block)) = self.header(tree)? else { return Ok(None) };
            match header.kind {
                b'x' | b'X' => records.append(&mut self.extension(&header)?),
                b'g' => self.global(&header, tree)?,
                b'L' => long_name = Some(name_of(self.extension(&header)?)),
                b'K' => long_link = Some(name_of(self.extension(&header)?)),
                // A volume's label, names of an old format, a list of Solaris: nothing of a file.
                b'V' | b'N' | b'A' => self.input.skip(header.size)?,
                b'M' => {
                    let why = "goes on from another volume: join the volumes first";
                    return Err(self.wrong(&header, why));
                }
                _ => {
                    // Global headers hold for the entry that follows them at once.
                    let mut extended = self.globals.clone();
                    let runs = tree.limits().sparse_runs;
                    extended.read(&records, runs).map_err(|why| self.wrong(&header, why))?;
                    extended.path = extended.path.or(long_name);
                    extended.link = extended.link.or(long_link);
                    return self.entry(*header, &block, extended, tree).map(Some);
                }
            }
        }
    }

    /// The next header. `None` at the end, behind which nothing is read any more.
    fn header(&mut self, tree: &mut TreeBuilder) -> Result<Option<(Box<Header>, [u8; BLOCK])>> {
        let at = self.input.at();
        let Some(block) = self.input.block()? else {
            if at == self.start {
                return Err(BuildError::entry(self.input.name(), "is empty: no tar archive"));
            }
            if self.extensions > 0 {
                let why = "is cut off: the archive ends behind an extended header";
                return Err(BuildError::entry(self.input.name(), why));
            }
            if !self.is_whole {
                let what =
                    "does not end with blocks of zeros: if it should, the archive is cut off";
                tree.note(self.input.name(), what);
            }
            return Ok(None);
        };
        match header::decode(&block) {
            Ok(Block::Header(header)) => Ok(Some((header, block))),
            Ok(Block::Zeros) => {
                if self.entries == 0 {
                    self.require_zeros()?;
                }
                self.input.finish()?;
                Ok(None)
            }
            Err(header::NO_HEADER) if at == self.start => {
                let why = "is no tar archive: the checksum of its first header is wrong";
                Err(BuildError::entry(self.input.name(), why))
            }
            Err(why) if self.entries == 0 => Err(BuildError::entry(self.input.name(), why)),
            Err(why) => {
                let why = format!("at byte {at}: {why}");
                Err(BuildError::entry(self.input.name(), why))
            }
        }
    }

    /// Refuses what only begins as an archive without entries does: most disks and volumes.
    fn require_zeros(&mut self) -> Result<()> {
        if self.input.begins_with_zeros(EMPTY)? {
            return Ok(());
        }
        let why = "is no tar archive: it begins with zeros, and more follows";
        Err(BuildError::entry(self.input.name(), why))
    }

    fn wrong(&self, header: &Header, why: impl std::fmt::Display) -> BuildError {
        BuildError::entry(&header.name, why)
    }

    /// What an extension holds.
    fn extension(&mut self, header: &Header) -> Result<Vec<u8>> {
        self.extensions = self.extensions.saturating_add(header.size.saturating_add(1));
        if self.extensions > EXTENSIONS {
            let why = format!("has more than {EXTENSIONS} bytes of extended headers");
            return Err(self.wrong(header, why));
        }
        self.input.bytes(header.size as usize)
    }

    /// A global header: what it says holds for the entries behind it. It cannot name them.
    fn global(&mut self, header: &Header, tree: &mut TreeBuilder) -> Result<()> {
        let bytes = self.extension(header)?;
        let runs = tree.limits().sparse_runs;
        let read = self.globals.read(&bytes, runs);
        read.map_err(|why| self.wrong(header, why))?;
        let names = &mut self.globals;
        if names.path.take().is_some() | names.link.take().is_some() | names.size.take().is_some() {
            tree.note(&header.name, "names and sizes in a global header are passed over");
        }
        names.sparse = Default::default();
        Ok(())
    }

    /// An entry, with what extended headers say of it.
    fn entry(
        &mut self,
        header: Header,
        block: &[u8; BLOCK],
        mut extended: Extended,
        tree: &mut TreeBuilder,
    ) -> Result<Entry> {
        self.entries += 1;
        let sparse_name = extended.sparse.name.take();
        let path = sparse_name.or(extended.path.take()).unwrap_or_else(|| header.name.clone());
        let header = Header { name: path, ..header };
        for what in extended.left_out() {
            tree.note(&header.name, what);
        }
        let size = extended.size.unwrap_or(header.size);
        let rdev = Rdev {
            major: extended.major.unwrap_or(header.rdev.major),
            minor: extended.minor.unwrap_or(header.rdev.minor),
        };
        let link = extended.link.take().unwrap_or_else(|| header.link.clone());
        let what = match header.kind {
            b'1' => What::Link(link),
            b'2' => What::Symlink(link),
            b'3' => What::Char(rdev),
            b'4' => What::Block(rdev),
            b'5' => What::Dir,
            b'6' => What::Fifo,
            // A directory with the list of what is in it.
            b'D' => {
                self.input.skip(size)?;
                What::Dir
            }
            // The oldest archives have directories as files whose names end with a slash.
            0 | b'0' if header.name.ends_with(b"/") => {
                self.input.skip(size)?;
                What::Dir
            }
            kind => {
                if !matches!(kind, 0 | b'0' | b'7' | b'S') {
                    let kind = kind.escape_ascii();
                    tree.note(
                        &header.name,
                        format!("is of the unknown type {kind}: taken as a file"),
                    );
                }
                self.file(&header, block, &extended, size, tree)?
            }
        };
        let meta = self.meta(&header, &mut extended, tree)?;
        Ok(Entry { path: header.name, meta, what })
    }

    /// A regular file, and where its contents are.
    fn file(
        &mut self,
        header: &Header,
        block: &[u8; BLOCK],
        extended: &Extended,
        stored: u64,
        tree: &mut TreeBuilder,
    ) -> Result<What> {
        let limit = tree.limits().file_size;
        let check = |size: u64| {
            let why =
                format!("is {size} bytes long, more than {limit} (--limits file-size=NUMBER)");
            if size > limit { Err(BuildError::entry(&header.name, why)) } else { Ok(()) }
        };
        let Some(Sparse { map, size, stored }) = self.map(header, block, extended, stored, tree)?
        else {
            check(stored)?;
            let (holder, at) = self.input.contents(stored)?;
            let data = self.pieces.whole(holder, at, stored);
            return Ok(What::File { size: stored, data });
        };
        check(size)?;
        let runs = sparse::runs(map, size, stored).map_err(|why| self.wrong(header, why))?;
        let (holder, at) = self.input.contents(stored)?;
        let data = self.pieces.sparse(holder, at, size, runs, tree)?;
        Ok(What::File { size, data })
    }

    /// The map of a sparse file, its size, and how many bytes of it are stored behind the map.
    fn map(
        &mut self,
        header: &Header,
        block: &[u8; BLOCK],
        extended: &Extended,
        stored: u64,
        tree: &TreeBuilder,
    ) -> Result<Option<Sparse>> {
        let most = tree.limits().sparse_runs;
        if header.kind == b'S' {
            return self.gnu_map(header, block, stored, most).map(Some);
        }
        let records = &extended.sparse;
        if !records.is_there() {
            return Ok(None);
        }
        let size = records.real_size;
        let Some(size) = size else {
            return Err(self.wrong(header, "is a sparse file without a size"));
        };
        match (records.major.unwrap_or(0), records.minor.unwrap_or(0)) {
            (0, _) => {
                let map = sparse::pairs(records.map.as_deref().unwrap_or_default()).collect();
                Ok(Some(Sparse { map, size, stored }))
            }
            (1, 0) => {
                let mut lines = sparse::Lines::default();
                let mut left = stored;
                loop {
                    left = left.checked_sub(BLOCK as u64).ok_or_else(|| {
                        self.wrong(header, "has a map of a sparse file that is cut off")
                    })?;
                    let Some(block) = self.input.block()? else {
                        return Err(self.input.failed(std::io::ErrorKind::UnexpectedEof.into()));
                    };
                    if lines.take(&block, most).map_err(|why| self.wrong(header, why))? {
                        let map = lines.map().collect();
                        return Ok(Some(Sparse { map, size, stored: left }));
                    }
                }
            }
            (major, minor) => {
                let why = format!("is a sparse file of the unknown format {major}.{minor}");
                Err(self.wrong(header, why))
            }
        }
    }

    /// The map of the oldest format.
    fn gnu_map(
        &mut self,
        header: &Header,
        block: &[u8; BLOCK],
        stored: u64,
        most: u64,
    ) -> Result<Sparse> {
        let why = "has a map of a sparse file that is no list of numbers";
        let (mut map, mut more, size) =
            header::gnu_sparse(block).ok_or_else(|| self.wrong(header, why))?;
        while more {
            let Some(block) = self.input.block()? else {
                return Err(self.input.failed(std::io::ErrorKind::UnexpectedEof.into()));
            };
            let (runs, goes_on) =
                header::gnu_sparse_more(&block).ok_or_else(|| self.wrong(header, why))?;
            more = goes_on;
            map.extend(runs);
            if map.len() as u64 > most {
                let why = "has a map of a sparse file with too many runs";
                return Err(self.wrong(header, why));
            }
        }
        Ok(Sparse { map, size, stored })
    }

    /// Owner, mode, times and attributes.
    fn meta(
        &mut self,
        header: &Header,
        extended: &mut Extended,
        tree: &mut TreeBuilder,
    ) -> Result<Meta> {
        let id = |what: &str, number: i64| {
            // The highest number means "no change" to chown and is none.
            u32::try_from(number).ok().filter(|id| *id != u32::MAX).ok_or_else(|| {
                self.wrong(header, format!("has the {what} {number}, which Linux cannot have"))
            })
        };
        let times =
            OtherTimes { atime: extended.atime, ctime: extended.ctime, crtime: extended.crtime };
        let xattrs = std::mem::take(&mut extended.xattrs);
        Ok(Meta {
            mode: match extended.acl_mode() {
                // Those of a link say nothing, and Linux makes none others.
                _ if header.kind == b'2' => 0o777,
                Some(bits) => header.mode & !0o777 | bits,
                None => header.mode,
            },
            uid: id("owner", extended.uid.unwrap_or(header.uid))?,
            gid: id("group", extended.gid.unwrap_or(header.gid))?,
            mtime: extended.mtime.unwrap_or(Time { sec: header.mtime, nsec: 0 }),
            times: tree.times(times)?,
            xattrs: if xattrs.is_empty() { XattrSetId::NONE } else { tree.xattrs(xattrs)? },
            implied: false,
            verity: false,
        })
    }
}

/// A name that ends with a NUL.
fn name_of(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Some(end) = bytes.iter().position(|&byte| byte == 0) {
        bytes.truncate(end);
    }
    bytes
}
