//! A Linux guest for tests: Debian's kernel in QEMU, a script that works on images, and what came
//! of it.
//!
//! The machine that runs the tests has the kernel that it has: without a module, without a
//! capability, of one version. The guest has all of Debian's modules and its root may do
//! everything, and its power can be cut at any time.
//!
//! ```no_run
//! # use extol_guest::Guest;
//! # let image = std::path::Path::new("a.img");
//! let report = Guest::new().drive(image).run(
//!     "mount -t ext4 /dev/vda /mnt
//!      echo one > /mnt/file
//!      umount /mnt",
//! );
//! assert_eq!(report.lines(), Vec::<&str>::new());
//! ```
//!
//! A run: an initramfs is written (`archive`) with busybox, e2fsprogs, the modules (`modules`)
//! and the script; QEMU starts the kernel with it (`qemu`); the agent (`init.sh`) loads the
//! modules, runs the script with `sh`, unmounts what is left mounted, and ends the guest. There is
//! no disk but the images, no network unless it is asked for, and nothing is kept from one run to
//! the next. The kernel comes from `scripts/guest.sh`.
//!
//! - GU-1: Nothing hangs. A run that passes its limit is killed, and so is QEMU when the thread
//!   that waits for it ends.
//! - GU-2: A run ends well only if the agent has said so *and* QEMU has ended by itself: then
//!   everything that the guest has written is in the images.
//! - GU-3: Software emulation is the default, whatever the machine offers: `/dev/kvm` may be there
//!   and hang. `EXTOL_GUEST_ACCEL=kvm` takes another accelerator of QEMU.

mod archive;
mod modules;
mod programs;
mod qemu;

use extol_testkit::{Scratch, guest_kernel};
use modules::Modules;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Modules of every guest: virtio drives, and ext4 with its checksums.
const MODULES: [&str; 5] = ["virtio_pci", "virtio_blk", "crc32c_generic", "crc32c_intel", "ext4"];
/// Programs of every guest, from the host. The shell is dash, because that of busybox prefers what
/// busybox has to what `/bin` has (a `mke2fs` of its own, for one).
const PROGRAMS: [&str; 8] =
    ["busybox", "dash", "debugfs", "dumpe2fs", "e2fsck", "mke2fs", "resize2fs", "tune2fs"];

/// What a guest is to have.
#[derive(Clone, Debug)]
pub struct Guest {
    modules: Vec<String>,
    programs: Vec<String>,
    drives: Vec<Drive>,
    files: Vec<(String, Vec<u8>)>,
    memory: u32,
    limit: Duration,
    network: bool,
}

#[derive(Clone, Debug)]
struct Drive {
    path: PathBuf,
    read_only: bool,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The script ended with this exit code, and what was mounted is unmounted.
    Code(u8),
    /// The script has called `power-cut`: the guest ended at that instruction.
    Cut,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// How it ended.
    pub end: End,
    /// What the script printed.
    pub output: String,
    /// What the kernel printed: warnings and errors, and all of its messages if the script failed.
    pub console: String,
    /// From the start of QEMU to the first line of the script.
    pub boot: Duration,
    /// From the start of QEMU to its end.
    pub took: Duration,
}

/// A run that came to no end of its own.
#[derive(Clone, Debug)]
pub struct Failed {
    /// What happened, in a sentence.
    pub what: String,
    /// What the script had printed.
    pub output: String,
    /// What the kernel and QEMU had printed.
    pub console: String,
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { what, output, console } = self;
        write!(f, "{what}\noutput:\n{output}\nconsole:\n{console}")
    }
}

impl std::error::Error for Failed {}

impl Failed {
    fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), output: String::new(), console: String::new() }
    }
}

impl Report {
    /// The lines that the script printed.
    #[must_use]
    pub fn lines(&self) -> Vec<&str> {
        self.output.lines().collect()
    }
}

impl Default for Guest {
    fn default() -> Self {
        Self::new()
    }
}

impl Guest {
    /// A guest without drives, with a limit of two minutes.
    #[must_use]
    pub fn new() -> Self {
        Self {
            modules: MODULES.map(str::to_owned).to_vec(),
            programs: PROGRAMS.map(str::to_owned).to_vec(),
            drives: Vec::new(),
            files: Vec::new(),
            memory: 512,
            limit: Duration::from_secs(120),
            network: false,
        }
    }

    /// Loads a module before the script begins, and before it those that it depends on. A name of
    /// what the kernel has built in is accepted.
    #[must_use]
    pub fn module(mut self, name: &str) -> Self {
        self.modules.push(name.to_owned());
        self
    }

    /// Puts a program of the host into the guest's `/bin`, with the libraries that it is linked
    /// with.
    #[must_use]
    pub fn program(mut self, name: &str) -> Self {
        self.programs.push(name.to_owned());
        self
    }

    /// Attaches an image as the next drive: `/dev/vda`, `/dev/vdb` and so on. What the guest
    /// flushes is in the file; what it has not flushed may be.
    #[must_use]
    pub fn drive(mut self, image: &Path) -> Self {
        self.drives.push(Drive { path: image.to_owned(), read_only: false });
        self
    }

    /// Attaches an image as the next drive, which the guest cannot write.
    #[must_use]
    pub fn drive_read_only(mut self, image: &Path) -> Self {
        self.drives.push(Drive { path: image.to_owned(), read_only: true });
        self
    }

    /// Puts a file into the guest, below `/`. It is executable.
    #[must_use]
    pub fn file(mut self, path: &str, contents: impl Into<Vec<u8>>) -> Self {
        self.files.push((path.to_owned(), contents.into()));
        self
    }

    /// Connects the guest to the host: it has the address 10.0.2.15, and at 10.0.2.2 it reaches
    /// what listens at 127.0.0.1 of the host.
    #[must_use]
    pub fn network(mut self) -> Self {
        self.network = true;
        self.module("virtio_net")
    }

    /// Memory in MiB, instead of 512.
    #[must_use]
    pub fn memory(mut self, mib: u32) -> Self {
        self.memory = mib;
        self
    }

    /// How long the guest may run, instead of two minutes.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Runs a script that must end with exit code 0.
    ///
    /// # Panics
    /// If it does not.
    #[must_use]
    #[track_caller]
    pub fn run(&self, script: &str) -> Report {
        let report = self.try_run(script).unwrap_or_else(|failed| panic!("the guest {failed}"));
        let Report { end, output, console, .. } = &report;
        assert_eq!(*end, End::Code(0), "\noutput:\n{output}\nconsole:\n{console}");
        report
    }

    /// Runs a script for `sh`, with the programs of busybox and of the guest. Its standard output
    /// and standard error are the report, which is text; `power-cut` in it cuts the power.
    ///
    /// # Errors
    /// If something that the guest is to have is missing, if the kernel panics or QEMU ends, if the
    /// limit passes, or if a drive cannot be unmounted in the end.
    pub fn try_run(&self, script: &str) -> Result<Report, Failed> {
        let scratch = Scratch::new();
        let initramfs = scratch.join("initramfs");
        let kernel = guest_kernel();
        self.pack(&initramfs, &kernel, script)?;
        qemu::run(self, &scratch, &kernel.join("vmlinux"), &initramfs)
    }

    fn pack(&self, to: &Path, kernel: &Path, script: &str) -> Result<(), Failed> {
        let all = Modules::of(&kernel.join("modules"));
        let mut archive = archive::Archive::new();
        let mut order = String::new();
        for path in all.in_order(&self.modules)? {
            let name = path.file_name().map(|n| n.display().to_string()).unwrap_or_default();
            archive.host_file(&format!("modules/{name}"), &path)?;
            order.push_str(&name);
            order.push('\n');
        }
        archive.file("modules/order", order.as_bytes());
        programs::put(&mut archive, &self.programs)?;
        archive.link("bin/sh", "dash");
        archive.file("init", include_bytes!("init.sh"));
        archive.file("bin/power-cut", include_bytes!("power-cut.sh"));
        archive.file("script", script.as_bytes());
        for (path, contents) in &self.files {
            archive.file(path.trim_start_matches('/'), contents);
        }
        std::fs::write(to, archive.end()).map_err(|e| Failed::new(format!("has no initramfs: {e}")))
    }
}
