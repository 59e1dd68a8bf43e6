//! VHDX images that were not closed: what is shown is what a replay of the log gives. QEMU says
//! what that is for a log of its own; for logs by hand, a file in which the changes were made.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use extol_block::open::Vhdx;
use extol_block::{BlockDevice, MemDevice};
use extol_devices::OnlyRead;
use extol_ondisk::checksum::crc32c;
use extol_testkit::{Need, require};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

const NEEDS: [Need; 2] = [Need::Tool("qemu-img"), Need::Tool("qemu-io")];
const HEADERS: [usize; 2] = [64 << 10, 128 << 10];
const SECTOR: usize = 4096;

fn run(dir: &Path, program: &str, args: &[&str]) -> bool {
    let run = Command::new(program).args(args).current_dir(dir).output().expect(program);
    run.status.success()
}

fn must(dir: &Path, program: &str, args: &[&str]) {
    assert!(run(dir, program, args), "{program} {args:?}");
}

fn open(bytes: &[u8]) -> Result<Vhdx, String> {
    Vhdx::new(Arc::new(OnlyRead(MemDevice::from_bytes(bytes))))
}

fn contents(image: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(image.size()).unwrap()];
    image.read_at(&mut bytes, 0).unwrap();
    bytes
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn set(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// Makes the sum of a structure right.
fn seal(bytes: &mut [u8]) {
    bytes[4..8].fill(0);
    let sum = !crc32c(!0, bytes);
    set(bytes, 4, &sum.to_le_bytes());
}

/// Says in both headers which entries of the log count. Zeros: it is empty.
fn set_log_id(file: &mut [u8], id: [u8; 16]) {
    for at in HEADERS {
        set(file, at + 48, &id);
        seal(&mut file[at..at + SECTOR]);
    }
}

/// Where the log is, and its bytes.
fn log_of(file: &[u8]) -> (usize, usize) {
    let at = HEADERS[0];
    (usize::try_from(le64(file, at + 72)).unwrap(), le32(file, at + 68) as usize)
}

/// QEMU writes a table of blocks to its log, and fails before it is where it belongs.
#[test]
fn a_log_of_qemu_is_replayed() {
    if !require(&NEEDS) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    must(dir, "qemu-img", &["create", "-q", "-f", "vhdx", "-o", "block_size=1M", "img", "64M"]);
    must(dir, "qemu-io", &["-f", "vhdx", "-c", "write -P 1 1M 700k", "img"]);
    let sound = std::fs::read(dir.join("img")).unwrap();
    let entry = |bytes: &[u8]| {
        let id = b"\x66\x77\xC2\x2D\x23\xF6\x00\x42\x9D\x64\x11\x5E\x9B\xFD\x4A\x08";
        let regions = &bytes[192 << 10..256 << 10];
        let at = regions.windows(16).position(|part| part == id).unwrap();
        usize::try_from(le64(regions, at + 16)).unwrap()
    };
    let faulty = format!(
        "driver=vhdx,file.driver=blkdebug,file.image.driver=file,file.image.filename=img,\
         file.inject-error.0.event=none,file.inject-error.0.iotype=write,\
         file.inject-error.0.sector={}",
        entry(&sound) / 512
    );
    let write = "write -P 2 9M 300k";
    run(dir, "qemu-io", &["--image-opts", "-c", write, &faulty]);
    let file = std::fs::read(dir.join("img")).unwrap();
    let newest = HEADERS.into_iter().max_by_key(|at| le64(&file, at + 8)).unwrap();
    assert!(file[newest + 48..newest + 64] != [0; 16], "it was closed");
    let shown = contents(&open(&file).unwrap());

    must(dir, "cp", &["img", "repaired"]);
    must(dir, "qemu-img", &["check", "-q", "-r", "all", "-f", "vhdx", "repaired"]);
    must(dir, "qemu-img", &["convert", "-f", "vhdx", "-O", "raw", "repaired", "raw"]);
    assert!(shown == std::fs::read(dir.join("raw")).unwrap(), "QEMU shows something else");
    assert!(shown[9 << 20..(9 << 20) + (300 << 10)].iter().all(|byte| *byte == 2));

    // Without the log that is not there.
    let mut emptied = file.clone();
    set_log_id(&mut emptied, [0; 16]);
    assert!(contents(&open(&emptied).unwrap())[9 << 20..10 << 20].iter().all(|byte| *byte == 0));
    // An entry that was cut in the middle of its write is none.
    let (log, _) = log_of(&file);
    for at in [8, 70, SECTOR + 100, 2 * SECTOR - 1] {
        let mut torn = file.clone();
        torn[log + at] ^= 1;
        assert!(open(&torn).unwrap_err().contains("no entry of its log is sound"), "{at}");
    }
}

/// A change that an entry makes.
#[derive(Clone, Debug)]
enum Change {
    Sector(usize, Vec<u8>),
    Zeros(usize, usize),
}

const ID: [u8; 16] = *b"the id of a log!";

/// The header and the descriptors of an entry, and its data.
fn entry(sequence: u64, tail: usize, file: u64, changes: &[Change]) -> Vec<u8> {
    let mut head = vec![0; 64];
    let mut data = Vec::new();
    for change in changes {
        let mut descriptor = [0; 32];
        let at = match change {
            Change::Sector(at, bytes) => {
                set(&mut descriptor, 0, b"desc");
                set(&mut descriptor, 4, &bytes[SECTOR - 4..]);
                set(&mut descriptor, 8, &bytes[..8]);
                data.extend(b"data");
                data.extend(((sequence >> 32) as u32).to_le_bytes());
                data.extend(&bytes[8..SECTOR - 4]);
                data.extend((sequence as u32).to_le_bytes());
                at
            }
            Change::Zeros(at, len) => {
                set(&mut descriptor, 0, b"zero");
                set(&mut descriptor, 8, &len.to_le_bytes());
                at
            }
        };
        set(&mut descriptor, 16, &at.to_le_bytes());
        set(&mut descriptor, 24, &sequence.to_le_bytes());
        head.extend(descriptor);
    }
    head.resize(head.len().next_multiple_of(SECTOR), 0);
    let len = u32::try_from(head.len() + data.len()).unwrap();
    set(&mut head, 0, b"loge");
    set(&mut head, 8, &len.to_le_bytes());
    set(&mut head, 12, &u32::try_from(tail).unwrap().to_le_bytes());
    set(&mut head, 16, &sequence.to_le_bytes());
    set(&mut head, 24, &u32::try_from(changes.len()).unwrap().to_le_bytes());
    set(&mut head, 32, &ID);
    set(&mut head, 48, &file.to_le_bytes());
    set(&mut head, 56, &file.to_le_bytes());
    head.extend(data);
    seal(&mut head);
    head
}

/// An image whose disk is all data, and its log.
struct Image {
    file: Vec<u8>,
    /// Where in the file the disk is.
    disk: usize,
    log: usize,
    len: usize,
}

impl Image {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut rng = SmallRng::seed_from_u64(5);
        let mut disk = vec![0; 4 << 20];
        rng.fill(&mut disk[..]);
        std::fs::write(dir.path().join("raw"), &disk).unwrap();
        let args = ["convert", "-f", "raw", "-O", "vhdx", "-o", "subformat=fixed,block_size=1M"];
        must(dir.path(), "qemu-img", &[&args[..], &["raw", "img"]].concat());
        let mut file = std::fs::read(dir.path().join("img")).unwrap();
        set_log_id(&mut file, ID);
        let at = file.windows(64).position(|part| part == &disk[..64]).unwrap();
        let (log, len) = log_of(&file);
        file[log..log + len].fill(0);
        Self { file, disk: at, log, len }
    }

    /// Puts an entry into the log, which is a ring. Gives where the next one begins.
    fn put(&mut self, at: usize, entry: &[u8]) -> usize {
        for (n, byte) in entry.iter().enumerate() {
            self.file[self.log + (at + n) % self.len] = *byte;
        }
        (at + entry.len()) % self.len
    }

    fn entry(&self, sequence: u64, tail: usize, changes: &[Change]) -> Vec<u8> {
        entry(sequence, tail, self.file.len() as u64, changes)
    }

    /// A sector of the disk with this byte in all places.
    fn sector(&self, number: usize, byte: u8) -> Change {
        Change::Sector(self.disk + number * SECTOR, vec![byte; SECTOR])
    }

    fn zeros(&self, number: usize, count: usize) -> Change {
        Change::Zeros(self.disk + number * SECTOR, count * SECTOR)
    }

    fn shown(&self) -> Result<Vec<u8>, String> {
        open(&self.file).map(|image| contents(&image))
    }

    /// The disk with these changes, and no log.
    fn with(&self, changes: &[Change]) -> Vec<u8> {
        let mut file = self.file.clone();
        set_log_id(&mut file, [0; 16]);
        for change in changes {
            match change {
                Change::Sector(at, bytes) => set(&mut file, *at, bytes),
                Change::Zeros(at, len) => file[*at..at + len].fill(0),
            }
        }
        contents(&open(&file).unwrap())
    }
}

/// Entries of all kinds, which begin anywhere in the ring.
#[test]
fn entries_are_applied_in_their_order() {
    if !require(&NEEDS) {
        return;
    }
    let mut rng = SmallRng::seed_from_u64(23);
    let sound = Image::new();
    for round in 0..40 {
        let mut image = Image { file: sound.file.clone(), ..sound };
        let start = rng.random_range(0..image.len / SECTOR) * SECTOR;
        let (mut at, mut used, mut all) = (start, 0, Vec::new());
        let first: u64 = [1, u64::from(u32::MAX) - 1, 1 << 40][round % 3];
        for sequence in first..first + rng.random_range(1..5) {
            // (More descriptors than fit in one sector.)
            let count = [0, 1, 7, 160][rng.random_range(0..4)];
            let changes: Vec<_> = (0..count)
                .map(|_| {
                    let number = rng.random_range(0..200);
                    let zeros = rng.random_range(0..4) == 0;
                    let mut bytes = vec![0; SECTOR];
                    rng.fill(&mut bytes[..]);
                    let place = image.disk + number * SECTOR;
                    let len = rng.random_range(0..5) * SECTOR;
                    if zeros { Change::Zeros(place, len) } else { Change::Sector(place, bytes) }
                })
                .collect();
            let entry = image.entry(sequence, start, &changes);
            used += entry.len();
            if used > image.len {
                break;
            }
            at = image.put(at, &entry);
            all.extend(changes);
        }
        let shown = image.shown().unwrap();
        assert!(shown == image.with(&all), "round {round}");
        let opened = open(&image.file).unwrap();
        for _ in 0..50 {
            let from = rng.random_range(0..1 << 20);
            let mut part = vec![0xEE; rng.random_range(1..20_000)];
            opened.read_at(&mut part, from as u64).unwrap();
            assert!(part == shown[from..from + part.len()], "round {round}, {from}");
        }
    }
}

/// What is no part of the newest whole sequence is left out.
#[test]
fn only_the_newest_whole_sequence_counts() {
    if !require(&NEEDS) {
        return;
    }
    let sound = Image::new();
    let new = || Image { file: sound.file.clone(), ..sound };
    let [one, two, three] = [(0, 1), (1, 2), (2, 3)].map(|(at, byte)| [sound.sector(at, byte)]);

    // One that was applied before the tail moved.
    let mut image = new();
    let second = image.put(0, &image.entry(4, 0, &one));
    let third = image.put(second, &image.entry(5, second, &two));
    let fourth = image.put(third, &image.entry(6, second, &three));
    assert!(image.shown().unwrap() == image.with(&[&two[..], &three].concat()));

    // One that was cut in the middle of its write; one of another log; a gap in the numbers.
    let torn = image.entry(7, second, &[sound.zeros(3, 1), sound.sector(4, 9)]);
    for at in [0, 5, 20, 40, 64, 64 + 24, 96 + 30, SECTOR, SECTOR + 6, 2 * SECTOR - 1] {
        let mut torn = torn.clone();
        torn[at] ^= 1;
        image.put(fourth, &torn);
        assert!(image.shown().unwrap() == image.with(&[&two[..], &three].concat()), "{at}");
    }
    for (sequence, tail) in [(8, second), (6, second), (5, second), (7, SECTOR), (9, third)] {
        let mut other = image.entry(sequence, tail, &[sound.sector(4, 9)]);
        if sequence == 7 {
            // (Whose numbers go on, of another log.)
            other[32] ^= 1;
            seal(&mut other);
        }
        image.put(fourth, &other);
        let expected = image.with(&[&two[..], &three].concat());
        assert!(image.shown().unwrap() == expected, "{sequence} {tail}");
    }
    // With sound sums, but not as an entry is.
    let sectors = |entry: &[u8]| entry.len() / SECTOR;
    for (at, value) in [(8, 4096), (8, 3 * 4096), (8, 0), (8, 4097), (12, 1), (24, 3), (24, 1)] {
        let mut wrong = torn.clone();
        set(&mut wrong, at, &u32::to_le_bytes(value));
        let len = if at == 8 { (value as usize).clamp(SECTOR, wrong.len()) } else { wrong.len() };
        wrong.resize(sectors(&wrong) * SECTOR, 0);
        seal(&mut wrong[..len]);
        image.put(fourth, &wrong);
        assert!(image.shown().unwrap() == image.with(&[&two[..], &three].concat()), "{at} {value}");
    }
    // The whole entry counts.
    image.put(fourth, &torn);
    let all = [&two[..], &three, &[sound.zeros(3, 1), sound.sector(4, 9)]].concat();
    assert!(image.shown().unwrap() == image.with(&all));

    // The newest names a tail that is not there: the older sequence counts.
    let mut image = new();
    image.put(0, &image.entry(4, 0, &one));
    image.put(40 * SECTOR, &image.entry(50, 20 * SECTOR, &two));
    assert!(image.shown().unwrap() == image.with(&one));
    let mut image = new();
    image.put(40 * SECTOR, &image.entry(50, 20 * SECTOR, &two));
    assert!(image.shown().unwrap_err().contains("no entry of its log is sound"));
}

/// A file that was cut is refused; one that was to become longer is shown so.
#[test]
fn the_file_has_the_length_that_the_log_says() {
    if !require(&NEEDS) {
        return;
    }
    let sound = Image::new();
    let new = || Image { file: sound.file.clone(), ..sound };
    let size = sound.file.len();
    let mut image = new();
    image.put(0, &entry(1, 0, size as u64 + 1, &[]));
    assert!(image.shown().unwrap_err().contains("it is cut short"));

    // The last block, of which the file has nothing: what the log has of it, and zeros.
    let last = size - (1 << 20);
    let changes = [Change::Sector(last + 3 * SECTOR, vec![7; SECTOR])];
    let mut longer = entry(1, 0, last as u64, &changes);
    set(&mut longer, 56, &(size as u64).to_le_bytes());
    seal(&mut longer);
    let mut image = new();
    image.put(0, &longer);
    let expected = image.with(&[&[Change::Zeros(last, 1 << 20)][..], &changes].concat());
    image.file.truncate(last);
    assert!(image.shown().unwrap() == expected);
    // A change alone makes it as long as it needs to be.
    let mut image = new();
    image.put(0, &entry(1, 0, last as u64, &[Change::Zeros(last, 1 << 20)]));
    image.file.truncate(last);
    assert!(image.shown().unwrap() == image_with_zeros(&sound, last));

    // Numbers that no file has.
    let mut image = new();
    image.put(0, &image.entry(1, 0, &[]));
    image.put(SECTOR, &image.entry(2, 0, &[Change::Zeros(usize::MAX - SECTOR + 1, SECTOR)]));
    assert!(image.shown().unwrap() == image.with(&[]));
    let far = [Change::Zeros(usize::MAX - 2 * SECTOR + 1, SECTOR), sound.sector(1, 1)];
    image.put(SECTOR, &image.entry(2, 0, &far));
    assert!(image.shown().unwrap() == image.with(&far[1..]));
}

fn image_with_zeros(sound: &Image, last: usize) -> Vec<u8> {
    let image = Image { file: sound.file.clone(), ..*sound };
    image.with(&[Change::Zeros(last, 1 << 20)])
}

/// A log that its header does not describe as one is refused.
#[test]
fn a_log_in_no_place_is_refused() {
    if !require(&NEEDS) {
        return;
    }
    let sound = Image::new();
    for (at, value, why) in [
        (64, &[1, 0][..], "version of its log"),
        (68, &[0; 4][..], "log is damaged"),
        (68, &[0, 0x10, 0, 0][..], "log is damaged"),
        (68, &[0, 0, 0, 0x40][..], "log is too large"),
        (72, &[0; 8][..], "log is damaged"),
        (72, &[0, 2, 0, 0, 0, 0, 0, 0][..], "log is damaged"),
        (72, &[0, 0, 0, 0, 1, 0, 0, 0][..], "cut short"),
    ] {
        let mut image = Image { file: sound.file.clone(), ..sound };
        image.put(0, &image.entry(1, 0, &[]));
        for header in HEADERS {
            set(&mut image.file, header + at, value);
            seal(&mut image.file[header..header + SECTOR]);
        }
        let said = image.shown().unwrap_err();
        assert!(said.contains(why) && !said.contains('\n'), "{why}: {said}");
    }
}

/// A log that is full of headers, each of which promises more than there is, takes no longer to
/// read.
#[test]
fn a_hostile_log_takes_no_longer() {
    if !require(&NEEDS) {
        return;
    }
    let mut image = Image::new();
    let start = std::time::Instant::now();
    for promised in [1_u32, 126, 127, 20_000, u32::MAX] {
        for at in (0..image.len).step_by(SECTOR) {
            let mut header = image.entry(at as u64 + 1, 0, &[]);
            set(&mut header, 8, &u32::try_from(image.len).unwrap().to_le_bytes());
            set(&mut header, 24, &promised.to_le_bytes());
            image.put(at, &header);
        }
        assert!(image.shown().unwrap_err().contains("no entry of its log is sound"));
    }
    // Entries in one long chain whose tail is nowhere.
    for at in (0..image.len).step_by(SECTOR) {
        let header = image.entry(at as u64 / SECTOR as u64 + 1, image.len - SECTOR, &[]);
        image.put(at, &header);
    }
    // (The newest one is its own tail.)
    assert!(image.shown().unwrap() == image.with(&[]));
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}
