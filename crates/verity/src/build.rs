//! Makes the tree of a file from its contents, with one block in memory for each level.

use crate::algorithm::{Hash, MAX_HASH, Salted};
use crate::error::{Result, VerityError};
use crate::params::Params;
use crate::tree::Tree;

/// A block that fills up: of data (level 0), or of the tree.
#[derive(Debug)]
struct Filling {
    bytes: Vec<u8>,
    /// Blocks of this level before it.
    before: u64,
}

/// Makes a tree: contents in order through [`push`](Self::push), then [`finish`](Self::finish). The
/// blocks of the tree go to a function, which takes the byte in the tree and the block.
#[derive(Debug)]
pub struct Builder {
    tree: Tree,
    salted: Salted,
    hash_len: usize,
    block_len: usize,
    /// Data, then the levels of the tree up to the root.
    filling: Vec<Filling>,
    taken: u64,
    root: Hash,
}

impl Builder {
    /// Begins the tree of a file of so many bytes.
    ///
    /// # Errors
    /// As [`Tree::new`].
    pub fn new(params: &Params, data_size: u64) -> Result<Self> {
        let tree = Tree::new(params, data_size)?;
        let block_len = params.block_len();
        let empty = |_| Filling { bytes: Vec::with_capacity(block_len), before: 0 };
        Ok(Self {
            salted: params.salted(),
            hash_len: params.algorithm().len(),
            block_len,
            filling: (0..=tree.levels().len()).map(empty).collect(),
            taken: 0,
            root: Hash([0; MAX_HASH]),
            tree,
        })
    }

    /// The shape of the tree.
    #[must_use]
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Takes the next bytes of the contents. More than the file has are an error of
    /// [`finish`](Self::finish).
    ///
    /// # Errors
    /// Those of `write`.
    pub fn push<E>(
        &mut self,
        mut data: &[u8],
        write: &mut impl FnMut(u64, &[u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let left = self.tree.data_size().saturating_sub(self.taken);
        self.taken = self.taken.saturating_add(data.len() as u64);
        data = data.get(..usize::try_from(left).unwrap_or(usize::MAX)).unwrap_or(data);
        while let Some(filling) = self.filling.first_mut().filter(|_| !data.is_empty()) {
            let room = self.block_len - filling.bytes.len();
            let (part, rest) = data.split_at(room.min(data.len()));
            filling.bytes.extend_from_slice(part);
            data = rest;
            if part.len() == room {
                self.ascend(write)?;
            }
        }
        Ok(())
    }

    /// Ends full blocks, from the data upwards.
    fn ascend<E>(
        &mut self,
        write: &mut impl FnMut(u64, &[u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        for level in 0..self.filling.len() {
            let full = self.filling.get(level).is_some_and(|f| f.bytes.len() == self.block_len);
            if !full {
                break;
            }
            self.close(level, write)?;
        }
        Ok(())
    }

    /// Ends the block that fills up on one level, and puts its hash into the level above.
    fn close<E>(
        &mut self,
        level: usize,
        write: &mut impl FnMut(u64, &[u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let Some(filling) = self.filling.get_mut(level) else { return Ok(()) };
        filling.bytes.resize(self.block_len, 0);
        let hash = self.salted.hash(&filling.bytes);
        // (Level 0 here is the data, which is where it is.)
        if let Some(shape) = level.checked_sub(1).and_then(|level| self.tree.levels().get(level)) {
            write((shape.start + filling.before) * self.block_len as u64, &filling.bytes)?;
        }
        filling.bytes.clear();
        filling.before += 1;
        match self.filling.get_mut(level + 1) {
            Some(above) => above.bytes.extend(hash.0.iter().take(self.hash_len)),
            None => self.root = hash,
        }
        Ok(())
    }

    /// Ends the tree; gives the root hash, with zeros behind it.
    ///
    /// # Errors
    /// Those of `write`, or contents of another length than was said ([`VerityError::Size`]).
    pub fn finish<E: From<VerityError>>(
        mut self,
        write: &mut impl FnMut(u64, &[u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<[u8; MAX_HASH], E> {
        if self.taken != self.tree.data_size() {
            return Err(VerityError::Size.into());
        }
        for level in 0..self.filling.len() {
            if self.filling.get(level).is_some_and(|filling| !filling.bytes.is_empty()) {
                self.close(level, write)?;
            }
        }
        Ok(self.root.0)
    }
}
