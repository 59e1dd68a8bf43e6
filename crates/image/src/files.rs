//! Volumes in files of the host, and on its disks: a file that is not there is made, as long as it
//! has to be, and nothing is left of it if the work fails.

use std::cell::Cell;
use std::fs::File;
use std::ops::ControlFlow;
use std::path::Path;

use extol_block::{BlockDevice as _, DeviceError, DeviceOp, FileDevice, OpenOptions};

use crate::build::{self, BuildOptions, Built, SizeWish};
use crate::error::{BuildError, Result};
use crate::mkfs::{MkfsOptions, MkfsProgress, Summary, mkfs};
use crate::source::Source;

/// Makes an empty volume at a path, whose contents are lost. The options have the size of a file
/// that is not there.
///
/// # Errors
/// As [`mkfs`]; a path that cannot be opened, or is in use.
pub fn mkfs_file(
    path: &Path,
    options: &MkfsOptions,
    progress: &mut dyn FnMut(MkfsProgress),
) -> Result<Summary> {
    on_new(path, options.size, |device, is_new| {
        let mut options = options.clone();
        options.extended.prezeroed |= is_new;
        Ok(mkfs(device, &options, progress)?)
    })
}

/// Builds a volume at a path from all that a source has. What was there is lost; a file is as long
/// as the volume afterwards if the size is as its files need. Once `progress` has stopped the work,
/// it is not called any more.
///
/// # Errors
/// As [`build::build`]; a path that cannot be opened, or is in use.
pub fn build_file(
    path: &Path,
    source: &mut dyn Source,
    options: &BuildOptions,
    progress: build::Progress<'_>,
) -> Result<Built> {
    // (Short steps go on to their end before they are stopped.)
    let stopped = Cell::new(false);
    let told = &mut |at| {
        stopped.set(stopped.get() || progress(at).is_break());
        if stopped.get() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let tree = build::list(source, options)?;
    let mut options = options.clone();
    let measured = match options.size {
        SizeWish::Given => None,
        SizeWish::AsNeeded(_) => Some(build::measure(source, &tree, &options, told)?),
    };
    let needed = measured.as_ref().map(|measured| measured.bytes);
    options.mkfs.size = needed.or(options.mkfs.size);
    let built = on_new(path, options.mkfs.size, |device, is_new| {
        options.mkfs.extended.prezeroed |= is_new;
        let built = build::build_tree(device, source, &tree, measured.as_ref(), &options, told)?;
        if stopped.get() { Err(BuildError::Stopped) } else { Ok(built) }
    })?;
    if let Some(bytes) = needed.filter(|_| path.is_file()) {
        let cut = File::options().write(true).open(path).and_then(|file| {
            file.set_len(bytes)?;
            file.sync_all()
        });
        cut.map_err(|error| DeviceError::new(DeviceOp::Resize, 0, bytes, error))?;
    }
    Ok(built)
}

/// Does `work` on the device of a path, and makes it durable. It is told whether the file is new,
/// and so reads as zeros.
fn on_new<T>(
    path: &Path,
    size: Option<u64>,
    work: impl FnOnce(&FileDevice, bool) -> Result<T>,
) -> Result<T> {
    let refuse = |why: &str| Err(BuildError::Refused(format!("{}: {why}", path.display())));
    let is_there = path.exists();
    if !is_there && size.is_none() {
        return refuse("is not there, and no size is given");
    }
    // What is taken away after a failure is what was made here, and nothing else.
    let is_new = !is_there && File::options().write(true).create_new(true).open(path).is_ok();
    if !is_new && path.is_symlink() && !path.exists() {
        return refuse("is a link that leads nowhere");
    }
    let mut how = OpenOptions::read_write();
    how.create_size = size;
    let outcome = FileDevice::open(path, &how).map_err(BuildError::from).and_then(|device| {
        let done = work(&device, is_new)?;
        device.flush()?;
        Ok(done)
    });
    if is_new && outcome.is_err() {
        // (What cannot be taken away is no volume.)
        let _ = std::fs::remove_file(path);
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::Free;
    use crate::source::{DirOptions, DirSource};

    #[test]
    fn a_file_is_made_and_as_long_as_it_has_to_be() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("new.img");
        let mut options = MkfsOptions::default();
        let refused = mkfs_file(&path, &options, &mut |_| {}).unwrap_err();
        assert!(refused.to_string().contains("no size") && !path.exists(), "{refused}");
        options.size = Some(8 << 20);
        options.features.push("no_such_feature".into());
        let refused = mkfs_file(&path, &options, &mut |_| {}).unwrap_err();
        assert!(refused.to_string().contains("no_such_feature") && !path.exists(), "{refused}");
        options.features.clear();
        mkfs_file(&path, &options, &mut |_| {}).unwrap();
        assert_eq!(path.metadata().unwrap().len(), 8 << 20);

        let tree = scratch.path().join("tree");
        std::fs::create_dir(&tree).unwrap();
        std::fs::write(tree.join("file"), vec![7; 100_000]).unwrap();
        let mut source = DirSource::open(&tree, DirOptions::default()).unwrap();
        let mut options =
            BuildOptions { size: SizeWish::AsNeeded(Free::Bytes(0)), ..BuildOptions::default() };
        let go_on = &mut |_| ControlFlow::Continue(());
        build_file(&path, &mut source, &options, go_on).unwrap();
        let len = path.metadata().unwrap().len();
        assert!(len < 4 << 20 && len > 100_000, "{len}");
        // Work that is stopped at its end is stopped as well.
        let other = scratch.path().join("other.img");
        let stop_late = &mut |at: build::BuildProgress| match at.stage {
            build::BuildStage::Metadata => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        };
        let stopped = build_file(&other, &mut source, &options, stop_late).unwrap_err();
        assert!(matches!(stopped, BuildError::Stopped) && !other.exists(), "{stopped}");
        let link = scratch.path().join("link");
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        assert!(build_file(&link, &mut source, &options, go_on).is_err() && link.is_symlink());
        // One that was there stays, whatever it holds.
        options.size = SizeWish::Given;
        options.mkfs.size = Some(64 << 10);
        assert!(build_file(&path, &mut source, &options, go_on).is_err() && path.exists());
    }
}
