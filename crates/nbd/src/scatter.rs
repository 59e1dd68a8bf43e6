//! A range of bytes in several buffers.

use std::io::{IoSlice, IoSliceMut};

/// Calls `each` with the pieces of `start..start + len` of all buffers, one behind the other.
pub(crate) fn pieces_mut<E>(
    bufs: &mut [IoSliceMut<'_>],
    start: usize,
    len: usize,
    mut each: impl FnMut(&mut [u8]) -> Result<(), E>,
) -> Result<(), E> {
    let (mut skip, mut left) = (start, len);
    for buf in bufs {
        let here = skip.min(buf.len());
        skip -= here;
        let len = left.min(buf.len() - here);
        if len > 0 {
            each(&mut buf[here..here + len])?;
            left -= len;
        }
    }
    Ok(())
}

/// The pieces of `start..start + len` of all buffers.
pub(crate) fn pieces<'a>(bufs: &'a [IoSlice<'_>], start: usize, len: usize) -> Vec<IoSlice<'a>> {
    let (mut skip, mut left) = (start, len);
    let mut pieces = Vec::new();
    for buf in bufs {
        let here = skip.min(buf.len());
        skip -= here;
        let len = left.min(buf.len() - here);
        if len > 0 {
            pieces.push(IoSlice::new(&buf[here..here + len]));
            left -= len;
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    #[test]
    fn pieces_are_those_of_one_long_buffer() {
        let all: Vec<u8> = (0..30).collect();
        for (start, len) in [(0, 30), (0, 0), (7, 1), (9, 2), (10, 10), (3, 25), (29, 1), (30, 0)] {
            let bufs = [&all[..10], &[], &all[10..11], &all[11..]].map(IoSlice::new);
            let got: Vec<u8> =
                pieces(&bufs, start, len).iter().flat_map(|p| p.iter().copied()).collect();
            assert_eq!(got, all[start..start + len], "{start} {len}");
            let mut copy = all.clone();
            let (a, b) = copy.split_at_mut(11);
            let mut bufs = [IoSliceMut::new(a), IoSliceMut::new(b)];
            let mut got = Vec::new();
            let done = pieces_mut(&mut bufs, start, len, |piece| {
                got.extend_from_slice(piece);
                Ok::<_, Infallible>(())
            });
            assert_eq!((done, &got[..]), (Ok(()), &all[start..start + len]));
        }
    }
}
