//! The scripts that run tests: what they say of failures, what they keep apart, and how they end.

use extol_testkit::{Finished, Need, Scratch, find_tool, require, run, run_ok, text, tool};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

fn script(name: &str) -> PathBuf {
    repository().join("scripts").join(name)
}

fn program(path: &Path, script: &str) {
    std::fs::write(path, format!("#!/bin/bash\n{script}")).expect("write");
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("chmod");
}

/// What a test program prints when three of its tests fail: one by an assertion, one by an error
/// that its thread had not told, one without a word.
const LOG: &str = "
running 4 tests
test one ... FAILED
test two ... ok

failures:

---- names::one stdout ----
said before

thread 'names::one' (4711) panicked at testing/e2e/start/main.rs:22:9:
not within 5s of quiet time: nothing is mounted
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace

---- other stdout ----

thread '<unnamed>' panicked at crates/extol/src/lib.rs:1:2:
assertion `left == right` failed: a.img
  left: 1
 right: 2

---- silent stdout ----
Error: Os { code: 5 }

failures:
    names::one
    other
    silent

test result: FAILED. 1 passed; 3 failed; 0 ignored
";

fn why(log: &str, scratch: &Scratch) -> String {
    let path = scratch.join("log");
    std::fs::write(&path, log).expect("write");
    let mut awk = tool("awk");
    awk.args(["-v", "title=e2e.rs", "-v", "code=134", "-f"]).arg(script("why-failed.awk"));
    run_ok(awk.arg(&path))
}

#[test]
fn each_failed_test_has_a_line_with_its_panic() {
    let scratch = Scratch::new();
    assert_eq!(
        why(LOG, &scratch),
        "e2e.rs: names::one: testing/e2e/start/main.rs:22:9: not within 5s of quiet time: nothing \
            is mounted\n\
         e2e.rs: other: crates/extol/src/lib.rs:1:2: assertion `left == right` failed: a.img\n\
         e2e.rs: silent: failed\n"
    );
    // What is no test program, or has died.
    assert_eq!(why("a\n\nthe last word\n\n", &scratch), "e2e.rs: exit code 134: the last word\n");
    assert_eq!(why("", &scratch), "e2e.rs: exit code 134: \n");
    let long = why(&"x".repeat(1000), &scratch);
    assert!(long.len() == 181 && long.ends_with("...\n"), "{long}");
}

/// Mounts of a program are its own, and none of its start's is shared with others.
#[test]
fn a_program_has_mounts_of_its_own() {
    if !require(&[Need::Root, Need::Kernel("tmpfs"), Need::Tool("unshare")]) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("mnt");
    let inside = "mount -t tmpfs none \"$0\" && touch \"$0/inside\" && ls \"$0\"; exit 7";
    let mut command = tool(text(&script("own-mounts.sh")));
    let done = run(command.args(["sh", "-c", inside]).arg(&dir), LIMIT);
    assert_eq!((done.code, done.output.trim()), (Some(7), "inside"));
    assert_eq!(std::fs::read_dir(&dir).expect("readdir").count(), 0, "it is seen outside");
    // This program has begun so as well, by cargo or by run-tests.sh: what is mounted here, the
    // first process does not see.
    let small = scratch.small_disk("small", "1m");
    let seen = std::fs::read_to_string("/proc/1/mountinfo").expect("mountinfo");
    assert!(!seen.contains(text(&small)), "{seen}");
    // What `cargo run` starts stays where it is.
    let run = scratch.dir("target").join("debug");
    std::fs::create_dir(&run).expect("mkdir");
    program(&run.join("extol"), "readlink /proc/self/ns/mnt\n");
    let mut command = tool(text(&script("own-mounts.sh")));
    let there = run_ok(command.arg(run.join("extol")));
    let here = std::fs::read_link("/proc/self/ns/mnt").expect("readlink");
    assert_eq!(Path::new(there.trim()), here);
}

/// A copy of the scripts with a cargo that knows five test programs, which do as the test says.
struct Checkout {
    scratch: Scratch,
}

impl Checkout {
    fn new() -> Self {
        let scratch = Scratch::new();
        let to = scratch.dir("scripts");
        for name in [
            "heartbeat.sh",
            "machine.sh",
            "own-mounts.sh",
            "repeat.sh",
            "run-tests.sh",
            "why-failed.awk",
        ] {
            std::fs::copy(script(name), to.join(name)).expect("copy");
        }
        let mut list = String::new();
        for (package, source, kind) in [
            ("crates/extol", "crates/extol/src/lib.rs", "lib"),
            ("crates/extol", "crates/extol/examples/read_file.rs", "example"),
            ("crates/cli", "crates/cli/../../testing/e2e/interop/main.rs", "test"),
            ("bench", "bench/tests/command.rs", "test"),
            ("crates/jbd2", "crates/jbd2/tests/model/main.rs", "test"),
        ] {
            let root = text(scratch.path());
            std::fs::create_dir_all(scratch.join(package)).expect("mkdir");
            let name = Path::new(source).with_extension("").display().to_string();
            let executable = scratch.join("bin").join(name.replace(['/', '.'], "-"));
            list.push_str(&format!(
                "{{\"manifest_path\":\"{root}/{package}/Cargo.toml\",\"target\":{{\"kind\":\
                 [\"{kind}\"],\"src_path\":\"{root}/{source}\"}},\"profile\":{{\"test\":{}}},\
                 \"executable\":\"{}\"}}\n",
                kind != "example",
                executable.display()
            ));
            let _ = scratch.dir("bin");
            program(&executable, "echo passes\n");
        }
        std::fs::write(scratch.join("list"), list).expect("write");
        let list = scratch.join("list");
        program(
            &scratch.join("bin/cargo"),
            &format!("case \"$*\" in *--message-format*) cat {} ;; esac\n", list.display()),
        );
        Self { scratch }
    }

    fn test(&self, name: &str, script: &str) {
        program(&self.scratch.join("bin").join(name), script);
    }

    fn run(&self, name: &str, args: &[&str]) -> Finished {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = tool("bash");
        command.arg(self.scratch.join("scripts").join(name)).args(args);
        command.env("PATH", format!("{}:{path}", self.scratch.join("bin").display()));
        command.env_remove("CARGO_TARGET_DIR").env("HEARTBEAT", "1000");
        run(&mut command, LIMIT)
    }
}

#[test]
fn a_run_ends_with_what_failed_and_why() {
    let checkout = Checkout::new();
    let done = checkout.run("run-tests.sh", &[]);
    assert!(done.success(), "{}", done.output);
    assert!(done.output.contains("\n6 programs ran in "), "{}", done.output);

    checkout.test("bench-tests-command", &format!("cat <<'LOG'\n{LOG}\nLOG\nexit 101\n"));
    checkout.test("crates-jbd2-tests-model-main", "echo gone; kill -SEGV $$\n");
    let done = checkout.run("run-tests.sh", &[]);
    assert_eq!(done.code, Some(1), "{}", done.output);
    let (_, end) = done.output.split_once("\nfailed:\n").expect("what failed");
    let mut lines: Vec<&str> = end.lines().filter(|line| !line.is_empty()).collect();
    assert!(lines.pop().is_some_and(|line| line.ends_with("FAILED")), "{end}");
    lines.sort_unstable();
    assert_eq!(lines.len(), 4, "{end}");
    assert!(lines[0].starts_with("bench/tests/command.rs: names::one: testing/e2e/st"), "{end}");
    assert_eq!(lines[3], "crates/jbd2/tests/model/main.rs: exit code 139: gone");

    // Ten lines at most.
    let many: String = (0..14)
        .map(|n| format!("---- t{n} stdout ----\n\nthread 't{n}' panicked at a.rs:{n}:1:\nwhy\n"))
        .collect();
    checkout.test("bench-tests-command", &format!("cat <<'LOG'\n{many}\nLOG\nexit 101\n"));
    let done = checkout.run("run-tests.sh", &["--only", "^bench/"]);
    let (_, end) = done.output.split_once("\nfailed:\n").expect("what failed");
    assert_eq!(end.lines().take_while(|line| !line.starts_with("and ")).count(), 10, "{end}");
    assert!(end.contains("\nand 4 more\n") && end.contains("1 programs ran"), "{end}");
    assert_eq!(checkout.run("run-tests.sh", &["--only", "^none/"]).code, Some(2));
}

/// The tests run again and again until one fails, and the load beside them ends with them.
#[test]
fn repeated_runs_stop_at_the_first_failure() {
    if !require(&[Need::Tool("setpriv"), Need::Tool("pgrep")]) {
        return;
    }
    let checkout = Checkout::new();
    let count = checkout.scratch.join("count");
    let third = format!(
        "echo x >>{0}; [ $(wc -l <{0}) -ne 3 ] && exit 0
         pgrep -f 'while :; do' | wc -l >{0}.load
         printf -- '---- t stdout ----\\nthread t panicked at a.rs:1:1:\\nthe third\\n'
         exit 101\n",
        count.display()
    );
    checkout.test("bench-tests-command", &third);
    let done = checkout.run("repeat.sh", &["--busy", "5", "^bench/"]);
    assert_eq!(done.code, Some(1), "{}", done.output);
    let lines: Vec<&str> = done.output.lines().collect();
    assert_eq!(lines.len(), 6, "{}", done.output);
    assert!(lines[1].starts_with("round 2 of 5: passed"), "{}", done.output);
    assert!(lines[2].starts_with("round 3 of 5: FAILED"), "{}", done.output);
    assert_eq!(lines[4], "bench/tests/command.rs: t: a.rs:1:1: the third");
    assert!(checkout.scratch.join("target/repeat/3.log").exists());
    let busy = std::fs::read_to_string(count.with_extension("load")).expect("the load");
    assert!(busy.trim().parse::<u32>().expect("a number") > 8, "{busy}");

    let done = checkout.run("repeat.sh", &["2", "^bench/"]);
    assert!(done.success() && done.output.lines().count() == 2, "{}", done.output);
    for wrong in [&["0"][..], &["many"], &["1", "a", "b"], &["--quick"]] {
        assert_eq!(checkout.run("repeat.sh", wrong).code, Some(2), "{wrong:?}");
    }
}

/// The load does not outlive a script that is killed.
#[test]
fn load_ends_with_a_script_that_is_killed() {
    if !require(&[Need::Tool("setpriv"), Need::Tool("pgrep")]) {
        return;
    }
    let checkout = Checkout::new();
    let told = checkout.scratch.join("told");
    let waits = format!("pgrep -P $(cat {0}.pid) >{0}; sleep 60\n", told.display());
    checkout.test("bench-tests-command", &waits);
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = tool("bash");
    command
        .args(["-c", &format!("echo $$ >{}.pid; exec \"$0\" --busy 1 ^bench/", told.display())])
        .arg(checkout.scratch.join("scripts/repeat.sh"))
        .env("PATH", format!("{}:{path}", checkout.scratch.join("bin").display()))
        .env_remove("CARGO_TARGET_DIR");
    let mut child = command.spawn().expect("bash");
    let children = || {
        let text = std::fs::read_to_string(&told).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect::<Vec<u32>>()
    };
    extol_testkit::wait_until("the load", LIMIT, || children().len() > 8);
    child.kill().and_then(|()| child.wait()).expect("kill");
    let is_load = |pid: &u32| {
        std::fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| line.windows(11).any(|part| part == b"while :; do"))
    };
    extol_testkit::wait_until("it ends", LIMIT, || !children().iter().any(is_load));
}

/// An empty CARGO_HOME: rustup's programs are found, what was installed into the machine's is not,
/// what cargo installs now is, and cargo is configured as before.
#[test]
fn a_fresh_home_of_cargo() {
    let scratch = Scratch::new();
    let old = scratch.dir("old/bin");
    for name in ["cargo", "rustc", "cargo-deny"] {
        program(&old.join(name), &format!("echo {name}\n"));
    }
    std::fs::write(scratch.join("old/config.toml"), "[net]\nretry = 5\n").expect("write");
    let bash = find_tool("bash").expect("bash");
    let body = format!(
        "set -euo pipefail
         PATH={0}:/usr/bin:/bin; . {1}; fresh_cargo_home
         echo $CARGO_HOME; rustc
         if command -v cargo-deny; then exit 9; fi
         cat $CARGO_HOME/config.toml
         printf '#!/bin/sh\\necho new\\n' >$CARGO_HOME/bin/cargo-deny
         chmod +x $CARGO_HOME/bin/cargo-deny; hash -r; cargo-deny
         ls $CARGO_HOME; rm -rf $CARGO_HOME",
        old.display(),
        script("fresh-cargo-home.sh").display()
    );
    let mut command = tool(text(&bash));
    command.args(["-c", &body]).env("CARGO_HOME", scratch.join("old"));
    let said = run_ok(command.env("TMPDIR", scratch.path()));
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with(text(&scratch.join("extol-cargo-home-"))), "{said}");
    assert_eq!(lines[1..], ["rustc", "[net]", "retry = 5", "new", "bin", "config.toml"]);
    assert!(old.join("cargo-deny").exists() && old.join("cargo").exists());
}
