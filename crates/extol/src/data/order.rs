//! The order in which a write of file data must become durable, relative to the records that map
//! it.
//!
//! | data goes to | order |
//! |---|---|
//! | zeroed blocks, taken for a small new piece of a file under fsync | checksummed |
//! | mapped blocks behind the old end of a file under fsync | checksummed |
//! | mapped blocks inside the file | unordered |
//! | all other blocks: new, unwritten, zeros behind an end | ordered |
//!
//! If a crash keeps the records and loses the data, checksummed data shows as zeros or as the
//! file's own old bytes, and recovery sees that the checksum does not match. Unordered data may
//! show as old bytes until an fsync returns anyway. All other blocks may hold bytes of another
//! file.
//!
//! *Ordered* data is flushed before the records that map it are written (data=ordered). For the
//! other kinds the flush behind the records is enough; the fast commit carries a data checksum of
//! *checksummed* data (`extol_jbd2::fast`).

use extol_block::BlockNr;
use extol_ondisk::fast_commit::DataChecksum;
use extol_vfs::Result;

use crate::error;
use crate::volume::Volume;

/// Most blocks of checksummed data: for longer writes one more flush costs little.
pub(crate) const SMALL: u32 = 16;

/// Why data is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// An fsync waits until it is durable.
    Fsync,
    /// Writeback, or a large write.
    Other,
    /// A write that is refused if limits do not allow the blocks of its map.
    Limited,
}

/// Where data goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    /// Free blocks with zeros on the medium.
    Zeroed,
    /// Mapped, written blocks of the file.
    Written {
        /// The write moves the end of the file.
        grows: bool,
    },
    /// All other blocks.
    Unknown,
}

/// The order that a write needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// Durable before the records that map it.
    Ordered,
    /// Durable before the fsync returns.
    Unordered,
    /// As ordered, or recovery compares its checksum.
    Checksummed,
}

/// The order that a write of so many blocks needs. `checksums`: fast commits carry data checksums.
pub(crate) fn decide(target: Target, blocks: u32, purpose: Purpose, checksums: bool) -> Order {
    let may_be_checksummed = checksums && purpose == Purpose::Fsync && blocks <= SMALL;
    match target {
        Target::Written { grows: false } => Order::Unordered,
        Target::Zeroed | Target::Written { grows: true } if may_be_checksummed => {
            Order::Checksummed
        }
        _ => Order::Ordered,
    }
}

/// The data checksums of a write of that order, if it has any. `bytes` gives the bytes of each of
/// the `blocks` blocks from `start` on that belong to the file.
pub(crate) fn checksums<'a>(
    order: Order,
    start: BlockNr,
    blocks: u32,
    bytes: impl Fn(u32) -> &'a [u8],
) -> Vec<DataChecksum> {
    let of = |i: u32| DataChecksum::of(start.plus(u64::from(i)), bytes(i));
    if order == Order::Checksummed { (0..blocks).map(of).collect() } else { Vec::new() }
}

/// Reports a write that has returned to the journal.
pub(crate) fn note(vol: &Volume, order: Order, checksums: &[DataChecksum]) {
    match order {
        Order::Ordered => vol.journal.note_data_write(),
        Order::Unordered => {
            vol.journal.note_unordered_write();
        }
        Order::Checksummed => {
            vol.journal.note_checksummed_write(checksums);
        }
    }
}

/// True if the write may be deferred to the commit that makes it durable: a small write of an
/// fsync.
pub(crate) fn may_defer(blocks: u32, purpose: Purpose) -> bool {
    purpose == Purpose::Fsync && blocks <= SMALL
}

/// To be called before one block of a file changes in place, from its byte `from` on: recovery must
/// not compare those bytes with an older checksum.
pub(crate) fn about_to_change(vol: &Volume, block: BlockNr, from: usize) -> Result<()> {
    vol.journal.about_to_overwrite(block, 1, |w| w.len as usize <= from).map_err(error::journal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table() {
        use Order::{Checksummed, Ordered, Unordered};
        use Purpose::{Fsync, Other};
        let grown = Target::Written { grows: true };
        for (target, blocks, purpose, order) in [
            (Target::Zeroed, 1, Fsync, Checksummed),
            (Target::Zeroed, SMALL, Fsync, Checksummed),
            (Target::Zeroed, SMALL + 1, Fsync, Ordered),
            (Target::Zeroed, 1, Other, Ordered),
            (grown, 1, Fsync, Checksummed),
            (grown, 1, Other, Ordered),
            (Target::Written { grows: false }, 5000, Fsync, Unordered),
            (Target::Written { grows: false }, 1, Other, Unordered),
            (Target::Unknown, 1, Fsync, Ordered),
        ] {
            assert_eq!(
                decide(target, blocks, purpose, true),
                order,
                "{target:?} {blocks} {purpose:?}"
            );
            let without = if order == Checksummed { Ordered } else { order };
            assert_eq!(
                decide(target, blocks, purpose, false),
                without,
                "{target:?} {blocks} {purpose:?}"
            );
        }
    }
}
