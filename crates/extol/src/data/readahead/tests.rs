//! Readahead on a device that holds its threads up at chosen moments.

use std::sync::Arc;
use std::time::Duration;

use extol_block::{BlockDevice, DeviceError, DeviceOp, MemDevice, Result};
use extol_sync::plain::{Condvar, Mutex};
use extol_vfs::{Fallocate, FileSystem as _};

use super::threads::NAME;
use crate::mkfs::{MkfsOptions, mkfs};
use crate::path::OpenOptions;
use crate::{Ext4, File, MountOptions, ReadaheadStats};

const BLOCK: usize = 4096;
/// The window of a first small read.
const FIRST: u64 = 128 << 10;

/// Where readahead threads are held up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hold {
    Before,
    After,
}

#[derive(Debug, Default)]
struct State {
    hold: Option<Hold>,
    held: usize,
    /// Their reads fail.
    fail: bool,
    /// Reads by other threads.
    others: usize,
}

/// Memory with a barrier for readahead threads.
#[derive(Debug)]
struct Gate {
    inner: MemDevice,
    state: Mutex<State>,
    changed: Condvar,
}

impl Gate {
    fn set(&self, hold: Option<Hold>) {
        self.state.lock().hold = hold;
        self.changed.notify_all();
    }

    fn pass(&self, at: Hold) {
        let mut state = self.state.lock();
        if state.hold == Some(at) {
            state.held += 1;
            self.changed.notify_all();
            self.changed.wait_while(&mut state, |state| state.hold == Some(at));
            state.held -= 1;
        }
    }

    /// Waits until a thread is held up.
    fn wait_held(&self) {
        let mut state = self.state.lock();
        let limit = Duration::from_secs(60);
        let waited = self.changed.wait_while_for(&mut state, |state| state.held == 0, limit);
        assert!(!waited.timed_out(), "no readahead");
    }
}

impl BlockDevice for Gate {
    extol_block::pass_on!(ends);

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        if std::thread::current().name() != Some(NAME) {
            self.state.lock().others += 1;
            return self.inner.read_at(buf, offset);
        }
        self.pass(Hold::Before);
        let fail = self.state.lock().fail;
        let result = self.inner.read_at(buf, offset);
        self.pass(Hold::After);
        if fail {
            let why = std::io::Error::other("on purpose");
            return Err(DeviceError::new(DeviceOp::Read, offset, buf.len() as u64, why));
        }
        result
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.inner.write_at(buf, offset)
    }
}

/// Opens the gate, also when a test fails: closing a file waits for the threads.
struct Opener(Arc<Gate>);

impl Drop for Opener {
    fn drop(&mut self) {
        self.0.set(None);
    }
}

fn contents(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i / 7 + i / BLOCK) as u8 | 1).collect()
}

/// A volume with the file `/f` of so many bytes, all on the device, nothing in memory.
fn volume(list: &str, len: usize) -> (Arc<Gate>, Arc<Ext4>) {
    let inner = MemDevice::new(24 << 20);
    mkfs(&inner, &MkfsOptions::default(), &mut |_| {}).unwrap();
    let gate = Arc::new(Gate { inner, state: Mutex::default(), changed: Condvar::new() });
    // (Access times would be written back. Data in the page cache is not read ahead.)
    let options =
        MountOptions::parse(&format!("noatime,noinit_itable,data_cache_mb=0,{list}")).unwrap();
    let fs = Ext4::open(gate.clone(), &options).unwrap();
    fs.write_file("/f", contents(len)).unwrap();
    fs.sync().unwrap();
    (gate, fs)
}

fn open(fs: &Arc<Ext4>, path: &str) -> File {
    fs.open_file(path, OpenOptions::new().read(true).write(true)).unwrap()
}

fn read(file: &File, at: usize, len: usize) -> Vec<u8> {
    let mut buf = vec![0xEE; len];
    assert_eq!(file.read_at(&mut buf, at as u64).unwrap(), len);
    buf
}

fn stats(fs: &Arc<Ext4>) -> ReadaheadStats {
    fs.stats().readahead
}

/// Waits until so many bytes were read ahead.
fn wait_read(fs: &Arc<Ext4>, bytes: u64) {
    for _ in 0..60_000 {
        if stats(fs).read_bytes >= bytes {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("{:?}", stats(fs));
}

#[test]
fn a_sequential_reader_finds_data_in_memory() {
    let len = 3 << 20;
    let (gate, fs) = volume("", len);
    let all = contents(len);
    let file = open(&fs, "/f");
    assert_eq!(read(&file, 0, BLOCK), all[..BLOCK]);
    wait_read(&fs, FIRST);
    let before = gate.state.lock().others;
    // Calls of any size, across blocks.
    for at in (BLOCK..BLOCK + 60_000).step_by(1000) {
        assert_eq!(read(&file, at, 1000), all[at..at + 1000], "{at}");
    }
    assert_eq!(gate.state.lock().others, before, "no read of the device");
    assert_eq!((stats(&fs).used_bytes, stats(&fs).waits, stats(&fs).late), (60_000, 0, 0));
    // To the end, and once more from the start; reader and threads in any order.
    for _ in 0..2 {
        let mut back = Vec::new();
        while back.len() < len {
            let n = 50_000.min(len - back.len());
            back.extend(read(&file, back.len(), n));
        }
        assert!(back == all);
    }
    assert_eq!(file.read_at(&mut [0; 10], len as u64).unwrap(), 0);
    assert!(stats(&fs).pieces < 40, "{:?}", stats(&fs));
    // The same for a reader of the inode.
    let before = stats(&fs).pieces;
    let reader = fs.reader(file.inode().ino());
    let mut back = vec![0; 2 * BLOCK];
    for part in back.chunks_mut(BLOCK).enumerate() {
        assert_eq!(reader.read((part.0 * BLOCK) as u64, part.1).unwrap(), BLOCK);
    }
    assert!(back == all[..2 * BLOCK] && stats(&fs).pieces > before);
    drop(reader);
    // Random reads.
    let before = stats(&fs).pieces;
    for at in [5, 1, 7, 3] {
        assert_eq!(read(&file, at * 100_000, BLOCK), all[at * 100_000..at * 100_000 + BLOCK]);
    }
    assert_eq!(stats(&fs).pieces, before);
}

#[test]
fn holes_pages_and_the_end_are_not_read_ahead() {
    let (_gate, fs) = volume("", 10 * BLOCK);
    let file = open(&fs, "/f");
    file.allocate(Fallocate::PunchHole, 2 * BLOCK as u64, 2 * BLOCK as u64).unwrap();
    file.allocate(Fallocate::ZeroRange { keep_size: false }, 6 * BLOCK as u64, BLOCK as u64)
        .unwrap();
    let mut all = contents(10 * BLOCK);
    all[2 * BLOCK..4 * BLOCK].fill(0);
    all[6 * BLOCK..7 * BLOCK].fill(0);
    // In memory only.
    file.write_all_at(&[9; 10], 8 * BLOCK as u64).unwrap();
    all[8 * BLOCK..8 * BLOCK + 10].fill(9);
    assert_eq!(read(&file, 0, BLOCK), all[..BLOCK]);
    wait_read(&fs, 6 * BLOCK as u64);
    assert_eq!(stats(&fs).pieces, 3, "parts 1, 4 to 5, 7 to 9");
    for at in (BLOCK..10 * BLOCK).step_by(512) {
        assert_eq!(read(&file, at, 512), all[at..at + 512], "{at}");
    }
    let page = u64::from(fs.stats().block_size);
    assert_eq!(stats(&fs).used_bytes, 6 * BLOCK as u64 - page, "the page comes first");
}

#[test]
fn nothing_without_threads_when_switched_off_or_in_the_log() {
    let cases = [("readahead_kb=0", false), ("data=journal", true)];
    for (list, journalled) in cases {
        let (_gate, fs) = volume(list, 8 * BLOCK);
        let file = open(&fs, "/f");
        let all: Vec<u8> = (0..8).flat_map(|n| read(&file, n * BLOCK, BLOCK)).collect();
        assert!(all == contents(8 * BLOCK));
        assert_eq!(stats(&fs), ReadaheadStats::default(), "{list}");
        fs.remount("readahead_kb=64").unwrap();
        let file = open(&fs, "/f");
        read(&file, 0, BLOCK);
        assert_eq!(stats(&fs).pieces > 0, !journalled, "{list}");
    }
    let device = Arc::new(MemDevice::new(8 << 20));
    mkfs(&*device, &MkfsOptions::default(), &mut |_| {}).unwrap();
    let mut alone = MountOptions::default().without_threads();
    alone.cache.data = Some(0);
    let fs = Ext4::open(device, &alone).unwrap();
    fs.write_file("/f", contents(8 * BLOCK)).unwrap();
    assert!(fs.read_file("/f").unwrap() == contents(8 * BLOCK));
    assert_eq!(stats(&fs), ReadaheadStats::default());
}

/// RA-1: `change` happens after the thread has read the old bytes and before they are used.
fn changed_meanwhile(hold: Hold, change: impl FnOnce(&Arc<Ext4>, &File) -> Vec<u8>) {
    let len = 16 * BLOCK;
    let (gate, fs) = volume("", len);
    let file = open(&fs, "/f");
    let _opener = Opener(gate.clone());
    gate.set(Some(hold));
    assert_eq!(read(&file, 0, BLOCK), contents(BLOCK));
    gate.wait_held();
    let expected = change(&fs, &open(&fs, "/f"));
    gate.set(None);
    wait_read(&fs, (len - BLOCK) as u64);
    assert!(read(&file, BLOCK, expected.len() - BLOCK) == expected[BLOCK..], "old bytes");
    assert_eq!(stats(&fs).dropped, 1);
    fs.unmount().unwrap();
}

#[test]
fn written_while_it_was_being_read_ahead() {
    changed_meanwhile(Hold::After, |_, file| {
        let mut all = contents(16 * BLOCK);
        all[2 * BLOCK..5 * BLOCK].fill(0x55);
        file.write_all_at(&all[2 * BLOCK..5 * BLOCK], 2 * BLOCK as u64).unwrap();
        file.sync_all().unwrap();
        all
    });
}

#[test]
fn cut_off_while_it_was_being_read_ahead() {
    changed_meanwhile(Hold::After, |_, file| {
        file.set_len(3 * BLOCK as u64 + 5).unwrap();
        file.set_len(16 * BLOCK as u64).unwrap();
        let mut all = contents(16 * BLOCK);
        all[3 * BLOCK + 5..].fill(0);
        all
    });
}

#[test]
fn punched_while_it_was_being_read_ahead() {
    changed_meanwhile(Hold::After, |_, file| {
        file.allocate(Fallocate::PunchHole, 4 * BLOCK as u64, 3 * BLOCK as u64).unwrap();
        let mut all = contents(16 * BLOCK);
        all[4 * BLOCK..7 * BLOCK].fill(0);
        all
    });
}

#[test]
fn blocks_that_another_file_got_before_they_were_read_ahead() {
    changed_meanwhile(Hold::Before, |fs, file| {
        let ino = file.inode().ino();
        let old = fs.fiemap(ino, 0, u64::MAX).unwrap();
        file.set_len(BLOCK as u64).unwrap();
        fs.sync().unwrap();
        // All free blocks but a few.
        let other = fs.open_file("/other", OpenOptions::new().write(true).create(true)).unwrap();
        let mut end = 0;
        while other.write_all_at(&[0x77; 16 * BLOCK], end).is_ok() {
            end += 16 * BLOCK as u64;
        }
        other.set_len(end - 64 * BLOCK as u64).unwrap();
        other.sync_all().unwrap();
        let new = fs.fiemap(other.inode().ino(), 0, u64::MAX).unwrap();
        let taken = |at: u64| new.iter().any(|e| (e.physical..e.physical + e.len).contains(&at));
        assert!(old.iter().any(|e| taken(e.physical + e.len - BLOCK as u64)), "{old:?} {new:?}");
        file.set_len(16 * BLOCK as u64).unwrap();
        let mut all = vec![0; 16 * BLOCK];
        all[..BLOCK].copy_from_slice(&contents(BLOCK));
        all
    });
}

/// The inode leaves memory twice, so its version is the old one again.
#[test]
fn the_inode_was_reloaded_meanwhile() {
    let (gate, fs) = volume("inode_cache=64", 16 * BLOCK);
    for n in 0..1500 {
        fs.write_file(format!("/{n}"), "").unwrap();
    }
    fs.sync().unwrap();
    let file = open(&fs, "/f");
    let ino = file.inode().ino();
    let forget = || {
        for _ in 0..100 {
            for n in 0..1500 {
                fs.metadata(format!("/{n}")).unwrap();
            }
            if fs.inner().table.cached(ino).is_none() {
                return;
            }
        }
        panic!("the inode stays in memory");
    };
    forget();
    let _opener = Opener(gate.clone());
    gate.set(Some(Hold::After));
    assert_eq!(read(&file, 0, BLOCK), contents(BLOCK));
    gate.wait_held();
    let asked = fs.inner().cell(ino).unwrap().version();
    forget();
    let mut all = contents(16 * BLOCK);
    all[2 * BLOCK..5 * BLOCK].fill(0x55);
    file.write_all_at(&all[2 * BLOCK..5 * BLOCK], 2 * BLOCK as u64).unwrap();
    fs.sync().unwrap();
    forget();
    gate.set(None);
    assert_eq!(fs.inner().cell(ino).unwrap().version(), asked, "only the cell tells them apart");
    assert!(read(&file, BLOCK, 15 * BLOCK) == all[BLOCK..], "old bytes");
    drop(file);
    fs.unmount().unwrap();
}

#[test]
fn the_reader_does_not_wait_for_queued_pieces() {
    // More pieces than threads, all of which are held up.
    let len = 12 << 20;
    let (gate, fs) = volume("readahead_kb=8192", len);
    let all = contents(len);
    let file = open(&fs, "/f");
    let _opener = Opener(gate.clone());
    gate.set(Some(Hold::Before));
    assert!(read(&file, 0, 4 << 20) == all[..4 << 20]);
    gate.wait_held();
    assert!(stats(&fs).pieces >= 8, "{:?}", stats(&fs));
    let reader = std::thread::scope(|scope| {
        // The first four wait for their threads, the others do not.
        let reader = scope.spawn(|| read(&file, 4 << 20, 8 << 20));
        while stats(&fs).waits == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        gate.set(None);
        reader.join().unwrap()
    });
    assert!(reader == all[4 << 20..]);
}

#[test]
fn a_failed_piece_is_read_again() {
    let (gate, fs) = volume("", 16 * BLOCK);
    gate.state.lock().fail = true;
    let file = open(&fs, "/f");
    let _opener = Opener(gate.clone());
    gate.set(Some(Hold::After));
    read(&file, 0, BLOCK);
    gate.wait_held();
    gate.set(None);
    assert!(read(&file, BLOCK, 15 * BLOCK) == contents(16 * BLOCK)[BLOCK..]);
    assert_eq!((stats(&fs).read_bytes, stats(&fs).used_bytes), (0, 0));
}

/// RA-4.
#[test]
fn closing_waits_for_the_threads() {
    let (gate, fs) = volume("", 16 * BLOCK);
    for forgotten in [false, true] {
        let file = open(&fs, "/f");
        let _opener = Opener(gate.clone());
        gate.set(Some(Hold::After));
        read(&file, 0, BLOCK);
        gate.wait_held();
        if forgotten {
            read(&file, 0, BLOCK);
        }
        let closing = std::thread::spawn(move || drop(file));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!closing.is_finished(), "a thread still reads");
        gate.set(None);
        closing.join().unwrap();
    }
    fs.unmount().unwrap();
    drop(fs);
    assert_eq!(Arc::strong_count(&gate), 1, "the device is closed");
}
