//! dbench's load files: what clients of a file server were seen to do, line by line.
//!
//! ```text
//!   NTCreateX "\clients\client1\~dmtmp\A.DOC" 0x40 0x2 10005 NT_STATUS_OK
//!   WriteX 10005 0 4096 4096 NT_STATUS_OK
//!   Close 10005 NT_STATUS_OK
//! ```
//!
//! A line is a call, its arguments, and the status that it had; a time in front of it is passed
//! over. Client *n* says `client`*n* where the file says `client1`, and backslashes part names.
//!
//! | line | what is done |
//! |---|---|
//! | NTCreateX | mkdir, open or create, by options and disposition |
//! | Close, ReadX, WriteX, Flush | close, read, write, fsync |
//! | QUERY_PATH_INFORMATION, QUERY_FILE_INFORMATION | stat, fstat |
//! | SET_FILE_INFORMATION | times |
//! | FIND_FIRST | the directory is read to its end |
//! | Unlink, Rename, Mkdir, Rmdir, Deltree | as named; Deltree removes everything below, if it is there |
//! | QUERY_FS_INFORMATION, LockX, UnlockX | nothing: they reach no device |
//!
//! What went well then must go well now, or the load ends with the line's number. What failed then
//! (a name that was not there) is tried, and may go well.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::Arc;

use super::outcome::{Op, Timings};
use super::{Watch, cancelled};
use crate::target::{Target, TargetFile};

/// A load file.
#[derive(Clone, Debug)]
pub struct LoadFile {
    lines: Vec<Line>,
}

/// A name with the place of the client's number in it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Name {
    head: Arc<str>,
    tail: Option<Arc<str>>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Call {
    MakeDir { name: Name, handle: Option<u32> },
    Open { name: Name, handle: u32, create: bool },
    Close(u32),
    Read { handle: u32, offset: u64, len: usize },
    Write { handle: u32, offset: u64, len: usize },
    Flush(u32),
    Stat(Name),
    StatOpen(u32),
    SetTimes(u32),
    List(Name),
    Unlink(Name),
    Rename(Name, Name),
    RemoveDir(Name),
    RemoveTree(Name),
    Nothing,
}

#[derive(Clone, Debug)]
struct Line {
    number: u32,
    call: Call,
    went_well: bool,
}

/// The largest read or write.
const MOST: usize = 16 << 20;
/// Times that are set.
const TIME: i64 = 1_000_000_000;

/// The words of a line; quotation marks keep spaces together.
fn words(line: &str) -> Option<Vec<&str>> {
    let mut words = Vec::new();
    let mut rest = line.trim();
    while !rest.is_empty() {
        let (word, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => rest.split_once(char::is_whitespace).unwrap_or((rest, "")),
        };
        words.push(word);
        rest = after.trim_start();
    }
    Some(words)
}

fn number(word: &str) -> Option<u64> {
    match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

fn name(word: &str) -> Name {
    let path = word.replace('\\', "/");
    let path = path.trim_matches('/');
    match path.split_once("client1") {
        Some((head, tail)) => {
            Name { head: format!("{head}client").into(), tail: Some(tail.into()) }
        }
        None => Name { head: path.into(), tail: None },
    }
}

impl Name {
    fn of(&self, client: u32) -> String {
        match &self.tail {
            Some(tail) => format!("{}{client}{tail}", self.head),
            None => self.head.to_string(),
        }
    }
}

impl Call {
    /// `None`: not as it should be.
    fn parse(words: &[&str]) -> Option<Self> {
        const DIRECTORY: u64 = 1;
        const OPEN: u64 = 1;
        let small = |word: &str| u32::try_from(number(word)?).ok();
        let size = |word: &str| usize::try_from(number(word)?).ok().filter(|n| *n <= MOST);
        Some(match words {
            ["NTCreateX", path, options, disposition, handle] => {
                let (options, disposition) = (number(options)?, number(disposition)?);
                let (name, handle) = (name(path), small(handle)?);
                match options & DIRECTORY != 0 && disposition != OPEN {
                    true => Self::MakeDir { name, handle: Some(handle) },
                    false => Self::Open { name, handle, create: disposition != OPEN },
                }
            }
            ["Close", handle] => Self::Close(small(handle)?),
            ["ReadX", handle, offset, len, _] => {
                Self::Read { handle: small(handle)?, offset: number(offset)?, len: size(len)? }
            }
            ["WriteX", handle, offset, len, _] => {
                Self::Write { handle: small(handle)?, offset: number(offset)?, len: size(len)? }
            }
            ["Flush", handle] => Self::Flush(small(handle)?),
            ["QUERY_PATH_INFORMATION", path, _] => Self::Stat(name(path)),
            ["QUERY_FILE_INFORMATION", handle, _] => Self::StatOpen(small(handle)?),
            ["SET_FILE_INFORMATION", handle, _] => Self::SetTimes(small(handle)?),
            ["FIND_FIRST", pattern, ..] => {
                Self::List(name(pattern.rsplit_once('\\').map_or("", |(dir, _)| dir)))
            }
            ["Unlink", path, ..] => Self::Unlink(name(path)),
            ["Rename", old, new] => Self::Rename(name(old), name(new)),
            ["Mkdir", path] => Self::MakeDir { name: name(path), handle: None },
            ["Rmdir", path] => Self::RemoveDir(name(path)),
            ["Deltree", path] => Self::RemoveTree(name(path)),
            ["QUERY_FS_INFORMATION" | "LockX" | "UnlockX", ..] => Self::Nothing,
            _ => return None,
        })
    }
}

impl LoadFile {
    /// Reads a load file.
    ///
    /// # Errors
    /// If it cannot be read or understood.
    pub fn read(path: &str) -> Result<Arc<Self>, String> {
        let text = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
        Self::parse(&text).map(Arc::new)
    }

    /// Understands the text of a load file.
    ///
    /// # Errors
    /// One line with the number of the line that is not understood.
    pub fn parse(text: &str) -> Result<Self, String> {
        // Most names come again and again.
        let mut known: BTreeSet<Arc<str>> = BTreeSet::new();
        let mut share = |text: &mut Arc<str>| match known.get(text) {
            Some(same) => *text = Arc::clone(same),
            None => {
                known.insert(Arc::clone(text));
            }
        };
        let mut lines = Vec::new();
        for (n, line) in (1..).zip(text.lines()) {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let fail = || format!("line {n} is no line of a dbench load file: {}", line.trim());
            let words = words(line).ok_or_else(fail)?;
            let timed = words.first().is_some_and(|w| w.parse::<f64>().is_ok());
            let words = &words[usize::from(timed)..];
            let Some((status, words)) = words.split_last() else { return Err(fail()) };
            let went_well = match *status {
                "NT_STATUS_OK" | "SUCCESS" => true,
                _ if status.starts_with("NT_STATUS_") || status.starts_with("ERR") => false,
                _ => return Err(fail()),
            };
            let mut call = Call::parse(words).ok_or_else(fail)?;
            if let Call::Open { name, .. }
            | Call::Stat(name)
            | Call::List(name)
            | Call::Unlink(name) = &mut call
            {
                share(&mut name.head);
                name.tail.iter_mut().for_each(&mut share);
            }
            lines.push(Line { number: n, call, went_well });
        }
        if lines.is_empty() {
            return Err("there is no line in the load file".into());
        }
        Ok(Self { lines })
    }

    /// Calls in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Never true of a file that was understood.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

/// An open file, or a directory that was opened, with its name.
struct Handle {
    file: Option<Box<dyn TargetFile>>,
    path: String,
}

/// One client that goes through the file.
pub(super) struct Player<'a> {
    target: &'a dyn Target,
    client: u32,
    handles: HashMap<u32, Handle>,
    buf: Vec<u8>,
    pub written: u64,
    pub read: u64,
    pub timings: Timings,
}

impl<'a> Player<'a> {
    pub fn new(target: &'a dyn Target, client: u32) -> Self {
        Self {
            target,
            client,
            handles: HashMap::new(),
            buf: Vec::new(),
            written: 0,
            read: 0,
            timings: Timings::default(),
        }
    }

    /// Goes through the file so many times, or until the time is over.
    pub fn play(&mut self, file: &LoadFile, times: u64, watch: &Watch) -> io::Result<()> {
        for _ in 0..times {
            for line in &file.lines {
                if watch.is_over() {
                    return if watch.cancel.is_set() { Err(cancelled()) } else { Ok(()) };
                }
                match self.call(&line.call) {
                    Err(e) if line.went_well => {
                        return Err(io::Error::new(
                            e.kind(),
                            format!("line {} of the load file: {e}", line.number),
                        ));
                    }
                    _ => {}
                }
            }
            self.handles.clear();
        }
        Ok(())
    }

    fn handle(&self, handle: u32) -> io::Result<&Handle> {
        self.handles
            .get(&handle)
            .ok_or_else(|| io::Error::other(format!("no file is open as {handle}")))
    }

    fn call(&mut self, call: &Call) -> io::Result<()> {
        let target = self.target;
        match call {
            Call::MakeDir { name, handle } => {
                let path = name.of(self.client);
                match self.timings.time(Op::Mkdir, || target.create_dir(&path)) {
                    Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
                    _ => {}
                }
                if let Some(handle) = handle {
                    self.handles.insert(*handle, Handle { file: None, path });
                }
                Ok(())
            }
            Call::Open { name, handle, create } => {
                let path = name.of(self.client);
                let file = self.open(&path, *create)?;
                self.handles.insert(*handle, Handle { file, path });
                Ok(())
            }
            Call::Close(handle) => {
                let file = self.handles.remove(handle);
                let file =
                    file.ok_or_else(|| io::Error::other(format!("no file is open as {handle}")))?;
                self.timings.time(Op::Close, || {
                    drop(file);
                    Ok(())
                })
            }
            Call::Read { handle, offset, len } => {
                if self.buf.len() < *len {
                    self.buf.resize(*len, b'd');
                }
                let mut buf = std::mem::take(&mut self.buf);
                let began = std::time::Instant::now();
                let got =
                    self.file(*handle).and_then(|file| file.read_at(&mut buf[..*len], *offset));
                self.buf = buf;
                self.timings.note(Op::Read, began.elapsed());
                self.read += got? as u64;
                Ok(())
            }
            Call::Write { handle, offset, len } => {
                if self.buf.len() < *len {
                    self.buf.resize(*len, b'd');
                }
                let began = std::time::Instant::now();
                self.file(*handle)?.write_at(&self.buf[..*len], *offset)?;
                self.timings.note(Op::Write, began.elapsed());
                self.written += *len as u64;
                Ok(())
            }
            Call::Flush(handle) => {
                let began = std::time::Instant::now();
                self.file(*handle)?.sync(false)?;
                self.timings.note(Op::Fsync, began.elapsed());
                Ok(())
            }
            Call::Stat(name) => {
                let path = name.of(self.client);
                self.timings.time(Op::Stat, || target.size_of(&path)).map(drop)
            }
            Call::StatOpen(handle) => match &self.handle(*handle)?.file {
                Some(file) => file.len().map(drop),
                None => Ok(()),
            },
            Call::SetTimes(handle) => target.set_times(&self.handle(*handle)?.path, TIME),
            Call::List(name) => {
                let path = name.of(self.client);
                self.timings.time(Op::List, || target.list(&path)).map(drop)
            }
            Call::Unlink(name) => {
                let path = name.of(self.client);
                self.timings.time(Op::Remove, || target.remove(&path))
            }
            Call::Rename(old, new) => {
                let (old, new) = (old.of(self.client), new.of(self.client));
                self.timings.time(Op::Rename, || target.rename(&old, &new))
            }
            Call::RemoveDir(name) => {
                let path = name.of(self.client);
                self.timings.time(Op::Rmdir, || target.remove_dir(&path))
            }
            Call::RemoveTree(name) => match remove_tree(target, &name.of(self.client)) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
                outcome => outcome,
            },
            Call::Nothing => Ok(()),
        }
    }

    /// `None` for a directory.
    fn open(&mut self, path: &str, create: bool) -> io::Result<Option<Box<dyn TargetFile>>> {
        let target = self.target;
        if create {
            match self.timings.time(Op::Create, || target.create(path)) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made.map(Some),
            }
        }
        match self.timings.time(Op::Open, || target.open(path)) {
            Err(e) if e.kind() == io::ErrorKind::IsADirectory => target.size_of(path).map(|_| None),
            opened => opened.map(Some),
        }
    }

    fn file(&self, handle: u32) -> io::Result<&dyn TargetFile> {
        match &self.handle(handle)?.file {
            Some(file) => Ok(&**file),
            None => Err(io::ErrorKind::IsADirectory.into()),
        }
    }
}

fn remove_tree(target: &dyn Target, dir: &str) -> io::Result<()> {
    for item in target.entries(dir)? {
        let path = format!("{dir}/{}", item.name);
        if item.is_dir { remove_tree(target, &path)? } else { target.remove(&path)? }
    }
    target.remove_dir(dir)
}

#[cfg(test)]
#[path = "loadfile_tests.rs"]
mod tests;
