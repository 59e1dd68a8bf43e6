//! Reading the tags of fast-commit blocks.

use super::number::{HEAD, PAD, TAIL};
use super::{FcRecord, TL_SIZE};
use crate::bytes::{get16, get32};
use crate::checksum::crc32c;

/// One decoded tag.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FcTag<'a> {
    /// Says what changed.
    Record(FcRecord<&'a [u8]>),
    /// Fills the rest of a block, or holds [checksums of data](super::DataChecksum).
    Pad(&'a [u8]),
    /// Ends a fast commit.
    Tail {
        /// Transaction on top of which it counts.
        tid: u32,
        /// Stated checksum.
        stated: u32,
        /// Checksum of the bytes.
        actual: u32,
    },
    /// Begins the first fast commit of a transaction.
    Head {
        /// Features that a reader must know; none exist.
        features: u32,
        /// Transaction on top of which it counts.
        tid: u32,
    },
}

/// A tag that makes no sense; what follows cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FcError {
    /// The tag.
    pub tag: u16,
    /// Its stated length.
    pub len: u16,
    /// Where in the block it is.
    pub offset: usize,
}

/// Iterates the tags of fast-commit blocks, block by block, and keeps the running checksum between
/// them.
#[derive(Clone, Debug, Default)]
pub struct FcReader {
    crc: u32,
}

impl FcReader {
    /// A reader at the start of the area.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// True if `block` is worth reading as the first of the area: it begins with a HEAD.
    #[must_use]
    pub fn begins_with_head(block: &[u8]) -> bool {
        get16(block, 0) == HEAD
    }

    /// Gives each tag of `block` with its offset to `each`, which says whether to go on.
    ///
    /// # Errors
    /// The first tag that makes no sense.
    pub fn block<'a>(
        &mut self,
        block: &'a [u8],
        mut each: impl FnMut(usize, FcTag<'a>) -> bool,
    ) -> Result<(), FcError> {
        let mut at = 0;
        while at + TL_SIZE <= block.len() {
            let (tag, len) = (get16(block, at), get16(block, at + 2));
            let error = FcError { tag, len, offset: at };
            let value_at = at + TL_SIZE;
            let value = block.get(value_at..value_at + usize::from(len)).ok_or(error)?;
            let end = value_at + value.len();
            let decoded =
                self.decode(tag, value, block.get(at..end).unwrap_or_default()).ok_or(error)?;
            if !each(at, decoded) {
                return Ok(());
            }
            at = end;
        }
        Ok(())
    }

    /// Decodes one tag and adds its bytes to the sum. A TAIL ends the sum and starts it anew.
    fn decode<'a>(&mut self, tag: u16, value: &'a [u8], whole: &[u8]) -> Option<FcTag<'a>> {
        let decoded = match tag {
            PAD => FcTag::Pad(value),
            TAIL if value.len() >= 8 => {
                let actual = crc32c(self.crc, whole.get(..TL_SIZE + 4)?);
                self.crc = 0;
                let (tid, stated) = (get32(value, 0), get32(value, 4));
                return Some(FcTag::Tail { tid, stated, actual });
            }
            HEAD if value.len() == 8 => {
                FcTag::Head { features: get32(value, 0), tid: get32(value, 4) }
            }
            _ => FcTag::Record(FcRecord::decode(tag, value)?),
        };
        self.crc = crc32c(self.crc, whole);
        Some(decoded)
    }
}
