//! Which writes and flushes a fast commit is, in which order.

use extol_ondisk::fast_commit::{FcReader, FcTag};

use super::*;

/// One block: one write that is durable at once, behind a flush only if file data was written.
#[test]
fn a_small_one_is_one_write() {
    let rig = Rig::live(PLAIN);
    let at = rig.log.position();
    rig.fsync(12, records(1));
    assert_eq!(rig.story(at), "fc0-1!");
    let at = rig.log.position();
    rig.write_data();
    rig.fsync(12, records(1));
    assert_eq!(rig.story(at), "data flush fc2!");
    let at = rig.log.position();
    rig.fsync(12, records(1));
    assert_eq!(rig.story(at), "fc3!", "the data is durable already");
    let stats = rig.stats();
    assert_eq!((stats.commits, stats.heads, stats.blocks, stats.requests), (3, 1, 4, 3));
    assert_eq!(stats.bytes, 3 * (908 + 12) + 12 + 12);
    assert_eq!(rig.journal.stats().transactions, 1);
}

/// Blocks that e2fsck writes from memory go home first, once, and are durable there.
#[test]
fn patched_blocks_go_home_first() {
    let rig = Rig::live(PLAIN);
    rig.journal.set_patched_blocks(vec![BlockNr(0)..BlockNr(1), BlockNr(20)..BlockNr(30)]);
    let at = rig.log.position();
    rig.fsync(12, records(1));
    assert_eq!(rig.story(at), "fc0-1!", "the log does not hold it");
    let commit = |blocks: &[u64]| {
        for block in blocks {
            rig.change(*block);
        }
        let at = rig.log.position();
        rig.journal.commit_all().unwrap();
        rig.story(at)
    };
    assert_eq!(commit(&[0, 29, 30]), "log flush log! data data zero0 flush", "with the clearing");
    let at = rig.log.position();
    rig.fsync(12, records(1));
    rig.fsync(12, records(1));
    assert_eq!(rig.story(at), "fc0-1! fc2!", "they are home");
    assert_eq!(commit(&[6]), "log flush log! zero0!");
    assert_eq!(commit(&[0, 29, 30]), "log flush log!", "no request for fast commits");
    let at = rig.log.position();
    rig.fsync(12, records(1));
    rig.fsync(12, records(1));
    assert_eq!(rig.story(at), "data data flush fc0-1! fc2!", "now there is one");
}

/// The first of a transaction is behind an empty one, for readers begin with that, and both are one
/// write, as is a later one.
#[test]
fn several_blocks() {
    let rig = Rig::live(PLAIN);
    let at = rig.log.position();
    rig.fsync(12, records(2));
    assert_eq!(rig.story(at), "fc0-2!");
    let at = rig.log.position();
    rig.write_data();
    rig.fsync(12, records(2));
    assert_eq!(rig.story(at), "data flush fc3-4!", "the flush is for the data");
    let at = rig.log.position();
    rig.fsync(12, records(1));
    assert_eq!(rig.story(at), "fc5!");
    let image = rig.log.image_at(rig.log.position(), |_| false);
    let mut reader = FcReader::new();
    let (mut tails, mut block) = (0, vec![0; BS as usize]);
    for n in 0..6 {
        image.read_at(&mut block, rig.area().start + n * BS).unwrap();
        let read = reader.block(&block, |_, tag| {
            if let FcTag::Tail { stated, actual, .. } = tag {
                assert_eq!(stated, actual);
                tails += 1;
            }
            true
        });
        assert_eq!(read, Ok(()));
    }
    assert_eq!(tails, 4);
}

#[test]
fn an_external_journal() {
    let rig = Rig::live(Shape { external: true, ..PLAIN });
    let (fs, log) = (rig.fs.position(), rig.log.position());
    rig.fsync(12, records(2));
    assert_eq!((rig.fs.position(), &rig.story(log)[..]), (fs, "fc0-2!"));
    let log = rig.log.position();
    rig.write_data();
    rig.fsync(12, records(1));
    assert_eq!(rig.story(log), "fc3!");
    assert_eq!(rig.fs.log().last(), Some(&Event::Flush), "its data");
    assert_eq!(rig.fs.position(), fs + 2);
}

#[test]
fn without_barriers() {
    let rig = Rig::live(Shape { barrier: false, ..PLAIN });
    let at = rig.log.position();
    rig.write_data();
    rig.fsync(12, records(2));
    rig.fsync(12, records(1));
    assert_eq!(rig.story(at), "data fc0-2 fc3");
}

/// Only file data changed: it is flushed, and that is all.
#[test]
fn nothing_to_say() {
    let rig = Rig::live(PLAIN);
    let at = rig.log.position();
    rig.write_data();
    rig.fsync(12, Collected::Nothing);
    rig.fsync(12, Collected::Nothing);
    assert_eq!(rig.story(at), "data flush");
    assert_eq!((rig.stats().skipped, rig.stats().commits), (2, 0));
}

/// After a request was served, what others wrote meanwhile is not its affair.
#[test]
fn data_of_others_is_not_flushed() {
    let rig = Rig::live(PLAIN);
    let tid = rig.change(5);
    let fs = Arc::clone(&rig.fs);
    let journal = Arc::clone(&rig.journal);
    // While the transaction commits, another thread writes data.
    let mut h = rig.journal.start(1).unwrap();
    h.on_commit(move |_| {
        fs.write_at(&[8; 512], 101 * BS).unwrap();
        journal.note_data_write();
    });
    h.stop().unwrap();
    let at = rig.log.position();
    rig.journal.make_durable(tid).unwrap();
    assert_eq!(rig.story(at).matches("flush").count(), 1);
    // A request that comes after the write does flush it.
    rig.journal.make_durable(tid).unwrap();
    assert_eq!(rig.story(at).matches("flush").count(), 2);
}

/// Where durable writes are a write and a flush, the flush counts for the data that was there
/// before it, and for no other.
#[test]
fn the_flush_of_a_durable_write_counts() {
    let rig = Rig::live(Shape { fua: false, ..PLAIN });
    let at = rig.log.position();
    rig.write_data();
    rig.fsync(12, records(1));
    assert_eq!(rig.story(at), "data flush fc0-1 flush");
    // While the source collects, another thread writes data: behind the flush for ours, before that
    // of the fast commit.
    for (late, story) in [(false, "fc3 flush"), (true, "flush fc3 flush")] {
        let rig = Rig::live(Shape { fua: false, ..PLAIN });
        let other = || -> Hook {
            let (fs, journal) = (Arc::clone(&rig.fs), Arc::clone(&rig.journal));
            Box::new(move || {
                fs.write_at(&[8; 512], 101 * BS).unwrap();
                journal.note_data_write();
            })
        };
        rig.fsync(12, records(1));
        let at = rig.log.position();
        rig.write_data();
        let (beside, second) = (Arc::clone(&rig.beside), other());
        let hook: Hook =
            if late { Box::new(move || *beside.0.lock() = Some(second)) } else { second };
        *rig.beside.0.lock() = Some(hook);
        rig.fsync(12, records(1));
        let first = if late { "data flush fc2 flush data" } else { "data flush data fc2 flush" };
        assert_eq!(rig.story(at), first);
        let at = rig.log.position();
        rig.fsync(12, records(1));
        assert_eq!(rig.story(at), story, "late: {late}");
    }
    // Where they are durable writes, it was not flushed.
    let rig = Rig::live(PLAIN);
    rig.fsync(12, records(1));
    rig.write_data();
    let (fs, journal) = (Arc::clone(&rig.fs), Arc::clone(&rig.journal));
    *rig.beside.0.lock() = Some(Box::new(move || {
        fs.write_at(&[8; 512], 101 * BS).unwrap();
        journal.note_data_write();
    }));
    rig.fsync(12, records(1));
    let at = rig.log.position();
    rig.fsync(12, records(1));
    assert_eq!(rig.story(at), "flush fc3!");
}
