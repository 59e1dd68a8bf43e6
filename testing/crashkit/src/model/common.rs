//! A file that all actors write at the same time, each its own bytes of it.
//!
//! ```text
//!   actor   0    1    2    0    1    2    0  …     parts of PART bytes: blocks have several owners
//! ```
//!
//! To an actor's history it is a file of the actor's own parts, one behind the other: whatever
//! others do to blocks that it shares with them, its bytes must be as in any other file. It has its
//! full size from the beginning, all zeros: a hole, or written, by seed. An fsync of it is for
//! all actors: it promises what others had completed when it began, too.

use super::history::History;
use super::tree::Id;
use super::verify::{Moment, Promised, Rules};
use crate::view::View;

/// Its name on the volume.
pub const PATH: &str = "common";
/// What histories call it.
pub(super) const ID: Id = Id::MAX;
/// Bytes that belong to the same actor: no multiple of a sector.
const PART: usize = 1000;
/// Parts of each actor.
const PARTS: usize = 16;

/// An actor's share of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Common {
    /// Of so many actors it is this one.
    pub nr: usize,
    /// How many they are.
    pub of: usize,
}

impl Common {
    /// Bytes of the whole file.
    #[must_use]
    pub fn size(self) -> usize {
        self.own() * self.of
    }

    /// Bytes that are the actor's own.
    #[must_use]
    pub fn own(self) -> usize {
        PARTS * PART
    }

    /// Where the byte stands in the file that is at `at` of the actor's own, and how many of those
    /// stand there in a row.
    #[must_use]
    pub fn place(self, at: usize) -> (usize, usize) {
        let (part, inside) = (at / PART, at % PART);
        ((part * self.of + self.nr) * PART + inside, PART - inside)
    }

    /// The actor's own bytes of all.
    #[must_use]
    pub fn of_all(self, all: &[u8]) -> Vec<u8> {
        let parts = all.chunks(PART).skip(self.nr).step_by(self.of);
        parts.flatten().copied().collect()
    }
}

/// Verifies the actor's bytes of it.
pub(super) fn verify(
    history: &History,
    common: Common,
    moment: Moment,
    view: &View,
    rules: Rules,
) -> Result<(), String> {
    let found = view.content_of("", PATH).ok_or("the common file is gone")?;
    if found.len() != common.size() {
        return Err(format!("the common file has {} bytes, not {}", found.len(), common.size()));
    }
    // What blocks of it hold otherwise is not this actor's.
    let rules = Rules { block: 1, ..rules };
    let own = common.of_all(found);
    Promised::of(history, moment)
        .content(ID, &own, rules)
        .map_err(|why| format!("own bytes of {PATH}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tape::Note;

    #[test]
    fn each_byte_has_one_owner() {
        let all = [0, 1, 2].map(|nr| Common { nr, of: 3 });
        let mut file = vec![9; all[0].size()];
        for common in all {
            let mut at = 0;
            while at < common.own() {
                let (place, row) = common.place(at + 7);
                assert_eq!(row, PART - 7);
                let (start, len) = (place - 7, row + 7);
                assert!(
                    file[start..start + len].iter().all(|b| *b == 9),
                    "bytes of this file alone"
                );
                file[start..start + len].fill(common.nr as u8);
                at += PART;
            }
        }
        for common in all {
            assert_eq!(common.of_all(&file), vec![common.nr as u8; common.own()]);
        }
    }

    /// Actor 1 writes from `write.0` to `write.1` of the tape, and actor 0 asks for an fsync from
    /// 20 to 30. What is said, at the end, of a file without the write.
    fn without(write: (usize, usize)) -> Result<(), String> {
        let mut histories = [0, 1].map(|nr| {
            let mut history = History::new(if nr == 0 { "t0/" } else { "t1/" });
            history.share(Common { nr, of: 2 });
            history
        });
        histories[0].quiet("fsync common".to_owned());
        histories[0].common_synced(false);
        histories[1].quiet("write common".to_owned());
        histories[1].common_contents(5, &[7; 100]);
        let mut notes = vec![
            (write.0, Note::Begin(1, 0)),
            (write.1, Note::End(1, 0)),
            (20, Note::Begin(0, 0)),
            (30, Note::End(0, 0)),
        ];
        notes.sort_by_key(|(at, _)| *at);
        History::finish(&mut histories, &notes);
        let rules =
            Rules { stale_unsynced: false, missing_data: false, fast_commits: true, block: 1024 };
        let mut file = vec![0; Common { nr: 0, of: 2 }.size()];
        let said = |file: &[u8]| {
            histories.iter().try_for_each(|history| {
                let moment = Moment { begun: history.begun(40), promised: history.promised(40) };
                crate::model::verify(history, moment, &View::of_file(PATH, file.to_vec()), rules)
            })
        };
        let said_without = said(&file);
        file[PART + 5..PART + 105].fill(7);
        assert_eq!(said(&file), Ok(()), "with it");
        file[3] = 7;
        assert!(said(&file).is_err(), "nothing was written there");
        said_without
    }

    #[test]
    fn an_fsync_is_for_what_others_had_written_when_it_began() {
        assert!(without((5, 10)).is_err_and(|why| why.contains("since the last sync")));
        assert_eq!(without((5, 25)), Ok(()), "it was under way");
        assert_eq!(without((22, 25)), Ok(()), "it came later");
    }
}
