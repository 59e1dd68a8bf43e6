//! The programs that make an image of a directory.

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use tempfile::TempDir;

use super::LOOK;
use super::source::Tree;
use crate::subject::{Loop, run};
use crate::workload::Cancel;
use crate::{BenchError, Programs, Result};

/// What makes the image.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Builder {
    /// `extol mkfs -d`.
    Extol,
    /// `mke2fs -d`.
    Mke2fs,
    /// `genext2fs -d`, which makes an ext2 volume.
    Genext2fs,
    /// `mke2fs`, then `tar x` into a loop mount of Linux, then umount.
    Tar,
}

/// What one image cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    /// Until it was durable.
    pub took: Duration,
    /// Most memory of the process; `None` where the kernel did the work.
    pub peak: Option<u64>,
    /// Bytes that the host's file system gave it.
    pub allocated: u64,
}

impl Builder {
    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Extol => "extol",
            Self::Mke2fs => "mke2fs",
            Self::Genext2fs => "genext2fs",
            Self::Tar => "tar",
        }
    }

    /// Makes an image of `tree` in a new file in `dir`, which is removed again.
    pub(super) fn build(
        self,
        tree: &Tree,
        dir: &Path,
        programs: &Programs,
        cancel: &Cancel,
    ) -> Result<Work> {
        let at = |e: std::io::Error| BenchError(format!("{}: {e} (see --dir)", dir.display()));
        tree.warm().map_err(at)?;
        let scratch = TempDir::new_in(dir).map_err(at)?;
        let image = scratch.path().join("image");
        File::create(&image).and_then(|new| new.set_len(tree.image_size())).map_err(at)?;
        let began = Instant::now();
        let peak = match self {
            Self::Tar => {
                unpack(tree, &image, scratch.path())?;
                None
            }
            _ => peak_of(self.command(tree, &image, programs), cancel)?,
        };
        // (The builder may have put another file in its place.)
        let file = File::open(&image).map_err(at)?;
        file.sync_all().map_err(at)?;
        let took = began.elapsed();
        use std::os::unix::fs::MetadataExt as _;
        let allocated = file.metadata().map_err(at)?.blocks() * 512;
        Ok(Work { took, peak, allocated })
    }

    /// The program and its words.
    fn command(self, tree: &Tree, image: &Path, programs: &Programs) -> Command {
        let (program, words): (&Path, &[&str]) = match self {
            Self::Extol => (&programs.extol, &["mkfs", "-q", "-F", "-d"]),
            Self::Genext2fs => ("genext2fs".as_ref(), &["-B", "4096", "-d"]),
            Self::Mke2fs | Self::Tar => ("mke2fs".as_ref(), &["-q", "-F", "-t", "ext4", "-d"]),
        };
        let mut command = Command::new(program);
        command.args(words).arg(tree.path());
        if self == Self::Genext2fs {
            let numbers = ["-b".into(), (tree.image_size() / 4096).to_string()];
            let inodes = ["-N".into(), (tree.files + 64).to_string()];
            command.args(numbers).args(inodes);
        }
        command.arg(image);
        command
    }
}

/// Makes an empty volume, mounts it, unpacks the tar, unmounts.
fn unpack(tree: &Tree, image: &Path, scratch: &Path) -> Result<()> {
    run(
        "mke2fs",
        &["-q".as_ref(), "-F".as_ref(), "-t".as_ref(), "ext4".as_ref(), image.as_os_str()],
    )?;
    let point = scratch.join("mnt");
    std::fs::create_dir(&point).map_err(|e| BenchError(format!("{}: {e}", point.display())))?;
    let device = Loop::attach(image)?;
    run(
        "mount",
        &["-t".into(), "ext4".into(), OsString::from(&device.device), point.clone().into()],
    )?;
    let words = ["-C".into(), point.clone().into_os_string(), "-xf".into(), tree.tar().into()];
    let unpacked = run("tar", &words);
    let left = run("umount", &[&point]);
    unpacked.and(left).map(drop)
}

/// Runs a program to its end; gives the most memory that was seen.
fn peak_of(mut command: Command, cancel: &Cancel) -> Result<Option<u64>> {
    let name = command.get_program().display().to_string();
    let at = |e: std::io::Error| {
        BenchError(format!("{name}: {e}; scripts/install-deps.sh installs what benchmarks need"))
    };
    let errors = tempfile::tempfile().map_err(at)?;
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(errors.try_clone().map_err(at)?);
    let mut child = command.spawn().map_err(at)?;
    let mut peak = None;
    let status = loop {
        peak = peak.max(peak_now(&child));
        if let Some(status) = child.try_wait().map_err(at)? {
            break status;
        }
        if cancel.is_set() {
            child.kill().and_then(|()| child.wait()).map_err(at)?;
            return Err(BenchError("interrupted".into()));
        }
        std::thread::sleep(LOOK);
    };
    if status.success() {
        return Ok(peak);
    }
    use std::io::{Read as _, Seek as _};
    let (mut errors, mut text) = (errors, Vec::new());
    errors.rewind().and_then(|()| errors.read_to_end(&mut text)).map_err(at)?;
    let text = String::from_utf8_lossy(&text);
    Err(BenchError(format!("{name} failed ({status}): {}", text.trim())))
}

/// The most memory of a process up to now; `None` if it has ended.
fn peak_now(child: &Child) -> Option<u64> {
    let status = extol_proc::read(format!("/proc/{}/status", child.id()))?;
    let value = extol_proc::words(extol_proc::field(&status, "VmHWM")?).next()?;
    Some(extol_proc::number::<u64>(value)? << 10)
}
