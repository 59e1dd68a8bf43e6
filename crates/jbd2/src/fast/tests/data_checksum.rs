//! Data and records with one flush: the order of writes, and crashes at any of them.

use super::*;
use crate::recovery::{FastCommits, prepare};

/// Where the data goes.
pub(super) const DATA: u64 = 200;

impl Rig {
    /// File data is written in place, with a checksum.
    pub(super) fn write_checksummed(&self, block: u64, byte: u8) {
        let block = BlockNr(DATA + block);
        let same = |w: &DataChecksum| w.matches(&[byte; 512]);
        self.journal.about_to_overwrite(block, 1, same).unwrap();
        self.fs.write_at(&[byte; 512], block.0 * BS).unwrap();
        self.journal.note_checksummed_write(&[DataChecksum::of(block, &[byte; 512])]);
    }
}

#[test]
fn with_one_flush() {
    for fua in [true, false] {
        let rig = Rig::live(Shape { fua, ..PLAIN });
        let at = rig.log.position();
        rig.write_checksummed(1, 1);
        rig.fsync(12, records(1));
        rig.write_checksummed(2, 2);
        rig.write_checksummed(3, 2);
        rig.fsync(12, records(1));
        assert_eq!(rig.story(at), "data fc0-1 flush data data fc2 flush");
        assert_eq!(rig.stats().checksummed, 2);
        // Data that needs no order comes along, too.
        let at = rig.log.position();
        rig.fs.write_at(&[9; 512], 300 * BS).unwrap();
        rig.journal.note_unordered_write();
        rig.fsync(12, records(1));
        assert_eq!(rig.story(at), "data fc3 flush");
        // With other data beside it the flush is first, and nothing needs comparing.
        let at = rig.log.position();
        rig.write_checksummed(4, 3);
        rig.write_data();
        rig.fsync(12, records(1));
        assert_eq!(
            rig.story(at),
            if fua { "data data flush fc4!" } else { "data data flush fc4 flush" }
        );
        assert_eq!(rig.stats().checksummed, 2);
        let at = rig.log.position();
        rig.write_checksummed(4, 4);
        assert_eq!(rig.story(at), "data", "its data was flushed before its records");
    }
}

#[test]
fn a_full_commit_and_other_flushes_need_no_checksum() {
    let rig = Rig::live(PLAIN);
    rig.write_checksummed(1, 1);
    rig.journal.flush_data().unwrap();
    let at = rig.log.position();
    rig.fsync(12, records(1));
    assert_eq!(rig.story(at), "fc0-1!");
    rig.write_checksummed(2, 2);
    rig.fsync(12, records(1));
    rig.change(5);
    rig.journal.commit_all().unwrap();
    let at = rig.log.position();
    rig.write_checksummed(2, 3);
    assert_eq!(rig.story(at), "data", "the fast commit is void");
}

#[test]
fn elsewhere_there_is_none() {
    let external = Rig::live(Shape { external: true, ..PLAIN });
    external.write_checksummed(1, 1);
    external.fsync(12, records(1));
    assert_eq!(external.stats().checksummed, 0);
    let ordered = Rig::live(Shape { barrier: false, ..PLAIN });
    ordered.write_checksummed(1, 1);
    ordered.fsync(12, records(1));
    assert_eq!(ordered.stats().checksummed, 0);
}

/// Before the data of the last fast commit is overwritten, there is another last one.
#[test]
fn overwriting_what_the_last_one_vouches_for() {
    let rig = Rig::live(PLAIN);
    rig.write_checksummed(1, 1);
    rig.fsync(12, records(1));
    let at = rig.log.position();
    rig.write_checksummed(1, 1);
    assert_eq!(rig.story(at), "data", "the same bytes");
    rig.write_checksummed(1, 2);
    assert_eq!(
        rig.story(at),
        "data flush fc2! data",
        "an empty one, and nothing vouches for the bytes any more"
    );
    assert_eq!(rig.stats().overwrites, 1);
    let at = rig.log.position();
    rig.write_checksummed(1, 3);
    assert_eq!(rig.story(at), "data", "nothing vouches for it");
    // What is in no fast commit yet: its old bytes need the flush now.
    let rig = Rig::live(PLAIN);
    rig.write_checksummed(1, 1);
    rig.write_checksummed(1, 2);
    let at = rig.log.position();
    rig.fsync(12, records(1));
    assert_eq!(rig.story(at), "flush fc0-1!");
}

/// The area is too small for the checksums: the flush goes first.
#[test]
fn no_room() {
    let rig = Rig::live(PLAIN);
    for block in 0..400 {
        rig.write_checksummed(block, 1);
    }
    let at = rig.log.position();
    rig.fsync(12, records(1));
    assert_eq!(rig.story(at), "flush fc0-1!");
}

/// What is on the medium: the first transaction that is not in the log, and the newest count of its
/// fast commits.
fn found(rig: &Rig, image: &MemDevice) -> (Tid, u32) {
    let sb = read_superblock(image, &rig.map).unwrap();
    let found = prepare(image, &rig.map, &sb, BLOCKS).unwrap();
    let mut newest = 0;
    if let FastCommits::Complete(fast) = found.fast_commits {
        let keep = |record: FcRecord<&[u8]>| {
            if let FcRecord::DelRange { ino, .. } = record {
                newest = ino;
            }
            Ok::<(), JournalError>(())
        };
        fast.each(image, &rig.map, &sb, keep).unwrap();
    }
    (found.scanned.end, newest)
}

/// Each round writes a block, or the block of the round before anew, and syncs. After a crash a
/// record is there only with its data, and what was acknowledged is there.
pub(super) fn crash_anywhere(
    shape: Shape,
    write: impl Fn(&Rig, u64, u8),
) -> std::result::Result<u32, String> {
    let rig = Rig::live(shape);
    let begin = rig.log.position();
    let mut acked = Vec::new();
    // Which byte each record promises where; a block that is written anew may hold any of its later
    // ones.
    let mut data: Vec<(u64, u8)> = vec![(0, 0)];
    let mut block = 0;
    for count in 1..=24u32 {
        let anew = count % 5 == 3;
        block += u64::from(!anew);
        write(&rig, block, count as u8);
        data.push((block, count as u8));
        let tid = rig.change(5);
        *rig.source.answers.lock() =
            vec![said(&[FcRecord::DelRange { ino: count, block: 0, len: 1 }])];
        rig.journal.make_durable_for(tid, ask(12)).unwrap();
        acked.push((rig.log.position(), count, tid));
    }
    assert!(rig.stats().checksummed > 10, "{:?}", rig.stats());
    let mut survivors = 7u32;
    let mut newest = 0;
    for cut in begin..=rig.log.position() {
        for how in 0..24 {
            let image = rig.log.image_at(cut, |event| {
                survivors = survivors
                    .wrapping_mul(1_664_525)
                    .wrapping_add(1_013_904_223)
                    .wrapping_add(event as u32);
                how == 0 || survivors >> 31 == 0
            });
            let (next, said) = found(&rig, &image);
            newest = newest.max(said);
            if let Some((_, least, tid)) = acked.iter().rev().find(|(at, ..)| *at <= cut)
                && !next.after(*tid)
                && said < *least
            {
                return Err(format!("cut {cut}: {least} was acknowledged, {said} is there"));
            }
            for count in 1..=said {
                let (block, byte) = data[count as usize];
                let mut found = [0];
                image.read_at(&mut found, (DATA + block) * BS).unwrap();
                let later = data.iter().any(|(b, byte)| *b == block && *byte == found[0]);
                if found[0] != byte && !(later && found[0] > byte) {
                    return Err(format!("cut {cut}: {count} counts without its data"));
                }
            }
        }
    }
    Ok(newest)
}

#[test]
fn crashes() {
    for fua in [true, false] {
        assert_eq!(
            crash_anywhere(Shape { fua, ..PLAIN }, Rig::write_checksummed).unwrap(),
            24,
            "the last one is in no full commit"
        );
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn planted() {
    use crate::planted::{Bug, set};
    for (bug, what) in [
        (Bug::DataChecksumIgnored, "without its data"),
        (Bug::ChecksummedDataOverwritten, "was acknowledged"),
    ] {
        set(Some(bug));
        let found = crash_anywhere(PLAIN, Rig::write_checksummed);
        set(None);
        assert!(found.as_ref().is_err_and(|why| why.contains(what)), "{bug:?}: {found:?}");
    }
}
