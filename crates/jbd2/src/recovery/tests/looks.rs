//! What `inspect` says about a log.

use super::*;
use crate::inspect::{BlockReport, Outcome, State, inspect};

/// Kind and state of each control block, in log order.
fn kinds(rig: &Rig) -> Vec<(u32, char, Option<State>, Outcome)> {
    let report = inspect(&rig.device, &rig.map, FS_BLOCKS).unwrap();
    let mut all: Vec<_> = report
        .blocks
        .iter()
        .filter_map(|block| match block {
            BlockReport::Descriptor { block, state, checksum, .. } => {
                Some((*block, 'D', Some(*state), *checksum))
            }
            BlockReport::Revoke { block, state, checksum, .. } => {
                Some((*block, 'R', Some(*state), *checksum))
            }
            BlockReport::Commit { block, state, checksum, .. } => {
                Some((*block, 'C', Some(*state), *checksum))
            }
            BlockReport::Other { block, .. } => Some((*block, 'O', None, Outcome::None)),
            _ => None,
        })
        .collect();
    all.sort_by_key(|(block, ..)| *block);
    all
}

#[test]
fn live_incomplete_and_stale() {
    for (compat, incompat) in variants() {
        let mut rig = Rig::new(compat, incompat, 1024);
        // An older life: two transactions from block 1 on.
        rig.start(1, 5);
        for time in 1..=2 {
            let tx = rig.tx(time, &[10, 11, 12]);
            rig.commit(&tx);
        }
        // This life: one transaction, one interrupted, over the first old one and the descriptor of
        // the second.
        rig.start(1, 20);
        let mut tx = rig.tx(3, &[10]);
        tx.revokes = vec![11];
        rig.commit(&tx);
        let tx = rig.tx(4, &[10]);
        rig.body(&tx);
        let strong = rig.format.features.has_csum_v2_or_v3();
        let control = if strong { Outcome::Good } else { Outcome::None };
        let commit = if strong || compat == 1 { Outcome::Good } else { Outcome::None };
        let old_commit = if compat == 1 { Outcome::Bad } else { commit };
        assert_eq!(
            kinds(&rig),
            [
                (1, 'R', Some(State::Live), control),
                (2, 'D', Some(State::Live), control),
                (4, 'C', Some(State::Live), commit),
                (5, 'D', Some(State::Incomplete), control),
                (10, 'C', Some(State::Stale), old_commit),
            ]
        );
        let report = inspect(&rig.device, &rig.map, FS_BLOCKS).unwrap();
        assert_eq!((report.recovery.first_tid, report.recovery.end_tid), (20, 21));
        assert_eq!((report.recovery.blocks, report.recovery.revoke_records), (1, 1));
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["blocks"][0]["kind"], "revoke");
        assert_eq!(json["blocks"][1]["tags"][0]["home"], 10);
    }
}

#[test]
fn an_empty_log_has_only_leftovers() {
    let mut rig = Rig::new(0, 0x12, 1024);
    rig.start(1, 5);
    let tx = rig.tx(1, &[10, 11]);
    rig.commit(&tx);
    rig.sb.mark_empty(Tid(7));
    rig.write_superblock();
    let states: Vec<_> = kinds(&rig).into_iter().map(|(_, _, state, _)| state).collect();
    assert_eq!(states, [Some(State::Stale); 2]);
    let report = inspect(&rig.device, &rig.map, FS_BLOCKS).unwrap();
    assert!(!report.recovery.needed && report.recovery.refused.is_none());
}

#[test]
fn says_why_it_would_be_refused() {
    let mut rig = Rig::new(0, 0x12, 1024);
    rig.start(LOG_LEN - 3, 5);
    for time in 1..=2 {
        let tx = rig.tx(time, &[10, 11]);
        rig.commit(&tx);
    }
    rig.flip(rig.places[0][1].0, 5);
    let report = inspect(&rig.device, &rig.map, FS_BLOCKS).unwrap();
    let refused = report.recovery.refused.unwrap();
    assert_eq!(refused, rig.recover().unwrap_err().to_string());
    let bad = |block: &BlockReport| match block {
        BlockReport::Descriptor { tags, .. } => {
            tags.iter().filter(|t| t.checksum == Outcome::Bad).count()
        }
        _ => 0,
    };
    assert_eq!(report.blocks.iter().map(bad).sum::<usize>(), 1);
    // The blocks are all live, also those behind the end of the log.
    assert!(kinds(&rig).iter().all(|(_, _, state, _)| *state == Some(State::Live)));

    rig.sb.features.incompat |= 0x80;
    rig.write_superblock();
    let report = inspect(&rig.device, &rig.map, FS_BLOCKS).unwrap();
    assert!(
        report.blocks.is_empty() && report.recovery.refused.unwrap().contains("unknown features")
    );
    rig.device.write_at(&[0; 16], rig.map.superblock_offset().unwrap()).unwrap();
    assert!(inspect(&rig.device, &rig.map, FS_BLOCKS).is_err());
}

#[test]
fn any_bytes_can_be_looked_at() {
    let mut x = 7u64;
    for (compat, incompat) in variants() {
        let mut rig = Rig::new(compat, incompat | 0x20, 1024);
        rig.start(3, 5);
        rig.places.push(Vec::new());
        for _ in 0..LOG_LEN {
            let mut block: Vec<u8> = (0..1024)
                .map(|_| {
                    x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    (x >> 58) as u8
                })
                .collect();
            let kind = match x % 5 {
                0 => crate::format::BlockKind::Descriptor,
                1 => crate::format::BlockKind::Revoke,
                2 => crate::format::BlockKind::Commit,
                3 => crate::format::BlockKind::SuperblockV1,
                _ => crate::format::BlockKind::Unknown(9),
            };
            if !x.is_multiple_of(3) {
                crate::format::Header { kind, tid: Tid(5 + (x >> 60) as u32 % 3) }
                    .encode_into(&mut block);
            }
            rig.put(&block, "noise");
        }
        let report = inspect(&rig.device, &rig.map, FS_BLOCKS).unwrap();
        assert!(report.blocks.len() > 100);
        match rig.recover() {
            Ok((recovered, _)) => {
                assert_eq!(report.recovery.transactions, recovered.replayed_transactions)
            }
            Err(error) => assert_eq!(report.recovery.refused, Some(error.to_string())),
        }
    }
}
