//! The machine: QEMU's arguments, and what is read from it until it ends.
//!
//! States: booting (nothing read), ready (the script runs), ended (the agent has said so; QEMU must
//! end by itself), or cut (QEMU has ended with [`CUT`]). Each but the last becomes a failure when
//! the limit passes; so does the end of QEMU in another state than ended.

use crate::{End, Failed, Guest, Report};
use extol_testkit::{Scratch, tool};
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long QEMU may take to end after the agent's last line.
const LAST: Duration = Duration::from_secs(20);
/// Exit code of QEMU after `power-cut`: its device makes 2n+1 of the byte n = 42.
const CUT: i32 = 85;
/// How much a script may print.
const MOST: usize = 4 << 20;
/// The byte that begins a line of the agent.
const AGENT: u8 = 1;
/// A drive whose image cannot be written fails in the guest, too, and does not stop it.
const ERRORS: &str = ",werror=report,rerror=report";
/// For the kernel: errors on the console, no waits and checks for broken hardware, an end of QEMU
/// at a panic.
const KERNEL: &str = "console=ttyS0 quiet loglevel=4 panic=-1 oops=panic rdinit=/init nokaslr \
    mitigations=off no_timer_check tsc=reliable cryptomgr.notests random.trust_cpu=on";

fn command(guest: &Guest, console: &Path, kernel: &Path, initramfs: &Path) -> Command {
    let accel = std::env::var("EXTOL_GUEST_ACCEL").unwrap_or_else(|_| "tcg".to_owned());
    // The kernel kills QEMU when the thread ends that has started it (GU-1).
    let mut command = tool("setpriv");
    command.args(["--pdeathsig", "KILL", "qemu-system-x86_64"]);
    command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    command.args(["-machine", "pc", "-cpu", "max", "-accel", &accel]);
    command.args(["-m", &guest.memory.to_string(), "-append", KERNEL]);
    command.arg("-kernel").arg(kernel).arg("-initrd").arg(initramfs);
    command.args(["-device", "isa-debug-exit,iobase=0xf4,iosize=1"]);
    for (id, path) in [("console", console), ("report", Path::new("/dev/stdout"))] {
        command.arg("-chardev").arg(format!("file,id={id},path={}", option(path)));
        command.args(["-serial", &format!("chardev:{id}")]);
    }
    if guest.network {
        command.args(["-netdev", "user,id=host,ipv6=off", "-device", "virtio-net-pci,netdev=host"]);
    }
    for (nr, drive) in guest.drives.iter().enumerate() {
        let node = serde_json::json!({
            "driver": "raw", "node-name": format!("drive{nr}"), "read-only": drive.read_only,
            "discard": "unmap",
            "file": { "driver": "file", "filename": drive.path, "discard": "unmap" },
        });
        command.args(["-blockdev", &node.to_string()]);
        command.args(["-device", &format!("virtio-blk-pci,drive=drive{nr}{ERRORS}")]);
    }
    command
}

/// A path in an option of QEMU, which has lists with commas.
fn option(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

/// A running QEMU, killed on drop.
struct Running {
    child: Child,
    lines: Receiver<Vec<u8>>,
    begun: Instant,
    limit: Duration,
    ready: Option<Duration>,
    output: String,
    busy: Vec<String>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the guest to its end.
pub(crate) fn run(
    guest: &Guest,
    scratch: &Scratch,
    kernel: &Path,
    initramfs: &Path,
) -> Result<Report, Failed> {
    let (console, errors) = (scratch.join("console"), scratch.join("errors"));
    let mut command = command(guest, &console, kernel, initramfs);
    let said = File::create(&errors).map_err(|e| Failed::new(format!("has no log: {e}")))?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(said);
    let mut child = command.spawn().map_err(|e| Failed::new(format!("does not start: {e}")))?;
    let lines = lines_of(child.stdout.take().expect("stdout is piped"));
    let begun = Instant::now();
    let mut running = Running {
        child,
        lines,
        begun,
        limit: guest.limit,
        ready: None,
        output: String::new(),
        busy: Vec::new(),
    };
    let end = running.follow().and_then(|end| running.finish(end));
    let took = begun.elapsed();
    let read = |path: &Path| {
        String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
    };
    let console = read(&console) + &read(&errors);
    let output = std::mem::take(&mut running.output);
    match end {
        Ok(end) => {
            let boot = running.ready.unwrap_or_default();
            Ok(Report { end, output, console, boot, took })
        }
        Err(what) => Err(Failed { what, output, console }),
    }
}

/// The lines of a pipe, without their ends.
fn lines_of(pipe: ChildStdout) -> Receiver<Vec<u8>> {
    let (send, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).split(b'\n') {
            if line.is_err() || line.is_ok_and(|line| send.send(line).is_err()) {
                return;
            }
        }
    });
    lines
}

impl Running {
    /// Reads until the agent says how it ended.
    fn follow(&mut self) -> Result<End, String> {
        loop {
            let left = self.limit.saturating_sub(self.begun.elapsed());
            let line = match self.lines.recv_timeout(left) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => {
                    let doing = self.ready.map_or("does not boot", |_| "does not end");
                    return Err(format!("{doing} within {:?}", self.limit));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.child.wait().map_err(waiting)?;
                    if status.code() == Some(CUT) {
                        return Ok(End::Cut);
                    }
                    return Err(format!("ended with {status} and without a report"));
                }
            };
            // What the script prints last may have no end of its line.
            let agent = line.iter().position(|byte| *byte == AGENT);
            let (printed, said) = line.split_at(agent.unwrap_or(line.len()));
            self.output.push_str(&String::from_utf8_lossy(printed));
            if said.is_empty() {
                self.output.push('\n');
                if self.output.len() > MOST {
                    return Err(format!("printed more than {MOST} bytes"));
                }
                continue;
            }
            let said = String::from_utf8_lossy(&said[1..]).into_owned();
            match said.split_once(' ').unwrap_or((&said, "")) {
                ("ready", _) => self.ready = Some(self.begun.elapsed()),
                ("busy", dir) => self.busy.push(dir.to_owned()),
                ("end", code) => {
                    return code.parse().map(End::Code).map_err(|_| format!("said {said:?}"));
                }
                _ => return Err(said),
            }
        }
    }

    /// Waits for the end of QEMU.
    fn finish(&mut self, end: End) -> Result<End, String> {
        if end == End::Cut {
            return Ok(end);
        }
        let since = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) if !status.success() => {
                    return Err(format!("ended with {status}"));
                }
                Ok(Some(_)) if !self.busy.is_empty() => {
                    return Err(format!("could not unmount {}", self.busy.join(" and ")));
                }
                Ok(Some(_)) => return Ok(end),
                Ok(None) if since.elapsed() > LAST => {
                    return Err(format!("did not end within {LAST:?} of its report"));
                }
                Ok(None) => std::thread::sleep(Duration::from_millis(5)),
                Err(e) => return Err(waiting(e)),
            }
        }
    }
}

fn waiting(e: std::io::Error) -> String {
    format!("cannot be waited for: {e}")
}
