use super::*;

fn checksum(block: u64) -> DataChecksum {
    DataChecksum::of(BlockNr(block), &[block as u8; 100])
}

#[test]
fn a_flush_makes_unflushed_ones_forgotten() {
    let all = DataChecksums::default();
    assert!(all.add(&[checksum(1)], 1) && all.add(&[checksum(2)], 2));
    all.flushed(1);
    assert_eq!(all.begin(Tid(5), std::iter::empty()), [checksum(2)]);
    all.flushed(9);
    let other = |_: &DataChecksum| false;
    assert_eq!(all.overwritten(BlockNr(1), 1, other), Overwritten::default());
    assert_eq!(
        all.overwritten(BlockNr(0), 9, other).sent,
        Some(Tid(5)),
        "not those in a fast commit"
    );
    assert_eq!(all.overwritten(BlockNr(3), 9, other).sent, None);
    assert_eq!(all.overwritten(BlockNr(2), 1, |w| *w == checksum(2)).sent, None, "the same bytes");
}

#[test]
fn the_last_ones_count_until_the_next_fast_commit_or_a_full_one() {
    let all = DataChecksums::default();
    let met = |block| all.overwritten(BlockNr(block), 1, |_| false).sent.is_some();
    assert!(all.add(&[checksum(1)], 1));
    all.begin(Tid(5), std::iter::empty());
    all.ended();
    assert!(all.add(&[checksum(2)], 2));
    all.begin(Tid(5), std::iter::empty());
    assert!(met(1) && met(2), "which of them is the last is not known");
    all.ended();
    assert!(!met(1) && met(2));
    all.forget(Tid(4));
    assert!(met(2), "an older transaction");
    all.forget(Tid(5));
    assert!(!met(2));
    // One without checksums.
    assert!(all.add(&[checksum(3)], 3));
    all.begin(Tid(6), std::iter::empty());
    all.ended();
    assert_eq!(all.begin(Tid(6), std::iter::empty()), []);
    all.ended();
    assert!(!met(3));
}

#[test]
fn a_unflushed_one_is_dropped_by_other_bytes() {
    let all = DataChecksums::default();
    assert!(all.add(&[checksum(1), checksum(2)], 1));
    let found = all.overwritten(BlockNr(1), 2, |w| w.block.0 == 2);
    assert_eq!(found, Overwritten { unflushed: true, sent: None });
    assert_eq!(all.begin(Tid(5), std::iter::empty()), [checksum(2)]);
}

#[test]
fn there_is_an_end() {
    let all = DataChecksums::default();
    let many: Vec<DataChecksum> = (0..MOST_DATA_CHECKSUMS as u64).map(checksum).collect();
    assert!(all.add(&many, 1));
    assert!(!all.add(&[checksum(5000)], 2));
    all.begin(Tid(1), std::iter::empty());
    assert!(all.add(&many, 3));
}
