use super::*;

fn witness(block: u64) -> Witness {
    Witness::of(BlockNr(block), &[block as u8; 100])
}

#[test]
fn bytes() {
    let one = Witness { block: BlockNr(0x1122_3344_5566), len: 512, sum: 0xAABB_CCDD };
    let value = Witness::encode(&[one]);
    let expected = *b"\xefdata-w1\x66\x55\x44\x33\x22\x11\0\0\0\x02\0\0\xdd\xcc\xbb\xaa";
    assert_eq!(value, expected);
    assert_eq!(Witness::decode(&value).collect::<Vec<_>>(), [one]);
    assert_eq!(Witness::decode(&value[..23]).count(), 0, "cut off");
    assert_eq!(Witness::decode(&[0; 200]).count(), 0, "a PAD that fills a block");
    assert_eq!(Witness::decode(&[]).count(), 0);
    assert_eq!(
        (Witness::fit(8), Witness::fit(23), Witness::fit(24), Witness::fit(55)),
        (0, 0, 1, 2)
    );
}

#[test]
fn agreement() {
    let it = Witness::of(BlockNr(7), b"abc");
    assert!(it.agrees(b"abc") && it.agrees(b"abcdef"), "what is behind does not count");
    assert!(!it.agrees(b"ab") && !it.agrees(b"abd") && !it.agrees(&[0; 10]));
    assert!(Witness::of(BlockNr(7), b"").agrees(b""));
    assert!(!Witness::of(BlockNr(7), b"\0").agrees(b""), "shorter zeros have another sum");
}

#[test]
fn a_flush_makes_fresh_ones_forgotten() {
    let all = Witnesses::default();
    assert!(all.add(&[witness(1)], 1) && all.add(&[witness(2)], 2));
    all.flushed(1);
    assert_eq!(all.take_off(Tid(5), std::iter::empty()), [witness(2)]);
    all.flushed(9);
    let other = |_: &Witness| false;
    assert_eq!(all.disturbed(BlockNr(1), 1, other), Disturbed::default());
    assert_eq!(
        all.disturbed(BlockNr(0), 9, other).sent,
        Some(Tid(5)),
        "not those in a fast commit"
    );
    assert_eq!(all.disturbed(BlockNr(3), 9, other).sent, None);
    assert_eq!(all.disturbed(BlockNr(2), 1, |w| *w == witness(2)).sent, None, "the same bytes");
}

#[test]
fn the_last_ones_count_until_the_next_fast_commit_or_a_full_one() {
    let all = Witnesses::default();
    let met = |block| all.disturbed(BlockNr(block), 1, |_| false).sent.is_some();
    assert!(all.add(&[witness(1)], 1));
    all.take_off(Tid(5), std::iter::empty());
    all.landed();
    assert!(all.add(&[witness(2)], 2));
    all.take_off(Tid(5), std::iter::empty());
    assert!(met(1) && met(2), "which of them is the last is not known");
    all.landed();
    assert!(!met(1) && met(2));
    all.forget(Tid(4));
    assert!(met(2), "an older transaction");
    all.forget(Tid(5));
    assert!(!met(2));
    // One without witnesses.
    assert!(all.add(&[witness(3)], 3));
    all.take_off(Tid(6), std::iter::empty());
    all.landed();
    assert_eq!(all.take_off(Tid(6), std::iter::empty()), []);
    all.landed();
    assert!(!met(3));
}

#[test]
fn a_fresh_one_is_dropped_by_other_bytes() {
    let all = Witnesses::default();
    assert!(all.add(&[witness(1), witness(2)], 1));
    let found = all.disturbed(BlockNr(1), 2, |w| w.block.0 == 2);
    assert_eq!(found, Disturbed { fresh: true, sent: None });
    assert_eq!(all.take_off(Tid(5), std::iter::empty()), [witness(2)]);
}

#[test]
fn there_is_an_end() {
    let all = Witnesses::default();
    let many: Vec<Witness> = (0..MOST as u64).map(witness).collect();
    assert!(all.add(&many, 1));
    assert!(!all.add(&[witness(5000)], 2));
    all.take_off(Tid(1), std::iter::empty());
    assert!(all.add(&many, 3));
}
