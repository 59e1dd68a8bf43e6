//! A block device that is mounted already. As in Linux, another mount of it is another place of the
//! first one, whose root is bound there.
//!
//! The options are those of the first mount. What it does not have, the second place cannot have
//! either, so it is refused. Only root binds, and only what this process sees mounted: otherwise
//! the device is in use, as an image is whose daemon is elsewhere.

use std::ffi::OsString;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use extol_block::open::{OpenName, Window};
use extol_cli_common::{Failure, Result};
use extol_proc::{Mount, MountTable, Shown as _};

use super::Request;
use crate::mounted::MountedVolume;
use crate::options::{Split, text_of};

/// Words that say nothing about the file system.
const SAY_NOTHING: [&str; 3] = ["defaults", "ro", "rw"];

/// Binds the mount of the device, if it is mounted; false: it is not.
pub fn bind(request: &Request, split: &Split, name: &OpenName) -> Result<bool> {
    let whole = name.part.is_none() && split.part.window == Window::default();
    let begins = !(request.foreground || request.announce || request.clean || request.fd.is_some());
    if !begins || !whole || split.is_loop || !rustix::process::geteuid().is_root() {
        return Ok(false);
    }
    let Ok(device) = std::fs::metadata(&name.path) else { return Ok(false) };
    if !device.file_type().is_block_device() {
        return Ok(false);
    }
    let table = MountTable::own().unwrap_or_default();
    let of_device = table.of_volume(&device, Path::new("/"));
    let Some(first) = of_device.into_iter().find(|mount| mount.root == Path::new("/")) else {
        return Ok(false);
    };
    check(request, split, first)?;
    rustix::mount::mount_bind(&first.dir, &request.dir)
        .map_err(|error| Failure::system_call(request.place(), error))?;
    Ok(true)
}

/// Err unless the first mount has what is asked for.
fn check(request: &Request, split: &Split, first: &Mount) -> Result<()> {
    let refused = |what: String| {
        let place = first.dir.shown();
        Err(Failure::about(
            request.shown_source(),
            format_args!(
                "is mounted on {place} {what}, or unmount it first (extol umount {place})"
            ),
        ))
    };
    match (split.volume.access.read_only, first.has_option("ro")) {
        (true, false) => return refused("read-write: mount it without ro".into()),
        (false, true) => return refused("read-only: mount it with -o ro".into()),
        _ => {}
    }
    let stats = MountedVolume::of(&first.dir, "mount")?.stats()?;
    let has = |word: &&OsString| {
        let known = |word: &str| SAY_NOTHING.contains(&word) || first.has_option(word);
        text_of(word).is_some_and(known) || stats.options.iter().any(|option| **word == **option)
    };
    match split.words.iter().find(|word| !has(word)) {
        Some(word) => refused(format!("without {}: leave that out", word.shown())),
        None => Ok(()),
    }
}
