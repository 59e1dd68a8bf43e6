//! The sandbox is put on in a process of its own (this test program, started once more), which then
//! tries what is forbidden.

use std::fs::File;
use std::io::{self, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};

use super::*;

/// Set for the process in the sandbox: the file that is its volume.
const CONFINED: &str = "EXTOL_TEST_CONFINED";

fn refused<T>(what: &str, result: io::Result<T>) {
    let error = result.err().unwrap_or_else(|| panic!("{what} is possible"));
    let code = error.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
    let refusals = [rustix::io::Errno::PERM, rustix::io::Errno::ACCESS];
    assert!(code.is_some_and(|code| refusals.contains(&code)), "{what}: {error}");
}

fn in_own_process(test: &str, volume: &Path) -> String {
    let done = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"])
        .env(CONFINED, volume)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let output =
        String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && output.contains("1 passed"), "{output}");
    output
}

fn volume() -> tempfile::NamedTempFile {
    let mut volume = tempfile::NamedTempFile::new().unwrap();
    volume.write_all(&[7; 8192]).unwrap();
    volume
}

fn config<'a>(files: &'a [(&'a Path, bool)]) -> Config<'a> {
    Config { kind: Kind::Daemon, keep: DAEMON, files, port: None, required: false }
}

#[test]
fn what_is_forbidden_is_refused() {
    in_own_process("sandbox::tests::confined_as_a_daemon", volume().path());
}

#[test]
#[ignore = "a part of what_is_forbidden_is_refused"]
fn confined_as_a_daemon() {
    let Some(path) = std::env::var_os(CONFINED) else { return };
    let path = Path::new(&path);
    let file = File::options().read(true).write(true).open(path).unwrap();
    let log = UnixDatagram::unbound().unwrap();
    let other =
        Command::new("sleep").arg("5").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let its = rustix::process::Pid::from_child(&other);
    process::protect();
    prepare(&config(&[(path, true)])).unwrap();
    enter().unwrap();
    let state = PLAN.get().unwrap().state.lock().unwrap().clone();
    println!("{}", describe());
    assert!(state.entered && state.seccomp, "this kernel has no seccomp filters");

    // What a daemon does.
    let mut page = [0; 4096];
    file.read_exact_at(&mut page, 4096).unwrap();
    file.write_all_at(&page, 0).unwrap();
    file.sync_all().unwrap();
    std::thread::spawn(|| vec![1; 64 << 20].len()).join().unwrap();
    drop(log.send_to(b"x", "/dev/log"));
    if state.landlock.is_some() {
        File::options().read(true).write(true).open(path).unwrap();
        std::fs::read("/proc/self/mountinfo").unwrap();
    }

    // What it does not, in this thread and in those that it starts.
    let attempts = move || {
        for name in ["/etc/shadow", "/etc/passwd", "/dev/fuse", "/dev/null"] {
            refused(name, File::open(name));
        }
        refused("own code", File::options().write(true).open("/proc/self/mem"));
        for name in ["mem", "environ", "maps"] {
            refused(name, File::open(format!("/proc/{}/{name}", its.as_raw_nonzero())));
        }
        refused("a new file", File::create("/tmp/extol-sandbox-test"));
        refused("a program", Command::new("/bin/true").spawn());
        refused("a socket", UdpSocket::bind("127.0.0.1:0"));
        refused("a server", TcpListener::bind("127.0.0.1:0"));
        refused("a pair of sockets", UnixDatagram::pair());
        refused(
            "a signal",
            rustix::process::kill_process(its, rustix::process::Signal::KILL).map_err(Into::into),
        );
        let pid = nix::unistd::Pid::from_raw(its.as_raw_nonzero().get());
        refused("a trace", nix::sys::ptrace::attach(pid).map_err(Into::into));
        refused(
            "an unmount",
            rustix::mount::unmount("/proc", rustix::mount::UnmountFlags::DETACH)
                .map_err(Into::into),
        );
        refused(
            "a change of user",
            rustix::thread::set_thread_uid(rustix::fs::Uid::ROOT).map_err(Into::into),
        );
        refused("a directory", std::fs::create_dir("/tmp/extol-sandbox-dir"));
        refused("a removal", std::fs::remove_file("/etc/shadow"));
        refused("a name", std::fs::rename("/etc/shadow", "/etc/shadow2"));
        refused(
            "a mode",
            std::fs::set_permissions(
                "/etc/shadow",
                std::os::unix::fs::PermissionsExt::from_mode(0o666),
            ),
        );
        refused("a link", std::os::unix::fs::symlink("/etc/shadow", "/tmp/extol-sandbox-link"));
        let back = rustix::thread::CapabilitySets {
            effective: rustix::thread::CapabilitySet::SYS_ADMIN,
            permitted: rustix::thread::CapabilitySet::SYS_ADMIN,
            inheritable: rustix::thread::CapabilitySet::empty(),
        };
        refused("a capability", rustix::thread::set_capabilities(None, back).map_err(Into::into));
        refused(
            "a name space",
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWUSER).map_err(Into::into),
        );
        refused("more descriptors", {
            let more = rustix::process::Rlimit { current: Some(9), maximum: Some(9) };
            rustix::process::setrlimit(rustix::process::Resource::Nofile, more).map_err(Into::into)
        });
    };
    let in_thread = attempts;
    attempts();
    std::thread::spawn(in_thread).join().unwrap();
    // (It cannot be killed from here. It ends by itself.)
    std::mem::forget(other);
}

#[test]
#[cfg(feature = "network")]
fn a_connector_connects_and_does_nothing_else() {
    in_own_process("sandbox::tests::confined_as_a_connector", volume().path());
}

#[test]
#[cfg(feature = "network")]
#[ignore = "a part of a_connector_connects_and_does_nothing_else"]
fn confined_as_a_connector() {
    use std::net::TcpStream;
    use std::os::unix::net::{UnixListener, UnixStream};
    let Some(path) = std::env::var_os(CONFINED) else { return };
    let [server, other] = [0; 2].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let address = server.local_addr().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("socket");
    let _unix = UnixListener::bind(&at).unwrap();
    let port = Some(address.port());
    let none = CapabilitySet::empty();
    prepare(&Config { kind: Kind::Connector, keep: none, files: &[], port, required: false })
        .unwrap();
    enter().unwrap();
    let state = PLAN.get().unwrap().state.lock().unwrap().clone();
    assert!(state.entered && state.seccomp, "this kernel has no seccomp filters");
    TcpStream::connect(address).unwrap();
    UnixStream::connect(&at).unwrap();
    if state.landlock.is_some() {
        refused("another port", TcpStream::connect(other.local_addr().unwrap()));
    }
    refused("a file", File::open(path));
    refused("a socket", UdpSocket::bind("127.0.0.1:0"));
    refused("a server", TcpListener::bind("127.0.0.1:0"));
    refused("a program", Command::new("/bin/true").spawn());
    // (The directory stays: it cannot be removed from here.)
    std::mem::forget(dir);
}
