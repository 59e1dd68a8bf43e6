use super::*;
use crate::Programs;
use crate::workload::{FsMark, Limits, SyncMode, Workload as _};

#[test]
fn names_on_the_command_line() {
    let same = |text: &str| assert_eq!(Contender::parse(text).unwrap().name(), text);
    for text in [
        "library",
        "library:commit=30,data=writeback",
        "node:nofast_commit",
        "mount",
        "kernel:nobarrier",
        "fuse2fs",
        "noop",
        "noop:io_uring",
        "raw",
        "/mnt/x",
        "./y",
    ] {
        same(text);
    }
    let error = Contender::parse("kernle").unwrap_err().to_string();
    assert!(
        error.contains("kernle") && error.contains("library") && !error.contains('\n'),
        "{error}"
    );
    let error = Contender::parse("raw:ro").unwrap_err().to_string();
    assert!(error.contains("no options"), "{error}");
    for text in ["memory", "image", "/dev/vdb", "nvme"] {
        assert_eq!(Medium::parse(text).unwrap().to_string(), text);
    }
    assert!(Medium::parse("floppy").is_err());
}

fn place(dir: &std::path::Path, medium: Medium) -> Place {
    Place { medium, dir: dir.into(), programs: Programs::default() }
}

/// The device's counters see what the load did, and nothing stays behind.
#[test]
fn the_library_on_memory_and_on_an_image() {
    let scratch = tempfile::tempdir().unwrap();
    for medium in ["memory", "image", "nvme"].map(|m| Medium::parse(m).unwrap()) {
        let emulated = matches!(medium, Medium::Emulated(_));
        let volume = VolumeSpec { size: 64 << 20, ..VolumeSpec::default() };
        let place = place(scratch.path(), medium);
        let session =
            Session::start(&Contender::Library("commit=30".into()), &place, &volume).unwrap();
        let before = session.reading();
        let load = FsMark {
            files: 10,
            size: 4096,
            sync: SyncMode::BeforeClose,
            keep: true,
            ..FsMark::default()
        };
        let outcome = load.run(&**session.target(), &Limits::default()).unwrap();
        let cost = session.reading().since(&before);
        let device = cost.device.unwrap();
        assert_eq!(outcome.done, 10);
        assert!(device.write_bytes >= 10 * 4096, "{device:?}");
        assert!(device.flushes >= 10, "one thread cannot share flushes: {device:?}");
        assert!(cost.cpu_ns > 0 && cost.transactions.is_some());
        assert_eq!(cost.late.is_some(), emulated);
        session.finish().unwrap();
    }
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
}

/// A file that can discard reads as zeros then, and mkfs notes that nothing is left to zero.
#[test]
fn a_used_image_has_inode_tables_to_zero() {
    let scratch = tempfile::tempdir().unwrap();
    let spec = VolumeSpec { stale: true, lazy: true, ..VolumeSpec::default() };
    let how = extol_block::OpenOptions::read_write().create_size(spec.size);
    let device = medium::open(&scratch.path().join("image"), &how).unwrap();
    session::make_outside(&device, &spec).unwrap();
    let options = extol::MountOptions::parse("noinit_itable").unwrap();
    let fs = extol::Ext4::open(device, &options).unwrap();
    let lazy = fs.stats().lazy_init;
    assert_eq!((lazy.groups_total, lazy.groups_done), (8, 0));
    fs.unmount().unwrap();
}

#[test]
fn a_directory_is_left_as_it_was() {
    let scratch = tempfile::tempdir().unwrap();
    let contender = Contender::Dir(scratch.path().into());
    let place = place(scratch.path(), Medium::Memory);
    let session = Session::start(&contender, &place, &VolumeSpec::default()).unwrap();
    let load = FsMark {
        files: 3,
        dirs: 2,
        per_dir: 1,
        sync: SyncMode::SyncAndFirst,
        keep: true,
        ..FsMark::default()
    };
    assert_eq!(load.run(&**session.target(), &Limits::default()).unwrap().done, 3);
    session.finish().unwrap();
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
}

#[test]
fn bad_options_are_one_line() {
    let scratch = tempfile::tempdir().unwrap();
    let place = place(scratch.path(), Medium::Memory);
    let error = Session::start(&Contender::Library("frob".into()), &place, &VolumeSpec::default())
        .unwrap_err();
    assert_eq!(error.to_string(), "unknown mount option \"frob\"");
}
