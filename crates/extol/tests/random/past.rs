//! The states that a crash may leave.

use std::collections::HashMap;

use extol::vfs::Fallocate;

use super::content::Content;
use super::engine::Change;
use super::tree::{Id, Op, Tree};

/// What may be found after a crash.
#[derive(Debug)]
pub struct Past {
    /// The tree with the operations that are durable.
    pub base: Tree,
    /// What was done since, oldest first.
    pub ops: Vec<Op>,
    /// How many operations came before `ops`.
    pub before: usize,
    /// For every node, how many operations had been done when it was changed last.
    pub changed: HashMap<Id, usize>,
    /// The contents of a file since its last sync, oldest first.
    pub versions: HashMap<Id, Vec<Content>>,
    /// Ranges cut out and put in since the last sync of a file, oldest first.
    pub shifts: HashMap<Id, Vec<Shift>>,
    /// What versions after such a shift look like if the shift itself is lost: file data goes to
    /// its blocks at once, and the blocks are at their old places in the file again. They count for
    /// bytes, not for sizes.
    pub echoes: HashMap<Id, Vec<Content>>,
}

/// Everything from `at` on moved by `len`.
#[derive(Clone, Copy, Debug)]
pub struct Shift {
    at: u64,
    len: u64,
    inserted: bool,
}

impl Shift {
    pub fn of(change: &Change) -> Option<Self> {
        let Change::Allocate { mode, at, len } = *change else { return None };
        match mode {
            Fallocate::InsertRange => Some(Self { at, len, inserted: true }),
            Fallocate::CollapseRange => Some(Self { at, len, inserted: false }),
            _ => None,
        }
    }

    fn undo(self, content: &mut Content) {
        if self.inserted {
            content.size = content.size.max(self.at + self.len);
            content.collapse(self.at, self.len);
        } else {
            content.insert(self.at, self.len);
        }
    }
}

impl Past {
    /// Notes what a new version looks like without the last shift, without the last two, and so on.
    pub fn echo(&mut self, id: Id, content: &Content) {
        let mut echo = content.clone();
        for shift in self.shifts.get(&id).into_iter().flatten().rev() {
            shift.undo(&mut echo);
            self.echoes.entry(id).or_default().push(echo.clone());
        }
    }

    /// The first `done` operations are durable.
    pub fn is_durable(&mut self, done: usize, block_size: u64) {
        let n = done.saturating_sub(self.before);
        for op in self.ops.drain(..n) {
            self.base.apply(&op, block_size as usize).expect("it was applied before");
        }
        self.before += n;
    }
}
