//! What must be on the medium before what: the order that a write of file data needs.
//!
//! | data goes to | order | why |
//! |---|---|---|
//! | blocks with zeros on the medium, taken for a new piece of a file that is being synced | checksummed | without it a file would show zeros that was never acknowledged: recovery sees that |
//! | mapped blocks, behind the old end of a file that is being synced | checksummed | as before; what Linux would show are the file's own old bytes |
//! | mapped blocks inside the file | free | old bytes or new ones, both may be there after a crash until an fsync returns |
//! | everything else: new blocks, unwritten ones, zeros behind an end | loose | the blocks may hold what was somebody else's |
//!
//! Loose data is flushed before the records that map it; for the other kinds the flush behind the
//! records is enough. See `extol_jbd2::fast` (checksum).

use extol_block::BlockNr;
use extol_ondisk::fast_commit::DataChecksum;
use extol_vfs::Result;

use crate::error;
use crate::volume::Volume;

/// Longer writes are not checksummed: for them a flush more costs little.
pub(crate) const SMALL: u32 = 16;

/// Why data is written now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// Somebody waits until it is durable.
    Fsync,
    /// Memory, age, or its size.
    Other,
}

/// Where data goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    /// Blocks that belonged to no file, with zeros on the medium.
    Zeroed,
    /// Blocks of the file, mapped and written. `grows`: the file ends behind its old end
    /// afterwards.
    Written {
        /// See there.
        grows: bool,
    },
    /// Anything else.
    Unknown,
}

/// The order that a write needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// Before what maps it.
    Loose,
    /// Before an fsync returns.
    Free,
    /// As loose, but it can be compared instead.
    Checksummed,
}

/// The order that a write of so many blocks needs. `compares`: checksums are written, and recovery
/// looks at them.
pub(crate) fn decide(target: Target, blocks: u32, purpose: Purpose, compares: bool) -> Order {
    let may_be_checksummed = compares && purpose == Purpose::Fsync && blocks <= SMALL;
    match target {
        Target::Written { grows: false } => Order::Free,
        Target::Zeroed | Target::Written { grows: true } if may_be_checksummed => {
            Order::Checksummed
        }
        _ => Order::Loose,
    }
}

/// The checksums of data with that order, if it has any. `bytes` gives the bytes of each of the
/// `blocks` blocks from `start` on that belong to the file.
pub(crate) fn checksums<'a>(
    order: Order,
    start: BlockNr,
    blocks: u32,
    bytes: impl Fn(u32) -> &'a [u8],
) -> Vec<DataChecksum> {
    let of = |i: u32| DataChecksum::of(start.plus(u64::from(i)), bytes(i));
    if order == Order::Checksummed { (0..blocks).map(of).collect() } else { Vec::new() }
}

/// Tells the journal of a write that has returned.
pub(crate) fn note(vol: &Volume, order: Order, checksums: &[DataChecksum]) {
    match order {
        Order::Loose => vol.journal.note_data_write(),
        Order::Free => {
            vol.journal.note_free_write();
        }
        Order::Checksummed => {
            vol.journal.note_checksummed_write(checksums);
        }
    }
}

/// True if the write may be left to whoever makes it durable, who keeps its order: it is small, and
/// will be waited for.
pub(crate) fn may_wait(blocks: u32, purpose: Purpose) -> bool {
    purpose == Purpose::Fsync && blocks <= SMALL
}

/// Before one block of a file changes in place, from its byte `from` on.
pub(crate) fn about_to_change(vol: &Volume, block: BlockNr, from: usize) -> Result<()> {
    vol.journal.about_to_overwrite(block, 1, |w| w.len as usize <= from).map_err(error::journal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table() {
        use Order::{Checksummed, Free, Loose};
        use Purpose::{Fsync, Other};
        let grown = Target::Written { grows: true };
        for (target, blocks, purpose, order) in [
            (Target::Zeroed, 1, Fsync, Checksummed),
            (Target::Zeroed, SMALL, Fsync, Checksummed),
            (Target::Zeroed, SMALL + 1, Fsync, Loose),
            (Target::Zeroed, 1, Other, Loose),
            (grown, 1, Fsync, Checksummed),
            (grown, 1, Other, Loose),
            (Target::Written { grows: false }, 5000, Fsync, Free),
            (Target::Written { grows: false }, 1, Other, Free),
            (Target::Unknown, 1, Fsync, Loose),
        ] {
            assert_eq!(
                decide(target, blocks, purpose, true),
                order,
                "{target:?} {blocks} {purpose:?}"
            );
            let without = if order == Checksummed { Loose } else { order };
            assert_eq!(
                decide(target, blocks, purpose, false),
                without,
                "{target:?} {blocks} {purpose:?}"
            );
        }
    }
}
