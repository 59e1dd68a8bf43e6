//! What a change of a volume's size has done, and why it did not.

use std::fmt;
use std::str::FromStr;

use crate::FsError;

/// What a resize did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Resized {
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks before.
    pub before: u64,
    /// Blocks now.
    pub blocks: u64,
    /// Blocks that it is to have. A call that ended early has reached fewer.
    pub target: u64,
    /// Blocks that were asked for: more than the target where a last group would be too short to
    /// hold its own metadata.
    pub wished: u64,
    /// New descriptors are placed by meta_bg from now on.
    pub went_to_meta_bg: bool,
    /// Bytes of the device now.
    pub device: u64,
}

/// Numbers, as the control request of a mount answers.
impl fmt::Display for Resized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { block_size, before, blocks, target, wished, went_to_meta_bg, device } = self;
        let went = u8::from(*went_to_meta_bg);
        write!(f, "{block_size} {before} {blocks} {target} {wished} {went} {device}")
    }
}

impl FromStr for Resized {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut words = text.split(' ').map(|word| word.parse::<u64>().map_err(drop));
        let mut number = || words.next().ok_or(())?;
        Ok(Self {
            block_size: number()?.try_into().map_err(drop)?,
            before: number()?,
            blocks: number()?,
            target: number()?,
            wished: number()?,
            went_to_meta_bg: number()? != 0,
            device: number()?,
        })
    }
}

/// Why a volume in use did not become larger, or not as large as asked: an errno for system calls,
/// and one line for the user. It is sound, of the old size or one in between.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}")]
pub struct GrowError {
    /// The kind.
    pub error: FsError,
    /// The line.
    pub line: String,
}

impl From<FsError> for GrowError {
    fn from(error: FsError) -> Self {
        Self { line: error.to_string(), error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_read_back() {
        let resized = Resized {
            block_size: 4096,
            before: 1,
            blocks: 1 << 40,
            target: (1 << 40) + 5,
            wished: u64::MAX,
            went_to_meta_bg: true,
            device: 1 << 41,
        };
        assert_eq!(resized.to_string().parse(), Ok(resized));
        for bad in ["", "1 2 3 4 5 0", "1 2 3 4 x 0 6", "99999999999 2 3 4 5 0 6"] {
            assert_eq!(bad.parse::<Resized>(), Err(()), "{bad}");
        }
    }
}
