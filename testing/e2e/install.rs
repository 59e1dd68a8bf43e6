//! `make install`: for an ordinary user, and for root.

use extol_testkit::{
    Finished, Need, Scratch, as_unprivileged, extol_path, find_tool, require, run, run_ok, tool,
};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const NEEDS: [Need; 3] = [Need::Root, Need::Tool("make"), Need::Tool("setpriv")];

/// What `make install` takes from the repository, and what `make` has built, where all users reach
/// it.
fn checkout(scratch: &Scratch) -> PathBuf {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let dir = scratch.dir("checkout");
    for path in ["Makefile", "scripts/install.sh", "docs/examples/extol-mount@.service"] {
        let to = dir.join(path);
        std::fs::create_dir_all(to.parent().expect("a directory")).expect("mkdir");
        std::fs::copy(repository.join(path), to).expect("copy");
    }
    std::fs::create_dir_all(dir.join("target/quick")).expect("mkdir");
    run_ok(tool("cp").arg(extol_path()).arg(dir.join("target/quick/extol")));
    run_ok(tool("chmod").args(["-R", "a+rX"]).arg(&dir));
    dir
}

fn make(user: bool, dir: &Path, words: &[&str]) -> Finished {
    let program = find_tool("make").expect("make");
    let mut command = if user { as_unprivileged(&program) } else { tool("make") };
    for name in ["PREFIX", "DESTDIR", "SBINDIR", "UNITDIR", "ZSHDIR", "PROFILE", "MAKEFLAGS"] {
        command.env_remove(name);
    }
    command.env_remove("CARGO_TARGET_DIR").current_dir(dir).args(["-s", "--no-print-directory"]);
    run(command.args(words), Duration::from_secs(60))
}

/// The files and links below a directory, relative to it.
fn files(dir: &Path) -> Vec<String> {
    let listed = run_ok(tool("find").arg(dir).args(["!", "-type", "d", "-printf", "%P\n"]));
    let mut all: Vec<_> = listed.lines().map(str::to_owned).collect();
    all.sort();
    all
}

#[test]
fn a_user_installs_without_what_is_root_s() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let dir = checkout(&scratch);
    let home = scratch.dir("home");
    std::fs::set_permissions(&home, PermissionsExt::from_mode(0o777)).expect("chmod");
    let prefix = format!("PREFIX={}/.local", home.display());
    let done = make(true, &dir, &["install", &prefix]);
    assert!(done.success(), "{}", done.output);
    assert_eq!(
        done.output,
        "left out, as they are root's: the helpers of mount(8) and the unit of systemd\n"
    );
    let installed = files(&home);
    for name in [
        "bin/extol",
        "share/man/man1/extol.1",
        "share/man/man1/extol-mount.1",
        "share/bash-completion/completions/extol",
        "share/fish/vendor_completions.d/extol.fish",
        "share/zsh/site-functions/_extol",
    ] {
        assert!(installed.contains(&format!(".local/{name}")), "no {name}: {installed:?}");
    }
    assert!(!installed.iter().any(|name| name.contains("systemd")), "{installed:?}");
    let said = run_ok(as_unprivileged(&home.join(".local/bin/extol")).arg("--version"));
    assert!(said.starts_with("extol "), "{said}");
    // Again, over itself; and away.
    assert!(make(true, &dir, &["install", &prefix]).success());
    assert_eq!(files(&home), installed);
    let done = make(true, &dir, &["uninstall", &prefix]);
    assert!(done.success() && done.output.is_empty(), "{}", done.output);
    assert_eq!(files(&home), Vec::<String>::new());
}

/// Told in one line: a place that is not the user's, and one that depends on where make runs.
#[test]
fn places_that_cannot_be() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let dir = checkout(&scratch);
    let mine = scratch.dir("root-s");
    for (prefix, words) in [
        (format!("{}/deep/er", mine.display()), "is not yours to write: be root, or set PREFIX="),
        ("local".to_owned(), "PREFIX is local: give an absolute path"),
    ] {
        let done = make(true, &dir, &["install", &format!("PREFIX={prefix}")]);
        let lines: Vec<_> =
            done.output.lines().filter(|line| !line.starts_with("make: ***")).collect();
        assert!(!done.success() && lines.len() == 1, "{}", done.output);
        assert!(lines[0].contains(words), "{}", done.output);
    }
    assert_eq!(files(&mine), Vec::<String>::new());
}

/// Root, and packages that an ordinary user builds, have all of it.
#[test]
fn all_of_it_where_it_may_be() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let dir = checkout(&scratch);
    let (root, package) = (scratch.dir("root"), scratch.dir("package"));
    std::fs::set_permissions(&package, PermissionsExt::from_mode(0o777)).expect("chmod");
    let (prefix, helpers) = (root.join("usr"), root.join("sbin"));
    let prefix = format!("PREFIX={}", prefix.display());
    let helpers = format!("SBINDIR={}", helpers.display());
    let destination = format!("DESTDIR={}", package.display());
    for (user, words, dir_of, at) in [
        (false, &[&*prefix, &*helpers][..], &root, "usr"),
        (true, &[&*destination, "PREFIX=/usr"][..], &package, "usr"),
    ] {
        let done = make(user, &dir, &[&["install"], words].concat());
        assert!(done.success() && done.output.is_empty(), "{}", done.output);
        let installed = files(dir_of);
        for name in ["sbin/mount.extol", "sbin/mount.fuse.extol"] {
            assert!(installed.contains(&name.to_owned()), "no {name}: {installed:?}");
        }
        let unit = format!("{at}/lib/systemd/system/extol-mount@.service");
        assert!(installed.contains(&unit), "{installed:?}");
        let done = make(user, &dir, &[&["uninstall"], words].concat());
        assert!(done.success() && done.output.is_empty(), "{}", done.output);
        assert_eq!(files(dir_of), Vec::<String>::new());
    }
}
