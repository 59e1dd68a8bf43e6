//! Where fast commits end: full commits, the area, freezes, and the log's own end.

use super::*;

fn failed(rig: &Rig) -> (u64, u64, u64) {
    let stats = rig.stats();
    (stats.commits, stats.ineligible, stats.failed)
}

/// What cannot be said in records is committed in full, and the next transaction begins anew.
#[test]
fn the_source_says_no() {
    let rig = Rig::live(PLAIN);
    rig.fsync(12, records(1));
    let tid = rig.change(6);
    let at = rig.log.position();
    rig.fsync(12, Collected::Full(1));
    assert_eq!(rig.journal.committed(), tid);
    assert_eq!(rig.story(at), "log flush log! zero0!", "and the fast commit is void");
    let at = rig.log.position();
    rig.fsync(12, records(1));
    assert_eq!(rig.story(at), "fc0-1!");
    assert_eq!(failed(&rig), (2, 1, 0));
    assert_eq!(rig.stats().cleared, 2, "when the log became live, and now");
    assert_eq!(rig.stats().heads, 2);
    let reasons = rig.stats().reasons;
    assert!(reasons.iter().all(|(name, count)| *count == u64::from(name == "second")));
    assert_eq!(*rig.source.closed.lock(), [tid.previous(), tid]);
}

/// No fast commit, nothing to clear.
#[test]
fn a_full_commit_alone_clears_nothing() {
    let rig = Rig::live(PLAIN);
    let at = rig.log.position();
    rig.change(6);
    rig.journal.commit_all().unwrap();
    assert_eq!(rig.story(at), "log flush log!");
}

/// All but two blocks of the area belong to one transaction; then it is committed in full, and so
/// is what needs more.
#[test]
fn the_area_is_full() {
    let rig = Rig::live(PLAIN);
    let limit = FC_BLOCKS as usize - 2;
    assert_eq!(rig.stats().area_blocks as usize, limit);
    rig.fsync(12, records(limit));
    assert_eq!(failed(&rig), (0, 0, 1), "does not fit behind an empty one");
    rig.fsync(12, records(limit - 2));
    rig.fsync(12, records(1));
    let tid = rig.journal.newest();
    assert_eq!(failed(&rig), (2, 0, 1));
    rig.fsync(12, records(1));
    assert_eq!(failed(&rig), (2, 0, 2));
    assert_eq!(rig.journal.committed(), tid);
    rig.fsync(12, records(limit - 1));
    assert_eq!(failed(&rig), (3, 0, 2));
    let end = rig.area().end - BS;
    let behind = |e: &Event| match e {
        Event::Write { offset, data, .. } => offset + data.len() as u64 > end,
        _ => false,
    };
    assert!(!rig.log.log().iter().any(behind), "the last block is never used");
    let too_large = FcRecord::Inode { ino: 12, image: vec![0; 1024].into() };
    rig.fsync(12, said(&[too_large]));
    assert_eq!(failed(&rig), (3, 0, 3));
}

/// The log must be live on the medium, with the bit: the first commit of a mount and of a thaw is a
/// full one, behind a cleared area. An empty log has no bit.
#[test]
fn the_log_is_live_first() {
    let rig = Rig::new(PLAIN);
    // What a former life of the log left.
    rig.log.write_at(&[9; 512], rig.area().start).unwrap();
    for round in 1..=3 {
        let at = rig.log.position();
        rig.fsync(12, records(1));
        assert_eq!(failed(&rig).2, round);
        let clear = if round == 1 { "zero0! " } else { "" };
        assert_eq!(
            rig.story(at),
            format!("{clear}sb log flush log!"),
            "once it is known to be clear it stays so"
        );
        let sb = rig.durable_superblock();
        assert!(sb.start != 0 && sb.features.has_fast_commit());
        rig.source.answers.lock().clear();
        let at = rig.log.position();
        rig.fsync(12, records(1));
        assert_eq!(rig.story(at), "fc0-1!");
        rig.journal.freeze().unwrap();
        let sb = rig.durable_superblock();
        assert!(sb.start == 0 && !sb.features.has_fast_commit());
        if round == 1 {
            rig.journal.thaw();
        } else {
            rig.journal.rest();
            rig.journal.resume();
        }
    }
}

/// The area may be erased with the log, and it is not known what it reads as then.
#[test]
fn an_erased_area_is_cleared() {
    let rig = Rig::live(PLAIN);
    rig.journal.checkpoint_all(&[crate::Erase::Zero]).unwrap();
    let at = rig.log.position();
    rig.change(6);
    rig.journal.commit_all().unwrap();
    assert_eq!(rig.story(at), "zero0! sb log flush log!");
}

/// Turned off, everything is committed in full; turned on, only from the next transaction on, of
/// which everything was noted.
#[test]
fn off_and_on() {
    let rig = Rig::live(PLAIN);
    rig.fsync(12, records(1));
    rig.journal.set_fast_commits(false).unwrap();
    assert!(!rig.stats().enabled);
    let noted = rig.source.applied.lock().len();
    rig.change(5);
    assert_eq!(rig.source.applied.lock().len(), noted);
    rig.journal.set_fast_commits(true).unwrap();
    rig.journal.set_fast_commits(true).unwrap();
    let tid = rig.journal.newest();
    rig.fsync(12, records(1));
    assert_eq!(rig.journal.committed(), tid, "of this one the source does not know all");
    rig.source.answers.lock().clear();
    rig.fsync(12, records(1));
    assert_eq!(failed(&rig), (2, 0, 0));
    assert!(rig.source.closed.lock().contains(&tid), "it forgets what it was told before");
}

#[test]
fn no_area_no_fast_commits() {
    let rig = crate::test_rig::rig();
    let source = Arc::new(Answers::default());
    rig.journal.set_fast_source(source.clone());
    assert!(rig.journal.set_fast_commits(true).is_err());
    let tid = rig.fill([5], 1);
    rig.journal.make_durable_for(tid, ask(12)).unwrap();
    assert_eq!(rig.journal.committed(), tid);
    assert!(source.asked.lock().is_empty());
    let stats = rig.journal.stats().fast_commit;
    assert_eq!((stats.enabled, stats.failed, stats.area_blocks), (false, 0, 0));
}

/// A write that fails aborts; no request is told that anything is durable.
#[test]
fn a_failed_write_aborts() {
    let rig = Rig::live(PLAIN);
    rig.fsync(12, records(1));
    let tid = rig.change(5);
    rig.source.then(records(1));
    rig.journal.abort("planned");
    assert!(rig.journal.make_durable_for(tid, ask(12)).is_err());
    assert_eq!(rig.stats().commits, 1);
}

/// With an area behind it the log begins anew when nothing in it is needed, and never goes on
/// behind its end; what fast commits count on stays what it is.
#[test]
fn the_log_does_not_wrap() {
    let rig = Rig::live(PLAIN);
    rig.journal.work_in_callers();
    let max = u64::from(rig.journal.max_credits());
    let mut last_head = 0;
    let mut rewinds = 0;
    for round in 0..40 {
        let mut h = rig.journal.start(max as u32).unwrap();
        for nr in 10..10 + max {
            let buf = h.create(BlockNr(nr)).unwrap();
            h.modify(&buf, |b| b.fill(round)).unwrap();
        }
        let tid = h.tid();
        h.stop().unwrap();
        rig.source.then(records(1));
        rig.journal.make_durable_for(tid, ask(12)).unwrap();
        if round % 3 == 0 {
            rig.journal.commit_all().unwrap();
        }
        let stats = rig.journal.stats();
        if stats.log_head < last_head {
            rewinds += 1;
            assert_eq!(stats.log_tail, 1);
        }
        last_head = stats.log_head;
        assert_eq!(stats.log_free, stats.log_blocks - (stats.log_head - 1));
        assert_eq!(rig.durable_superblock().start, 1);
    }
    assert!(rewinds > 2, "{rewinds}");
    assert_eq!(rig.journal.stats().overdrafts, 0);
}

/// A commit that overdrew makes the log begin anew itself.
#[test]
fn an_overdrawn_commit_begins_anew() {
    let rig = Rig::live(PLAIN);
    while rig.journal.stats().log_free > 330 {
        for nr in 10..50 {
            rig.change(nr);
        }
        rig.journal.commit_all().unwrap();
    }
    let mut h = rig.journal.start(1).unwrap();
    for nr in 100..500 {
        h.create(BlockNr(nr)).unwrap();
    }
    h.stop().unwrap();
    rig.journal.commit_all().unwrap();
    let stats = rig.journal.stats();
    assert_eq!((stats.log_tail, stats.aborted), (1, None));
    assert!(stats.log_head > 400);
    // What was committed there is the oldest transaction in the log.
    rig.journal.checkpoint_step().unwrap();
    rig.change(5);
    rig.journal.commit_all().unwrap();
    let image = rig.log.image_at(rig.log.position(), |_| false);
    let mut sb = read_superblock(&image, &rig.map).unwrap();
    let found =
        crate::recovery::recover_to_device(&image, &image, &rig.map, &mut sb, BLOCKS).unwrap();
    assert_eq!(found.end_tid, rig.journal.committed().next());
}
