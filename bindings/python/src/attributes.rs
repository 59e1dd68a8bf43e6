//! Attributes as `os.stat_result`.

use extol::vfs::{Attr, Timestamp};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};

use crate::Nanoseconds;

/// Makes an `os.stat_result`. `st_dev` is 0: a volume that is not mounted has no number.
pub(crate) fn stat_result<'py>(py: Python<'py>, attr: &Attr) -> PyResult<Bound<'py, PyAny>> {
    static TYPE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let Attr { atime, mtime, ctime, .. } = *attr;
    let (mode, ino, nlink) = (attr.mode(), attr.id.ino, attr.nlink);
    let (uid, gid, size) = (attr.uid, attr.gid, attr.size);
    let sequence = (mode, ino, 0, nlink, uid, gid, size, atime.sec, mtime.sec, ctime.sec);
    let more = PyDict::new(py);
    more.set_item(intern!(py, "st_atime"), float(atime))?;
    more.set_item(intern!(py, "st_mtime"), float(mtime))?;
    more.set_item(intern!(py, "st_ctime"), float(ctime))?;
    more.set_item(intern!(py, "st_atime_ns"), nanoseconds(py, atime)?)?;
    more.set_item(intern!(py, "st_mtime_ns"), nanoseconds(py, mtime)?)?;
    more.set_item(intern!(py, "st_ctime_ns"), nanoseconds(py, ctime)?)?;
    more.set_item(intern!(py, "st_blksize"), attr.blksize)?;
    more.set_item(intern!(py, "st_blocks"), attr.blocks)?;
    let rdev = rustix::fs::makedev(attr.rdev.major, attr.rdev.minor);
    more.set_item(intern!(py, "st_rdev"), rdev)?;
    TYPE.import(py, "os", "stat_result")?.call1((sequence, more))
}

/// Seconds since 1970, as Python's own `os.stat` makes them.
#[allow(clippy::cast_precision_loss, clippy::suboptimal_flops)]
fn float(at: Timestamp) -> f64 {
    at.sec as f64 + 1e-9 * f64::from(at.nsec)
}

/// When it was made; the last change of the inode, if the volume does not know.
pub(crate) fn birth(attr: &Attr) -> f64 {
    let known = attr.crtime != Timestamp::default();
    float(if known { attr.crtime } else { attr.ctime })
}

/// Nanoseconds since 1970. (Most fit in 64 bits, which are faster to convert.)
fn nanoseconds(py: Python<'_>, at: Timestamp) -> PyResult<Bound<'_, PyAny>> {
    const SECOND: i64 = 1_000_000_000;
    let short = at.sec.checked_mul(SECOND).and_then(|ns| ns.checked_add(at.nsec.into()));
    if let Some(ns) = short {
        return Ok(ns.into_pyobject(py)?.into_any());
    }
    let ns = Nanoseconds::from(at.sec) * Nanoseconds::from(SECOND) + Nanoseconds::from(at.nsec);
    Ok(ns.into_pyobject(py)?.into_any())
}
