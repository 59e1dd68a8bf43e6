//! Pages of the guide do what they say: every command of a page is run, in order, in one shell and
//! one directory, and prints what the page shows.
//!
//! [`page`] reads a page; what may differ and how a page says so stands there. A page without marks
//! is run as a newcomer reads it.

mod page;

use extol_testkit::{Need, Scratch, as_unprivileged, extol_copy, extol_path, require, run, tool};
use page::{Step, differs, steps};
use std::fmt::Write as _;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

/// How long a page may take.
const LIMIT: Duration = Duration::from_secs(120);

/// The script that runs the steps: one shell, so that variables and directories last. What a step
/// prints goes to a file, and the first step with another exit code than it should have is the
/// last.
fn script(steps: &[Step], at: &Path, beside: &Path) -> String {
    let (at, beside) = (at.display(), beside.display());
    let mut script = format!("cd {at}\n");
    for (nr, step) in steps.iter().enumerate() {
        let (out, code) = (format!("{beside}/{nr}.out"), step.code);
        let _ = writeln!(script, ". {beside}/{nr}.sh >{out} 2>&1 </dev/null");
        let _ =
            writeln!(script, "code=$?; echo $code >{beside}/{nr}.code; [ $code = {code} ] || exit");
    }
    script
}

/// As which user a page is run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reader {
    /// The test's own.
    Same,
    /// One without rights of root.
    Unprivileged,
}

/// Runs the steps of a page; says what is otherwise than the page has it.
fn follow(name: &str, text: &str, reader: Reader, limit: Duration) -> Result<(), String> {
    let steps = steps(text)?;
    if steps.is_empty() {
        return Err(format!("{name} has no commands"));
    }
    let scratch = Scratch::new();
    // Pages have the directory as /srv, so its name must not occur in what they print otherwise.
    let (at, beside) = (scratch.dir("srv"), scratch.dir("steps"));
    for (nr, step) in steps.iter().enumerate() {
        let command = step.command.clone() + "\n";
        std::fs::write(beside.join(format!("{nr}.sh")), command).expect("write a step");
    }
    let all = beside.join("all.sh");
    std::fs::write(&all, script(&steps, &at, &beside)).expect("write the script");
    let path = std::env::var("PATH").unwrap_or_default();
    let mut bin = extol_path().parent().expect("a directory").to_owned();
    let mut shell = tool("bash");
    if reader == Reader::Unprivileged {
        shell = as_unprivileged(Path::new("bash"));
        // The program may lie where only root gets.
        bin = scratch.dir("bin");
        let _ = extol_copy(&bin);
        for dir in [&at, &beside] {
            std::fs::set_permissions(dir, Permissions::from_mode(0o777)).expect("chmod");
        }
    }
    let bin = bin.display();
    let done = run(
        shell
            .arg(&all)
            .env("PATH", format!("{bin}:{path}:/usr/sbin:/sbin"))
            .env("HOME", &at)
            .env("LC_ALL", "C.UTF-8")
            .env("TZ", "UTC"),
        limit,
    );
    for (nr, step) in steps.iter().enumerate() {
        let read = |kind: &str| {
            let file = beside.join(format!("{nr}.{kind}"));
            std::fs::read(file).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        };
        let here = format!("{name}:{}: {}", step.line, step.command);
        let output = read("out").unwrap_or_default().replace(&at.display().to_string(), "/srv");
        let Ok(code) = read("code") else {
            return Err(format!("{here}\ndoes not end; it printed:\n{output}{}", done.output));
        };
        if code.trim() != step.code.to_string() {
            return Err(format!("{here}\nended with {}; it printed:\n{output}", code.trim()));
        }
        if let Some(shown) = step.shown.as_ref().filter(|shown| differs(shown, &output)) {
            return Err(format!("{here}\nprinted:\n{output}the page has:\n{}", shown.join("\n")));
        }
    }
    Ok(())
}

#[track_caller]
fn page(name: &str, needs: &[Need]) {
    page_of(name, needs, Reader::Same, LIMIT);
}

#[track_caller]
fn page_of(name: &str, needs: &[Need], reader: Reader, limit: Duration) {
    if !require(&[needs, &[Need::Tool("bash")]].concat()) {
        return;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide").join(name);
    let text = std::fs::read_to_string(&path).expect("read a page");
    follow(name, &text, reader, limit).unwrap_or_else(|what| panic!("{what}"));
}

#[test]
fn casefold() {
    page("casefold.md", &[Need::Root, Need::Fuse, Need::Tool("chattr")]);
}

#[test]
fn encryption() {
    page("encryption.md", &[]);
}

#[test]
fn fast_commits() {
    page("fast-commits.md", &[Need::Root, Need::Fuse, Need::Tool("mke2fs"), Need::Tool("tune2fs")]);
}

/// Debian's mirror gives the files, and QEMU boots two images in software emulation.
#[test]
fn microvm() {
    let tools = ["mmdebstrap", "qemu-system-x86_64", "busybox", "umoci", "tar"].map(Need::Tool);
    let needs = [&tools[..], &[Need::Root, Need::Guest]].concat();
    page_of("microvm.md", &needs, Reader::Same, Duration::from_secs(480));
}

#[test]
fn network_block_devices() {
    page("network-block-devices.md", &[Need::Tool("nbdkit")]);
}

/// (Root of a client has no rights of its own.)
#[test]
fn nfs() {
    let tools = ["setpriv", "nfs-ls", "nfs-cp"].map(Need::Tool);
    page_of("nfs.md", &[&tools[..], &[Need::Root]].concat(), Reader::Unprivileged, LIMIT);
}

#[test]
fn quota() {
    page("quota.md", &[]);
}

#[test]
fn reproducible_images() {
    page("reproducible-images.md", &[Need::Tool("tar"), Need::Tool("gzip")]);
}

#[test]
fn resize() {
    page("resize.md", &[Need::Tool("sfdisk"), Need::Tool("qemu-img"), Need::Root, Need::Fuse]);
}

/// Each kind of difference between a page and the truth is found.
#[test]
fn differences_are_found() {
    if !require(&[Need::Tool("bash")]) {
        return;
    }
    let block = |body: &str| format!("text\n\n```\n{body}\n```\n");
    let check = |body: &str| follow("page.md", &block(body), Reader::Same, LIMIT);
    assert_eq!(check("$ x=1; mkdir d; cd d\n$ echo $x; pwd\n1\n/srv/d\n$ true"), Ok(()));
    let words = |result: Result<(), String>, words: &[&str]| {
        let what = result.expect_err("a difference");
        assert!(words.iter().all(|word| what.contains(word)), "{what}");
    };
    words(check("$ true\n$ false\n$ true"), &["page.md:5: false", "ended with 1"]);
    words(check("$ echo one; echo two\none"), &["page.md:4: echo", "one\ntwo\n"]);
    words(check("$ echo one\none\ntwo"), &["one\ntwo"]);
    words(check("$ echo one\ntwo"), &["two"]);
    // A command without shown output prints what it will.
    assert_eq!(check("$ echo one"), Ok(()));
    words(check("no command"), &["no commands"]);
    words(check("$ exit 3"), &["exit 3", "does not end"]);
    words(follow("page.md", "```\n$ true\n", Reader::Same, LIMIT), &["no end"]);
}
