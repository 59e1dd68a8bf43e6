//! Files of volumes that are not to be trusted, or not whole: copying out gives nothing away,
//! damage hides nothing but itself, a graph of directories does not grow, and no name does anything
//! to a terminal.

mod copying;
mod damage;
mod escapes;
mod graphs;

use extol_testkit::{
    Finished, Image, Need, Scratch, extol, extol_copy, extol_path, run_extol, run_ok, text, tool,
};
use std::time::Duration;

const NEEDS: [Need; 3] = [Need::Root, Need::Tool("mke2fs"), Need::Tool("debugfs")];
const LIMIT: Duration = Duration::from_secs(60);

/// Runs `extol`; it must succeed.
#[track_caller]
fn succeeded(args: &[&str]) -> Finished {
    let done = run_extol(args);
    assert_eq!(done.code, Some(0), "{}\n{}", done.command, done.output);
    done
}

/// Runs `extol`; it must do what it can, and end with the code of a failure.
#[track_caller]
fn extol_in_part(args: &[&str]) -> Finished {
    let done = run_extol(args);
    assert_eq!(done.code, Some(32), "{}\n{}", done.command, done.output);
    done
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
