use super::*;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

/// A pipe that holds these bytes; its ends do not block, as those of a mount.
fn holding(bytes: &[u8]) -> (OwnedFd, OwnedFd) {
    let (reader, writer) = pipe_with(PipeFlags::NONBLOCK).expect("pipe");
    fcntl_setpipe_size(&writer, bytes.len().max(1)).expect("size");
    let mut rest = bytes;
    while !rest.is_empty() {
        let n = rustix::io::write(&writer, rest).expect("room");
        rest = &rest[n..];
    }
    (reader, writer)
}

fn left(pipe: &OwnedFd) -> u64 {
    rustix::io::ioctl_fionread(pipe).expect("FIONREAD")
}

/// The next `len` bytes of a pipe that holds more arrive, and no others.
fn arrives(device: &dyn BlockDevice, len: usize, offset: u64) {
    let before = vec![0x55; len + 8192];
    let start = offset - 4096;
    device.write_at(&before, start).expect("write");
    let data = pattern(len + 100, 7);
    let (reader, _writer) = holding(&data);
    device.write_piped(reader.as_fd(), len, offset).expect("piped");
    let mut back = vec![0; before.len()];
    device.read_at(&mut back, start).expect("read");
    let at = (offset - start) as usize;
    assert!(back[at..at + len] == data[..len], "{len} at {offset}");
    assert!(
        back[..at].iter().chain(&back[at + len..]).all(|&b| b == 0x55),
        "beside {len} at {offset}"
    );
    assert_eq!(left(&reader), 100);
}

fn arrives_everywhere(device: &FileDevice) {
    for (len, offset) in [(4096, 8192), (512 << 10, 1 << 20), (12_288, 4096 + 512), (5000, 9000)] {
        arrives(device, len, offset);
    }
}

#[test]
fn what_a_pipe_holds_is_written() {
    let dir = TempDir::new().expect("dir");
    let path = image(&dir, 8 * MIB);
    let buffered = open(&path, &OpenOptions::read_write().direct(Direct::Off));
    arrives_everywhere(&buffered);
    assert!(buffered.splice_works.load(Ordering::Relaxed));
    // As on a kernel that cannot do it.
    buffered.splice_works.store(false, Ordering::Relaxed);
    arrives_everywhere(&buffered);
    drop(buffered);
    let direct = open(&path, &OpenOptions::read_write().direct(Direct::Auto));
    arrives_everywhere(&direct);
    drop(direct);
    if let Some(device) = Loop::attach(&path, &[]) {
        arrives_everywhere(&open(&device.node, &OpenOptions::read_write()));
    }
}

/// Parts of pages, as those of a program's unaligned memory: what the kernel does not take for
/// direct I/O is read.
#[test]
fn pages_that_do_not_fit_are_copied() {
    let dir = TempDir::new().expect("dir");
    let path = image(&dir, 8 * MIB);
    let (len, skipped) = (256 << 10, 100);
    let data = pattern(len + skipped, 5);
    let source = dir.path().join("source");
    std::fs::write(&source, &data).expect("source");
    let source = File::open(&source).expect("source");
    let mut devices = vec![open(&path, &OpenOptions::read_write().direct(Direct::Auto))];
    let attached = Loop::attach(&path, &[]);
    if let Some(attached) = &attached {
        devices.clear();
        devices.push(open(&attached.node, &OpenOptions::read_write()));
    }
    for device in devices {
        let (reader, writer) = pipe_with(PipeFlags::NONBLOCK).expect("pipe");
        fcntl_setpipe_size(&writer, 2 * len).expect("size");
        let mut from = skipped as u64;
        while from < data.len() as u64 {
            let left = data.len() - from as usize;
            let n = splice(&source, Some(&mut from), &writer, None, left, SpliceFlags::empty());
            assert!(n.expect("splice") > 0);
        }
        device.write_piped(reader.as_fd(), len, 8192).expect("piped");
        let mut back = vec![0; len];
        device.read_at(&mut back, 8192).expect("read");
        assert!(back == data[skipped..]);
        assert_eq!(left(&reader), 0);
    }
}
