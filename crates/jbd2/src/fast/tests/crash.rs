//! Crashes at any write: what was acknowledged by a fast commit is found on the medium, behind the
//! right base.
//!
//! The source here counts: each change of a run adds one, and the records of a fast commit say how
//! far it has counted. After a crash, the newest complete fast commit that counts, or the log if
//! there is none, must say at least as much as had been acknowledged, and the area must never make
//! a reader that is stricter than we are give up the log.

use extol_block::MemDevice;

use super::*;
use extol_ondisk::fast_commit::{FcReader, FcTag, FcWriter};

/// Says how far it has counted, with so many blocks.
#[derive(Debug, Default)]
struct Counting {
    count: Mutex<u32>,
    blocks: Mutex<usize>,
}

impl FastSource for Counting {
    fn apply(&self, _: Tid, _: Option<Notes>, _: bool) {}

    fn collect(&self, _: Tid, _: &[SyncKey]) -> Collected {
        let mut records = vec![FcRecord::DelRange { ino: *self.count.lock(), block: 0, len: 1 }];
        let filler = FcRecord::Inode { ino: 12, image: vec![9; 900].into() };
        records.extend(vec![filler; *self.blocks.lock() - 1]);
        said(&records)
    }

    fn closed(&self, _: Tid) -> Box<dyn Any + Send> {
        Box::new(())
    }

    fn reasons(&self) -> &'static [&'static str] {
        &[]
    }
}

/// The base block says how far was counted when its transaction closed.
const BASE: u64 = 5;
/// Data that the nth acknowledgement promises.
const DATA: u64 = 200;

struct Run {
    rig: Rig,
    /// Where in the recording which count was acknowledged.
    acks: Vec<(usize, u32)>,
}

fn run(shape: Shape) -> Run {
    let mut rig = Rig::new(shape);
    let source = Arc::new(Counting { count: Mutex::new(0), blocks: Mutex::new(1) });
    Arc::get_mut(&mut rig.journal).unwrap().fast = FastCommits::default();
    rig.journal.state.lock().fast.from = None;
    rig.journal.set_fast_source(source.clone());
    // A former life: a whole fast commit of the very transaction that is going to be the first.
    let old = FcWriter::chain(
        block_size(),
        FIRST_TID.0,
        true,
        &FcRecords::encode(&[record(7777)]).unwrap(),
        &[],
    )
    .unwrap();
    rig.log.write_at(&old.bytes, rig.area().start).unwrap();
    rig.log.flush().unwrap();
    rig.fs.flush().unwrap();
    let mut acks = Vec::new();
    let mut x = 3u32;
    for count in 1..=60u32 {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if count % 2 == 0 {
            let at = (DATA + u64::from(count)) * BS;
            rig.fs.write_at(&[count as u8; 512], at).unwrap();
            rig.journal.note_data_write();
        }
        let mut h = rig.journal.start(1).unwrap();
        let buf = h.create(BlockNr(BASE)).unwrap();
        h.modify(&buf, |b| b[..4].copy_from_slice(&count.to_le_bytes())).unwrap();
        *source.count.lock() = count;
        let tid = h.tid();
        h.stop().unwrap();
        *source.blocks.lock() = 1 + (x >> 30) as usize;
        match (x >> 20) % 10 {
            0 => rig.journal.commit_all().unwrap(),
            1 if count > 20 => {
                rig.journal.freeze().unwrap();
                rig.journal.thaw();
            }
            _ => rig.journal.make_durable_for(tid, ask(12)).unwrap(),
        }
        acks.push((rig.log.position(), count));
    }
    assert!(rig.stats().commits > 20 && rig.journal.stats().transactions > 5);
    Run { rig, acks }
}

fn record(count: u32) -> FcRecord {
    FcRecord::DelRange { ino: count, block: 0, len: 1 }
}

/// What the area says on top of transaction `base`, as a reader that stops at the first thing that
/// is not right. Err: e2fsck or Linux would give up the log.
fn area_says(
    image: &MemDevice,
    rig: &Rig,
    expected: Tid,
) -> std::result::Result<Option<u32>, &'static str> {
    let (mut reader, mut newest, mut now, mut good) = (FcReader::new(), None, None, false);
    let mut block = vec![0; BS as usize];
    let mut at = rig.area().start;
    while at < rig.area().end {
        image.read_at(&mut block, at).unwrap();
        if at == rig.area().start && !FcReader::begins_with_head(&block) {
            return Ok(None);
        }
        let mut wrong = None;
        let read = reader.block(&block, |_, tag| {
            match tag {
                FcTag::Head { tid, .. } if Tid(tid) != expected => {
                    wrong = Some("another transaction's HEAD")
                }
                FcTag::Tail { tid, stated, actual } if Tid(tid) != expected || stated != actual => {
                    wrong = Some("a wrong sum");
                }
                FcTag::Tail { .. } => (newest, good) = (now, true),
                FcTag::Record(FcRecord::DelRange { ino, .. }) => now = Some(ino),
                _ => {}
            }
            wrong.is_none()
        });
        let wrong = wrong.or(read.is_err().then_some("no tag"));
        match wrong {
            Some(_) if good => return Ok(newest),
            Some(why) => return Err(why),
            None => at += BS,
        }
    }
    Ok(newest)
}

/// What a crash behind the first `cut` events leaves, which is `image`: how far was counted. The
/// area must never disturb the log.
fn check(run: &Run, cut: usize, image: &MemDevice) -> std::result::Result<u32, String> {
    let rig = &run.rig;
    let sb = read_superblock(image, &rig.map).map_err(|e| e.to_string())?;
    let (mut said, mut window) = (None, false);
    let mut cleared = sb.clone();
    if sb.start != 0 {
        if !sb.features.has_fast_commit() {
            return Err("live without the bit".into());
        }
        let end = crate::recovery::prepare(image, &rig.map, &sb, BLOCKS)
            .map_err(|e| e.to_string())?
            .scanned
            .end;
        match area_says(image, rig, end) {
            Ok(found) => said = found,
            // Between a commit record and the clearing behind it: the one window there is.
            Err("another transaction's HEAD") if is_window(run, cut) => window = true,
            Err(why) => return Err(format!("the area disturbs the log: {why}")),
        }
    }
    let _ = window;
    // Fast commits are looked at above; replay the log alone.
    image.write_at(&[0; 1024], rig.area().start).unwrap();
    let found = crate::recovery::recover_to_device(image, image, &rig.map, &mut cleared, BLOCKS);
    found.map_err(|e| e.to_string())?;
    let mut base = [0; 4];
    image.read_at(&mut base, BASE * BS).unwrap();
    let base = u32::from_le_bytes(base);
    let said = said.unwrap_or(base).max(base);
    if let Some((_, acked)) = run.acks.iter().rev().find(|(at, _)| *at <= cut) {
        if said < *acked {
            return Err(format!("{acked} was acknowledged, {said} is there"));
        }
        for count in (2..=*acked).step_by(2) {
            let mut data = [0; 1];
            image.read_at(&mut data, (DATA + u64::from(count)) * BS).unwrap();
            if data[0] != count as u8 {
                return Err(format!("the data of {count} is lost"));
            }
        }
    }
    // What a fast commit says refers to data, too, acknowledged or not.
    for count in (2..=said).step_by(2) {
        let mut data = [0; 1];
        image.read_at(&mut data, (DATA + u64::from(count)) * BS).unwrap();
        if data[0] != count as u8 {
            return Err(format!("{count} counts without its data"));
        }
    }
    Ok(said)
}

/// The next change behind `cut` is the clearing of the area, or the last one is, and not durable
/// yet. Where durable writes are a write and a flush, the commit record before it may be there
/// without its flush.
fn is_window(run: &Run, cut: usize) -> bool {
    let log = run.rig.log.log();
    let clears = |event: Option<&Event>, done: bool| {
        matches!(event, Some(Event::Write { offset, fua, data })
            if *offset == run.rig.area().start && !(done && *fua) && data.iter().all(|b| *b == 0))
    };
    let next = if log.get(cut) == Some(&Event::Flush) { cut + 1 } else { cut };
    clears(log.get(next), false) || clears(log.get(cut.wrapping_sub(1)), true)
}

struct Survivors(u32);

impl Survivors {
    fn bit(&mut self, event: usize) -> bool {
        self.0 =
            self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223).wrapping_add(event as u32);
        self.0 >> 31 == 0
    }
}

fn good(run: &Run, cut: usize, image: &MemDevice) -> u32 {
    let said = check(run, cut, image)
        .unwrap_or_else(|why| panic!("cut {cut}: {why}\n{}", run.rig.story(0)));
    assert_ne!(said, 7777, "a former life");
    said
}

/// An internal journal; every cut, with nothing, everything and random parts of what was not
/// durable. On media that know durable writes, and where the flush of one counts for data, too.
#[test]
fn at_any_write() {
    for fua in [true, false] {
        let run = run(Shape { fua, ..PLAIN });
        let mut survivors = Survivors(11);
        let mut newest = 0;
        for cut in 3..=run.rig.log.position() {
            for how in 0..6 {
                let image = run.rig.log.image_at(cut, |event| match how {
                    0 => false,
                    1 => true,
                    _ => survivors.bit(event),
                });
                newest = newest.max(good(&run, cut, &image));
            }
        }
        assert_eq!(newest, 60);
    }
}

/// A write into the area is under way: any of its sectors may be there.
#[test]
fn torn_at_any_sector() {
    let run = run(PLAIN);
    let mut survivors = Survivors(5);
    let mut torn = 0;
    for (cut, event) in run.rig.log.log().into_iter().enumerate() {
        let Event::Write { offset, data, .. } = event else { continue };
        if !run.rig.area().contains(&offset) {
            continue;
        }
        for _ in 0..6 {
            let image = run.rig.log.image_at(cut, |event| survivors.bit(event));
            for (at, sector) in (offset..).step_by(512).zip(data.chunks(512)) {
                if survivors.bit(cut) {
                    image.write_at(sector, at).unwrap();
                }
            }
            good(&run, cut, &image);
            torn += 1;
        }
    }
    assert!(torn > 250, "{torn}");
}
