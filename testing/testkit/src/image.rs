//! File-system images in sparse files.

use crate::{LoopDevice, run_ok, tool};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// An image file, perhaps with a second one that holds its external journal.
#[derive(Debug, Clone)]
pub struct Image {
    /// The image.
    pub path: PathBuf,
    /// The external journal, if the volume has one.
    pub journal: Option<PathBuf>,
}

impl Image {
    /// A sparse file of `size` bytes with nothing in it.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn sparse(path: impl Into<PathBuf>, size: u64) -> Self {
        let path = path.into();
        let file = File::create(&path).unwrap_or_else(|e| panic!("create {}: {e}", path.display()));
        file.set_len(size).expect("set the size of an image");
        Self { path, journal: None }
    }

    /// An image file that exists already.
    #[must_use]
    pub fn existing(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), journal: None }
    }

    /// Makes `dir/name` with `mke2fs`; the tables are written at once, so that the kernel changes
    /// nothing on its own.
    ///
    /// # Panics
    /// If `mke2fs` fails.
    #[must_use]
    pub fn mke2fs(dir: &Path, name: &str, size: u64, args: &[&str]) -> Self {
        let image = Self::sparse(dir.join(name), size);
        run_ok(
            tool("mke2fs")
                .args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"])
                .args(args)
                .arg(&image.path),
        );
        image
    }

    /// Like [`mke2fs`](Self::mke2fs), with the journal in a second image of `journal_size` bytes.
    /// Needs loop devices, because `mke2fs` accepts only block devices as journals.
    ///
    /// # Panics
    /// If a step fails.
    #[must_use]
    pub fn mke2fs_external(
        dir: &Path,
        name: &str,
        size: u64,
        journal_size: u64,
        block_size: u32,
        args: &[&str],
    ) -> Self {
        let bs = block_size.to_string();
        let journal = Self::sparse(dir.join(format!("{name}.journal")), journal_size);
        run_ok(
            tool("mke2fs").args(["-q", "-F", "-O", "journal_dev", "-b", &bs]).arg(&journal.path),
        );
        let device = LoopDevice::attach(&journal.path);
        let option = format!("device={}", device.path().display());
        let mut image =
            Self::mke2fs(dir, name, size, &[&["-b", &bs, "-J", &option], args].concat());
        image.journal = Some(journal.path);
        image
    }

    /// Copies the image (and its journal) as `name`, holes included. The original may be mounted.
    ///
    /// # Panics
    /// If a copy fails.
    #[must_use]
    pub fn copy_as(&self, name: &str) -> Self {
        let copy = |from: &Path, name: String| {
            let to = from.with_file_name(name);
            run_ok(tool("cp").args(["--sparse=always", "--reflink=auto"]).arg(from).arg(&to));
            to
        };
        Self {
            path: copy(&self.path, name.to_owned()),
            journal: self.journal.as_deref().map(|j| copy(j, format!("{name}.journal"))),
        }
    }

    /// Deletes the files.
    pub fn remove(self) {
        let _ = std::fs::remove_file(&self.path);
        if let Some(journal) = self.journal {
            let _ = std::fs::remove_file(journal);
        }
    }

    /// Reads `len` bytes at `offset`.
    ///
    /// # Panics
    /// If the image is shorter.
    #[must_use]
    pub fn read_at(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let file = File::open(&self.path).expect("open image");
        file.read_exact_at(&mut bytes, offset).expect("read image");
        bytes
    }

    /// Writes bytes at `offset`.
    ///
    /// # Panics
    /// If writing fails.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) {
        let file = File::options().write(true).open(&self.path).expect("open image");
        file.write_all_at(bytes, offset).expect("write image");
    }

    /// Turns one bit around.
    ///
    /// # Panics
    /// If the image is shorter.
    pub fn flip_bit(&self, offset: u64, bit: u8) {
        let mut byte = self.read_at(offset, 1);
        byte[0] ^= 1 << (bit & 7);
        self.write_at(offset, &byte);
    }

    /// Size in bytes.
    ///
    /// # Panics
    /// If the file is gone.
    #[must_use]
    pub fn size(&self) -> u64 {
        std::fs::metadata(&self.path).expect("image metadata").len()
    }
}
