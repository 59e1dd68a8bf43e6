//! `FailLatch` of extol-block: what a failed write, flush or zeroing stops.

use std::io::IoSlice;

use extol_block::{BlockDevice, DeviceOp, FailLatch, MemDevice, ScatteredWrite};
use extol_devices::{CountingDevice, Fault, FaultDevice};

fn device(fault: Fault) -> FailLatch<FaultDevice<CountingDevice<MemDevice>>> {
    FailLatch::new(FaultDevice::new(CountingDevice::new(MemDevice::new(1 << 20)), [fault]))
}

#[test]
fn first_failed_change_stops_all_later_ones() {
    for op in [DeviceOp::Write, DeviceOp::Flush, DeviceOp::Zero] {
        let d = device(Fault::once(op, 1));
        for _ in 0..2 {
            // The second round reaches the fault.
            let _ = d.write_at(&[1; 512], 0);
            let _ = d.zero_range(4096, 512);
            let _ = d.flush();
        }
        assert_eq!(d.failure().map(|e| e.op), Some(op));
        let before = d.inner().inner().stats();
        let expected = d.failure().map(ToString::to_string);
        let results = [
            d.write_at(&[2; 512], 0),
            d.write_fua(&[2; 512], 0),
            d.write_vectored_at(&[IoSlice::new(&[2; 512])], 0),
            d.write_scattered(&[ScatteredWrite { offset: 0, bufs: &[IoSlice::new(&[2; 512])] }]),
            d.write_scattered_fua(&[ScatteredWrite {
                offset: 0,
                bufs: &[IoSlice::new(&[2; 512])],
            }]),
            d.flush(),
            d.discard(0, 4096),
            d.zero_range(0, 4096),
        ];
        for result in results {
            assert_eq!(result.err().map(|e| e.to_string()), expected, "the same error for all");
        }
        assert_eq!(d.inner().inner().stats(), before, "nothing reached the device");
        let mut buf = [0; 512];
        d.read_at(&mut buf, 0).expect("reads go on");
    }
}

#[test]
fn a_mark_gets_through_and_opens_nothing() {
    let d = device(Fault::once(DeviceOp::Flush, 0));
    d.write_at(&[1; 512], 0).expect("write");
    d.flush().expect_err("the fault");
    d.write_mark(&[2; 512], 4096).expect("a mark");
    let mut buf = [0; 512];
    d.read_at(&mut buf, 4096).expect("read");
    assert_eq!(buf, [2; 512]);
    assert!(d.write_at(&[1; 512], 0).is_err() && d.flush().is_err(), "still latched");
    let d = device(Fault::once(DeviceOp::Write, 0));
    assert!(d.write_mark(&[2; 512], 0).is_err());
    assert!(d.flush().is_err(), "a mark that fails is a failed write");
}

#[test]
fn a_failed_batch_latches() {
    let d = device(Fault::once(DeviceOp::Write, 1));
    let bufs = [IoSlice::new(&[1; 512])];
    let writes = [0, 4096, 8192].map(|offset| ScatteredWrite { offset, bufs: &bufs });
    let error = d.write_scattered(&writes).expect_err("the second fails");
    assert_eq!((error.op, error.offset, error.len), (DeviceOp::Write, 4096, 512));
    assert_eq!(d.flush().expect_err("latched").offset, 4096);
    assert_eq!(d.inner().inner().stats().writes, 1);
}

#[test]
fn reads_and_discards_do_not_latch() {
    let d = device(Fault::once(DeviceOp::Read, 0));
    assert!(d.read_at(&mut [0; 16], 0).is_err());
    d.write_at(&[1; 16], 0).expect("write");
    let d = device(Fault::once(DeviceOp::Discard, 0));
    assert!(d.discard(0, 4096).is_err());
    d.write_at(&[1; 16], 0).expect("write");
    d.flush().expect("flush");
    assert!(d.failure().is_none());
}
