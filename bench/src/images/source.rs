//! The directories that images are made of. The same options give the same files.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;
use rand::rngs::SmallRng;
use rand::{Rng as _, RngCore as _, SeedableRng as _};
use tempfile::TempDir;

use crate::{BenchError, Result};

/// What goes into an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Source {
    /// 30,000 files with 2 GB, 100 in each directory: many small ones, few large ones.
    Tree,
    /// 8,000 subdirectories in one directory.
    Dirs,
    /// 100,000 empty files, 1,000 in each directory.
    Empty,
    /// One file of 2 GB.
    Large,
}

impl Source {
    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tree => "tree",
            Self::Dirs => "dirs",
            Self::Empty => "empty",
            Self::Large => "large",
        }
    }
}

/// Bytes of the sources that have bytes.
const BYTES: u64 = 2_000_000_000;
/// The largest file of the tree is so many times the mean.
const LARGEST: u64 = 8;

/// A directory that was made, and the same as a tar; both are removed when it is dropped.
#[derive(Debug)]
pub(super) struct Tree {
    scratch: TempDir,
    /// Files and directories.
    pub files: u64,
    /// Bytes in files.
    pub bytes: u64,
}

impl Tree {
    /// Makes a `part`-th of `source` in `dir`.
    pub fn make(source: Source, part: u64, dir: &Path) -> Result<Self> {
        let at = |e: std::io::Error| BenchError(format!("{}: {e} (see --dir)", dir.display()));
        let scratch =
            tempfile::Builder::new().prefix("extol-bench-").tempdir_in(dir).map_err(at)?;
        let mut tree = Self { scratch, files: 0, bytes: 0 };
        fs::create_dir(tree.path()).map_err(at)?;
        tree.fill(source, part).map_err(at)?;
        let mut tar = Command::new("tar");
        tar.arg("-C").arg(tree.path()).arg("-cf").arg(tree.tar()).arg(".");
        let done = tar.status().map_err(|e| BenchError(format!("tar: {e}")))?;
        if !done.success() {
            return Err(BenchError(format!("tar of {} failed", tree.path().display())));
        }
        rustix::fs::sync();
        Ok(tree)
    }

    /// The directory.
    pub fn path(&self) -> PathBuf {
        self.scratch.path().join("source")
    }

    /// The same as a tar.
    pub fn tar(&self) -> PathBuf {
        self.scratch.path().join("source.tar")
    }

    /// In words.
    pub fn describe(&self) -> String {
        format!("{} files and directories, {} MB", self.files, self.bytes / 1_000_000)
    }

    /// A size of image with room for it, whatever makes it: blocks of 4 KiB, an inode for each
    /// 16 KiB.
    pub fn image_size(&self) -> u64 {
        let rounded = self.bytes + self.files * 4096;
        let size = (rounded + rounded / 8).max(self.files * (16 << 10)) + (256 << 20);
        size.next_multiple_of(64 << 20)
    }

    fn fill(&mut self, source: Source, part: u64) -> std::io::Result<()> {
        let mut rng = SmallRng::seed_from_u64(34);
        let count = |n: u64| (n / part).max(1);
        match source {
            Source::Tree => {
                let files = count(30_000);
                self.sized(&mut rng, files, BYTES / 30_000)
            }
            Source::Dirs => (0..count(8_000)).try_for_each(|n| {
                self.files += 1;
                fs::create_dir(self.path().join(format!("dir{n}")))
            }),
            Source::Empty => (0..count(100_000)).try_for_each(|n| {
                let dir = self.directory(n / 1_000)?;
                self.files += 1;
                File::create(dir.join(format!("file{n}"))).map(drop)
            }),
            Source::Large => {
                self.files += 1;
                let bytes = BYTES / part;
                self.file(&mut rng, &self.path().join("large"), bytes)
            }
        }
    }

    /// Files with sizes from none to [`LARGEST`] times the mean, by a power law.
    fn sized(&mut self, rng: &mut SmallRng, files: u64, mean: u64) -> std::io::Result<()> {
        for n in 0..files {
            let dir = self.directory(n / 100)?;
            self.files += 1;
            // The mean of `n * u^(n - 1)` is 1: half of the files are small, a few are large.
            let u: f64 = rng.random();
            let size = (mean as f64 * LARGEST as f64 * u.powi(LARGEST as i32 - 1)) as u64;
            self.file(rng, &dir.join(format!("file{n}")), size)?;
        }
        Ok(())
    }

    fn directory(&mut self, n: u64) -> std::io::Result<PathBuf> {
        let dir = self.path().join(format!("dir{n}"));
        match fs::create_dir(&dir) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => return Err(e),
            made => self.files += u64::from(made.is_ok()),
        }
        Ok(dir)
    }

    fn file(&mut self, rng: &mut SmallRng, path: &Path, bytes: u64) -> std::io::Result<()> {
        let mut file = File::create(path)?;
        let mut left = bytes;
        let mut piece = vec![0; 1 << 20];
        while left > 0 {
            let len = left.min(piece.len() as u64) as usize;
            rng.fill_bytes(&mut piece[..len]);
            file.write_all(&piece[..len])?;
            left -= len as u64;
        }
        self.bytes += bytes;
        Ok(())
    }

    /// Reads all of it, so that it is in the page cache.
    pub fn warm(&self) -> std::io::Result<()> {
        let mut buffer = vec![0; 1 << 20];
        let mut dirs = vec![self.path()];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir)? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    dirs.push(entry.path());
                    continue;
                }
                let mut file = File::open(entry.path())?;
                while file.read(&mut buffer)? > 0 {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_about_the_bytes_it_should_have() {
        let scratch = TempDir::new().unwrap();
        let tree = Tree::make(Source::Tree, 100, scratch.path()).unwrap();
        assert_eq!(tree.files, 300 + 3);
        let wanted = BYTES / 100;
        assert!((wanted / 2..wanted * 2).contains(&tree.bytes), "{}", tree.bytes);
        tree.warm().unwrap();
        let again = Tree::make(Source::Tree, 100, scratch.path()).unwrap();
        assert_eq!(tree.bytes, again.bytes);
    }

    #[test]
    fn the_others_have_what_they_say() {
        let scratch = TempDir::new().unwrap();
        for (source, files) in [(Source::Dirs, 80), (Source::Empty, 1001), (Source::Large, 1)] {
            let tree = Tree::make(source, 100, scratch.path()).unwrap();
            assert_eq!(tree.files, files, "{source:?}");
            assert!(tree.image_size() > tree.bytes + tree.files * 4096, "{source:?}");
        }
    }
}
