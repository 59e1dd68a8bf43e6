use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{BLOCK_LEN, Block, Blocks, Entry, InMemory, Kind, LEAST_BLOCKS, QuotaFile, Version};
use crate::error::{OnDiskError, Result};

fn empty(version: Version) -> QuotaFile<InMemory> {
    QuotaFile::create(InMemory::default(), Kind::User, version).expect("created")
}

fn reopen(file: QuotaFile<InMemory>) -> QuotaFile<InMemory> {
    QuotaFile::open(file.into_blocks(), Kind::User).expect("opens")
}

fn using(id: u32, space: u64, inodes: u64) -> Entry {
    Entry { space, inodes, ..Entry::new(id) }
}

#[test]
fn an_entry_of_either_version_has_linuxs_bytes() {
    let entry = Entry {
        id: 0x0102_0304,
        space: 0x0A_0000_0001,
        inodes: 2,
        space_hard: 3,
        space_soft: 4,
        inode_hard: 5,
        inode_soft: 6,
        space_time: 0x0B_0000_0007,
        inode_time: 8,
    };
    let mut old = [0xFF; 48];
    entry.encode_into(&mut old, Version::V0);
    assert_eq!(old[..8], [4, 3, 2, 1, 5, 0, 0, 0]);
    assert_eq!((old[8], old[12], old[16], old[20]), (6, 2, 3, 4));
    assert_eq!((old[24], old[28], old[32], old[36], old[40]), (1, 10, 7, 11, 8));
    let mut new = [0xFF; 72];
    entry.encode_into(&mut new, Version::V1);
    assert_eq!(new[..9], [4, 3, 2, 1, 0, 0, 0, 0, 5]);
    assert_eq!((new[16], new[24], new[32], new[40]), (6, 2, 3, 4));
    assert_eq!((new[48], new[52], new[56], new[60], new[64]), (1, 10, 7, 11, 8));
    assert_eq!(Entry::decode(&old, Version::V0), Some(entry));
    assert_eq!(Entry::decode(&new, Version::V1), Some(entry));
}

#[test]
fn id_0_is_stored_even_if_it_uses_nothing() {
    for version in [Version::V0, Version::V1] {
        let mut file = empty(version);
        assert_eq!(file.get(0), Ok(None));
        let place = file.set(&Entry::new(0)).expect("set");
        assert_eq!(file.get(0), Ok(Some(Entry::new(0))));
        assert_eq!(file.get_at(place, 0), Ok(Entry::new(0)));
        file.verify().expect("whole");
        assert_eq!(file.remove(0), Ok(true));
        assert_eq!((file.get(0), file.remove(0)), (Ok(None), Ok(false)));
    }
}

#[test]
fn numbers_that_a_version_cannot_store_are_refused() {
    let large = Entry { space_soft: 1 << 32, ..Entry::new(7) };
    assert!(empty(Version::V0).set(&large).is_err());
    assert!(empty(Version::V1).set(&large).is_ok());
    let mut file = empty(Version::V1);
    let place = file.set(&using(7, 1, 1)).expect("set");
    assert!(file.set_at(place, &using(7, u64::MAX, 1)).is_err());
    assert!(file.set_at(place, &using(8, 1, 1)).is_err(), "the place is another id's");
    assert_eq!(file.get(7), Ok(Some(using(7, 1, 1))));
}

#[test]
fn an_empty_file_is_one_again_after_all_ids_have_gone() {
    for version in [Version::V0, Version::V1] {
        let mut file = empty(version);
        let ids = || (0..3000u32).map(|n| n.wrapping_mul(0x9E37_79B1));
        for id in ids() {
            file.set(&using(id, id.into(), 1)).expect("set");
        }
        file.verify().expect("whole");
        let blocks = file.info().blocks;
        for id in ids() {
            assert_eq!(file.remove(id), Ok(true));
        }
        let mut file = reopen(file);
        file.verify().expect("whole");
        assert_eq!(file.entries(), Ok(vec![]));
        assert_eq!((file.info().free_entry, file.info().blocks), (0, blocks));
        // What was freed is used again: the file does not become longer.
        ids().for_each(|id| assert!(file.set(&using(id, 1, 1)).is_ok()));
        assert_eq!(file.info().blocks, blocks);
    }
}

#[test]
fn grace_times_stay() {
    let mut file = empty(Version::V1);
    file.set_grace(60, 120).expect("set");
    let file = reopen(file);
    assert_eq!((file.info().space_grace, file.info().inode_grace), (60, 120));
}

#[test]
fn a_file_of_another_kind_or_with_a_wrong_block_0_is_refused() {
    let bytes = empty(Version::V1).into_blocks().0;
    let open = |bytes: &[u8], kind| QuotaFile::open(InMemory(bytes.to_vec()), kind);
    assert!(open(&bytes, Kind::User).is_ok());
    assert!(open(&bytes, Kind::Group).is_err());
    assert!(open(&bytes[..2047], Kind::User).is_err());
    // Magic, version, blocks (too few, too many), free block, free entry.
    for (at, value) in [(0, 0), (4, 2), (20, 1), (20, 3), (24, 1), (24, 2), (28, 1), (28, 9)] {
        let mut bad = bytes.clone();
        bad[at] = value;
        assert!(open(&bad, Kind::User).is_err(), "{value} at {at}");
    }
}

/// Blocks of which no more may be written from some time on.
struct Full {
    inner: InMemory,
    most: u32,
}

impl Blocks for Full {
    type Error = OnDiskError;

    fn count(&mut self) -> Result<u32> {
        self.inner.count()
    }

    fn read(&mut self, nr: u32) -> Result<Block> {
        self.inner.read(nr)
    }

    fn write(&mut self, nr: u32, block: &Block) -> Result<()> {
        assert!(nr <= self.inner.count()?, "block {nr} is behind the one behind the end");
        if nr >= self.most {
            return Err(OnDiskError::bad("no space"));
        }
        self.inner.write(nr, block)
    }
}

#[test]
fn a_file_grows_by_the_next_block_only() {
    let full = Full { inner: InMemory::default(), most: LEAST_BLOCKS + 4 };
    let mut file = QuotaFile::create(full, Kind::Project, Version::V1).expect("created");
    for id in 0..14 {
        file.set(&using(id, 1, 1)).expect("one block of data has room");
    }
    assert!(file.set(&using(14, 1, 1)).is_err());
}

/// What a test does to a file.
#[derive(Clone, Debug)]
enum Step {
    Set(u32, u64),
    Remove(u32),
    Reopen,
}

fn id() -> impl Strategy<Value = u32> {
    prop_oneof![0..40u32, (0..40u32).prop_map(|n| n << 24 | n << 8), any::<u32>()]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (id(), 0..1u64 << 40).prop_map(|(id, space)| Step::Set(id, space)),
        4 => id().prop_map(Step::Remove),
        1 => Just(Step::Reopen),
    ]
}

proptest! {
    #[test]
    fn a_file_holds_what_a_map_holds(
        steps in prop::collection::vec(step(), 0..400),
        new in any::<bool>(),
    ) {
        let mut file = empty(if new { Version::V1 } else { Version::V0 });
        let mut map = BTreeMap::new();
        for step in steps {
            match step {
                Step::Set(id, space) => {
                    let entry = using(id, space, 3);
                    file.set(&entry).expect("set");
                    map.insert(id, entry);
                }
                Step::Remove(id) => {
                    prop_assert_eq!(file.remove(id), Ok(map.remove(&id).is_some()));
                }
                Step::Reopen => file = reopen(file),
            }
        }
        file.verify().expect("whole");
        prop_assert_eq!(file.entries(), Ok(map.values().copied().collect()));
        for (place, entry) in file.places().expect("places") {
            prop_assert_eq!(file.get_at(place, entry.id), Ok(entry));
        }
        for (&id, entry) in &map {
            prop_assert_eq!(file.get(id), Ok(Some(*entry)));
        }
        prop_assert_eq!(file.into_blocks().0.len() % BLOCK_LEN, 0);
    }

    #[test]
    fn a_damaged_file_gives_errors_and_failed_changes_leave_no_trace(
        ids in prop::collection::vec(id(), 1..60),
        damage in prop::collection::vec((0..20_000usize, 0..12u8), 1..12),
        more in prop::collection::vec(step(), 1..40),
    ) {
        let mut file = empty(Version::V1);
        ids.iter().for_each(|&id| assert!(file.set(&using(id, 5, 1)).is_ok()));
        let mut bytes = file.into_blocks().0;
        for (at, value) in damage {
            let len = bytes.len();
            bytes[8 + at * 4 % (len - 8)] = value;
        }
        let Ok(mut file) = QuotaFile::open(InMemory(bytes), Kind::User) else { return Ok(()) };
        let _ = (file.verify(), file.entries());
        for step in more {
            let before = file.blocks.clone();
            let failed = match step {
                Step::Set(id, space) => file.set(&using(id, space, 1)).is_err(),
                Step::Remove(id) => file.remove(id).is_err(),
                Step::Reopen => file.get(ids[0]).is_err(),
            };
            prop_assert!(!failed || file.blocks == before);
        }
    }
}
