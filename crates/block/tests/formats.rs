//! Images of virtual machines beside qemu-img: both read what the other wrote. After a crash at any
//! point of a write to a qcow2 image QEMU finds no damage, and what was flushed is there.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use extol_block::open::{Qcow2, Vhdx, Vmdk};
use extol_block::{BlockDevice, MemDevice, SharedDevice};
use extol_devices::{Event, OnlyRead, RecordingDevice};
use extol_testkit::{Need, require};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

/// Runs qemu-img; gives its exit code.
fn qemu_img(args: &[&str], dir: &Path) -> i32 {
    let run = Command::new("qemu-img").args(args).current_dir(dir).output().expect("qemu-img");
    let code = run.status.code().expect("exit code");
    assert!(code < 4, "{args:?}: {}", String::from_utf8_lossy(&run.stderr));
    code
}

fn must(args: &[&str], dir: &Path) {
    assert_eq!(qemu_img(args, dir), 0, "{args:?}");
}

fn load(path: &Path) -> MemDevice {
    MemDevice::from_bytes(&std::fs::read(path).unwrap())
}

fn open(device: MemDevice) -> Result<Qcow2, String> {
    Qcow2::new(Arc::new(device), None)
}

fn contents(image: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(image.size()).unwrap()];
    image.read_at(&mut bytes, 0).unwrap();
    bytes
}

/// Bytes of a disk: zeros, what can be packed, and what cannot.
fn disk(rng: &mut SmallRng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    for part in bytes.chunks_mut(24 << 10) {
        match rng.random_range(0..4) {
            0 => part.fill(rng.random()),
            1 => rng.fill(part),
            2 => part.iter_mut().step_by(100).for_each(|byte| *byte = rng.random()),
            _ => {}
        }
    }
    bytes
}

const SIZE: usize = 3 << 20;

/// What qemu-img makes is read, in all forms, and what cannot be written to is refused.
#[test]
fn images_of_qemu_img_are_read() {
    if !require(&[Need::Tool("qemu-img")]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut rng = SmallRng::seed_from_u64(7);
    for (n, options) in [
        "compat=1.1",
        "compat=0.10",
        "cluster_size=512",
        "cluster_size=4k",
        "cluster_size=2M",
        "refcount_bits=64",
        "refcount_bits=1",
        "lazy_refcounts=on",
        "preallocation=metadata",
    ]
    .iter()
    .enumerate()
    {
        let bytes = disk(&mut rng, SIZE + n * 512);
        std::fs::write(dir.join("raw"), &bytes).unwrap();
        for packed in [false, true] {
            if packed && options.starts_with("prealloc") {
                continue;
            }
            let mut args = vec!["convert", "-O", "qcow2", "-f", "raw", "-o", options];
            args.extend(packed.then_some("-c"));
            must(&[&args[..], &["raw", "img"]].concat(), dir);
            // (The refcount table of one with small clusters may be too short.)
            match open(load(&dir.join("img"))) {
                Ok(image) => {
                    assert!(!options.starts_with("refcount_bits"), "{options}");
                    assert!(contents(&image) == bytes, "{options} {packed}");
                    assert_eq!(image.write_refusal(), None);
                }
                Err(why) if options.starts_with("refcount_bits") => assert!(why.contains("16 bit")),
                Err(why) => assert!(*options == "cluster_size=512", "{options}: {why}"),
            }
            let image = Qcow2::new(Arc::new(OnlyRead(load(&dir.join("img")))), None).unwrap();
            assert!(contents(&image) == bytes, "{options} {packed}, read-only");
            let is_refused = open(load(&dir.join("img"))).is_err();
            assert_eq!(image.write_refusal().is_some(), is_refused, "{options} {packed}");
            let mut sector = [0; 700];
            image.read_at(&mut sector, 65_000).unwrap();
            assert_eq!(sector, bytes[65_000..65_700]);
        }
    }
    for (options, word) in [
        ("extended_l2=on", "subclusters"),
        ("compression_type=zstd", "zstd"),
        ("data_file=data,data_file_raw=on", "file of their own"),
    ] {
        must(&["create", "-q", "-f", "qcow2", "-o", options, "img", "1M"], dir);
        let why = open(load(&dir.join("img"))).unwrap_err();
        assert!(why.contains(word), "{why}");
    }
    must(&["create", "-q", "-f", "qcow2", "-o", "cluster_size=512", "img", "1G"], dir);
    assert!(open(load(&dir.join("img"))).unwrap_err().contains("cluster_size=64k"));
    must(&["create", "-q", "-f", "qcow2", "img", "1M"], dir);
    must(&["snapshot", "-c", "one", "img"], dir);
    assert!(open(load(&dir.join("img"))).unwrap_err().contains("snapshots"));
    Qcow2::new(Arc::new(OnlyRead(load(&dir.join("img")))), None).unwrap();
}

/// A damaged image is not written to, in one line that names the damage; QEMU finds it, too.
#[test]
fn damaged_images_are_not_written_to() {
    if !require(&[Need::Tool("qemu-img")]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    std::fs::write(dir.join("raw"), vec![7; 1 << 20]).unwrap();
    must(&["convert", "-f", "raw", "-O", "qcow2", "raw", "img"], dir);
    let sound = load(&dir.join("img")).to_bytes();
    open(MemDevice::from_bytes(&sound)).unwrap();
    let word = |at: usize| u64::from_be_bytes(sound[at..at + 8].try_into().unwrap());
    let place = |at: usize| usize::try_from(word(at) & 0x00FF_FFFF_FFFF_FE00).unwrap();
    let l1 = place(40);
    let (l2, refcounts) = (place(l1), place(place(48)));
    let header_len = usize::try_from(word(96) & 0xFFFF_FFFF).unwrap();
    let data = place(l2);
    let set = |at: usize, value: u64| (at, value.to_be_bytes().to_vec());
    for ((at, bytes), word) in [
        (set(l1, word(l1) | 1 << 56), "L1 entry 0 has reserved bits"),
        (set(l1, word(l1) & !(1 << 63)), "not marked"),
        (set(l1, 1 << 63 | 1 << 40), "L2 table 0 (0x10000000000) has no place"),
        (set(l2, word(l2) | 2), "L2 table 0 has reserved bits"),
        (set(l2, word(l2) | 1 << 61), "L2 table 0 has reserved bits"),
        (set(l2, word(l2) | 512), "in no place"),
        (set(l2, word(l2) & !(1 << 63)), "not marked"),
        (set(l2, word(l1)), "is used twice"),
        (set(l2, word(l2 + 8)), "is used twice"),
        (set(l2, 1 << 63), "none"),
        ((refcounts + 2 * (data >> 16), vec![0, 0]), "one user and a refcount of 0"),
        ((refcounts + 2 * (data >> 16), vec![0, 2]), "one user and a refcount of 2"),
        (set(place(48), word(place(48)) | 512), "refcount block 0"),
        (set(72, 1), "refcounts are not up to date"),
        (set(72, 2), "marked as corrupt"),
        (set(8, 1 << 20), "backing file is not inside"),
        ((header_len + 4, vec![0, 1, 0, 0]), "extension of its header is too long"),
        ((100, vec![0, 2, 0, 0]), "not as long as one is"),
        ((60, vec![0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0]), "snapshot table is not inside"),
        ((96, vec![0, 0, 0, 9]), "refcounts have a size"),
        (set(40, 1 << 50), "L1 table is not inside"),
        (set(48, 512), "refcount table is not inside"),
    ] {
        let mut wrong = sound.clone();
        wrong[at..at + bytes.len()].copy_from_slice(&bytes);
        let below = MemDevice::from_bytes(&wrong);
        // (COPIED without a place harms nothing.)
        if word == "none" {
            open(below).unwrap();
            continue;
        }
        let why = open(below.snapshot()).expect_err(word);
        assert!(why.contains(word) && !why.contains('\n'), "{word}: {why}");
        assert!(below.to_bytes() == wrong, "{word}: it was written to");
        // Where it can be read, a reader is told the same.
        if let Ok(image) = Qcow2::new(Arc::new(OnlyRead(below)), None) {
            let refusal = image.write_refusal().expect(word);
            assert!(refusal.starts_with("a qcow2 image; ") && refusal.ends_with(&why), "{refusal}");
        }
        std::fs::write(dir.join("img"), &wrong).unwrap();
        // (The marks alone are no damage to it; it refuses to write.)
        let code = qemu_img(&["check", "-q", "-f", "qcow2", "img"], dir);
        assert!(code != 0 || at == 72, "{word}: qemu-img check finds nothing");
    }
}

/// The disk that a series of changes should give.
struct Model {
    /// What each sector is.
    now: Vec<u8>,
    /// What it may be after a crash: as it was at the last flush, and all since.
    may: Vec<Vec<Vec<u8>>>,
}

const SECTOR: usize = 512;

impl Model {
    fn new(bytes: Vec<u8>) -> Self {
        let may = bytes.chunks(SECTOR).map(|sector| vec![sector.to_vec()]).collect();
        Self { now: bytes, may }
    }

    fn set(&mut self, at: usize, bytes: &[u8]) {
        self.now[at..at + bytes.len()].copy_from_slice(bytes);
        for n in at / SECTOR..(at + bytes.len()).div_ceil(SECTOR) {
            let end = self.now.len().min((n + 1) * SECTOR);
            self.may[n].push(self.now[n * SECTOR..end].to_vec());
        }
    }

    fn flushed(&mut self) {
        for (may, now) in self.may.iter_mut().zip(self.now.chunks(SECTOR)) {
            if may.len() > 1 {
                *may = vec![now.to_vec()];
            }
        }
    }

    fn is_allowed(&self, bytes: &[u8]) -> Option<usize> {
        let sectors = bytes.chunks(SECTOR).zip(&self.may);
        sectors.enumerate().find(|(_, (is, may))| !may.iter().any(|m| m == is)).map(|(n, _)| n)
    }
}

/// One random change. True: what came before is durable now.
fn change(rng: &mut SmallRng, image: &Qcow2, model: &mut Model, below: bool) -> bool {
    let len = [512, 4096, 5000, 70_000, 200_000][rng.random_range(0..5)];
    let at = rng.random_range(0..model.now.len() - len) / SECTOR * SECTOR;
    let whole = len.next_multiple_of(SECTOR).min(model.now.len() - at);
    match rng.random_range(0..10) {
        0..4 => {
            let mut bytes = vec![0; whole];
            rng.fill(&mut bytes[..]);
            // (Before: another thread could crash the machine in the middle.)
            model.set(at, &bytes);
            image.write_at(&bytes, at as u64).unwrap();
        }
        4 => {
            let mut bytes = vec![0; 1024];
            rng.fill(&mut bytes[..]);
            let at = at.min(model.now.len() - 1024);
            model.set(at, &bytes);
            image.write_fua(&bytes, at as u64).unwrap();
            for n in [at / SECTOR, at / SECTOR + 1] {
                let last = model.may[n].pop().unwrap();
                model.may[n] = vec![last];
            }
        }
        5 | 6 => {
            model.set(at, &vec![0; whole]);
            image.zero_range(at as u64, whole as u64).unwrap();
        }
        7 => {
            // (Reads zeros where a cluster went, and is as it was elsewhere.)
            image.discard(at as u64, whole as u64).unwrap();
            let mut bytes = vec![0; whole];
            image.read_at(&mut bytes, at as u64).unwrap();
            if below {
                let same = bytes.iter().zip(&model.now[at..at + whole]);
                assert!(same.into_iter().all(|(is, was)| is == was || *is == 0));
            }
            model.set(at, &bytes);
        }
        _ => {
            image.flush().unwrap();
            model.flushed();
            return true;
        }
    }
    false
}

/// What Extol writes is read by qemu-img, which finds nothing wrong with the image, nor a lost
/// cluster.
#[test]
fn qemu_img_reads_what_is_written() {
    if !require(&[Need::Tool("qemu-img")]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for (seed, options) in
        (0..).zip(["compat=1.1", "compat=0.10", "cluster_size=16k", "cluster_size=2M"])
    {
        let mut rng = SmallRng::seed_from_u64(seed);
        let bytes = disk(&mut rng, SIZE);
        for (kind, extra) in [("empty", None), ("full", None), ("packed", Some("-c"))] {
            let bytes = if kind == "empty" { vec![0; SIZE] } else { bytes.clone() };
            std::fs::write(dir.join("raw"), &bytes).unwrap();
            let mut args = vec!["convert", "-O", "qcow2", "-f", "raw", "-o", options];
            args.extend(extra);
            must(&[&args[..], &["raw", "img"]].concat(), dir);
            let below = Arc::new(load(&dir.join("img")));
            let image = Qcow2::new(below.clone(), None).unwrap();
            let mut model = Model::new(bytes);
            for _ in 0..150 {
                change(&mut rng, &image, &mut model, true);
            }
            assert!(contents(&image) == model.now, "{options} {kind}");
            drop(image);
            std::fs::write(dir.join("img"), below.to_bytes()).unwrap();
            std::fs::write(dir.join("raw"), &model.now).unwrap();
            must(&["check", "-f", "qcow2", "img"], dir);
            must(&["compare", "-f", "raw", "-F", "qcow2", "raw", "img"], dir);
        }
    }
}

/// An overlay: what is not in it comes from the file below, which may be shorter.
#[test]
fn overlays_show_the_file_below() {
    if !require(&[Need::Tool("qemu-img")]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut rng = SmallRng::seed_from_u64(3);
    let base = disk(&mut rng, 1 << 20);
    std::fs::write(dir.join("base"), &base).unwrap();
    let size = SIZE.to_string();
    must(&["create", "-q", "-f", "qcow2", "-b", "base", "-F", "raw", "img", &size], dir);
    let below = Arc::new(load(&dir.join("img")));
    let backing: SharedDevice = Arc::new(OnlyRead(MemDevice::from_bytes(&base)));
    let image = Qcow2::new(below.clone(), Some(backing)).unwrap();
    let mut bytes = base.clone();
    bytes.resize(SIZE, 0);
    let mut model = Model::new(bytes);
    assert!(contents(&image) == model.now);
    for _ in 0..200 {
        change(&mut rng, &image, &mut model, true);
    }
    assert!(contents(&image) == model.now);
    drop(image);
    std::fs::write(dir.join("img"), below.to_bytes()).unwrap();
    std::fs::write(dir.join("raw"), &model.now).unwrap();
    must(&["check", "-f", "qcow2", "img"], dir);
    must(&["compare", "-f", "raw", "-F", "qcow2", "raw", "img"], dir);
    assert!(std::fs::read(dir.join("base")).unwrap() == base);
}

/// A crash behind any event, with any of the writes since the last flush of the file: the image is
/// sound, and each sector is what the last flush of the disk kept, or newer.
#[test]
fn crashes_lose_nothing_that_was_flushed() {
    if !require(&[Need::Tool("qemu-img")]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let is_long = std::env::var_os("EXTOL_LONG").is_some();
    // Every how many states QEMU looks at one, too.
    let (runs, every) = if is_long { (40, 5) } else { (9, 60) };
    for seed in 0..runs {
        let mut rng = SmallRng::seed_from_u64(100 + seed);
        let cluster = ["cluster_size=8k", "cluster_size=64k", "cluster_size=16k"];
        let cluster = cluster[usize::try_from(seed).unwrap() % 3];
        let bytes = disk(&mut rng, 1 << 20);
        std::fs::write(dir.join("raw"), &bytes).unwrap();
        let args = ["convert", "-O", "qcow2", "-f", "raw", "-o", cluster];
        let packed: &[&str] = if seed % 2 == 1 { &["-c"] } else { &[] };
        must(&[&args[..], packed, &["raw", "img"]].concat(), dir);
        let below = Arc::new(RecordingDevice::new(load(&dir.join("img"))));
        let image = Qcow2::new(below.clone(), None).unwrap();
        let mut model = Model::new(bytes);
        let mut steps = Vec::new();
        for _ in 0..60 {
            let start = below.position();
            let before: Vec<_> = model.may.clone();
            change(&mut rng, &image, &mut model, false);
            // While the change is under way, the state before it and the one after it are allowed.
            let both = before.into_iter().zip(&model.may).map(|(mut may, after)| {
                may.extend(after.iter().filter(|s| !may.contains(s)).cloned().collect::<Vec<_>>());
                may
            });
            let both = Model { now: model.now.clone(), may: both.collect() };
            let after = Model { now: model.now.clone(), may: model.may.clone() };
            steps.push((start, below.position(), both, after));
        }
        for (n, (start, end, both, after)) in steps.iter().enumerate() {
            for cut in *start..=*end {
                let allowed = if cut == *end { after } else { both };
                for keep in 0..3 {
                    let what = format!("seed {seed}, step {n}, cut {cut}, kept {keep}");
                    let crashed = below.torn_image_at(cut, |_, _| match keep {
                        0 => false,
                        1 => true,
                        _ => rng.random(),
                    });
                    if rng.random_range(0..every) == 0 {
                        std::fs::write(dir.join("img"), crashed.to_bytes()).unwrap();
                        // (3: clusters are lost.)
                        let code = qemu_img(&["check", "-q", "-f", "qcow2", "img"], dir);
                        assert!(code == 0 || code == 3, "{what}: qemu-img check says {code}");
                    }
                    let reopened = open(crashed);
                    let reopened = reopened.unwrap_or_else(|why| panic!("{what}: {why}"));
                    let wrong = allowed.is_allowed(&contents(&reopened));
                    assert_eq!(wrong, None, "{what}: a sector is not what it may be");
                }
            }
        }
        let flushes = below.log().iter().filter(|event| **event == Event::Flush).count();
        assert!(flushes > 10, "{flushes} flushes");
    }
}

/// VMDK and VHDX images of all kinds in one file are read; others are refused.
#[test]
fn vmdk_and_vhdx_are_read() {
    if !require(&[Need::Tool("qemu-img")]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut rng = SmallRng::seed_from_u64(11);
    // (More than one table of each; a disk that ends within a unit.)
    let mut bytes = disk(&mut rng, 9 << 20);
    bytes.resize((70 << 20) + 512, 0);
    rng.fill(&mut bytes[(66 << 20)..(67 << 20)]);
    rng.fill(&mut bytes[70 << 20..]);
    std::fs::write(dir.join("raw"), &bytes).unwrap();
    let make = |format: &str, options: &str| {
        must(&["convert", "-f", "raw", "-O", format, "-o", options, "raw", "img"], dir);
        Arc::new(OnlyRead(load(&dir.join("img"))))
    };
    let same = |image: &dyn BlockDevice, what: &str| {
        assert!(contents(image) == bytes, "{what}");
        let mut part = vec![0; 200_000];
        image.read_at(&mut part, 1_000_001).unwrap();
        assert!(part == bytes[1_000_001..1_200_001], "{what}");
        assert!(image.write_at(&[0], 0).is_err() && image.make_writable().is_err());
        assert!(image.read_at(&mut part, image.size() - 1).is_err());
    };
    for kind in ["monolithicSparse", "streamOptimized"] {
        let image = Vmdk::new(make("vmdk", &format!("subformat={kind}"))).unwrap();
        same(&image, kind);
    }
    for options in ["subformat=dynamic", "subformat=fixed", "block_size=1M", "block_size=256M"] {
        same(&Vhdx::new(make("vhdx", options)).unwrap(), options);
    }
    // What is damaged.
    let sound = load(&dir.join("img")).to_bytes();
    let vhdx = |bytes: &[u8]| Vhdx::new(Arc::new(OnlyRead(MemDevice::from_bytes(bytes))));
    let mut wrong = sound.clone();
    for at in [64 << 10, 128 << 10] {
        wrong[at + 100] ^= 1;
    }
    assert!(vhdx(&wrong).unwrap_err().contains("damaged"));
    assert!(vhdx(&sound[..200_000]).is_err());
    // Disks in several files, and overlays.
    must(&["create", "-q", "-f", "vmdk", "-o", "subformat=monolithicSparse", "base", "8M"], dir);
    must(&["create", "-q", "-f", "vmdk", "-b", "base", "-F", "vmdk", "over"], dir);
    let over = Vmdk::new(Arc::new(OnlyRead(load(&dir.join("over")))));
    assert!(over.unwrap_err().contains("lies over another image"));
    let mut wrong = load(&dir.join("base")).to_bytes();
    let at = wrong.windows(16).position(|part| part == b"monolithicSparse").unwrap();
    wrong[at..at + 16].copy_from_slice(b"twoGbMaxExtentSp");
    let several = Vmdk::new(Arc::new(OnlyRead(MemDevice::from_bytes(&wrong))));
    assert!(several.unwrap_err().contains("several files"));
}
