//! Attributes as NFSv3 has them.

use extol_vfs::{Attr, FileKind, SetAttr, SetTime, Timestamp};

use crate::xdr::{Args, Garbage, Out, Result};

/// The type of a file.
pub(crate) fn kind_number(kind: FileKind) -> u32 {
    match kind {
        FileKind::Regular => 1,
        FileKind::Directory => 2,
        FileKind::BlockDevice => 3,
        FileKind::CharDevice => 4,
        FileKind::Symlink => 5,
        FileKind::Socket => 6,
        FileKind::Fifo => 7,
    }
}

/// Appends attributes. `volume` tells volumes apart.
pub(crate) fn put(out: &mut Out, attr: &Attr, volume: u64) {
    out.u32(kind_number(attr.kind)).u32(attr.perm.into()).u32(attr.nlink);
    out.u32(attr.uid).u32(attr.gid).u64(attr.size).u64(attr.blocks.saturating_mul(512));
    out.u32(attr.rdev.major).u32(attr.rdev.minor).u64(volume).u64(attr.id.ino.into());
    put_time(out, attr.atime);
    put_time(out, attr.mtime);
    put_time(out, attr.ctime);
}

/// Times of NFSv3 have no sign and 32 bits: others become the nearest that there is.
fn put_time(out: &mut Out, time: Timestamp) {
    match u32::try_from(time.sec) {
        Ok(sec) => out.u32(sec).u32(time.nsec),
        Err(_) if time.sec < 0 => out.u32(0).u32(0),
        Err(_) => out.u32(u32::MAX).u32(999_999_999),
    };
}

/// The attributes by which a client knows whether something else has changed a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Before {
    size: u64,
    mtime: Timestamp,
    ctime: Timestamp,
}

impl Before {
    pub(crate) fn of(attr: &Attr) -> Self {
        Self { size: attr.size, mtime: attr.mtime, ctime: attr.ctime }
    }
}

/// Attributes before and after a change, as far as they are known: weak cache consistency.
#[derive(Clone, Debug, Default)]
pub(crate) struct Change {
    pub(crate) before: Option<Before>,
    pub(crate) after: Option<Attr>,
}

impl Change {
    pub(crate) fn put(&self, out: &mut Out, volume: u64) {
        out.bool(self.before.is_some());
        if let Some(Before { size, mtime, ctime }) = self.before {
            out.u64(size);
            put_time(out, mtime);
            put_time(out, ctime);
        }
        put_known(out, self.after.as_ref(), volume);
    }
}

/// Appends attributes that may not be known.
pub(crate) fn put_known(out: &mut Out, attr: Option<&Attr>, volume: u64) {
    out.bool(attr.is_some());
    if let Some(attr) = attr {
        put(out, attr, volume);
    }
}

/// Attributes to set.
pub(crate) fn settings(args: &mut Args<'_>) -> Result<SetAttr> {
    let perm = args.optional(Args::u32)?.map(|mode| (mode & 0o7777) as u16);
    let uid = args.optional(Args::u32)?;
    let gid = args.optional(Args::u32)?;
    let size = args.optional(Args::u64)?;
    let (atime, mtime) = (set_time(args)?, set_time(args)?);
    Ok(SetAttr { perm, uid, gid, size, atime, mtime, ..SetAttr::default() })
}

fn set_time(args: &mut Args<'_>) -> Result<Option<SetTime>> {
    match args.u32()? {
        0 => Ok(None),
        1 => Ok(Some(SetTime::Now)),
        2 => time(args).map(|time| Some(SetTime::At(time))),
        _ => Err(Garbage),
    }
}

pub(crate) fn time(args: &mut Args<'_>) -> Result<Timestamp> {
    let (sec, nsec) = (args.u32()?, args.u32()?);
    if nsec >= 1_000_000_000 {
        return Err(Garbage);
    }
    Ok(Timestamp { sec: sec.into(), nsec })
}

/// True if `time` is what a client was told of `of`.
pub(crate) fn is_told(of: Timestamp, time: Timestamp) -> bool {
    let told = |time| {
        let mut out = Out::default();
        put_time(&mut out, time);
        out.into_bytes()
    };
    told(of) == told(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_do_not_fit_become_the_nearest() {
        let put = |sec, nsec| {
            let mut out = Out::default();
            put_time(&mut out, Timestamp { sec, nsec });
            out.into_bytes()
        };
        assert_eq!(put(1, 2), [0, 0, 0, 1, 0, 0, 0, 2]);
        assert_eq!(put(-1, 5), [0; 8]);
        assert_eq!(put(1 << 33, 5)[..4], [0xff; 4]);
        assert!(is_told(Timestamp { sec: -4, nsec: 3 }, Timestamp::default()));
    }

    #[test]
    fn settings_are_read_whole() {
        let mut out = Out::default();
        out.u32(1).u32(0o104_755).u32(0).u32(1).u32(100).u32(0).u32(1).u32(2).u32(9).u32(8);
        let bytes = out.into_bytes();
        let mut args = Args::new(&bytes);
        let set = settings(&mut args).expect("settings");
        assert_eq!((set.perm, set.uid, set.gid, set.size), (Some(0o4755), None, Some(100), None));
        assert_eq!(set.atime, Some(SetTime::Now));
        assert_eq!(set.mtime, Some(SetTime::At(Timestamp { sec: 9, nsec: 8 })));
        for len in 0..bytes.len() {
            assert!(settings(&mut Args::new(&bytes[..len])).is_err(), "{len}");
        }
    }
}
