//! `extol tar`: an archive of the files of a volume.
//!
//! A file that is written has its name when it is whole: what was there is replaced then.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use extol::image::edits::Pattern;
use extol::image::tar::{TarError, TarEvent, TarOptions, TarSummary, write_tar};
use extol_block::Overwritten;
use extol_cli_common::{
    Failure, Result, counted, json_text, output_failed, print_json, progress, warn,
};
use extol_proc::Shown as _;
use extol_vfs::{bytes_text, plain};
use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::fs::{CWD, OFlags};
use serde::Serialize;

use super::destination::open_to_claim;
use super::{Tree, show};
use crate::args::TarArgs;
use crate::interrupt;

/// How much is written at once.
const BUFFER: usize = 1 << 20;

/// Writes the archive.
pub fn tar(args: &TarArgs) -> Result<()> {
    let mut options = TarOptions {
        sparse: !args.no_sparse,
        keep_times: args.keep_times,
        ..TarOptions::default()
    };
    for pattern in &args.exclude {
        options
            .exclude
            .push(Pattern::parse("--exclude", pattern.as_bytes()).map_err(Failure::usage)?);
    }
    let mut target = Target::of(args)?;
    interrupt::catch()?;
    let tree = Tree::open(&args.volume, false)?;
    let _claimed = target.claim(&tree)?;
    let path = args.path.as_deref().unwrap_or(OsStr::new("/"));
    let outcome = match tree.find(path, false) {
        Err(error) => Err(Failure::about(show(path), error)),
        Ok(inode) => {
            let name = Path::new(path).file_name().unwrap_or_default().as_bytes();
            write(&tree, inode.ino, name, &mut target, &options)
        }
    };
    let outcome = outcome.and_then(|summary| {
        target.finish()?;
        if args.json {
            return print_json(json_text(&Written::new(&summary))?);
        }
        not_kept(&summary).into_iter().for_each(warn);
        Ok(())
    });
    tree.close(outcome)
}

fn write(
    tree: &Tree,
    ino: u32,
    name: &[u8],
    target: &mut Target,
    options: &TarOptions,
) -> Result<TarSummary> {
    let bar = progress::bytes("archiving");
    let (shown, is_stdout) = (target.shown(), target.typed.is_none());
    let events = &mut |event: TarEvent<'_>| {
        match event {
            TarEvent::Copied(bytes) => bar.inc(bytes),
            TarEvent::Failed { path, why } => {
                bar.suspend(|| tree.report(plain(&bytes_text(path)), why));
            }
            _ => {}
        }
        if interrupt::came() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let written = write_tar(tree.fs(), ino, name, target.out(), options, events);
    bar.finish_and_clear();
    written.map_err(|error| match error {
        TarError::Output(error) if is_stdout => output_failed(&error),
        TarError::Output(error) => Failure::about(shown, error),
        // The signal is what is told.
        _ => Failure::silent(Failure::FAILED),
    })
}

/// What an archive has no place for.
fn not_kept(summary: &TarSummary) -> Option<String> {
    let sockets = (summary.sockets > 0).then(|| counted(summary.sockets, "socket"));
    let flags = (summary.flags > 0)
        .then(|| format!("inode flags (chattr) of {}", counted(summary.flags, "file")));
    let parts: Vec<String> = sockets.into_iter().chain(flags).collect();
    (!parts.is_empty()).then(|| format!("not in the archive: {}", parts.join(", ")))
}

/// What was written, as JSON.
#[derive(Debug, Serialize)]
pub struct Written {
    files: u64,
    links: u64,
    bytes: u64,
    archive_bytes: u64,
    failed: u64,
    not_kept: NotKept,
}

#[derive(Debug, Serialize)]
struct NotKept {
    sockets: u64,
    flags: u64,
}

impl Written {
    pub fn new(summary: &TarSummary) -> Self {
        Self {
            files: summary.files,
            links: summary.links,
            bytes: summary.bytes,
            archive_bytes: summary.written,
            failed: summary.failed,
            not_kept: NotKept { sockets: summary.sockets, flags: summary.flags },
        }
    }
}

/// Where the archive goes.
struct Target {
    /// As it was typed; `None` for standard output.
    typed: Option<PathBuf>,
    /// A file beside it, and the place that it takes in the end.
    staged: Option<(PathBuf, PathBuf)>,
    out: Option<Out>,
}

enum Out {
    Plain(BufWriter<File>),
    Gzip(Box<GzEncoder<BufWriter<File>>>),
}

impl Target {
    fn of(args: &TarArgs) -> Result<Self> {
        let Some(path) = args.file.as_ref().filter(|path| *path != Path::new("-")) else {
            let out = io::stdout();
            if args.json {
                return Err(Failure::usage("--json goes to standard output: name another -f FILE"));
            }
            if out.is_terminal() {
                return Err(Failure::usage(
                    "standard output is a terminal: give -f FILE, or redirect it",
                ));
            }
            let file = std::os::fd::AsFd::as_fd(&out).try_clone_to_owned();
            let file = file.map_err(|error| Failure::system_call("standard output", error))?;
            let out = Out::Plain(BufWriter::with_capacity(BUFFER, file.into()));
            return Ok(Self { typed: None, staged: None, out: Some(out) });
        };
        let name = path.file_name().unwrap_or_default().as_bytes();
        let ends = |end: &str| name.ends_with(end.as_bytes());
        for (end, program) in
            [(".zst", "zstd"), (".xz", "xz"), (".txz", "xz"), (".bz2", "bzip2"), (".lz4", "lz4")]
        {
            if ends(end) {
                return Err(Failure::usage(format_args!(
                    "{}: gzip is the only filter: use a pipe, extol tar ... | {program} > FILE",
                    path.shown()
                )));
            }
        }
        let fail = |error| Failure::system_call(path.shown(), error);
        // A device or a pipe is written to as it is.
        let there = fs::metadata(path).ok();
        let (file, staged) = match there.filter(|file| !file.is_file()) {
            Some(_) => (File::options().write(true).open(path).map_err(fail)?, None),
            None => {
                let place = fs::canonicalize(path).unwrap_or_else(|_| path.clone());
                let mut name = std::ffi::OsString::from(".");
                name.push(place.file_name().unwrap_or_default());
                name.push(format!(".extol-{}", std::process::id()));
                let beside = place.with_file_name(name);
                (File::create_new(&beside).map_err(fail)?, Some((beside, place)))
            }
        };
        let file = BufWriter::with_capacity(BUFFER, file);
        let out = match ends(".gz") || ends(".tgz") {
            true => Out::Gzip(Box::new(GzEncoder::new(file, Compression::default()))),
            false => Out::Plain(file),
        };
        Ok(Self { typed: Some(path.clone()), staged, out: Some(out) })
    }

    /// Claims what is replaced or written over, before the first byte of the archive.
    fn claim(&self, tree: &Tree) -> Result<Option<Overwritten>> {
        let Some(path) = &self.typed else { return tree.refuse_as_output().map(|()| None) };
        // (A pipe is not opened a second time.)
        let is_known = |file: &fs::Metadata| file.is_file() || file.file_type().is_block_device();
        if !fs::metadata(path).is_ok_and(|file| is_known(&file)) {
            return Ok(None);
        }
        let file = open_to_claim(CWD, path, OFlags::empty())
            .map_err(|error| Failure::system_call(path.shown(), error))?;
        tree.claim(file, path).map(Some)
    }

    fn shown(&self) -> String {
        match &self.typed {
            Some(path) => path.shown().to_string(),
            None => "standard output".into(),
        }
    }

    fn out(&mut self) -> &mut dyn Write {
        match &mut self.out {
            Some(Out::Plain(out)) => out,
            Some(Out::Gzip(out)) => out,
            // (It is taken by `finish` only.)
            None => unreachable!("the archive has ended"),
        }
    }

    /// The archive is whole: it takes its place.
    fn finish(&mut self) -> Result<()> {
        let shown = self.shown();
        let fail = |error: io::Error| Failure::about(&shown, error);
        let file = match self.out.take() {
            Some(Out::Plain(out)) => out,
            Some(Out::Gzip(out)) => out.finish().map_err(fail)?,
            None => return Ok(()),
        };
        let file = file.into_inner().map_err(|error| fail(error.into_error()))?;
        if let Some((beside, place)) = &self.staged {
            if let Ok(old) = fs::metadata(place) {
                // (An ordinary user cannot always do so; it is a new file then.)
                let _ = file.set_permissions(old.permissions());
            }
            fs::rename(beside, place).map_err(fail)?;
            self.staged = None;
        }
        Ok(())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some((beside, _)) = &self.staged {
            let _ = fs::remove_file(beside);
        }
    }
}
