//! The sandbox of a command that works on a volume which is not mounted.
//!
//! ```text
//!   main ── plan: one row of the table      what the command reads and makes beside the volume
//!     │
//!   open ── claimed, with all rights        image, files below it, room to expand it
//!     │ enter, once in a process            Landlock, seccomp, no_new_privs, fewer capabilities
//!   decoded: formats, partitions, volume    nothing but what the row names can be opened
//! ```
//!
//! Each command names its inputs and outputs before it opens anything, so what is decoded gains
//! nothing that the command line does not name. What was claimed is added to the row: it may be
//! opened again, and so may be the file below a loop device, which is locked. Of a volume of
//! another host the port is added, since it is connected to again. `mkfs -d` enters before it opens
//! the source of its files.
//!
//! A kernel that lacks a part gives what it has, and the command goes on.
//!
//! - CS-1: no byte of a volume, of an image or of an archive is decoded before [`enter`]
//!   (`volume/told.rs`, `mkfs/fill.rs`), but for the header of a qcow2 image, which names the file
//!   below it.
//! - CS-2: a thread that is older has entered as well, with nothing to open ([`seal`]).

use std::ffi::OsStr;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use extol_block::open::{self, Claimed};
use extol_cli_common::Result;
use extol_proc::{DeviceNumber, LoopDevice, bytes_of, image_of, os_str};

use crate::args::{Command, MkfsArgs, VolumeArgs};
use crate::sandbox::{self, Kind, Use};
use crate::{options, volume};

/// What a command may use beside the volume.
#[derive(Debug, Default)]
struct Row {
    /// The volume is written to.
    writes: bool,
    /// It copies owners, modes and attributes from or to files of this host.
    makes: bool,
    /// The port of another host, for what is connected to after the sandbox is on.
    network: Option<u16>,
    files: Vec<(PathBuf, Use)>,
}

/// The row of this process. `None`: it is not confined.
static ROW: Mutex<Option<Row>> = Mutex::new(None);
static HAS_ENTERED: AtomicBool = AtomicBool::new(false);

/// Files that names of users, groups and projects are looked up in.
const NAMES: [&str; 4] = ["/etc/passwd", "/etc/group", "/etc/projid", "/etc/projects"];

/// What names of hosts are looked up in, and certificates of authorities.
const NETWORK: [&str; 8] = [
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/resolv.conf",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/ssl",
    "/etc/pki",
];

impl Row {
    /// A command that reads the volume, or writes to it.
    fn new(writes: bool) -> Self {
        Self { writes, ..Self::default() }
    }

    /// A command for files of the volume.
    fn of(volume: &VolumeArgs, writes: bool) -> Option<Self> {
        let keys = volume.keys.iter().map(|key| (key.clone(), Use::Read));
        let row = Self::new(writes).opened_with(&volume.options).with(keys);
        (!volume.no_sandbox).then_some(row)
    }

    fn with(mut self, files: impl IntoIterator<Item = (PathBuf, Use)>) -> Self {
        self.files.extend(files);
        self
    }

    fn reading<'p>(self, paths: impl IntoIterator<Item = &'p PathBuf>) -> Self {
        self.with(paths.into_iter().map(|path| (path.clone(), Use::ReadBelow)))
    }

    fn making(mut self, place: Option<&Path>) -> Self {
        self.makes = true;
        let dirs = place.into_iter().flat_map(dirs_of);
        self.with(dirs.map(|dir| (dir, Use::MakeBelow)))
    }

    fn copying(mut self, operands: &[std::ffi::OsString]) -> Self {
        self.makes = true;
        let sources = operands.iter().take(operands.len().saturating_sub(1));
        self.with(sources.map(|path| (path.into(), Use::ReadBelow)))
    }

    fn names(self) -> Self {
        self.with(NAMES.map(|path| (path.into(), Use::Read)))
    }

    /// Options of opening may name a journal and the file below an image.
    fn opened_with(mut self, lists: &[impl AsRef<OsStr>]) -> Self {
        for word in lists.iter().flat_map(options::words) {
            match options::text_of(&word).map(options::parts) {
                Some(("journal_path", Some(path))) => self = self.journal(Path::new(path)),
                Some(("backing", Some(path))) => self.files.push((path.into(), Use::Read)),
                _ => {}
            }
        }
        self
    }

    /// An external journal, which is replayed and written as the volume is.
    fn journal(mut self, name: &Path) -> Self {
        if open::is_address(name) {
            self = self.server(name);
        } else {
            // (One that is not found is refused when it is opened.)
            let path = volume::untagged(name).unwrap_or_else(|_| name.to_owned());
            self.files.push((image_of(&path).to_owned(), Use::of_file(self.writes)));
        }
        self
    }

    /// The server of an address, and the certificates that it names.
    fn server(mut self, address: &Path) -> Self {
        self.network = Some(port_of(address));
        self.with(certificates(address).map(|dir| (dir, Use::ReadBelow)))
    }

    /// The journal of `-J device=NAME`.
    fn journal_of<'w>(self, lists: impl IntoIterator<Item = &'w OsStr>) -> Self {
        let words = lists.into_iter().flat_map(|list| bytes_of(list).split(|byte| *byte == b','));
        let named = words.filter_map(|word| word.strip_prefix(b"device="));
        named.fold(self, |row, name| row.journal(Path::new(&*os_str(name))))
    }
}

/// The port of an address. (Without one nothing can be connected to.)
fn port_of(name: &Path) -> u16 {
    #[cfg(feature = "network")]
    let port = open::dialer(name).ok().and_then(|dialer| dialer.port());
    #[cfg(not(feature = "network"))]
    let port = {
        let _ = name;
        None
    };
    port.unwrap_or(0)
}

/// The directory in which a place is, or will be, and that of what a link there leads to.
fn dirs_of(place: &Path) -> Vec<PathBuf> {
    if place.is_dir() {
        return vec![place.to_owned()];
    }
    let above = |place: &Path| match place.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir.to_owned(),
        _ => PathBuf::from("."),
    };
    let behind = place.canonicalize().ok().map(|place| above(&place));
    [above(place)].into_iter().chain(behind).collect()
}

/// Notes what this process will be confined to.
pub fn plan(command: &Command) {
    if matches!(command, Command::Quota(_)) {
        // What looks names up is loaded as long as that is possible.
        let _ = nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(0));
        let _ = nix::unistd::Group::from_gid(nix::unistd::Gid::from_raw(0));
    }
    *ROW.lock().unwrap_or_else(PoisonError::into_inner) = row(command);
}

/// The table: what each command may use. `None`: it opens no volume, is not to be confined, or has
/// a sandbox of its own.
fn row(command: &Command) -> Option<Row> {
    use Command as C;
    Some(match command {
        C::Info(args) => Row::new(false).opened_with(&args.options).unless(args.no_sandbox)?,
        C::Log(args) => Row::new(false).opened_with(&args.options).unless(args.no_sandbox)?,
        C::Replay(args) => {
            Row::new(!args.dry_run).opened_with(&args.options).unless(args.no_sandbox)?
        }
        C::Check(args) => {
            let row = Row::new(args.preen).opened_with(&args.options);
            args.journal.iter().fold(row, |row, path| row.journal(path)).unless(args.no_sandbox)?
        }
        C::Mkfs(args) => of_mkfs(args)?,
        C::Ls(args) => Row::of(&args.volume, false)?,
        C::Cat(args) => Row::of(&args.volume, false)?,
        C::Getxattr(args) => Row::of(&args.volume, false)?,
        C::Find(args) => Row::of(&args.volume, false)?,
        C::Du(args) => Row::of(&args.volume, false)?,
        C::Df(args) => {
            let images = args.sources.iter().map(|source| image_of(source).to_owned());
            let row = Row::new(false).opened_with(&args.options);
            row.with(images.map(|image| (image, Use::Read))).unless(args.no_sandbox)?
        }
        C::Stat(args) if !args.paths.is_empty() => Row::of(&args.volume(), false)?,
        C::Get(args) => {
            let place = args.paths.last().map(Path::new);
            Row::of(&args.volume, false)?.making(place)
        }
        C::Tar(args) => {
            let place = args.file.as_deref().filter(|file| *file != Path::new("-"));
            let row = Row::of(&args.volume, false)?;
            match place.filter(|file| is_special(file)) {
                Some(special) => row.with([(special.to_owned(), Use::Write)]),
                None => row.making(place),
            }
        }
        C::Put(args) => Row::of(&args.volume, true)?.copying(&args.paths),
        C::Edit(args) => Row::of(&args.volume, true)?.reading(&args.file),
        C::Rm(args) => Row::of(&args.volume, true)?,
        C::Mkdir(args) => Row::of(&args.volume, true)?,
        C::Mv(args) => Row::of(&args.volume, true)?,
        C::Ln(args) => Row::of(&args.volume, true)?,
        C::Chmod(args) => Row::of(&args.volume, true)?,
        C::Chown(args) => Row::of(&args.volume, true)?,
        C::Touch(args) => Row::of(&args.volume, true)?,
        C::Truncate(args) => Row::of(&args.volume, true)?,
        C::Mknod(args) => Row::of(&args.volume, true)?,
        C::Setxattr(args) => Row::of(&args.volume, true)?,
        C::Verity(args) => Row::of(&args.volume, args.action == "enable")?.reading(&args.signature),
        C::Encrypt(args) => {
            let row = Row::new(args.action == "set-policy").opened_with(&args.options);
            row.reading(&args.keys).unless(args.no_sandbox)?
        }
        C::Defrag(args) => {
            Row::new(!args.dry_run).opened_with(&args.options).unless(args.no_sandbox)?
        }
        C::Resize(args) => {
            Row::new(!args.print_minimum).opened_with(&args.options).unless(args.no_sandbox)?
        }
        C::Tune(args) => {
            let row = Row::new(true).opened_with(&args.opening).names();
            row.journal_of(args.journal.iter().map(OsStr::new)).unless(args.no_sandbox)?
        }
        C::Quota(args) => {
            let writes = args.action != "report";
            Row::new(writes).opened_with(&args.options).names().unless(args.no_sandbox)?
        }
        C::Mount(_) | C::MountMonitor(_) | C::MountConnector(_) | C::Export(_) => return None,
        C::Umount(_) | C::Remount(_) | C::Stat(_) | C::Sync(_) | C::Checkpoint(_) => return None,
        C::Freeze(_) | C::Thaw(_) | C::Top(_) | C::Key(_) => return None,
        C::Completions(_) | C::Man(_) => return None,
    })
}

impl Row {
    fn unless(self, no_sandbox: bool) -> Option<Self> {
        (!no_sandbox).then_some(self)
    }
}

fn of_mkfs(args: &MkfsArgs) -> Option<Row> {
    let target = image_of(&args.target);
    let row = Row::new(true).opened_with(&args.options);
    let row = match is_special(target) {
        _ if open::is_address(&args.target) => row.server(&args.target),
        true => row.with([(target.to_owned(), Use::Write)]),
        // It is made, removed after a failure, and replaced by another one.
        false => row.making(Some(target)),
    };
    let fill = &args.fill;
    let row = row.reading(&args.contents).reading(&args.bad_blocks).reading(&fill.metadata);
    // (Otherwise it is the directory of the target.)
    let spool = fill.spool.clone().or_else(|| is_special(target).then(std::env::temp_dir));
    let spool = spool.filter(|_| !args.contents.is_empty()).map(|dir| (dir, Use::MakeBelow));
    let mut row = row.reading(&fill.selinux_contexts).with(spool);
    row.makes |= !args.contents.is_empty();
    row.journal_of(args.journal.iter().map(|list| list.as_os_str())).unless(args.no_sandbox)
}

/// True for what is there and no file: a device, a pipe, which is written to as it is.
fn is_special(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
}

/// True if this process will be confined, or is.
pub fn is_planned() -> bool {
    ROW.lock().unwrap_or_else(PoisonError::into_inner).is_some()
}

/// Operands of a script, which is read before the volume is opened.
pub fn also_copies(operands: &[std::ffi::OsString]) {
    let mut row = ROW.lock().unwrap_or_else(PoisonError::into_inner);
    *row = row.take().map(|row| row.copying(operands));
}

/// Confines this process, unless that is done. `claimed` is open, and may be opened again; in the
/// directory `kept` files are made.
pub fn enter(claimed: Option<&Claimed>, kept: Option<&Path>) -> Result<()> {
    let row = ROW.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(row) = row.as_ref() else { return Ok(()) };
    if HAS_ENTERED.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    let mut files = row.files.clone();
    files.extend(kept.map(|dir| (dir.to_owned(), Use::MakeBelow)));
    if let Some(claimed) = claimed {
        files.push((claimed.path().to_owned(), Use::of_file(row.writes)));
        files.extend(claimed.below().map(|path| (path.to_owned(), Use::Read)));
    }
    let volume = claimed.filter(|claimed| open::is_address(claimed.path()));
    let network = volume.map(|volume| port_of(volume.path())).or(row.network);
    if network.is_some() {
        files.extend(NETWORK.map(|path| (path.into(), Use::ReadBelow)));
        let dir = volume.and_then(|volume| certificates(volume.path()));
        files.extend(dir.map(|dir| (dir, Use::ReadBelow)));
    }
    let others: Vec<_> = files.iter().flat_map(|(path, usage)| loops_of(path, *usage)).collect();
    files.extend(others);
    sandbox::prepare(&sandbox::Config {
        kind: if network.is_some() { Kind::NetworkCommand } else { Kind::Command },
        keep: if row.makes { sandbox::MAKER } else { sandbox::READER },
        files: &files,
        port: network.filter(|port| *port != 0),
        required: false,
    })?;
    sandbox::enter()
}

/// The directory of certificates that an address names.
fn certificates(address: &Path) -> Option<PathBuf> {
    let mut words = bytes_of(address).split(|byte| matches!(byte, b'?' | b'&'));
    let dir = words.find_map(|word| word.strip_prefix(b"tls-certificates="))?;
    Some(os_str(dir).into_owned().into())
}

/// The file that a loop device shows, and the loop devices over a file: an open locks them.
fn loops_of(path: &Path, usage: Use) -> Vec<(PathBuf, Use)> {
    let Ok(file) = path.metadata() else { return Vec::new() };
    if file.file_type().is_block_device() {
        let device = LoopDevice::of(DeviceNumber::of(file.rdev()));
        return device.map(|device| (device.backing, usage)).into_iter().collect();
    }
    let over = extol_proc::loop_devices_over(file.dev(), file.ino());
    over.into_iter().map(|device| (device.node, Use::Read)).collect()
}

/// Confines a thread that opens nothing, if the process will be confined.
pub fn seal() {
    if is_planned() {
        sandbox::seal(Kind::Command);
    }
}
