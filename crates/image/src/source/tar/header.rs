//! A header of an archive: 512 bytes, in five dialects.
//!
//! ```text
//!   0 name 100 │ mode 8 │ uid 8 │ gid 8 │ size 12 │ mtime 12 │ sum 8 │ type 1 │ link 100
//! 257 magic 6, version 2 │ uname 32 │ gname 32 │ major 8 │ minor 8 │ 345 the dialect's own
//!       "ustar\0"  ustar, pax: prefix 155 of the name
//!       "ustar "   GNU: atime, ctime, of sparse files the map at 386 and the real size at 483
//!       "tar\0" at 508  star: prefix 131
//! ```

use extol_vfs::Rdev;

use super::sparse::Map;

/// The size of a header and of everything in an archive.
pub(super) const BLOCK: usize = 512;

/// How many runs of data a GNU header has, and each block behind it.
const GNU_RUNS: usize = 4;
const GNU_MORE_RUNS: usize = 21;

/// A header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub name: Vec<u8>,
    pub link: Vec<u8>,
    pub mode: u16,
    pub uid: i64,
    pub gid: i64,
    pub size: u64,
    pub mtime: i64,
    pub kind: u8,
    pub rdev: Rdev,
}

/// What a block is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Block {
    /// The end of the archive.
    Zeros,
    Header(Box<Header>),
}

/// What a block is that is neither a header nor the end.
pub(super) const NO_HEADER: &str = "is no header of a tar archive (its checksum is wrong)";

/// True if a file that begins so may be an archive: the first header is one, or all is zeros.
pub(super) fn is_first(block: &[u8; BLOCK]) -> bool {
    sum_is_right(block) || block.iter().all(|&byte| byte == 0)
}

/// Reads a header. An error says what is wrong with it.
pub(super) fn decode(block: &[u8; BLOCK]) -> Result<Block, &'static str> {
    if block.iter().all(|&byte| byte == 0) {
        return Ok(Block::Zeros);
    }
    if !sum_is_right(block) {
        return Err(NO_HEADER);
    }
    let field = |at: usize, len: usize| &block[at..at + len];
    let number = |at, len, wrong| number(field(at, len)).ok_or(wrong);
    let device = |at| number(at, 8, "has a device number that is none");
    let is_posix = field(257, 6) == b"ustar\0";
    let is_gnu = field(257, 6) == b"ustar ";
    let is_star = is_posix && field(508, 4) == b"tar\0";
    let mut name = text(field(0, 100)).to_vec();
    if is_posix {
        let prefix = text(field(345, if is_star { 131 } else { 155 }));
        if !prefix.is_empty() {
            name = [prefix, b"/", &name].concat();
        }
    }
    let kind = block[156];
    let rdev = if (is_posix || is_gnu) && matches!(kind, b'3' | b'4') {
        let part = |at| {
            device(at).and_then(|nr| u32::try_from(nr).map_err(|_| "has a device number too large"))
        };
        Rdev { major: part(329)?, minor: part(337)? }
    } else {
        Rdev::default()
    };
    let size = number(124, 12, "has a size that is no number")?;
    Ok(Block::Header(Box::new(Header {
        name,
        link: text(field(157, 100)).to_vec(),
        mode: (number(100, 8, "has a mode that is no number")? & 0o7777) as u16,
        uid: number(108, 8, "has an owner that is no number")?,
        gid: number(116, 8, "has a group that is no number")?,
        size: u64::try_from(size).map_err(|_| "has a size below 0")?,
        mtime: number(136, 12, "has a time that is no number")?,
        kind,
        rdev,
    })))
}

/// The map of a sparse file in the GNU dialect: runs, whether blocks with more follow, and the real
/// size. `None` if a number is none.
pub(super) fn gnu_sparse(block: &[u8; BLOCK]) -> Option<(Map, bool, u64)> {
    let real = u64::try_from(number(&block[483..495])?).ok()?;
    Some((gnu_runs(&block[386..], GNU_RUNS)?, block[482] != 0, real))
}

/// More of the map, from a block behind the header.
pub(super) fn gnu_sparse_more(block: &[u8; BLOCK]) -> Option<(Map, bool)> {
    Some((gnu_runs(block, GNU_MORE_RUNS)?, block[504] != 0))
}

fn gnu_runs(bytes: &[u8], most: usize) -> Option<Map> {
    let mut runs = Vec::new();
    for run in bytes.chunks_exact(24).take(most) {
        // The map ends with an empty field.
        if run[0] == 0 {
            break;
        }
        let part = |at: usize| u64::try_from(number(&run[at..at + 12])?).ok();
        runs.push((part(0)?, part(12)?));
    }
    Some(runs)
}

/// The sum over all bytes, with blanks for its own: of unsigned bytes, or signed ones in archives
/// of some old programs.
fn sum_is_right(block: &[u8; BLOCK]) -> bool {
    let Some(stated) = number(&block[148..156]) else { return false };
    let bytes = || {
        block
            .iter()
            .enumerate()
            .map(|(at, &byte)| if (148..156).contains(&at) { b' ' } else { byte })
    };
    stated == bytes().map(i64::from).sum::<i64>()
        || stated == bytes().map(|byte| i64::from(byte as i8)).sum::<i64>()
}

/// A number: octal digits, or with the first bit set a number of base 256.
fn number(field: &[u8]) -> Option<i64> {
    let (&first, rest) = field.split_first()?;
    if first & 0x80 != 0 {
        // The bit after it is the sign.
        let head = i64::from(first & 0x3f) - if first & 0x40 == 0 { 0 } else { 0x40 };
        return rest
            .iter()
            .try_fold(head, |value, &byte| value.checked_mul(256)?.checked_add(i64::from(byte)));
    }
    let digits = text(field).trim_ascii();
    digits.iter().try_fold(0_i64, |value, &digit| match digit {
        b'0'..=b'7' => value.checked_mul(8)?.checked_add(i64::from(digit - b'0')),
        _ => None,
    })
}

/// What stands before the first NUL.
fn text(field: &[u8]) -> &[u8] {
    field.split(|&byte| byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{BLOCK, Block, decode, number};

    #[test]
    fn numbers() {
        for (field, value) in [
            (&b"0000644\0"[..], Some(0o644)),
            (b"   644 \0", Some(0o644)),
            (b"\0\0\0", Some(0)),
            (b"        ", Some(0)),
            (b"77777777777\0", Some(0o77_777_777_777)),
            (b"8", None),
            (b"64x", None),
            (b"\x80\0\0\0\0\0\x01\0", Some(256)),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff", Some(-1)),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00", Some(-256)),
            (b"\xbf\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", None),
            (b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff", Some(i64::MAX)),
            (b"\x80\0\0\0\x80\0\0\0\0\0\0\0", None),
            (b"", None),
        ] {
            assert_eq!(number(field), value, "{field:?}");
        }
    }

    #[test]
    fn what_is_no_header() {
        assert_eq!(decode(&[0; BLOCK]), Ok(Block::Zeros));
        assert!(decode(&[1; BLOCK]).is_err());
        let mut text = [0; BLOCK];
        text[..5].copy_from_slice(b"hello");
        assert!(decode(&text).is_err());
    }
}
