//! The examples work as their first lines say. They are built with the tests.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Once;

/// An example's program.
fn program(name: &str) -> PathBuf {
    // target/PROFILE/deps/examples-HASH → target/PROFILE/examples/NAME
    let me = std::env::current_exe().unwrap();
    let program = me.parent().unwrap().with_file_name("examples").join(name);
    if !program.exists() {
        // `cargo test` builds the examples; with only this test chosen, or as tests themselves, it
        // does not.
        static BUILD: Once = Once::new();
        BUILD.call_once(|| {
            let built = Command::new(env!("CARGO"))
                .args(["build", "--quiet", "-p", "extol", "--examples", "--features", "fuse"])
                .status();
            assert!(built.unwrap().success(), "the examples do not build");
        });
    }
    program
}

/// Runs an example and gives what it printed.
fn run(name: &str, args: &[&str]) -> String {
    let out = Command::new(program(name)).args(args).output().unwrap();
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    assert!(out.status.success(), "{name}: {}\n{}", text(&out.stdout), text(&out.stderr));
    text(&out.stdout)
}

#[test]
fn alone_in_memory() {
    assert_eq!(run("read_file", &[]), "Hello from a volume that is not mounted.\n");
    assert!(run("create_tree", &[]).contains("unmounted cleanly"));
    assert!(run("crash_and_recover", &[]).contains("all 200 synced files are there"));
    assert!(run("demo_library", &[]).contains("read back as they were written"));
}

#[cfg(feature = "fuse")]
#[test]
fn mounted_by_the_program_itself() {
    use extol_testkit::{Need, require};
    if require(&[Need::Root, Need::Fuse]) {
        assert_eq!(run("mount_in_process", &[]), "written by a system call\n".repeat(2));
    }
}

#[test]
fn on_an_image() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("tree.img");
    let image = image.to_str().unwrap();
    run("create_tree", &[image]);
    let clean = |when: &str| {
        let out = Command::new("e2fsck").arg("-fn").arg(image).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout);
        assert_eq!(out.status.code(), Some(0), "after {when}, e2fsck says\n{text}");
    };
    clean("create_tree");
    assert_eq!(run("read_file", &[image, "/newest/../2021/03.txt"]), "norge, 3/2021\n");
    clean("read_file");
    run("demo_library", &[image]);
    assert!(run("demo_library", &[image]).contains("removed what the last run left"));
    clean("demo_library");
}
