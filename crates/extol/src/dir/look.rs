//! Looking for a name in a leaf, and for room, without reading entry after entry.
//!
//! An entry tells where the next one is, so a walk through a leaf of two hundred takes two hundred
//! loads, each of which waits for the one before it: with that, two fifths of making and removing a
//! file went by. But a name can be looked for where it would be: it begins at a multiple of four,
//! and all places are compared at once, as words. Where it is nowhere, it is not there.
//!
//! ```text
//!   ino  len n t   n a m e - 1 7 . t x t          last four bytes  "." "t" "x" "t"  ─┐ both: perhaps here
//!   └── entry ───┘ └── name ───────────┘          four in the middle   "-" "1" "7" … ─┘
//!       at         at + 8
//! ```
//!
//! Perhaps: names may contain what looks like an entry. So a place counts only if a walk comes to
//! it (one that does nothing else), and that gives the entry before it, too, which whoever removes
//! the name wants to know.
//!
//! For room, and for how much is in use, a leaf has a [`Note`]: the walk of who checked it when it
//! came from the device, or of who looked first. It follows the changes.
//!
//! Invariants
//! - L1: in front of the entry at `from` none has room for another, of whatever name, and `from` is
//!   where an entry begins, or behind the last one; `used` is the sum of all entries in use
//!   (`LeafNote::added`, `LeafNote::removed`; any other change takes the note away, see
//!   `extol_jbd2`'s cache, C4).
//! - L2: in a chain that makes sense, what is found is what a walk with comparisons
//!   ([`leaf::scan`]) finds, the first of several included (`look`).
//!
//! Odd cases
//! - Names of fewer than four bytes, and leaves without a note when the name is not there:
//!   [`leaf::scan`].
//! - A chain that makes no sense on the way to a place: [`leaf::scan`] says what is wrong with it.
//! - A block that is a leaf of one directory and something else of another, on a damaged volume: a
//!   note tells what its bytes are as those of a leaf, whoever changed them.

use std::num::NonZeroU64;

use extol_jbd2::Note;
use extol_ondisk::dirent::{HEADER_LEN, entry_len};
use extol_vfs::Result;

use super::blocks::Shape;
use super::leaf::{self, Hit, Scan};

/// Bytes of a word of a name.
const WORD: usize = 4;
/// Behind every entry.
const NOWHERE: usize = u32::MAX as usize;
/// Words that are compared before anybody looks whether one was the same.
const AT_ONCE: usize = 16;

/// What is noted about a leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LeafNote {
    /// An entry in front of which none has room for the shortest name.
    from: usize,
    /// Bytes of the entries in use.
    used: usize,
}

impl LeafNote {
    /// What a walk through all of a leaf found.
    pub fn of(scan: &Scan) -> Note {
        Self { from: scan.any_room.unwrap_or(NOWHERE), used: scan.used }.write()
    }

    fn read(note: Note) -> Option<Self> {
        let word = note?.get();
        Some(Self {
            from: (word & 0xFFFF_FFFF) as usize,
            used: ((word >> 32) as usize).checked_sub(1)?,
        })
    }

    fn write(self) -> Note {
        NonZeroU64::new((self.used as u64 + 1) << 32 | self.from as u64)
    }

    /// A name was put where there was room.
    pub fn added(note: Note, name: &[u8]) -> Note {
        let Self { from, used } = Self::read(note)?;
        // The entry at `from` may be full now, which whoever wants room will see.
        Self { from, used: used + entry_len(name.len()) }.write()
    }

    /// A name was taken away, whose room went to the entry at `to`.
    pub fn removed(note: Note, name: &[u8], to: usize) -> Note {
        let Self { from, used } = Self::read(note)?;
        Self { from: from.min(to), used: used.checked_sub(entry_len(name.len()))? }.write()
    }
}

/// Looks for a name, and for room to add it, in a leaf about which this is noted. Also gives what
/// is to be noted.
pub(super) fn look(
    area: &[u8],
    shape: &Shape<'_>,
    name: &[u8],
    note: Note,
) -> Result<(Scan, Note)> {
    if let Some(words) = Words::of(name) {
        let mut next = 0;
        while let Some(at) = words.place(area, name, next) {
            match walk_to(area, shape, at) {
                Some(Way::Leads(hit)) => {
                    return Ok((Scan { found: Some(hit), ..Scan::default() }, note));
                }
                Some(Way::Passes) => next = at + WORD,
                None => return walk(area, shape, name, note),
            }
        }
        if let Some(known) = LeafNote::read(note)
            && let Some((room, known)) = room(area, name, known)
        {
            return Ok((Scan { room, used: known.used, ..Scan::default() }, known.write()));
        }
    }
    walk(area, shape, name, note)
}

/// Reads entry after entry.
fn walk(area: &[u8], shape: &Shape<'_>, name: &[u8], note: Note) -> Result<(Scan, Note)> {
    let scan = leaf::scan(area, shape, name)?;
    let note = if scan.found.is_some() { note } else { LeafNote::of(&scan) };
    Ok((scan, note))
}

/// The first entry with room for this name, and the note from now on. `None`: the chain makes no
/// sense.
fn room(area: &[u8], name: &[u8], note: LeafNote) -> Option<(Option<usize>, LeafNote)> {
    let need = entry_len(name.len());
    let (mut at, mut from) = (note.from, None);
    while at < area.len() {
        let head = leaf::head(area, at).ok()?;
        if head.left() >= entry_len(1) {
            from.get_or_insert(at);
        }
        if head.left() >= need {
            return Some((Some(at), LeafNote { from: from.unwrap_or(at), ..note }));
        }
        at += head.rec_len;
    }
    Some((None, LeafNote { from: from.unwrap_or(at), ..note }))
}

/// Where a walk comes by.
enum Way {
    /// At the place.
    Leads(Hit),
    /// Not there: the place is within an entry.
    Passes,
}

/// Walks to a place. `None`: the chain makes no sense in front of it, or says its lengths in
/// another way.
fn walk_to(area: &[u8], shape: &Shape<'_>, place: usize) -> Option<Way> {
    let (mut at, mut before) = (0, None);
    while at < place {
        let rec_len = usize::from((leaf::word(area, at) >> 32) as u16);
        if rec_len < HEADER_LEN || rec_len & 3 != 0 {
            return None;
        }
        before = Some(at);
        at += rec_len;
    }
    if at > place {
        return Some(Way::Passes);
    }
    // What is there must be sound itself.
    leaf::head(area, at).ok().map(|head| Way::Leads(head.hit(shape, at, before)))
}

/// The words by which a name is looked for: its last one, and one of its middle. (Names in one
/// directory often begin alike, and often end alike.)
struct Words {
    last: [u8; WORD],
    middle: [u8; WORD],
}

impl Words {
    fn of(name: &[u8]) -> Option<Self> {
        let last = *name.last_chunk()?;
        let middle = *name.get(Self::middle(name)..)?.first_chunk()?;
        Some(Self { last, middle })
    }

    fn middle(name: &[u8]) -> usize {
        (name.len() - WORD) / 2
    }

    /// The first place at or behind `next`, a multiple of four, where an entry with this name may
    /// be.
    fn place(&self, area: &[u8], name: &[u8], next: usize) -> Option<usize> {
        let words_from =
            |at: usize| Some(area.get(next + HEADER_LEN + at..)?.as_chunks::<WORD>().0);
        let (last, middle) = (words_from(name.len() - WORD)?, words_from(Self::middle(name))?);
        let middle = middle.get(..last.len())?;
        let is_here = |n: usize| {
            let at = next + n * WORD;
            let wanted = area.get(at + 6).is_some_and(|len| usize::from(*len) == name.len())
                && leaf::word(area, at) as u32 != 0
                && area.get(at + HEADER_LEN..).is_some_and(|rest| rest.starts_with(name));
            wanted.then_some(at)
        };
        let same = |last: &[u8; WORD], middle: &[u8; WORD]| {
            (*last == self.last) & (*middle == self.middle)
        };
        let (many_last, few_last) = last.as_chunks::<AT_ONCE>();
        let (many_middle, few_middle) = middle.as_chunks::<AT_ONCE>();
        for (n, (last, middle)) in many_last.iter().zip(many_middle).enumerate() {
            let hits = last.iter().zip(middle).fold(false, |any, (l, m)| any | same(l, m));
            if hits && let Some(at) = (n * AT_ONCE..(n + 1) * AT_ONCE).find_map(is_here) {
                return Some(at);
            }
        }
        let done = many_last.len() * AT_ONCE;
        let rest = few_last.iter().zip(few_middle).enumerate();
        rest.filter(|(_, (l, m))| same(l, m)).find_map(|(n, _)| is_here(done + n))
    }
}

#[cfg(test)]
mod tests;
