//! What `extol put` reads once, from its start to its end: standard input, and what a shell gives
//! a name for (`<(COMMAND)`).

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use extol_vfs::{FsError, SetAttr};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::{CopyIn, InodeRef, Problem, There, give_name, show, there};
use crate::files::change::own_ids;
use crate::interrupt;

/// The operand that is standard input.
pub(in crate::files) const STDIN: &str = "-";
/// What a file is without `--mode`.
const PERM: u16 = 0o644;
/// How often signals are looked for while nothing comes.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// What is read once.
pub(super) struct Stream {
    /// For messages.
    name: String,
    file: File,
}

impl Stream {
    /// The stream that an operand is, if it is one.
    pub(super) fn of(operand: &OsStr) -> Option<io::Result<Self>> {
        let (name, file) = if operand == STDIN {
            ("standard input".to_owned(), standard_input())
        } else if is_open_pipe(Path::new(operand)) {
            (show(operand), File::open(operand))
        } else {
            return None;
        };
        Some(file.map(|file| Self { name, file }))
    }

    /// The next bytes, as many as there is room for unless it ends. `None`: a signal came.
    fn read(&mut self, buf: &mut [u8]) -> io::Result<Option<usize>> {
        let mut done = 0;
        while done < buf.len() {
            if !self.wait()? {
                return Ok(None);
            }
            match self.file.read(&mut buf[done..]) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Some(done))
    }

    /// Waits until there is something to read. False: a signal came.
    fn wait(&self) -> io::Result<bool> {
        while !interrupt::came() {
            let mut input = [PollFd::new(&self.file, PollFlags::IN)];
            match rustix::event::poll(&mut input, Some(&TICK)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(true),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(false)
    }
}

/// Standard input, if it was open when the process began: Rust opens `/dev/null` in its place, for
/// writing as well, and an empty file must not come of that.
fn standard_input() -> io::Result<File> {
    let file = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let null = rustix::fs::makedev(1, 3);
    let metadata = file.metadata()?;
    if metadata.file_type().is_char_device()
        && metadata.rdev() == null
        && rustix::fs::fcntl_getfl(&file)?.contains(OFlags::RDWR)
    {
        return Err(io::Error::new(io::ErrorKind::NotConnected, "standard input is closed"));
    }
    Ok(file)
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}

/// True for the name of an open pipe or socket, as a shell gives it for `<(COMMAND)`: a link of
/// `/proc` whose target is no path.
fn is_open_pipe(path: &Path) -> bool {
    let links_to = |prefix: &str| {
        fs::read_link(path)
            .is_ok_and(|target| target.as_os_str().as_bytes().starts_with(prefix.as_bytes()))
    };
    (links_to("pipe:[") || links_to("socket:["))
        && fs::metadata(path)
            .is_ok_and(|file| file.file_type().is_fifo() || file.file_type().is_socket())
}

impl<'t> CopyIn<'t> {
    /// Puts a stream as the file that `dest` names.
    pub(super) fn stream(
        &mut self,
        mut stream: Stream,
        dest: &OsStr,
    ) -> std::result::Result<(), String> {
        let place = |error: FsError| format!("{}: on the volume: {error}", show(dest));
        let is_dir = match self.tree.find(dest, true) {
            Ok(inode) => inode.is_dir().map_err(place)?,
            Err(_) => dest.as_bytes().ends_with(b"/"),
        };
        if is_dir {
            let name = &stream.name;
            let dest = show(dest);
            return Err(format!("{name}: has no name to have in {dest}: give the path of a file"));
        }
        let (dir, name) = self.tree.find_parent(dest).map_err(place)?;
        if interrupt::came() || self.stopped {
            return Ok(());
        }
        match self.whole_stream(&mut stream, &dir, name) {
            Err(problem) if self.is_to_report(&*problem) => {
                Err(format!("{}: {problem}", stream.name))
            }
            _ => Ok(()),
        }
    }

    /// As with [`CopyIn::whole_file`], the file has no name before it is whole.
    fn whole_stream(
        &mut self,
        stream: &mut Stream,
        dir: &InodeRef<'t>,
        name: &[u8],
    ) -> std::result::Result<(), Problem> {
        let over = matches!(there(dir, name, false)?, There::Other);
        let own = own_ids();
        let attr = dir.fs.create_unnamed(dir.ino, 0o600, 0, own)?;
        let node = InodeRef::from_attr(dir.fs, &attr);
        let mut offset = 0;
        loop {
            let Some(count) = stream.read(&mut self.buffer)? else { return Ok(()) };
            if count == 0 {
                break;
            }
            node.fs.write(node.ino, offset, &self.buffer[..count])?;
            offset += count as u64;
            self.bar.inc(count as u64);
            self.told.moved(count as u64);
        }
        let set = SetAttr {
            perm: Some(self.mode.as_ref().map_or(PERM, |mode| mode.applied(PERM, false, 0))),
            uid: Some(self.owner.uid.unwrap_or(own.uid)),
            gid: Some(self.owner.gid.unwrap_or(own.gid)),
            ..SetAttr::default()
        };
        node.fs.setattr(node.ino, &set)?;
        give_name(&node, dir, name, over)?;
        self.told.files += 1;
        Ok(())
    }
}
