//! Checks data blocks against a tree.

use std::sync::Arc;

use crate::algorithm::{Algorithm, Salted};
use crate::descriptor::Descriptor;
use crate::error::Result;
use crate::recent::Known;
use crate::tree::{Place, Tree};

/// Why a block could not be verified.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failed<E> {
    /// The block has another hash than is stored for it.
    Data,
    /// A block of the tree has another hash than is stored for it: its number in the tree.
    Tree(u64),
    /// The file has no such block.
    Outside,
    /// A block of the tree could not be read.
    Read(E),
}

/// Checks the data blocks of one file.
#[derive(Clone, Debug)]
pub struct Verifier {
    descriptor: Descriptor,
    algorithm: Algorithm,
    tree: Tree,
    salted: Salted,
}

impl Verifier {
    /// By a file's descriptor, on which all rests.
    ///
    /// # Errors
    /// As [`Tree::new`].
    pub fn new(descriptor: Descriptor) -> Result<Self> {
        let tree = Tree::new(descriptor.params(), descriptor.data_size())?;
        let salted = descriptor.params().salted();
        Ok(Self { algorithm: descriptor.params().algorithm(), tree, salted, descriptor })
    }

    /// The descriptor.
    #[must_use]
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// The shape of the tree.
    #[must_use]
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Verifies data block `index`, which is as long as the tree's blocks, with zeros behind the
    /// end of the file. `read` reads a block of the tree, by its first byte in the tree; it is
    /// called for blocks that are not known, the lowest first.
    ///
    /// # Errors
    /// A wrong hash, from the root down to the data, or an error of `read`.
    pub fn verify<E>(
        &self,
        index: u64,
        data: &[u8],
        known: &impl Known,
        mut read: impl FnMut(u64, &mut [u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), Failed<E>> {
        let block_len = self.descriptor.params().block_len();
        if index >= self.tree.data_blocks() || data.len() != block_len {
            return Err(Failed::Outside);
        }
        // Upwards, to a block that is known.
        let mut unchecked: Vec<(Place, Arc<[u8]>)> = Vec::new();
        let mut above = None;
        for level in 0..self.tree.levels().len() {
            let place = self.tree.place(level, index).ok_or(Failed::Outside)?;
            if let Some(bytes) = known.get(place.block) {
                above = Some((place, bytes));
                break;
            }
            let mut bytes = vec![0; block_len];
            read(place.block * block_len as u64, &mut bytes).map_err(Failed::Read)?;
            unchecked.push((place, bytes.into()));
        }
        // And down again.
        for (place, bytes) in unchecked.into_iter().rev() {
            if !self.is_expected(above.as_ref(), &bytes) {
                return Err(Failed::Tree(place.block));
            }
            known.keep(place.block, Arc::clone(&bytes));
            above = Some((place, bytes));
        }
        if self.is_expected(above.as_ref(), data) { Ok(()) } else { Err(Failed::Data) }
    }

    /// True if the block has the hash that is stored above it: in a block of the tree, or as the
    /// root hash.
    fn is_expected(&self, above: Option<&(Place, Arc<[u8]>)>, block: &[u8]) -> bool {
        let stored = match above {
            Some((place, bytes)) => bytes.get(place.byte..).unwrap_or_default(),
            None => self.descriptor.root(),
        };
        self.salted.hash(block).is(self.algorithm, stored)
    }
}
