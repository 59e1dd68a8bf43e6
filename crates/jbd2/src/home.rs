//! Writing metadata blocks to their home locations: sorted, neighbours merged into runs, many runs
//! at a time.
//!
//! Home locations are scattered over the whole volume, and nothing orders them among each other
//! (the flush comes afterwards), so the device gets them in batches and may work on all writes of a
//! batch at the same time.

use std::io::IoSlice;
use std::sync::Arc;

use extol_block::{BlockDevice, BlockNr, BlockSize, ScatteredWrite};

/// Most bytes of one merged write: large enough for any device, small enough for its queue.
const RUN_BYTES: usize = 1 << 20;
/// Linux takes at most 1024 pieces per call.
const RUN_PIECES: usize = 1024;
/// Most bytes of one batch.
const BATCH_BYTES: usize = 8 << 20;
/// Most runs of one batch: more than a device works on at a time.
const BATCH_RUNS: usize = 256;

/// Bounds of a batch behind which a thread may wait.
const SHORT_BYTES: usize = 4 << 20;
const SHORT_RUNS: usize = 128;

/// Writes `blocks` (ascending numbers, each once) home.
pub(crate) fn write(
    device: &dyn BlockDevice,
    size: BlockSize,
    blocks: &[(BlockNr, Arc<Vec<u8>>)],
) -> extol_block::Result<()> {
    let most = (RUN_BYTES / size.len()).clamp(1, RUN_PIECES);
    let mut rest = blocks;
    while !rest.is_empty() {
        // The last run of a batch may be cut; then the next batch begins with its second part.
        let window = &rest[..rest.len().min(BATCH_BYTES / size.len())];
        let mut runs = Vec::new();
        let mut done = 0;
        while done < window.len() && runs.len() < BATCH_RUNS {
            let run = done..done + run_len(&window[done..], most);
            done = run.end;
            runs.push(run);
        }
        let (now, later) = rest.split_at(done);
        let pieces: Vec<IoSlice<'_>> = now.iter().map(|(_, data)| IoSlice::new(data)).collect();
        let batch: Vec<ScatteredWrite<'_>> = runs
            .into_iter()
            .map(|run| ScatteredWrite { offset: now[run.start].0.offset(size), bufs: &pieces[run] })
            .collect();
        device.write_scattered(&batch)?;
        rest = later;
    }
    Ok(())
}

/// How many of these blocks (ascending) a checkpoint that others may have to wait for writes at a
/// time.
pub(crate) fn batch_len(size: BlockSize, blocks: impl Iterator<Item = BlockNr>) -> usize {
    let mut runs = 0;
    let mut next = None;
    blocks
        .take(SHORT_BYTES / size.len())
        .take_while(|nr| {
            runs += usize::from(next != Some(nr.0));
            next = nr.0.checked_add(1);
            runs <= SHORT_RUNS
        })
        .count()
}

/// How many of `blocks` (at least one, at most `most`) follow each other on the device.
fn run_len(blocks: &[(BlockNr, Arc<Vec<u8>>)], most: usize) -> usize {
    let pairs = blocks.iter().zip(blocks.iter().skip(1)).take(most - 1);
    1 + pairs.take_while(|((a, _), (b, _))| b.0.checked_sub(1) == Some(a.0)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use extol_block::MemDevice;
    use extol_devices::{CountingDevice, Event, RecordingDevice};

    fn block(nr: u64, len: usize) -> (BlockNr, Arc<Vec<u8>>) {
        (BlockNr(nr), Arc::new((0..len).map(|i| (nr as usize * 7 + i / 512) as u8).collect()))
    }

    #[test]
    fn neighbours_are_merged_and_everything_arrives() {
        for bytes in [1024, 4096, 65536] {
            let size = BlockSize::new(bytes).expect("size");
            // 700 neighbours, then every third block, then the last one of the device.
            let blocks: Vec<_> = (3..703)
                .chain((800..2400).step_by(3))
                .chain([4095])
                .map(|nr| block(nr, size.len()))
                .collect();
            let device = CountingDevice::new(MemDevice::new(4096 * u64::from(bytes)));
            write(&device, size, &blocks).expect("write");
            let mut back = vec![0; size.len()];
            for (nr, data) in &blocks {
                use extol_block::BlockDevice as _;
                device.read_at(&mut back, nr.offset(size)).expect("read");
                assert!(back == **data, "{nr:?} of {bytes} bytes");
            }
            let stats = device.stats();
            assert_eq!(stats.write_bytes, blocks.len() as u64 * u64::from(bytes), "nothing twice");
            let runs = 700u64.div_ceil((RUN_BYTES / size.len()) as u64) + 534 + 1;
            assert!(
                (runs..runs + 2).contains(&stats.writes),
                "{} writes for {runs} runs",
                stats.writes
            );
        }
    }

    #[test]
    fn nothing_is_written_for_no_blocks() {
        let device = RecordingDevice::new(MemDevice::new(1 << 20));
        let size = BlockSize::new(1024).expect("size");
        write(&device, size, &[]).expect("write");
        assert_eq!(device.position(), 0);
        write(&device, size, &[block(5, 1024), block(6, 1024), block(9, 1024)]).expect("write");
        let seen: Vec<_> = device
            .log()
            .iter()
            .map(|event| match event {
                Event::Write { offset, data, fua: false } => (*offset, data.len()),
                other => panic!("unexpected {other:?}"),
            })
            .collect();
        assert_eq!(seen, [(5 * 1024, 2048), (9 * 1024, 1024)]);
    }

    #[test]
    fn a_block_past_the_end_is_an_error() {
        let device = MemDevice::new(1 << 20);
        let size = BlockSize::new(4096).expect("size");
        for nr in [256, u64::MAX - 1, u64::MAX] {
            let error =
                write(&device, size, &[block(1, 4096), (BlockNr(nr), Arc::new(vec![0; 4096]))]);
            assert!(error.is_err(), "block {nr}");
        }
    }
}
