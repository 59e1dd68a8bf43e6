//! A resize that ends on the way says which size the volume has.

use std::sync::Arc;

use extol::resize::ResizeError;
use extol_block::{BlockDevice, DeviceOp, MemDevice};
use extol_devices::{Fault, FaultDevice};

use super::crash::assert_recovers;
use super::*;

/// Inode tables of groups that go lie in the first ones: they are free behind the first cut.
const LAYOUT: &str = "-t ext4 -b 1024 -N 16384 -J size=2";

fn prepared() -> Image {
    let args: Vec<&str> = LAYOUT.split(' ').collect();
    let image = Image::new("64M", &args);
    image.with(|fs| {
        let ballast = common::file(fs, fs.root(), "ballast");
        let how = extol::vfs::Fallocate::Allocate { keep_size: false };
        fs.fallocate(ballast, how, 0, 40 << 20).unwrap();
        fill_some(fs, 8);
        fs.sync().unwrap();
        fs.unlink(fs.root(), b"ballast").unwrap();
    });
    image
}

/// The device fails at the first write, or the second and so on, behind the first cut.
#[test]
fn an_error_behind_the_first_cut_names_the_size_that_is_reached() {
    let image = prepared();
    let bytes = std::fs::read(&image.path).unwrap();
    let before = image.blocks();
    for after in [0, 1, 3, 10, 40] {
        let what = format!("write {after}");
        let base = MemDevice::from_bytes(&bytes);
        let device = Arc::new(FaultDevice::new(base, []));
        let options = MountOptions::default().without_threads();
        let fs = Ext4::open(Arc::clone(&device) as _, &options).unwrap();
        let mut armed = false;
        let mut arm = |_| {
            if device.size() < before << 10 && !armed {
                device.arm(Fault::from_then_on(DeviceOp::Write, after));
                armed = true;
            }
            true
        };
        let error = fs.resize(Target::Minimum, &mut arm).unwrap_err();
        let ResizeError::Partly { before: was, blocks, .. } = &error else {
            panic!("{what}: {error:?}");
        };
        assert_eq!((*was, *blocks << 10), (before, device.size()), "{what}: {error}");
        assert!(matches!(error.cause(), ResizeError::Fs(_)), "{what}: {error:?}");
        let words = format!("; the volume went from {before} to {blocks} blocks");
        assert!(error.to_string().ends_with(&words), "{what}: {error}");
        drop(fs);
        device.disarm();
        assert_eq!(assert_recovers(&image, device.inner(), &what), *blocks, "{what}");
    }
}
