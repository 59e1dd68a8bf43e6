//! The rows of the table: which operations, how often, on what.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use extol::mkfs::{MkfsOptions, mkfs};
use extol::{Ext4, MountOptions};
use extol_task::TestClock;

use crate::count::{Counter, image};
use crate::front::{self, Front};
use crate::table::Row;

/// The ways in, in the order of the table.
pub const FRONTS: [&str; 3] = ["library", "fuse", "nfs"];

/// How often small operations are done, and large ones.
const MANY: u64 = 100;
const FEW: u64 = 10;

const BYTES: u64 = 128 << 20;
const PAGE: usize = 4096;
const LARGE: usize = 1 << 20;
/// Names of the directory that is listed.
const LISTED: usize = 1000;
/// When the clock begins, in seconds: a time that a volume may have.
const BEGIN: u64 = 1_700_000_000;
/// UUID of the volume.
const ID: &str = "c0575c05-75c0-4575-8057-5c0575c05750";
/// Longer than the time between two looks at the device.
const LATER: Duration = Duration::from_millis(1500);

/// The files that the operations of a row work on.
struct State<'a> {
    front: Box<dyn Front + 'a>,
    clock: Arc<TestClock>,
    /// The end of the open file.
    end: u64,
    page: Vec<u8>,
    large: Vec<u8>,
}

fn name(n: u64) -> String {
    format!("file-{n:04}")
}

impl State<'_> {
    fn append(&mut self) {
        self.front.write(self.end, &self.page);
        self.front.fsync();
        self.end += PAGE as u64;
    }

    fn overwrite(&mut self, n: u64) {
        self.front.write(n * PAGE as u64, &self.page);
        self.front.fsync();
    }

    /// Another file is the open one.
    fn turn_to(&mut self, name: &str) {
        self.front.close();
        self.front.open(name);
    }
}

/// Counts one row after the other.
struct Rows<'a> {
    state: State<'a>,
    counter: &'a mut Counter,
    rows: Vec<Row>,
}

impl<'a> Rows<'a> {
    fn count(
        &mut self,
        what: &str,
        times: u64,
        before: impl Fn(&mut State<'a>, u64),
        operation: impl Fn(&mut State<'a>, u64),
    ) {
        let counts = self.counter.row(times, &mut self.state, before, operation);
        let name = format!("{}: {what}", self.state.front.name());
        self.rows.push(Row { name, times, counts });
    }

    /// Counts small operations.
    fn many(&mut self, what: &str, operation: impl Fn(&mut State<'a>, u64)) {
        self.count(what, MANY, |_, _| {}, operation);
    }

    /// Counts small operations that come a second after each other.
    fn later(&mut self, what: &str, operation: impl Fn(&mut State<'a>, u64)) {
        let what = format!("{what}, a second later");
        self.count(&what, MANY, |state, _| state.clock.advance(LATER), operation);
    }

    fn reads(&mut self) {
        self.many("statfs", |state, _| state.front.statfs());
        self.later("statfs", |state, _| state.front.statfs());
        self.many("getattr", |state, _| state.front.getattr());
        self.later("getattr", |state, _| state.front.getattr());
        self.many("lookup", |state, _| assert!(state.front.lookup("large")));
        self.later("lookup", |state, _| assert!(state.front.lookup("large")));
        self.many("lookup of no name", |state, _| assert!(!state.front.lookup("none")));
        let list = |state: &mut State<'a>, _| assert_eq!(state.front.list("listed"), LISTED);
        self.count("readdir of 1,000", FEW, |_, _| {}, list);
        let read = |state: &mut State<'a>, n| {
            let bytes = state.front.read(n * LARGE as u64, LARGE as u32);
            assert_eq!(bytes, LARGE);
        };
        self.count("read 1 MiB", FEW, |_, _| {}, read);
        self.count("read 1 MiB again", FEW, |_, _| {}, read);
    }

    fn changes(&mut self) {
        let create = |state: &mut State<'a>, n| {
            let page = std::mem::take(&mut state.page);
            state.front.create(&name(n), &page);
            state.page = page;
        };
        self.many("create, 4 KiB, fsync, close", create);
        self.state.turn_to("appended");
        self.many("append 4 KiB, fsync", |state, _| state.append());
        self.later("append 4 KiB, fsync", |state, _| state.append());
        self.many("overwrite 4 KiB, fsync", State::overwrite);
        self.later("overwrite 4 KiB, fsync", State::overwrite);
        self.many("rename", |state, n| state.front.rename(&name(n), &format!("{}-new", name(n))));
        self.many("unlink", |state, n| state.front.unlink(&format!("{}-new", name(n))));
        self.state.turn_to("written");
        let write = |state: &mut State<'a>, n| {
            let large = std::mem::take(&mut state.large);
            state.front.write(n * LARGE as u64, &large);
            state.large = large;
        };
        self.count("write 1 MiB", FEW, |_, _| {}, write);
        self.state.front.sync();
        let dirty = |state: &mut State<'a>, n| {
            let page = std::mem::take(&mut state.page);
            state.front.write(n * PAGE as u64, &page);
            state.page = page;
        };
        self.count("sync", FEW, dirty, |state, _| state.front.sync());
    }
}

/// A volume that is the same each time: hashes of names decide where they lie.
fn volume() -> MkfsOptions {
    let mut options = MkfsOptions {
        features: vec!["fast_commit".to_owned()],
        block_size: Some(PAGE as u32),
        uuid: Some(ID.to_owned()),
        now: Some(BEGIN),
        ..MkfsOptions::default()
    };
    options.extended.hash_seed = Some([7; 16]);
    options
}

/// The files that operations find there.
fn fill(fs: &Arc<Ext4>) -> extol::vfs::Result<()> {
    fs.write_file("large", vec![b'r'; FEW as usize * LARGE])?;
    fs.write_file("appended", [b'a'; PAGE])?;
    fs.write_file("written", [b'w'; PAGE])?;
    fs.write_file("first", vec![b'f'; LARGE])?;
    for (dir, names) in [("listed", LISTED), ("first-dir", LISTED / 2)] {
        fs.create_dir(dir)?;
        (0..names).try_for_each(|n| fs.write_file(format!("{dir}/{}", name(n as u64)), ""))?;
    }
    Ok(())
}

/// Does once what a process does once: buffers grow, and files of the system are read for them.
fn warm_up(front: &mut dyn Front) {
    front.open("first");
    front.read(0, LARGE as u32);
    front.list("first-dir");
    front.close();
}

/// Counts all rows, on a volume for each way in, whose images are in `dir`. The rows of the trace
/// have the same order.
///
/// # Panics
/// If an operation fails.
#[must_use]
pub fn all(dir: &Path) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut first = 0;
    for name in FRONTS {
        let device = image(&dir.join(name), BYTES);
        mkfs(&*device, &volume(), &mut |_| {}).expect("mkfs");
        let clock = Arc::new(TestClock::default());
        clock.advance(Duration::from_secs(BEGIN));
        let mut options = MountOptions::default().without_threads();
        options.background.clock = Some(Arc::clone(&clock) as _);
        let open = || Ext4::open(Arc::clone(&device) as _, &options).expect("open");
        let fs = open();
        fill(&fs).expect("files");
        fs.unmount().expect("unmount");
        drop(fs);
        let fs = open();
        let mut counter = Counter::new(Arc::clone(&device), first);
        let mut front = front::of(name, &fs);
        warm_up(&mut *front);
        front.open("large");
        let (page, large) = (vec![b'x'; PAGE], vec![b'y'; LARGE]);
        let state = State { front, clock, end: PAGE as u64, page, large };
        let mut counted = Rows { state, counter: &mut counter, rows: Vec::new() };
        counted.reads();
        counted.changes();
        counted.state.front.close();
        first += counted.rows.len();
        rows.extend(counted.rows);
        fs.unmount().expect("unmount");
    }
    rows
}
