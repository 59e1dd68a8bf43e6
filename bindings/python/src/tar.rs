//! Archives of the files of a volume, into a file of Python.

use std::io;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use extol::image::BuildError;
use extol::image::edits::Pattern;
use extol::image::tar::{TarError, TarEvent, TarOptions, write_tar};
use extol::vfs::bytes_text;
use extol::{Ext4, FsError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// A file of Python that takes the archive.
pub(crate) struct Taker {
    file: Py<PyAny>,
    /// What it raised.
    pub raised: Option<PyErr>,
}

impl Taker {
    pub fn new(file: Py<PyAny>) -> Self {
        Self { file, raised: None }
    }
}

impl io::Write for Taker {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = Python::attach(|py| {
            py.check_signals()?;
            let piece = PyBytes::new(py, bytes);
            // (A raw file may take a part; one that takes nothing says None.)
            let taken = self.file.bind(py).call_method1("write", (piece,))?;
            taken.extract::<Option<usize>>()
        });
        match written {
            Ok(count) => Ok(count.unwrap_or(0).min(bytes.len())),
            Err(error) => {
                self.raised = Some(error);
                Err(io::Error::other("the file raised an exception"))
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Why there is no archive.
pub(crate) enum Failed {
    /// The path leads nowhere.
    Path(FsError),
    /// An option.
    Option(BuildError),
    /// The archive could not be written.
    Output(TarError),
}

/// A file that could not be read: its path, and why.
pub(crate) type Unread = (String, String);

/// Writes the archive. Gives the files that could not be read.
pub(crate) fn write(
    fs: &Arc<Ext4>,
    path: &Path,
    out: &mut Taker,
    exclude: &[Vec<u8>],
    (sparse, keep_times): (bool, bool),
) -> Result<Vec<Unread>, Failed> {
    let mut options = TarOptions::default();
    (options.sparse, options.keep_times) = (sparse, keep_times);
    for pattern in exclude {
        options.exclude.push(Pattern::parse("exclude", pattern).map_err(Failed::Option)?);
    }
    let inode = fs.inode(path).map_err(Failed::Path)?;
    let name = path.file_name().unwrap_or_default().as_bytes();
    let mut unread = Vec::new();
    let events = &mut |event: TarEvent<'_>| {
        if let TarEvent::Failed { path, why } = event {
            unread.push((bytes_text(path), why.to_owned()));
        }
        ControlFlow::Continue(())
    };
    write_tar(&**fs, inode.ino(), name, out, &options, events).map_err(Failed::Output)?;
    Ok(unread)
}
