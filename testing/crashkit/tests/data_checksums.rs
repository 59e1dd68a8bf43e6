//! Data and records with one flush: the worst that a crash can do is to keep the records and lose
//! the data. Extol's recovery sees that. e2fsck and Linux do not look, and then files whose fsync
//! had not returned show zeros, and never what their blocks held before.

use extol::Ext4;
use extol_block::{BlockDevice as _, MemDevice};
use extol_crashkit::outside::{load_all, save_all};
use extol_crashkit::recover::recover;
use extol_crashkit::tape::{Change, Event, Tape};
use extol_crashkit::variant::Variant;
use extol_testkit::{KernelMount, Need, Scratch, e2fsck_fix, require};

const DATA: u8 = 0xD7;
const LEN: usize = 3000;
const FILES: usize = 60;
/// Zeros are written ahead in pieces of at least so many bytes.
const AHEAD: usize = 16 << 10;

/// Files that are written and synced one after the other. Gives the volume before, and what was
/// done to it.
fn run(variant: &Variant) -> (MemDevice, Vec<Event>) {
    let base = variant.make().unwrap().into_devices().remove(0);
    let tape = Tape::new(vec![base.snapshot()]);
    let fs = Ext4::open(tape.device(0), &variant.load_options(None, false).unwrap()).unwrap();
    // After these nothing but the files is on its way when zeros are first used.
    for name in ["a", "b"] {
        fs.create_file(name).unwrap().sync_all().unwrap();
    }
    for nr in 0..FILES {
        let file = fs.create_file(format!("f{nr}")).unwrap();
        file.write_at(&[DATA; LEN], 0).unwrap();
        file.sync_all().unwrap();
    }
    let checksummed = fs.stats().journal.fast_commit.checksummed;
    assert!(checksummed > FILES as u64 / 2, "{checksummed} with checksums");
    (base, tape.finish().0)
}

/// Neither the zeros that are written ahead nor the data of files.
fn is_record(event: &Event) -> bool {
    match &event.change {
        Change::Write { data, .. } if data.len() >= AHEAD => data.iter().any(|b| *b != 0),
        Change::Write { data, .. } => data[..16] != [DATA; 16],
        _ => true,
    }
}

fn apply(event: &Event, to: &MemDevice) {
    match &event.change {
        Change::Write { offset, data } => to.write_at(data, *offset).unwrap(),
        Change::Zero { offset, len } => to.zero_range(*offset, *len).unwrap(),
        Change::Size(bytes) => to.set_size(*bytes).unwrap(),
        Change::Flush { .. } | Change::Settled { .. } => {}
    }
}

/// The states before each flush in which all records are there, and no data that was not flushed.
fn worst(base: &MemDevice, events: &[Event]) -> Vec<MemDevice> {
    let (durable, mut states) = (base.snapshot(), Vec::new());
    let mut since = 0;
    for (at, event) in events.iter().enumerate() {
        if !matches!(event.change, Change::Flush { .. }) {
            continue;
        }
        let waiting = &events[since..at];
        if waiting.iter().any(|e| !is_record(e)) && waiting.iter().any(is_record) {
            let state = durable.snapshot();
            waiting.iter().filter(|e| is_record(e)).for_each(|e| apply(e, &state));
            states.push(state);
        }
        waiting.iter().for_each(|e| apply(e, &durable));
        since = at;
    }
    states
}

/// What files show: how many all their data, and how many zeros. Err: something else.
fn verify(files: impl Iterator<Item = (String, Vec<u8>)>) -> Result<(usize, usize), String> {
    let (mut whole, mut zeros) = (0, 0);
    for (name, content) in files {
        match content {
            empty if empty.is_empty() => {}
            data if data == [DATA; LEN] => whole += 1,
            data if data == [0; LEN] => zeros += 1,
            other => return Err(format!("{name} shows {:02x?}…", &other[..other.len().min(16)])),
        }
    }
    Ok((whole, zeros))
}

fn on_volume(device: MemDevice, variant: &Variant) -> Result<(usize, usize), String> {
    let fs = Ext4::open(std::sync::Arc::new(device), &variant.recovery_options(None)).unwrap();
    let names = (0..FILES).map(|nr| format!("f{nr}"));
    verify(names.filter_map(|name| fs.read_file(&name).ok().map(|content| (name, content))))
}

#[test]
fn nothing_old_is_ever_seen() {
    let variant = Variant::by_name("fc-4k").unwrap();
    let (base, events) = run(&variant);
    let states = worst(&base, &events);
    assert!(states.len() > FILES / 2, "{} states", states.len());
    let mut missing = 0;
    for (nr, state) in states.iter().enumerate() {
        let ours = recover(&variant, &[state.snapshot()]).unwrap().devices.remove(0);
        assert_eq!(
            on_volume(ours, &variant).unwrap().1,
            0,
            "state {nr}: Extol's recovery shows zeros"
        );
        if nr % 4 != 0 {
            continue;
        }
        if require(&[Need::Tool("e2fsck")]) {
            let dir = Scratch::in_memory();
            let image = save_all(&[state.snapshot()], dir.path(), "state").unwrap();
            let report = e2fsck_fix(&image);
            assert_eq!(report.unexpected_repairs(), None, "state {nr}: {}", report.output);
            let theirs = load_all(&image).unwrap().remove(0);
            missing +=
                on_volume(theirs, &variant).unwrap_or_else(|e| panic!("state {nr}, e2fsck: {e}")).1;
        }
        if nr % 16 == 0 && require(&[Need::Root, Need::Loop, Need::Kernel("ext4")]) {
            let dir = Scratch::in_memory();
            let image = save_all(&[state.snapshot()], dir.path(), "state").unwrap();
            let point = dir.path().join("mnt");
            std::fs::create_dir_all(&point).unwrap();
            let mount = KernelMount::try_mount(&image, &point, &[]).unwrap();
            let names = (0..FILES).map(|nr| format!("f{nr}"));
            let found = names.filter_map(|name| {
                let content = std::fs::read(mount.path().join(&name)).ok()?;
                Some((name, content))
            });
            let seen = verify(found).unwrap_or_else(|e| panic!("state {nr}, Linux: {e}"));
            mount.unmount();
            missing += seen.1;
        }
    }
    assert!(missing > 0, "no state is as bad as it should be");
}

/// The test above can fail: it does where blocks are handed out before their zeros are on the
/// medium.
#[test]
fn zeros_must_be_durable_first() {
    use extol_jbd2::planted::{Bug, set};
    if !require(&[Need::Tool("e2fsck")]) {
        return;
    }
    let variant = Variant::by_name("fc-4k").unwrap();
    set(Some(Bug::ZerosNotDurable));
    let (base, events) = run(&variant);
    set(None);
    let found = worst(&base, &events).into_iter().any(|state| {
        let dir = Scratch::in_memory();
        let image = save_all(&[state], dir.path(), "state").unwrap();
        let _ = e2fsck_fix(&image);
        on_volume(load_all(&image).unwrap().remove(0), &variant).is_err()
    });
    assert!(found, "what the blocks held before is never seen");
}

/// A file is synced, and then overwritten. Wherever the power goes behind the first fsync, the file
/// is there, with the old bytes or the new ones.
fn overwritten() -> Result<usize, String> {
    const NEW: u8 = 0x11;
    let variant = Variant::by_name("fc-4k").unwrap();
    let base = variant.make().unwrap().into_devices().remove(0);
    let tape = Tape::new(vec![base.snapshot()]);
    let fs = Ext4::open(tape.device(0), &variant.load_options(None, false).unwrap()).unwrap();
    for name in ["a", "b"] {
        fs.create_file(name).unwrap().sync_all().unwrap();
    }
    let mut acknowledged = Vec::new();
    for nr in 0..12 {
        let file = fs.create_file(format!("f{nr}")).unwrap();
        file.write_at(&[DATA; LEN], 0).unwrap();
        file.sync_all().unwrap();
        acknowledged.push(tape.position());
        file.write_at(&[NEW; LEN], 0).unwrap();
        file.sync_all().unwrap();
    }
    let settled = fs.stats().journal.fast_commit.overwrites;
    let events = tape.finish().0;
    let state = base.snapshot();
    let mut states = 0;
    for (at, event) in events.iter().enumerate() {
        apply(event, &state);
        let promised = acknowledged.iter().filter(|ack| **ack <= at + 1).count();
        let ours = recover(&variant, &[state.snapshot()])?.devices.remove(0);
        let ours = Ext4::open(std::sync::Arc::new(ours), &variant.recovery_options(None)).unwrap();
        for nr in 0..promised {
            let content =
                ours.read_file(format!("f{nr}")).map_err(|e| format!("state {at}, f{nr}: {e}"))?;
            if content != [DATA; LEN] && content != [NEW; LEN] {
                return Err(format!(
                    "state {at}: f{nr} shows {:02x?}…",
                    &content[..content.len().min(16)]
                ));
            }
        }
        states += 1;
    }
    assert!(settled > 5, "{settled} fast commits before an overwrite");
    Ok(states)
}

#[test]
fn what_was_promised_outlives_its_overwriting() {
    let states = overwritten().unwrap();
    assert!(states > 60, "{states} states");
}

#[test]
fn it_does_not_without_another_fast_commit_in_between() {
    use extol_jbd2::planted::{Bug, set};
    set(Some(Bug::ChecksummedDataOverwritten));
    let found = std::panic::catch_unwind(overwritten);
    set(None);
    assert!(matches!(&found, Ok(Err(why)) if why.contains("f")), "{found:?}");
}

/// Logs, appended to and synced in turns, until they have left the place where small files are: a
/// record shows only what was written, or zeros if others recover. None of them is ever committed
/// in full.
#[test]
fn logs_that_grow_side_by_side() {
    const LOGS: usize = 3;
    const BLOCKS: usize = 80;
    let variant = Variant::by_name("fc-4k").unwrap();
    let base = variant.make().unwrap().into_devices().remove(0);
    let tape = Tape::new(vec![base.snapshot()]);
    let fs = Ext4::open(tape.device(0), &variant.load_options(None, false).unwrap()).unwrap();
    let logs: Vec<_> = (0..LOGS).map(|nr| fs.create_file(format!("log{nr}")).unwrap()).collect();
    let mut acknowledged = Vec::new();
    for block in 0..BLOCKS {
        for (nr, log) in logs.iter().enumerate() {
            log.write_at(&[DATA; 4096], block as u64 * 4096).unwrap();
            log.sync_all().unwrap();
            acknowledged.push((tape.position(), nr, (block + 1) * 4096));
        }
    }
    let stats = fs.stats().journal.fast_commit;
    assert!(
        stats.checksummed + 8 > stats.commits,
        "{} of {} with checksums",
        stats.checksummed,
        stats.commits
    );
    assert_eq!(stats.ineligible, 0, "committed in full because of {:?}", stats.reasons);
    let events = tape.finish().0;
    for (nr, state) in worst(&base, &events).into_iter().enumerate() {
        let check = |device: MemDevice, zeros: bool, by: &str| {
            let fs =
                Ext4::open(std::sync::Arc::new(device), &variant.recovery_options(None)).unwrap();
            for log in 0..LOGS {
                let content = fs.read_file(format!("log{log}")).unwrap_or_default();
                let good = content.iter().take_while(|b| **b == DATA).count();
                let rest = &content[good..];
                assert!(
                    rest.is_empty() || zeros,
                    "state {nr}, {by}: log{log} has {good} of {} bytes",
                    content.len()
                );
                assert!(
                    rest.iter().all(|b| *b == 0),
                    "state {nr}, {by}: log{log} shows what its block held before"
                );
            }
        };
        check(recover(&variant, &[state.snapshot()]).unwrap().devices.remove(0), false, "Extol");
        if nr % 8 == 0 && require(&[Need::Tool("e2fsck")]) {
            let dir = Scratch::in_memory();
            let image = save_all(&[state], dir.path(), "state").unwrap();
            let report = e2fsck_fix(&image);
            assert_eq!(report.unexpected_repairs(), None, "state {nr}: {}", report.output);
            check(load_all(&image).unwrap().remove(0), true, "e2fsck");
        }
    }
    // Whatever is cut off behind an acknowledgement, the log has what it promised.
    let state = base.snapshot();
    for (at, event) in events.iter().enumerate() {
        apply(event, &state);
        if !acknowledged.iter().any(|(position, ..)| *position == at + 1) {
            continue;
        }
        let ours = recover(&variant, &[state.snapshot()]).unwrap().devices.remove(0);
        let fs = Ext4::open(std::sync::Arc::new(ours), &variant.recovery_options(None)).unwrap();
        for (_, log, len) in acknowledged.iter().filter(|(position, ..)| *position <= at + 1) {
            assert!(fs.read_file(format!("log{log}")).unwrap().len() >= *len, "at {at}");
        }
    }
}
