//! `extol mkfs -E android_sparse`: the volume is made as a raw image beside the target, and what
//! takes the target's place is the sparse image of it.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use extol::image::build::Built;
use extol_block::open::write_android_sparse;
use extol_block::{FileDevice, OpenOptions};
use extol_cli_common::{Failure, Result};
use extol_proc::Shown as _;

use super::confirm;
use crate::args::MkfsArgs;
use crate::volume::{self, MkfsOptions, Summary};

/// A file beside the target that goes when this is dropped, unless it was renamed.
struct Beside(PathBuf);

impl Beside {
    fn new(target: &Path, what: &str) -> Self {
        let mut name = std::ffi::OsString::from(".");
        name.push(target.file_name().unwrap_or_default());
        name.push(format!(".extol-{}-{what}", std::process::id()));
        Self(target.with_file_name(name))
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Makes the volume and writes it in that format.
pub fn run(
    args: &MkfsArgs,
    options: MkfsOptions,
    epoch: Option<u64>,
) -> Result<(Summary, Option<Built>)> {
    let target = &args.target;
    let usage = |why: &str| Failure { code: Failure::USAGE, ..Failure::about(target.shown(), why) };
    if !volume::is_whole_file(super::target(args)?) || options.only_superblocks {
        return Err(usage("android_sparse is for a new volume in a file of its own"));
    }
    match fs::metadata(target) {
        Ok(file) if !file.is_file() => {
            return Err(usage("is no file, and an Android sparse image is one: name another"));
        }
        _ if options.size.is_none() && args.contents.is_empty() => {
            return Err(usage("is made anew: give the size of the volume"));
        }
        Ok(_) => drop(volume::claim_for_mkfs(target, args.force, confirm)?),
        Err(_) => {}
    }
    let place = fs::canonicalize(target).unwrap_or_else(|_| target.clone());
    let (raw, image) = (Beside::new(&place, "raw"), Beside::new(&place, "sparse"));
    let mut raw_args = args.clone();
    raw_args.target.clone_from(&raw.0);
    let as_typed = |mut failure: Failure| {
        let own = raw.0.shown().to_string();
        failure.line = failure.line.replace(&own, &target.shown().to_string());
        failure
    };
    let made = super::made(&raw_args, options, epoch).map_err(as_typed)?;
    let failed = |error| Failure::system_call(target.shown(), error);
    let device = FileDevice::open(&raw.0, &OpenOptions::read_only());
    let device = device.map_err(|error| Failure::about(target.shown(), error))?;
    let mut out = BufWriter::new(File::create_new(&image.0).map_err(failed)?);
    write_android_sparse(&device, made.0.block_size, &mut out)
        .map_err(|error| Failure::about(target.shown(), error))?;
    out.flush().map_err(failed)?;
    out.get_ref().sync_all().map_err(failed)?;
    fs::rename(&image.0, &place).map_err(failed)?;
    Ok(made)
}
