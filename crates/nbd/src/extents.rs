//! Which ranges of a device are holes or zeros, as `base:allocation` tells it.

use std::ops::Range;

use crate::wire::Bytes;
use crate::{Error, Result};

/// Its blocks are not allocated.
const HOLE: u32 = 1;
/// It reads as zeros.
const ZERO: u32 = 2;

/// A range and what is known of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Where.
    pub range: Range<u64>,
    /// It takes no space at the server.
    pub is_hole: bool,
    /// It reads as zeros.
    pub is_zero: bool,
}

/// Decodes the chunk of a block status of `asked`, by the context of this number. The last extent
/// may reach over the end of what was asked, and is cut there. There is at least one.
///
/// # Errors
/// It has another context, a wrong length, or extents that are empty or behind the end.
pub fn decode(contents: &[u8], context: u32, asked: Range<u64>) -> Result<Vec<Extent>> {
    let mut bytes = Bytes(contents);
    if bytes.u32()? != context {
        return Err(Error::protocol("a block status is of a context that was not asked for"));
    }
    let mut extents: Vec<Extent> = Vec::new();
    let mut at = asked.start;
    while !bytes.0.is_empty() {
        let (len, flags) = (bytes.u32()?, bytes.u32()?);
        if len == 0 || at >= asked.end {
            return Err(Error::protocol("a block status has an extent that is empty or too many"));
        }
        let end = at.saturating_add(len.into()).min(asked.end);
        let (is_hole, is_zero) = (flags & HOLE != 0, flags & ZERO != 0);
        match extents.last_mut() {
            Some(last) if (last.is_hole, last.is_zero) == (is_hole, is_zero) => {
                last.range.end = end;
            }
            _ => extents.push(Extent { range: at..end, is_hole, is_zero }),
        }
        at = end;
    }
    if extents.is_empty() {
        return Err(Error::protocol("a block status has no extent"));
    }
    Ok(extents)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn chunk(context: u32, extents: &[(u32, u32)]) -> Vec<u8> {
        let numbers = extents.iter().flat_map(|(len, flags)| [*len, *flags]);
        [context].into_iter().chain(numbers).flat_map(u32::to_be_bytes).collect()
    }

    #[test]
    fn extents_are_cut_and_joined() {
        let bytes = chunk(7, &[(10, 0), (20, 0), (5, 3), (1000, 2)]);
        let extent = |range, is_hole, is_zero| Extent { range, is_hole, is_zero };
        let expected = [
            extent(100..130, false, false),
            extent(130..135, true, true),
            extent(135..200, false, true),
        ];
        assert_eq!(decode(&bytes, 7, 100..200).unwrap(), expected);
    }

    #[test]
    fn extents_that_lie_are_refused() {
        for bytes in [
            chunk(8, &[(100, 0)]),
            chunk(7, &[]),
            chunk(7, &[(0, 0)]),
            chunk(7, &[(100, 0), (1, 0)]),
            chunk(7, &[(50, 0)])[..10].to_vec(),
            vec![],
        ] {
            assert!(matches!(decode(&bytes, 7, 0..100), Err(Error::Protocol(_))), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_decode_to_extents_side_by_side(
            bytes in proptest::collection::vec(any::<u8>(), 0..80),
            start in any::<u64>(), len in 1..u32::MAX,
        ) {
            let asked = start..start.saturating_add(len.into());
            let context = bytes.first_chunk().map_or(0, |first| u32::from_be_bytes(*first));
            if let Ok(extents) = decode(&bytes, context, asked.clone()) {
                prop_assert_eq!(extents[0].range.start, asked.start);
                prop_assert!(extents.last().unwrap().range.end <= asked.end);
                prop_assert!(extents.windows(2).all(|w| w[0].range.end == w[1].range.start));
            }
        }
    }
}
