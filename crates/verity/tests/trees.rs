//! Trees of this crate verify every block, and no damage passes.

use std::cell::RefCell;
use std::convert::Infallible;

use extol_verity::{
    Algorithm, Builder, Descriptor, Failed, MAX_HASH, Params, Recent, Salt, Tree, Verifier,
    VerityError,
};
use proptest::prelude::*;

struct Built {
    data: Vec<u8>,
    tree: Vec<u8>,
    verifier: Verifier,
}

fn build(params: &Params, data: &[u8], step: usize) -> Built {
    let size = data.len() as u64;
    let mut builder = Builder::new(params, size).unwrap();
    let mut tree = vec![0xAA; usize::try_from(builder.tree().size()).unwrap()];
    let mut written = 0;
    let mut write = |at: u64, block: &[u8]| -> Result<(), VerityError> {
        let at = usize::try_from(at).unwrap();
        tree[at..at + block.len()].copy_from_slice(block);
        written += block.len();
        Ok(())
    };
    for part in data.chunks(step.max(1)) {
        builder.push(part, &mut write).unwrap();
    }
    let root = builder.finish(&mut write).unwrap();
    assert_eq!(written, tree.len(), "each block is written once");
    let descriptor = Descriptor::new(params.clone(), size, &root, Vec::new()).unwrap();
    Built { data: data.to_vec(), tree, verifier: Verifier::new(descriptor).unwrap() }
}

impl Built {
    fn len(&self) -> usize {
        self.verifier.descriptor().params().block_len()
    }

    fn verify(&self, index: u64, known: &RefCell<Recent>) -> Result<(), Failed<Infallible>> {
        let at = usize::try_from(index).unwrap() * self.len();
        let end = self.data.len().min(at + self.len());
        let mut block = self.data.get(at..end).unwrap_or_default().to_vec();
        block.resize(self.len(), 0);
        self.verifier.verify(index, &block, known, |at, bytes| {
            let at = usize::try_from(at).unwrap();
            bytes.copy_from_slice(&self.tree[at..at + bytes.len()]);
            Ok(())
        })
    }

    fn failures(&self, room: usize) -> Vec<u64> {
        let known = RefCell::new(Recent::new(room));
        let blocks = 0..self.verifier.tree().data_blocks();
        blocks.filter(|index| self.verify(*index, &known).is_err()).collect()
    }
}

fn params(algorithm: Algorithm, block_size: u32, salt: &[u8]) -> Params {
    Params::new(algorithm, block_size, Salt::new(salt).unwrap()).unwrap()
}

fn contents(len: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * i) >> 7) as u8).collect()
}

#[test]
fn every_flipped_bit_of_a_tree_is_found() {
    // 3 levels: 16 hashes to a block.
    let whole = build(&params(Algorithm::Sha512, 1024, b""), &contents(300 * 1024 + 5), 7000);
    assert_eq!(whole.verifier.tree().levels().len(), 3);
    assert_eq!(whole.failures(4), []);
    let leaves = whole.verifier.tree().levels()[0].start;
    for block in 0..whole.tree.len() / 1024 {
        let mut tree = whole.tree.clone();
        tree[block * 1024 + 77] ^= 4;
        let damaged = Built { tree, data: whole.data.clone(), verifier: whole.verifier.clone() };
        let found = damaged.failures(4);
        let below = (block as u64).checked_sub(leaves).map(|leaf| leaf * 16);
        match below {
            Some(first) => {
                let last = (first + 16).min(whole.verifier.tree().data_blocks());
                assert_eq!(found, (first..last).collect::<Vec<_>>(), "block {block}");
            }
            None => assert!(found.len() >= 16, "block {block}: {found:?}"),
        }
    }
}

#[test]
fn what_is_known_needs_no_reading() {
    let whole = build(&params(Algorithm::Sha256, 1024, b"pepper"), &contents(200_000), 1 << 20);
    let known = RefCell::new(Recent::new(64));
    let mut reads = 0;
    for index in 0..whole.verifier.tree().data_blocks() {
        let mut block = whole.data.chunks(1024).nth(index as usize).unwrap().to_vec();
        block.resize(1024, 0);
        let verified = whole.verifier.verify(index, &block, &known, |at, bytes| {
            reads += 1;
            let at = at as usize;
            bytes.copy_from_slice(&whole.tree[at..at + 1024]);
            Ok::<_, Infallible>(())
        });
        assert_eq!(verified, Ok(()));
    }
    assert_eq!(reads, whole.tree.len() / 1024, "each block of the tree once");
}

#[test]
fn a_tree_block_that_is_wrong_is_not_kept() {
    let mut damaged = build(&params(Algorithm::Sha256, 1024, b""), &contents(40_000), 1000);
    let known = RefCell::new(Recent::new(64));
    // The root block.
    damaged.tree[0] ^= 1;
    assert_eq!(damaged.verify(0, &known), Err(Failed::Tree(0)));
    damaged.tree[0] ^= 1;
    assert_eq!(damaged.verify(0, &known), Ok(()), "reads it anew");
}

#[test]
fn blocks_that_are_not_there_are_refused() {
    let known = RefCell::new(Recent::new(1));
    for len in [0, 1, 4096, 5000] {
        let built = build(&params(Algorithm::Sha256, 4096, b""), &contents(len), 999);
        let after = built.verifier.tree().data_blocks();
        for index in [after, after + 1, 1 << 40, u64::MAX] {
            let none = |_: u64, _: &mut [u8]| Ok::<_, Infallible>(());
            let result = built.verifier.verify(index, &[0; 4096], &known, none);
            assert_eq!(result, Err(Failed::Outside));
        }
    }
}

#[test]
fn contents_of_another_length_are_an_error() {
    let params = params(Algorithm::Sha256, 1024, b"");
    for (said, given) in [(0, 1), (5000, 4999), (5000, 5001), (1024, 0), (1024, 9000)] {
        let mut builder = Builder::new(&params, said).unwrap();
        let size = Tree::new(&params, said).unwrap().size();
        let mut write = |at: u64, block: &[u8]| {
            assert!(at + block.len() as u64 <= size, "outside of the tree");
            Ok::<_, VerityError>(())
        };
        builder.push(&contents(given), &mut write).unwrap();
        assert_eq!(builder.finish(&mut write), Err(VerityError::Size), "{said} {given}");
    }
}

#[test]
fn an_empty_file_has_a_root_hash_of_zeros() {
    let built = build(&params(Algorithm::Sha512, 4096, b"x"), &[], 1);
    assert_eq!(built.verifier.descriptor().root(), [0; MAX_HASH]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn one_changed_byte_of_data_fails_its_block_alone(
        sha512: bool,
        log in 10_u32..14,
        salt in proptest::collection::vec(any::<u8>(), 0..=32),
        len in 1_usize..150_000,
        step in 1_usize..9000,
        room in 1_usize..9,
        place: prop::sample::Index,
    ) {
        let algorithm = if sha512 { Algorithm::Sha512 } else { Algorithm::Sha256 };
        let mut built = build(&params(algorithm, 1 << log, &salt), &contents(len), step);
        prop_assert_eq!(built.failures(room), Vec::<u64>::new());
        let at = place.index(len);
        built.data[at] ^= 0x10;
        prop_assert_eq!(built.failures(room), vec![(at >> log) as u64]);
    }

    #[test]
    fn any_bytes_are_a_descriptor_or_an_error(
        bytes in proptest::collection::vec(any::<u8>(), 0..600),
        good: bool,
        size: u64,
    ) {
        let mut bytes = bytes;
        if good && bytes.len() >= 256 {
            let [a, b, c, d] = [bytes[0], bytes[1], bytes[2], bytes[3]];
            let begin = [1, 1 + a % 2, 10 + b % 7, c % 33, d, 0, 0, 0];
            bytes[..8].copy_from_slice(&begin);
            bytes[8..16].copy_from_slice(&size.to_le_bytes());
            bytes[112..256].fill(0);
        }
        if let Ok(descriptor) = Descriptor::parse(&bytes, size) {
            let again = descriptor.to_bytes();
            prop_assert_eq!(&again, &bytes[..again.len()]);
            if let Ok(verifier) = Verifier::new(descriptor) {
                let block = vec![0; verifier.descriptor().params().block_len()];
                let last = verifier.tree().data_blocks().saturating_sub(1);
                let known = RefCell::new(Recent::new(2));
                let zeros = |_: u64, _: &mut [u8]| Ok::<_, Infallible>(());
                prop_assert!(verifier.verify(last, &block, &known, zeros).is_err());
            }
        }
    }
}
