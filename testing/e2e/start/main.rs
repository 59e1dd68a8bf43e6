//! How mounts begin and end: with which flags, what a failed start leaves, what signals do, what an
//! unmount tells, and how many descriptors it takes.

mod descriptors;
mod ends;
mod faults;
mod flags;
mod protected;
mod signals;

use extol_testkit::{
    Finished, Image, Need, Scratch, extol, extol_path, mounted_type, run_extol, text, tool,
};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const NEEDS: [Need; 3] = [Need::Root, Need::Fuse, Need::Tool("mke2fs")];
const LIMIT: Duration = Duration::from_secs(60);

/// A volume, and a directory that is freed in the end, however that comes.
struct Rig {
    scratch: Scratch,
    image: Image,
    dir: PathBuf,
}

impl Rig {
    fn new() -> Self {
        let scratch = Scratch::new();
        let image = Image::mke2fs(scratch.path(), "a.img", 32 << 20, &["-t", "ext4"]);
        let dir = scratch.dir("mnt");
        Self { scratch, image, dir }
    }

    /// Mounts in the background.
    #[track_caller]
    fn mount(&self, args: &[&str]) {
        let done =
            run_extol(&[&["mount"], args, &[text(&self.image.path), text(&self.dir)]].concat());
        assert!(done.success(), "mount {args:?}: {}", done.output);
    }

    fn unmount(&self) -> Finished {
        run_extol(&["umount", text(&self.dir)])
    }

    /// The daemon's process.
    fn daemon(&self) -> rustix::process::Pid {
        let mut text = [0; 32];
        let len = rustix::fs::getxattr(&self.dir, "user.extol.daemon", &mut text[..])
            .expect("a live mount");
        let number = std::str::from_utf8(&text[..len]).unwrap().parse().unwrap();
        rustix::process::Pid::from_raw(number).expect("a process")
    }

    /// Lets ordinary users reach the volume and the program, of which they get a copy.
    fn open_to_all(&self) -> PathBuf {
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("chmod");
        };
        let program = self.scratch.join("extol");
        std::fs::copy(extol_path(), &program).expect("copy of the program");
        mode(self.scratch.path(), 0o755);
        mode(&program, 0o755);
        mode(&self.image.path, 0o666);
        program
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if self.is_mounted() {
            let _ = tool("umount").arg("-l").arg(&self.dir).output();
        }
    }
}

impl Rig {
    fn is_mounted(&self) -> bool {
        mounted_type(&self.dir).is_some()
    }
}

/// Waits until something holds.
#[track_caller]
fn until(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A command that is run as an ordinary user.
fn as_user(program: &Path) -> Command {
    let mut command = tool("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program);
    command
}
