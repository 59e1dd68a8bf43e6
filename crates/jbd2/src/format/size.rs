//! How long a new log is, as mke2fs and tune2fs make it.

/// Most blocks of a journal.
pub const MAX_LOG_BLOCKS: u32 = 10_240_000;
/// The usual log has as many times the blocks of its fast-commit area.
pub const FAST_COMMIT_RATIO: u32 = 64;

/// Fewest blocks of a volume that gets a journal.
pub const LEAST_BLOCKS: u64 = 2048;

/// Usual size of the log of a volume of `blocks` blocks; `None` if it is too small for one.
#[must_use]
pub fn usual_log_blocks(blocks: u64) -> Option<u32> {
    Some(match blocks {
        0..LEAST_BLOCKS => return None,
        LEAST_BLOCKS..32_768 => 1024,
        32_768..262_144 => 4096,
        262_144..524_288 => 8192,
        524_288..4_194_304 => 16_384,
        4_194_304..8_388_608 => 32_768,
        8_388_608..16_777_216 => 65_536,
        16_777_216..33_554_432 => 131_072,
        _ => 262_144,
    })
}
