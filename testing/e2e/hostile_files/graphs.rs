//! Directories with several parents.

use super::{LIMIT, NEEDS, extol, extol_in_part, made_by, text};
use extol_testkit::{Scratch, require, run};

/// Each directory has two names in the one above it: 2^40 paths lead to the last. And a circle, at
/// the end.
fn diamonds() -> Vec<String> {
    let mut requests = Vec::new();
    let mut path = String::new();
    for _ in 0..40 {
        requests.push(format!("mkdir {path}/a"));
        requests.push(format!("ln {path}/a {path}/b"));
        path += "/a";
    }
    requests.push(format!("ln /a {path}/circle"));
    requests
}

#[test]
fn each_directory_is_visited_once() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = made_by(&scratch, &[], &diamonds());
    let image = text(&image.path);
    let two_names = |stderr: &str| stderr.lines().filter(|line| line.contains("two names")).count();

    let done = extol_in_part(&["ls", "-R", image, "/a"]);
    assert_eq!(done.output.lines().filter(|line| line.ends_with(':')).count(), 40);
    assert_eq!(two_names(&done.stderr), 40, "{}", done.stderr);
    assert!(done.stderr.contains("extol: /a/b: corrupt volume"), "{}", done.stderr);

    let done = extol_in_part(&["cp", image, "/a", text(&scratch.dir("dest"))]);
    assert_eq!(two_names(&done.stderr), 40, "{}", done.stderr);

    let done = run(extol().args(["check", image]), LIMIT);
    assert_eq!(done.code, Some(4));
    assert!(done.output.contains("second name of directory"), "{}", done.output);

    // What has its one name goes; the rest is reported, and nothing above it is removed.
    let done = extol_in_part(&["rm", "-r", image, "/a"]);
    assert!(two_names(&done.stderr) >= 1 && done.stderr.lines().count() < 200, "{}", done.stderr);
}
