//! Files of volumes that are not to be trusted, or not whole: copying out gives nothing away,
//! damage hides nothing but itself, a graph of directories does not grow, and no name does anything
//! to a terminal.

mod copying;
mod damage;
mod escapes;
mod graphs;

use extol_testkit::{Finished, Image, Need, Scratch, run, run_ok, tool};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const NEEDS: [Need; 3] = [Need::Root, Need::Tool("mke2fs"), Need::Tool("debugfs")];
const LIMIT: Duration = Duration::from_secs(60);

fn bin() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_extol"))
}

fn extol(args: &[&str]) -> Finished {
    run(Command::new(bin()).args(args), LIMIT)
}

/// Runs `extol`; it must succeed.
#[track_caller]
fn extol_ok(args: &[&str]) -> Finished {
    let done = extol(args);
    assert_eq!(done.code, Some(0), "{}\n{}", done.command, done.output);
    done
}

/// Runs `extol`; it must do what it can, and end with the code of a failure.
#[track_caller]
fn extol_in_part(args: &[&str]) -> Finished {
    let done = extol(args);
    assert_eq!(done.code, Some(32), "{}\n{}", done.command, done.output);
    done
}

fn text(path: &Path) -> &str {
    path.to_str().expect("scratch paths are UTF-8")
}

/// A volume of 16 MiB, changed by these debugfs requests.
fn made_by(scratch: &Scratch, args: &[&str], requests: &[String]) -> Image {
    let args = [&["-t", "ext4", "-b", "1024"], args].concat();
    let image = Image::mke2fs(scratch.path(), "a.img", 16 << 20, &args);
    change(scratch, &image, requests);
    image
}

fn change(scratch: &Scratch, image: &Image, requests: &[String]) {
    let script = scratch.join("requests");
    std::fs::write(&script, requests.join("\n") + "\n").unwrap();
    run_ok(tool("debugfs").arg("-w").arg("-f").arg(&script).arg(&image.path));
}
