//! The model in virtual time with exact numbers, then the decorator with data (only lower bounds on
//! time: the machine that runs this may be busy).

use super::model::{MAX_REQUEST, Model, Op};
use super::*;
use crate::{Fault, FaultDevice};
use extol_block::MemDevice;

const GIB: u64 = 1 << 30;

fn us(n: u64) -> Duration {
    Duration::from_micros(n)
}

fn ns(n: u64) -> Duration {
    Duration::from_nanos(n)
}

fn model(text: &str) -> Model {
    Model::new(text.parse().expect("a profile"), GIB)
}

/// A disk of a gibibyte with round numbers: 60 ms per rotation, seeks of 1 to 17.875 ms, 1 byte per
/// us from the platter.
const ROUND: &str = "custom:seek=10ms,rpm=1000,media=1M,cache=1M,fua=flush";
/// Half a rotation of it.
const HALF: u64 = 30_000;

#[test]
fn a_free_medium_takes_no_time() {
    let mut m = model("ramdisk");
    for (i, op) in
        [Op::Read, Op::Write, Op::WriteFua, Op::Zero, Op::Discard].into_iter().enumerate()
    {
        let now = us(i as u64);
        assert_eq!(m.request(op, 4096, 1 << 24, now), now);
    }
    assert_eq!(m.flush(us(9)), us(9));
}

#[test]
fn latency_is_shared_and_the_link_is_not() {
    let mut m = model("custom:latency=100us,bandwidth=1M");
    assert_eq!(m.request(Op::Write, 0, 1000, us(0)), us(1100));
    assert_eq!(m.request(Op::Write, 5000, 1000, us(0)), us(2100), "behind the first on the link");
    assert_eq!(m.request(Op::Read, 0, 500, us(2050)), us(2650), "the link was free again");
    assert_eq!(m.request(Op::Write, 0, 0, us(3000)), us(3000), "nothing takes nothing");
    // No data: only the latency.
    assert_eq!(m.request(Op::Discard, 0, GIB, us(3000)), us(3100));
    assert_eq!(m.request(Op::Zero, 0, GIB, us(3000)), us(3100));
    let mut m = model("custom:latency=100us,bandwidth=1M,zero=write");
    assert_eq!(m.request(Op::Zero, 0, 1000, us(0)), us(1100));
}

#[test]
fn the_queue_takes_as_many_as_it_is_deep() {
    let mut m = model("custom:latency=100us,depth=2");
    let ends: Vec<_> = (0..5).map(|i| m.request(Op::Write, i * 4096, 4096, us(0))).collect();
    assert_eq!(ends, [us(100), us(100), us(200), us(200), us(300)]);
    assert_eq!(
        m.request(Op::Read, 0, 1, us(250)),
        us(350),
        "one is still under way, one slot is free"
    );
    assert_eq!(m.request(Op::Read, 0, 1, us(260)), us(400));
    assert_eq!(m.request(Op::Read, 0, 1, us(10_000)), us(10_100));
}

#[test]
fn large_requests_are_cut() {
    let mut m = model("custom:latency=100us,depth=2");
    assert_eq!(m.request(Op::Write, 0, 5 * MAX_REQUEST, us(0)), us(300));
    let mut m = model("custom:latency=100us,depth=2,zero=write");
    assert_eq!(m.request(Op::Zero, 0, 5 * MAX_REQUEST, us(0)), us(300));
}

#[test]
fn the_cap_lets_a_burst_through_and_then_its_rate() {
    let mut m = model("custom:latency=10us,iops=1000,burst=3");
    let ends: Vec<_> = (0..5).map(|i| m.request(Op::Write, i, 1, us(0))).collect();
    assert_eq!(ends, [us(10), us(10), us(10), us(1010), us(2010)]);
    // The bucket is full at 5 ms; one token came back by 3 ms.
    assert_eq!(m.request(Op::Write, 0, 1, us(3000)), us(3010));
    assert_eq!(m.request(Op::Write, 0, 1, us(3000)), us(4010));
    let ends: Vec<_> = (0..4).map(|i| m.request(Op::Write, i, 1, us(50_000))).collect();
    assert_eq!(
        ends,
        [us(50_010), us(50_010), us(50_010), us(51_010)],
        "full again after a rest, not fuller"
    );
}

#[test]
fn flushes_take_turns_and_others_do_not_wait_for_them() {
    let mut m = model("custom:latency=10us,flush=1ms");
    assert_eq!(m.flush(us(0)), us(1000));
    assert_eq!(m.flush(us(100)), us(2000), "behind the one that runs");
    assert_eq!(m.request(Op::Write, 0, 1, us(200)), us(210));
    assert_eq!(
        m.request(Op::WriteFua, 0, 1, us(300)),
        us(1310),
        "its own durability, at the same time"
    );
    assert_eq!(m.flush(us(5000)), us(6000));
}

#[test]
fn the_clock_never_goes_back() {
    let mut m = model("custom:latency=10us,flush=1ms");
    assert_eq!(m.request(Op::Write, 0, 1, us(500)), us(510));
    assert_eq!(m.request(Op::Write, 0, 1, us(400)), us(510));
    assert_eq!(m.flush(us(0)), us(1500));
}

#[test]
fn seeks_grow_with_the_root_of_the_distance() {
    // Reads at 0 bring the head to the start without a seek; then a read a quarter of the disk
    // away.
    let mut m = model(ROUND);
    assert_eq!(m.request(Op::Read, 0, 1000, us(0)), us(1000), "the head stands there");
    assert_eq!(m.request(Op::Read, 1000, 1000, us(9000)), us(10_000), "reading on: read ahead");
    // 1 ms + 16.875 ms / 2, half a rotation, transfer.
    let at = GIB / 4 + 2000;
    assert_eq!(
        m.request(Op::Read, at, 1000, us(10_000)),
        us(10_000 + 9437 + HALF + 1000) + ns(500)
    );
    let now = us(100_000);
    assert_eq!(
        m.request(Op::Read, at, 1000, now),
        now + us(HALF + 1000),
        "the same track again: no seek"
    );
    // A full seek: 17.875 ms (the fraction is a little less than one, the difference under 1/65536
    // of it).
    let now = us(200_000);
    let mut far = model(ROUND);
    let end = far.request(Op::Read, GIB - 1000, 1000, now);
    let full = now + us(17_875 + HALF + 1000);
    assert!(end <= full && full - end < us(1), "{end:?}");
}

#[test]
fn the_cache_takes_writes_and_a_flush_pays_for_them() {
    let mut m = model(ROUND);
    let end = m.request(Op::Write, 500_000, 1000, us(100));
    assert_eq!(end, us(100), "into the cache");
    // The head began at once: half a rotation (less than a megabyte away) and the transfer.
    assert_eq!(m.flush(us(200)), us(100 + HALF + 1000));
    // Nothing is left: a flush costs nothing here.
    assert_eq!(m.flush(us(40_000)), us(40_000));
    // Side by side in the cache: one way, one sweep, whatever the order in which they came.
    for at in [502_000, 503_000, 501_000] {
        assert_eq!(m.request(Op::Write, at, 1000, us(50_000)), us(50_000));
    }
    assert_eq!(m.flush(us(50_000)), us(50_000 + HALF + 3000));
}

#[test]
fn between_requests_the_heads_work() {
    let mut m = model(ROUND);
    m.request(Op::Write, 500_000, 1000, us(0));
    m.request(Op::Write, 800_000, 1000, us(0));
    // The first is in its place, the second on its way: two ways of 30 ms, two transfers.
    assert_eq!(m.flush(us(40_000)), us(2 * (HALF + 1000)));
    // All done long ago.
    m.request(Op::Write, 500_000, 1000, us(100_000));
    assert_eq!(m.flush(us(900_000)), us(900_000));
}

#[test]
fn cached_data_are_read_from_the_cache_and_overwritten_in_it() {
    let mut m = model(ROUND);
    // The head is busy with the first until 31 ms.
    m.request(Op::Write, 500_000, 1000, us(0));
    m.request(Op::Write, 800_000, 4000, us(0));
    m.request(Op::Write, 804_000, 1000, us(0));
    assert_eq!(m.request(Op::Read, 801_000, 4000, us(10)), us(10), "over two cached ranges");
    assert_eq!(m.request(Op::Write, 801_000, 1000, us(20)), us(20));
    // Not cached as a whole: the head reads behind what it does now, before what waits.
    assert_eq!(m.request(Op::Read, 799_000, 2000, us(30)), us(2 * (HALF + 1000) + 1000));
    // What waits is 5000 bytes, not 6000. The head stands at 801000: up from there, then back for
    // the first part.
    let read = 2 * (HALF + 1000) + 1000;
    assert_eq!(m.flush(us(30)), us(read + 4000 + HALF + 1000));
}

#[test]
fn a_full_cache_holds_writes_up() {
    let mut m = model("custom:seek=0,rpm=1000,media=1M,cache=4k,protected=on");
    assert_eq!(m.request(Op::Write, 0, 4000, us(0)), us(0));
    // 4096 bytes of cache: the first must go before the second fits (the head stands at 0 and
    // begins at once).
    assert_eq!(m.request(Op::Write, 500_000, 4000, us(0)), us(4000));
    assert_eq!(m.flush(us(4000)), us(4000), "a protected cache need not be emptied");
    // Larger than the cache: straight to the platter, behind what the head does.
    let mut m = model("custom:seek=0,rpm=1000,media=1M,cache=4k");
    assert_eq!(m.request(Op::Write, 500_000, 5000, us(0)), us(HALF + 5000));
}

#[test]
fn while_a_volatile_cache_is_emptied_nothing_else_begins() {
    let mut m = model(&format!("{ROUND},latency=50us,flush=2ms"));
    assert_eq!(m.request(Op::Write, 500_000, 1000, us(0)), us(50));
    let end = us(HALF + 1000 + 2000);
    assert_eq!(m.flush(us(10)), end);
    assert_eq!(m.request(Op::Write, 0, 1, us(20)), end + us(50));
    assert_eq!(
        m.request(Op::Read, 0, 1, us(20)),
        end + us(50),
        "it is in the cache, but the disk does not listen"
    );
    // A flush waits for what is under way.
    let mut m = model(&format!("{ROUND},latency=50us,flush=2ms"));
    m.request(Op::Discard, 0, 1000, us(0));
    assert_eq!(m.flush(us(0)), us(2050));
}

#[test]
fn discarded_data_need_no_writing_back() {
    let mut m = model(ROUND);
    m.request(Op::Write, 500_000, 1000, us(0));
    m.request(Op::Write, 800_000, 9000, us(0));
    m.request(Op::Discard, 801_000, 7000, us(1));
    // 1000 bytes of the first, then the way to the second's first part, and half a rotation to its
    // last.
    assert_eq!(m.flush(us(1)), us(3 * (HALF + 1000)));
}

#[test]
fn stripes_let_spindles_work_side_by_side() {
    let mut m = model("custom:seek=0,rpm=1000,media=1M,cache=1M,spindles=4");
    // Four stripes of 64 KiB, one on each; the heads stand there.
    assert_eq!(m.request(Op::Read, 0, 4 << 16, us(0)), us(65_536));
    // A fifth and a sixth: read on.
    assert_eq!(m.request(Op::Read, 4 << 16, 2 << 16, us(100_000)), us(100_000 + 65_536));
    m.request(Op::Write, 1 << 29, 1000, us(500_000));
    m.request(Op::Write, (1 << 29) + (1 << 16), 1000, us(500_000));
    assert_eq!(m.flush(us(500_000)), us(500_000 + HALF + 1000), "seek=0: no seek however far");
}

/// fs_mark of the seed: every thread writes a file of one block and syncs it; all join one commit,
/// which writes the files' blocks, then the journal, flushes, writes the commit block, flushes.
/// Gives files per second.
fn fs_mark(profile: &str, threads: u64) -> f64 {
    let mut m = model(profile);
    let (mut now, mut journal, commits) = (Duration::ZERO, GIB / 2, 50);
    for commit in 0..commits {
        let places = (0..threads).map(|t| (commit * threads + t) * 7_919 * 4096 % GIB);
        now = places.map(|at| m.request(Op::Write, at & !4095, 4096, now)).max().expect("threads");
        let blocks = 3 + 2 * threads;
        now = (0..blocks)
            .map(|i| m.request(Op::Write, journal + i * 4096, 4096, now))
            .max()
            .expect("blocks");
        now = m.flush(now);
        now = m.request(Op::Write, journal + blocks * 4096, 4096, now);
        now = m.flush(now);
        journal += (blocks + 1) * 4096;
    }
    (commits * threads) as f64 / now.as_secs_f64()
}

#[test]
fn the_seeds_machines_come_out_in_their_order_of_magnitude() {
    // Files per second in the seed's table with 2, 4, 8, 16 and 32 threads.
    let sata = [24.6, 49.2, 70.1, 104.0, 153.6];
    let raid = [246.4, 480.0, 829.5, 1172.7, 1816.3];
    let rows = [("sata", sata), ("raid", raid)];
    let cells = rows.iter().flat_map(|(name, row)| {
        [2, 4, 8, 16, 32].into_iter().zip(row).map(move |cell| (name, cell))
    });
    for (profile, (threads, seed)) in cells {
        let files = fs_mark(profile, threads);
        assert!(
            (seed / 2.5..seed * 2.5).contains(&files),
            "{profile} with {threads}: {files:.1}, not {seed}"
        );
    }
}

fn medium(text: &str) -> EmulatedMedia<MemDevice> {
    EmulatedMedia::new(MemDevice::new(GIB), text.parse().expect("a profile"))
}

#[test]
fn contents_are_those_of_the_inner_device() {
    for name in Profile::names() {
        // The disks' own times would make the test long.
        let d = medium(&format!("{name}:latency=10us,flush=10us,seek=none"));
        d.write_at(&[1; 3000], 1000).expect("write");
        d.write_vectored_at(&[IoSlice::new(&[2; 10]), IoSlice::new(&[3; 20])], 5000)
            .expect("writev");
        let bufs = [IoSlice::new(&[4; 5]), IoSlice::new(&[5; 2])];
        let writes = [9000, 8000].map(|offset| ScatteredWrite { offset, bufs: &bufs });
        d.write_scattered(&writes).expect("scattered");
        d.write_fua(&[6; 7], 10_000).expect("fua");
        d.write_mark(&[7; 7], 10_007).expect("mark");
        d.zero_range(1500, 100).expect("zero");
        d.flush().expect("flush");
        let direct = bytes_of(d.inner(), 0, 12_000);
        let mut through = vec![9; 12_000];
        let (a, b) = through.split_at_mut(5000);
        d.read_vectored_at(&mut [IoSliceMut::new(a), IoSliceMut::new(b)], 0).expect("readv");
        assert_eq!(through, direct);
        assert_eq!(through[1499..1601], [&[1][..], &[0; 100], &[1]].concat());
        assert_eq!(through[5005..5015], [2, 2, 2, 2, 2, 3, 3, 3, 3, 3]);
        assert_eq!((through[8004], through[8006], through[9006], through[10_007]), (4, 5, 5, 7));
        let stats = d.medium_stats();
        let native = d.profile().native_fua;
        assert_eq!(stats.flushes, if native { 1 } else { 3 }, "{name}");
        let expected = DeviceStats {
            reads: 1,
            read_bytes: 12_000,
            writes: 6,
            write_bytes: 3000 + 30 + 14 + 14,
            fua_writes: 2,
            flushes: 1,
            discards: 0,
            zeros: 1,
        };
        assert_eq!(stats.asked, expected);
        let discarded = d.discard(5000, 10);
        assert_eq!(d.discard_zeroes(), d.profile().discard);
        match discarded {
            Ok(()) => assert_eq!(bytes_of(d.inner(), 5005, 10), [0, 0, 0, 0, 0, 3, 3, 3, 3, 3]),
            Err(error) => assert!(error.is_unsupported() && !d.profile().discard),
        }
    }
}

fn bytes_of(device: &MemDevice, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    device.read_at(&mut bytes, offset).expect("in range");
    bytes
}

#[test]
fn what_the_model_says_passes_at_least() {
    let d = medium("custom:latency=3ms,flush=5ms,depth=2,fua=flush");
    let took = |work: &dyn Fn()| {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    assert!(took(&|| d.write_at(&[1; 10], 0).expect("write")) >= us(3000));
    assert!(took(&|| d.read_at(&mut [1; 10], 0).expect("read")) >= us(3000));
    assert!(took(&|| d.flush().expect("flush")) >= us(5000));
    assert!(took(&|| d.write_fua(&[1; 10], 0).expect("fua")) >= us(8000), "a write, then a flush");
    let bufs = [IoSlice::new(&[4; 5])];
    let writes = [0, 4096, 8192].map(|offset| ScatteredWrite { offset, bufs: &bufs });
    assert!(
        took(&|| d.write_scattered(&writes).expect("batch")) >= us(6000),
        "three in a queue of two"
    );
    let stats = d.medium_stats();
    assert!(stats.modelled >= us(3000 + 3000 + 5000 + 8000 + 6000), "{stats:?}");
}

#[test]
fn a_sleeping_request_delays_no_other() {
    let d = medium("custom:latency=300ms");
    std::thread::scope(|s| {
        let sleeper = s.spawn(|| d.write_at(&[1; 512], 0).expect("write"));
        while d.stats().writes == 0 {
            std::thread::yield_now();
        }
        // It has its end from the model and sleeps now, or is about to.
        let free = d.model.try_lock_for(us(100_000)).is_some();
        assert!(free || sleeper.is_finished(), "the sleeper holds the lock");
    });
    let d = medium("custom:latency=20ms");
    std::thread::scope(|s| {
        for t in 0..16u64 {
            let d = &d;
            s.spawn(move || d.write_at(&[t as u8 + 1; 512], t * 512).expect("write"));
        }
    });
    assert_eq!(
        d.medium_stats().modelled,
        us(20_000 * 16),
        "each got its latency, none waited for a slot"
    );
    let bytes = bytes_of(d.inner(), 0, 16 * 512);
    assert!(bytes.chunks(512).zip(1..).all(|(part, t)| part.iter().all(|b| *b == t)));
}

#[test]
fn errors_pass_and_leave_the_medium_usable() {
    let inner = FaultDevice::new(
        MemDevice::new(1 << 20),
        [
            Fault::once(DeviceOp::Write, 0),
            Fault::once(DeviceOp::Flush, 0),
            Fault::once(DeviceOp::Read, 0),
        ],
    );
    let d = EmulatedMedia::new(inner, "cloud:latency=0,flush=0".parse().expect("a profile"));
    assert_eq!(d.write_at(&[1; 512], 512).expect_err("the fault").offset, 512);
    assert_eq!(d.flush().expect_err("the fault").op, DeviceOp::Flush);
    assert_eq!(d.read_at(&mut [1; 512], 0).expect_err("the fault").op, DeviceOp::Read);
    d.write_at(&[1; 512], 512).expect("the next");
    d.flush().expect("the next");
    for offset in [(1 << 20) - 1, 1 << 20, u64::MAX] {
        assert!(d.write_at(&[1; 10], offset).is_err() && d.read_at(&mut [1; 10], offset).is_err());
        assert!(d.zero_range(offset, 10).is_err() && d.discard(offset, 10).is_err());
        let bufs = [IoSlice::new(&[1; 10])];
        assert!(d.write_scattered(&[ScatteredWrite { offset, bufs: &bufs }]).is_err());
    }
}
