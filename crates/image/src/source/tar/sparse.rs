//! Maps of sparse files: which runs of a file are in the archive.
//!
//! | format | where the map is |
//! |---|---|
//! | old GNU | in the header, and in blocks behind it |
//! | 0.0 | records `GNU.sparse.offset` and `GNU.sparse.numbytes` by turns |
//! | 0.1 | a record `GNU.sparse.map` |
//! | 1.0 | lines of decimal digits in front of the contents, up to a whole block |

use super::header::BLOCK;
use super::pax;
use crate::source::pieces::Run;

/// A map as an archive has it: places and lengths.
pub(super) type Map = Vec<(u64, u64)>;

/// A sparse file.
#[derive(Debug)]
pub(super) struct Sparse {
    pub map: Map,
    /// Its size, with holes.
    pub size: u64,
    /// How many of its bytes the archive has.
    pub stored: u64,
}

/// The runs of a map, checked: ascending, within the file, and as long together as what is stored.
/// An error says what is wrong.
pub(super) fn runs(
    map: impl IntoIterator<Item = (u64, u64)>,
    size: u64,
    stored: u64,
) -> Result<Vec<Run>, &'static str> {
    let (mut runs, mut end, mut data) = (Vec::<Run>::new(), 0_u64, 0_u64);
    for (at, len) in map {
        let next = at.checked_add(len).filter(|next| *next <= size);
        let Some(next) = next.filter(|_| at >= end) else {
            return Err("has a map of a sparse file that is out of order, or leads behind its end");
        };
        match runs.last_mut() {
            _ if len == 0 => {}
            Some(last) if last.at + last.len == at => last.len += len,
            _ => runs.push(Run { at, len, data }),
        }
        end = next;
        data = data.checked_add(len).ok_or("has a map of a sparse file that is too long")?;
    }
    if data != stored {
        return Err("has a map of a sparse file that does not fit its contents");
    }
    Ok(runs)
}

/// A map in front of the contents, read line by line.
#[derive(Debug, Default)]
pub(super) struct Lines {
    line: Vec<u8>,
    count: Option<u64>,
    numbers: Vec<u64>,
}

/// The most digits of a number.
const DIGITS: usize = 20;

impl Lines {
    /// Takes one more block. True when the map is whole.
    pub fn take(&mut self, block: &[u8; BLOCK], most: u64) -> Result<bool, &'static str> {
        for &byte in block {
            if byte != b'\n' {
                if self.line.len() == DIGITS {
                    return Err("has a map of a sparse file that is no list of numbers");
                }
                self.line.push(byte);
                continue;
            }
            let number = pax::unsigned(&self.line);
            let number = number.ok_or("has a map of a sparse file that is no list of numbers")?;
            self.line.clear();
            let Some(count) = self.count else {
                if number > most {
                    return Err("has a map of a sparse file with too many runs");
                }
                self.count = Some(number);
                if number == 0 {
                    return Ok(true);
                }
                continue;
            };
            self.numbers.push(number);
            if self.numbers.len() as u64 == 2 * count {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The map.
    pub fn map(&self) -> impl Iterator<Item = (u64, u64)> {
        pairs(&self.numbers)
    }
}

/// Places and lengths.
pub(super) fn pairs(numbers: &[u64]) -> impl Iterator<Item = (u64, u64)> {
    numbers.chunks_exact(2).map(|pair| (pair[0], pair[1]))
}

#[cfg(test)]
mod tests {
    use super::{Lines, runs};
    use crate::source::pieces::Run;
    use crate::source::tar::header::BLOCK;

    #[test]
    fn maps_are_checked() {
        let good = runs([(0, 5), (10, 5), (15, 1), (20, 0)], 20, 11).expect("a map");
        assert_eq!(good, [Run { at: 0, len: 5, data: 0 }, Run { at: 10, len: 6, data: 5 }]);
        assert_eq!(runs([], 100, 0), Ok(vec![]));
        for (map, size, stored) in [
            (vec![(10, 5), (0, 5)], 20, 10),
            (vec![(0, 5), (4, 5)], 20, 10),
            (vec![(0, 21)], 20, 21),
            (vec![(21, 0)], 20, 0),
            (vec![(u64::MAX, 2)], 20, 2),
            (vec![(0, 5)], 20, 4),
        ] {
            assert!(runs(map.clone(), size, stored).is_err(), "{map:?}");
        }
    }

    #[test]
    fn lines_may_span_blocks() {
        let mut text = b"200\n".to_vec();
        for nr in 0..200 {
            text.extend(format!("{}\n{}\n", nr * 1000, 7).bytes());
        }
        text.resize(text.len().next_multiple_of(BLOCK), 0);
        let mut lines = Lines::default();
        let blocks: Vec<_> = text.chunks_exact(BLOCK).collect();
        for (nr, block) in blocks.iter().enumerate() {
            let whole = lines.take((*block).try_into().expect("a block"), 1000).expect("numbers");
            assert_eq!(whole, nr + 1 == blocks.len());
        }
        assert_eq!(lines.map().count(), 200);
        assert_eq!(lines.map().last(), Some((199_000, 7)));
    }

    #[test]
    fn lines_that_are_no_map() {
        for text in [&b"x\n"[..], b"\n", b"11\n", b"1\n-5\n", b"123456789012345678901\n"] {
            let mut block = [0; BLOCK];
            block[..text.len()].copy_from_slice(text);
            assert!(Lines::default().take(&block, 10).is_err(), "{text:?}");
        }
    }
}
