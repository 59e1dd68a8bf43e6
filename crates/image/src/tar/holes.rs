//! Which parts of a file are zeros: a function of its contents.
//!
//! Contents are seen in chunks. Chunks of zeros in a row are a hole if there are enough of them:
//! a short one saves nothing, and a file without holes is a plain entry, which every program reads.
//! The map of the file only saves reading.

use extol_vfs::{FileSystem, FsError, Reader, Seek};

/// How zeros are looked for.
const CHUNK: u64 = 4096;
/// The shortest hole.
const LEAST: u64 = 64 << 10;
/// The most runs of data in a file. Readers have bounds too.
const MOST: usize = 1 << 18;

/// The runs of data in a file: begin and end.
#[derive(Debug)]
pub(super) struct Runs {
    pub runs: Vec<(u64, u64)>,
    /// The shortest hole that counts.
    least: u64,
    size: u64,
}

impl Runs {
    pub fn new(size: u64) -> Self {
        Self { runs: Vec::new(), least: LEAST, size }
    }

    /// All of the file, as it is.
    pub fn whole(size: u64) -> Self {
        Self { runs: vec![(0, size)], least: LEAST, size }
    }

    /// Takes contents from a multiple of the chunk's size on.
    fn take(&mut self, mut at: u64, contents: &[u8]) {
        for chunk in contents.chunks(CHUNK as usize) {
            let end = at + chunk.len() as u64;
            if chunk.iter().any(|&byte| byte != 0) {
                self.data(at, end);
            }
            at = end;
        }
    }

    fn data(&mut self, at: u64, end: u64) {
        let before = self.runs.last().map_or(0, |run| run.1);
        match self.runs.last_mut() {
            Some(run) if at - before < self.least => run.1 = end,
            // Zeros at the beginning.
            None if at < self.least => self.runs.push((0, end)),
            _ => self.runs.push((at, end)),
        }
        while self.runs.len() > MOST {
            self.least *= 2;
            self.join();
        }
    }

    /// Joins runs between which there is no hole that counts.
    fn join(&mut self) {
        let least = self.least;
        let mut joined: Vec<(u64, u64)> = Vec::new();
        for run in self.runs.drain(..) {
            match joined.last_mut() {
                Some(last) if run.0 - last.1 < least => last.1 = run.1,
                None if run.0 < least => joined.push((0, run.1)),
                _ => joined.push(run),
            }
        }
        self.runs = joined;
    }

    /// The end of the file: zeros there are a hole as elsewhere.
    fn finish(mut self) -> Self {
        let size = self.size;
        match self.runs.last_mut() {
            Some(last) if size - last.1 < self.least => last.1 = size,
            None if size < self.least => self.runs.push((0, size)),
            _ => {}
        }
        self
    }

    /// True if nothing is a hole.
    pub fn is_whole(&self) -> bool {
        self.runs == [(0, self.size)]
    }

    /// The map in front of the contents of a sparse file, filled up to a block.
    pub fn map(&self) -> Vec<u8> {
        // The end of the file is the end of a run, if an empty one.
        let end = match self.runs.last() {
            Some(run) if run.1 == self.size => None,
            _ => Some((self.size, self.size)),
        };
        let runs = self.runs.iter().copied().chain(end);
        let mut text = format!("{}\n", runs.clone().count());
        for (at, end) in runs {
            text += &format!("{at}\n{}\n", end - at);
        }
        let mut bytes = text.into_bytes();
        bytes.resize(bytes.len().next_multiple_of(super::header::BLOCK), 0);
        bytes
    }

    /// How many bytes are data.
    pub fn len(&self) -> u64 {
        self.runs.iter().map(|(at, end)| end - at).sum()
    }
}

/// The runs of contents that are in memory.
pub(super) fn of_bytes(contents: &[u8]) -> Runs {
    let mut runs = Runs::new(contents.len() as u64);
    runs.take(0, contents);
    runs.finish()
}

/// The runs of a file, which is read for it. `go_on` is asked now and then.
pub(super) fn of_file(
    fs: &dyn FileSystem,
    ino: u32,
    reader: &dyn Reader,
    size: u64,
    buffer: &mut [u8],
    go_on: &mut dyn FnMut() -> bool,
) -> extol_vfs::Result<Runs> {
    let mut runs = Runs::new(size);
    let mut at = 0;
    while at < size {
        let data = match fs.seek(ino, at, Seek::Data) {
            Ok(data) => data.max(at),
            Err(FsError::NoDataThere) => break,
            Err(error) => return Err(error),
        };
        let hole = fs.seek(ino, data, Seek::Hole)?.min(size);
        if hole <= data {
            break;
        }
        at = at.max(data / CHUNK * CHUNK);
        let end = hole.checked_next_multiple_of(CHUNK).map_or(size, |end| end.min(size));
        while at < end && go_on() {
            let want = usize::try_from(end - at).map_or(buffer.len(), |n| n.min(buffer.len()));
            let count = reader.read(at, &mut buffer[..want])?;
            if count < want {
                return Err(FsError::Io("the file ended early".into()));
            }
            runs.take(at, &buffer[..count]);
            at += count as u64;
        }
        if at < end {
            break;
        }
    }
    Ok(runs.finish())
}

#[cfg(test)]
mod tests {
    use super::{CHUNK, LEAST, Runs, of_bytes};

    const L: usize = LEAST as usize;
    const C: usize = CHUNK as usize;

    fn runs(parts: &[(usize, u8)]) -> Vec<(u64, u64)> {
        let bytes: Vec<u8> = parts.iter().flat_map(|&(len, byte)| vec![byte; len]).collect();
        of_bytes(&bytes).runs
    }

    #[test]
    fn only_long_zeros_are_holes() {
        let end = |n: usize| n as u64;
        assert_eq!(runs(&[]), [(0, 0)]);
        assert_eq!(runs(&[(10, 0)]), [(0, 10)]);
        assert_eq!(runs(&[(L, 0)]), []);
        assert_eq!(runs(&[(L - 1, 0)]), [(0, end(L - 1))]);
        assert_eq!(runs(&[(C, 1), (L, 0), (1, 1)]), [(0, end(C)), (end(C + L), end(C + L + 1))]);
        assert_eq!(runs(&[(C, 1), (L - C, 0), (1, 1)]), [(0, end(L + 1))]);
        assert_eq!(runs(&[(L, 0), (1, 1), (L + C, 0)]), [(end(L), end(L + C))]);
        // Zeros that begin within a chunk.
        assert_eq!(runs(&[(1, 1), (L + C - 1, 0)]), [(0, end(C))]);
        assert_eq!(runs(&[(1, 1), (L, 0)]), [(0, end(L + 1))]);
    }

    #[test]
    fn runs_are_bounded() {
        let size = 600_000 * 2 * LEAST;
        let mut all = Runs::new(size);
        for n in 0..600_000 {
            all.data(n * 2 * LEAST, n * 2 * LEAST + CHUNK);
        }
        assert!(all.runs.len() <= super::MOST && all.least > LEAST, "{}", all.least);
        assert_eq!(all.runs.first().map(|run| run.0), Some(0));
        let mut some = Runs::new(size);
        some.data(LEAST, 2 * LEAST);
        let map = some.finish().map();
        assert!(map.starts_with(format!("2\n{LEAST}\n{LEAST}\n{size}\n0\n\0").as_bytes()));
        assert_eq!(map.len(), 512);
    }
}
