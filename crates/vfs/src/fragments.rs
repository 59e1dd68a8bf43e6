//! How files lie on a volume, and what defragmenting one has done.

use std::fmt;
use std::str::FromStr;

/// How a file lies on the volume.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Fragments {
    /// Runs of the file that lie in one piece.
    pub extents: u64,
    /// As few as there can be: one for each part between holes, more for very long ones.
    pub best: u64,
    /// Blocks of data.
    pub blocks: u64,
}

/// What became of a file that was to be defragmented.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It was moved.
    Moved,
    /// It has as few extents as there can be.
    Whole,
    /// The free blocks have no runs that would be better.
    NoRoom,
    /// It is immutable.
    Immutable,
}

impl Outcome {
    /// All of them, with their names for programs.
    pub const ALL: [(Self, &'static str); 4] = [
        (Self::Moved, "moved"),
        (Self::Whole, "whole"),
        (Self::NoRoom, "no_room"),
        (Self::Immutable, "immutable"),
    ];

    /// Its name for programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(outcome, _)| *outcome == self).map_or("", |(_, name)| name)
    }
}

/// A file that was to be defragmented.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Defragmented {
    /// How it lay before.
    pub before: Fragments,
    /// How it lies.
    pub after: Fragments,
    /// What was done.
    pub outcome: Outcome,
}

/// Numbers and a word, as the control request of a mount answers.
impl fmt::Display for Defragmented {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for side in [self.before, self.after] {
            write!(f, "{} {} {} ", side.extents, side.best, side.blocks)?;
        }
        f.write_str(self.outcome.name())
    }
}

impl FromStr for Defragmented {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut words = text.split(' ');
        let mut side = || {
            let mut number = || words.next()?.parse().ok();
            Some(Fragments { extents: number()?, best: number()?, blocks: number()? })
        };
        let (before, after) = (side().ok_or(())?, side().ok_or(())?);
        let name = words.next().ok_or(())?;
        let outcome = Outcome::ALL.iter().find(|(_, known)| *known == name).ok_or(())?.0;
        Ok(Self { before, after, outcome })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_read_back() {
        for (outcome, _) in Outcome::ALL {
            let before = Fragments { extents: 12, best: 1, blocks: 99 };
            let after = Fragments { extents: 1, ..before };
            let done = Defragmented { before, after, outcome };
            assert_eq!(done.to_string().parse(), Ok(done));
        }
        for bad in ["", "1 2 3 4 5 6", "1 2 3 4 5 6 x", "1 2 3 4 5 -6 whole"] {
            assert_eq!(bad.parse::<Defragmented>(), Err(()), "{bad}");
        }
    }
}
