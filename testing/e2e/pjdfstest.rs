//! The public POSIX test suite `pjdfstest` on a mount, against Linux's ext4 in the same run:
//! whatever passes there must pass here.

use extol_testkit::{Image, KernelMount, Need, Scratch, Subject, e2fsck, require, run};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const VERSION: &str = "0.2.2";

const CONFIG: &str = r#"
[features]
posix_fallocate = {}
rename_ctime = {}
stat_st_birthtime = {}
utime_now = {}
utimensat = {}

[settings]
naptime = 0.02
allow_remount = false

[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"#;

/// The suite's program, installed once into the build directory.
fn program() -> PathBuf {
    let tools = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("tools");
    let program = tools.join("bin/pjdfstest");
    if !program.exists() {
        let cargo = option_env!("CARGO").unwrap_or("cargo");
        let mut install = Command::new(cargo);
        install
            .args(["install", "pjdfstest", "--version", VERSION, "--locked", "--debug", "--root"])
            .arg(&tools);
        // It runs once for each time that it is compiled: optimising it would take longer than the
        // suite.
        install
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            // The crate names a toolchain, for which rustup would exchange the one that is there.
            .env("RUSTC", Path::new(cargo).with_file_name("rustc"))
            .env_remove("CARGO_TARGET_DIR")
            .env_remove("RUSTFLAGS")
            .arg("--target-dir")
            .arg(tools.join("build"));
        let done = run(&mut install, Duration::from_secs(600));
        assert!(done.success(), "cannot install pjdfstest:\n{}", done.output);
    }
    program
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CaseResult {
    Passed,
    Skipped,
    Failed,
}

/// Runs the suite on a directory; the result of each case.
fn run_suite(scratch: &Scratch, mount: &Path, secondary: &Path) -> BTreeMap<String, CaseResult> {
    let config = scratch.join("pjdfstest.toml");
    std::fs::write(&config, CONFIG).expect("write the configuration");
    let mut command = Command::new(program());
    command.arg("-c").arg(&config).arg("-s").arg(secondary).arg("-p").arg(mount);
    let done = run(&mut command, Duration::from_secs(300));
    let results: BTreeMap<String, CaseResult> = done.output.lines().filter_map(result).collect();
    assert!(
        results.len() > 300,
        "only {} results, exit code {:?}:\n{}",
        results.len(),
        done.code,
        done.output
    );
    results
}

/// A line of the suite's report: the name of a case, blanks, and how it went.
fn result(line: &str) -> Option<(String, CaseResult)> {
    let (name, rest) = line.split_once(' ')?;
    if !name.contains("::") {
        return None;
    }
    let rest = rest.trim();
    let result = if rest.starts_with("ok") || rest.starts_with("success") {
        CaseResult::Passed
    } else if rest.starts_with("skipped") {
        CaseResult::Skipped
    } else {
        CaseResult::Failed
    };
    Some((name.to_owned(), result))
}

#[test]
fn what_passes_on_linux_passes_here() {
    let needs = [
        Need::Root,
        Need::Loop,
        Need::Fuse,
        Need::Kernel("ext4"),
        Need::Tool("mke2fs"),
        Need::User("nobody"),
        Need::User("daemon"),
    ];
    if !require(&needs) {
        return;
    }
    let scratch = Scratch::new();
    let linux_image = Image::mke2fs(scratch.path(), "linux.img", 256 << 20, &["-t", "ext4"]);
    let linux = KernelMount::mount(&linux_image, &scratch.dir("linux"), &[]);
    let other_image = Image::mke2fs(scratch.path(), "other.img", 64 << 20, &["-t", "ext4"]);
    let other = KernelMount::mount(&other_image, &scratch.dir("other"), &[]);
    let by_linux = run_suite(&scratch, linux.path(), other.path());

    let image = Image::mke2fs(scratch.path(), "a.img", 256 << 20, &["-t", "ext4"]);
    let mount = Subject::under_test().mount(&image, &scratch.dir("mnt"), &[]);
    let by_subject = run_suite(&scratch, mount.path(), other.path());
    mount.unmount();
    e2fsck(&image).assert_clean("after pjdfstest");

    let passed =
        |v: &BTreeMap<String, CaseResult>| v.values().filter(|v| **v == CaseResult::Passed).count();
    println!("passed: {} on Linux, {} on the subject", passed(&by_linux), passed(&by_subject));
    let worse: Vec<String> = by_linux
        .iter()
        .filter(|(_, result)| **result == CaseResult::Passed)
        .filter(|(name, _)| by_subject.get(*name) != Some(&CaseResult::Passed))
        // The C library says that it does not know how many links a FUSE file may have, and the
        // case skips itself.
        .filter(|(name, _)| {
            *name != "link::link_count_max" || by_subject.get(*name) != Some(&CaseResult::Skipped)
        })
        .map(|(name, _)| format!("  {name}: {:?}\n", by_subject.get(name)))
        .collect();
    assert!(worse.is_empty(), "{} cases pass on Linux only:\n{}", worse.len(), worse.concat());
    assert!(passed(&by_linux) > 350, "the suite must have run in full");
}
