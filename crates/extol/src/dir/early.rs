//! Dividing leaves before they are full.
//!
//! A fast commit says the names of a transaction, and whoever replays them needs room for them in
//! the directory as the last full commit left it. A leaf that is divided when it is full has had no
//! room for a while, and the fsyncs of that while are full commits. So in directories whose names
//! fast commits tell, a leaf is divided while it still has some: what the old block has left serves
//! the replay until the next full commit, and from then on both halves have plenty.
//!
//! ```text
//!   used     0 ────── limit ──────────────────── 1
//!            names go in  divided                (a leaf of a directory that nobody syncs: divided here)
//!                         └── room for replays
//! ```
//!
//! How much room a directory needs depends on how many blocks share the names that come. A full
//! commit is due when the first of them has none left, and costs as much as ten fast ones. With
//! leaves of up to three quarters a directory grows by half between two of them: a matter of 50
//! names while it is small, of thousands when it is large. So small directories are divided early
//! ([`limit`]), and grow fourfold.
//!
//! The price is space: up to 128 blocks a directory in which everybody syncs has two to three times
//! as many as its names fill; beyond, its leaves are between 3/8 and 3/4 full instead of 1/2 and
//! full, a third more blocks. Directories in which nobody syncs pay nothing.

use extol_jbd2::Handle;
use extol_ondisk::dirent::{self, MAX_NAME, NewEntry, entry_len};

use super::blocks::Shape;
use super::leaf::{self, Division, Hashed};

/// Bytes that the entries of a leaf may use in a directory of so many blocks whose names fast
/// commits tell: with blocks of 4 KiB and names of 20 bytes a directory of 1000 names gets 32
/// leaves and has had two full commits, one of 5000 has 100 and three to four (simulated). Two of
/// the longest names always have room.
fn limit(shape: &Shape<'_>) -> usize {
    let area = dirent::area_len(shape.geo);
    let eighths = match shape.blocks {
        // Most directories stay as small as that.
        0 | 1 => 4,
        2..32 => 2,
        32..64 => 3,
        64..128 => 4,
        _ => 6,
    };
    (area / 8 * eighths).max(2 * entry_len(MAX_NAME))
}

/// True if a leaf whose entries take `used` bytes, `new` not among them, is to be divided although
/// there may be room. (Without an index none is divided.)
pub(super) fn is_due(h: &Handle, shape: &Shape<'_>, used: usize, new: &NewEntry<'_>) -> bool {
    let divides = shape.searchable || shape.dir_index && shape.blocks <= 1;
    divides && used + entry_len(new.name.len()) > limit(shape) && h.tells_names_of(shape.ino.0)
}

/// How to divide the entries of a leaf, one of them new: with `early` so that both have room, if
/// that is possible, and in any case in two.
pub(super) fn divide(items: &[Hashed<'_>], shape: &Shape<'_>, early: bool) -> Option<Division> {
    let area = dirent::area_len(shape.geo);
    let in_two = || {
        let all: usize = items.iter().map(|item| entry_len(item.entry.name.len())).sum();
        leaf::divide(items, area.min(all.saturating_sub(1)))
    };
    let best = early.then(|| leaf::divide(items, limit(shape)).or_else(in_two)).flatten();
    best.or_else(|| leaf::divide(items, area))
}
