//! What the programs of all crates share: the three jobs. Each program walks a volume in its own
//! crate's way and tells what it finds.
//!
//! `PROGRAM list|hash IMAGE`, `PROGRAM extract IMAGE DIRECTORY`. Prints how many files and
//! directories there are, the bytes of files, and a digest that does not depend on the order.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

enum Job {
    List,
    Hash,
    Extract(PathBuf),
}

/// A file or directory. Its path begins at the root, with a slash.
pub struct Found<'a> {
    pub path: &'a [u8],
    pub is_dir: bool,
    pub mode: u32,
    pub size: u64,
    pub mtime: i64,
}

/// Does the job with each file that is found.
pub struct Tally {
    job: Job,
    found: u64,
    bytes: u64,
    digest: u64,
    buffer: Vec<u8>,
}

impl Tally {
    /// `open` opens the file, and gives a function that reads at an offset (the next one each
    /// time); it is called if the job needs contents.
    pub fn found<R: FnMut(u64, &mut [u8]) -> usize>(
        &mut self,
        found: &Found<'_>,
        open: impl FnOnce() -> R,
    ) {
        self.found += 1;
        let mut hash = crc32fast::Hasher::new();
        hash.update(found.path);
        let below = |dir: &PathBuf| dir.join(OsStr::from_bytes(&found.path[1..]));
        match &self.job {
            Job::List => {
                hash.update(&(found.mode & 0o7777).to_le_bytes());
                hash.update(&found.size.to_le_bytes());
                hash.update(&found.mtime.to_le_bytes());
            }
            Job::Hash if found.is_dir => {}
            Job::Hash => {
                let mut read = open();
                pieces(found.size, &mut self.buffer, &mut read, |piece| hash.update(piece));
            }
            Job::Extract(dir) if found.is_dir => fs::create_dir(below(dir)).unwrap(),
            Job::Extract(dir) => {
                let mut file = File::create(below(dir)).unwrap();
                let mut read = open();
                pieces(found.size, &mut self.buffer, &mut read, |piece| {
                    file.write_all(piece).unwrap();
                });
            }
        }
        if !found.is_dir {
            self.bytes += found.size;
        }
        self.digest += u64::from(hash.finalize());
    }
}

fn pieces(
    size: u64,
    buffer: &mut [u8],
    read: &mut impl FnMut(u64, &mut [u8]) -> usize,
    mut each: impl FnMut(&[u8]),
) {
    let mut at = 0;
    while at < size {
        let most = usize::try_from(size - at).unwrap().min(buffer.len());
        let n = read(at, &mut buffer[..most]);
        assert_ne!(n, 0, "a file ends too early");
        each(&buffer[..n]);
        at += n as u64;
    }
}

/// Takes the arguments, lets `walk` find all that is on the image, and prints what came of it.
pub fn run(walk: impl FnOnce(&str, &mut Tally)) {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (job, image) = match args[..] {
        ["list", image] => (Job::List, image),
        ["hash", image] => (Job::Hash, image),
        ["extract", image, dir] => (Job::Extract(dir.into()), image),
        _ => panic!("list IMAGE, hash IMAGE, or extract IMAGE DIRECTORY"),
    };
    let mut tally = Tally { job, found: 0, bytes: 0, digest: 0, buffer: vec![0; 1 << 20] };
    walk(image, &mut tally);
    println!("{} {} {}", tally.found, tally.bytes, tally.digest);
}
