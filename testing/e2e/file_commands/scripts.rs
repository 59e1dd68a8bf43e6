//! Scripts of `extol edit`.

use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;
use std::time::Duration;

use extol_testkit::{
    Finished, Image, Scratch, dump_super, e2fsck, extol, extol_ok, require, run, run_ok, text, tool,
};
use rustix::process::Signal;

use super::{MIB, NEEDS, make_files};

/// Runs a script on an image.
pub(super) fn edit(image: &Image, script: &str) -> Finished {
    let file = image.path.with_extension("script");
    std::fs::write(&file, script).expect("a script");
    let words = ["edit", "--file", text(&file), text(&image.path)];
    run(extol().args(words), Duration::from_secs(60))
}

/// A script is done as a whole or not at all, and says why not.
#[test]
fn a_script_that_fails_changes_nothing() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let source = scratch.dir("source");
    make_files(&source);
    let image = Image::mke2fs(scratch.path(), "a.img", 32 * MIB, &["-t", "ext4", "-J", "size=4"]);
    let path = text(&image.path);
    extol_ok(&["put", path, text(&source), "/"]);
    let before = extol_ok(&["ls", "-R", "--json", path]);
    let data = run_ok(tool("sha256sum").arg(source.join("data")));
    let change = "rm -r /source/dir\ntruncate -s 12345 /source/data\nmv /source/big /big\n\
                  chmod -R 700 /source\nmkdir /new\n";
    let large = scratch.path().join("large");
    std::fs::write(&large, vec![7; 40 * MIB as usize]).expect("a file");
    let many: String = (0..40_000).map(|n| format!("mkdir /new/{n:0>200}\n")).collect();
    let cases = [
        ("rm /missing\n", 32, "line 6: /missing: no such file or directory. Nothing was changed"),
        ("mkdir /new /newer\n", 32, "line 6: /new: file exists"),
        (&format!("put {} /new\n", text(&large)), 32, "large: no space left on the volume"),
        (&*many, 32, "the script changes more than "),
        ("chmod 9 /new\n", 1, "line 6: bad mode"),
        ("\n\nfrob /new\n", 1, "line 8: a script has no command \"frob\""),
        ("ls /new\n", 1, "line 6: a script has no command"),
        ("or /new\n", 1, "line 6: a script has no command"),
        ("mv /new\n", 1, "line 6: /new: only one path is given"),
        ("put - /new/x\n", 1, "line 6: a script has no standard input for put"),
        ("mv --frob /a /b\n", 1, "line 6: unexpected argument '--frob'"),
        ("rm -o ro /new\n", 1, "line 6: -o and --key are given to extol edit"),
        ("rm /new/*\n", 1, "line 6: a character that a shell would act on"),
        ("rm 'new\n", 1, "line 6: a quote is not closed"),
    ];
    for (end, code, line) in cases {
        let done = edit(&image, &format!("{change}{end}"));
        let shown = &done.output[..done.output.len().min(500)];
        assert_eq!((done.code, done.output.lines().count()), (Some(code), 1), "{line}: {shown}");
        assert!(done.output.contains(line), "{line}: {shown}");
        assert_eq!(extol_ok(&["ls", "-R", "--json", path]), before, "{line}");
        assert!(!dump_super(&image).contains("needs_recovery"), "{line}");
        e2fsck(&image).assert_clean(line);
    }
    let copy = scratch.path().join("data");
    extol_ok(&["cp", path, "/source/data", text(&copy)]);
    assert_eq!(run_ok(tool("sha256sum").arg(&copy))[..64], data[..64]);
    let done = run(extol().args(["edit", "-v", "-o", "ro", path]).stdin(Stdio::null()), LIMIT);
    assert_eq!(done.code, Some(1), "{}", done.output);
    // An empty script is none, and a large one fits with a larger cache where the log has room.
    let done = run(extol().args(["edit", "-v", path]).stdin(Stdio::null()), LIMIT);
    assert!(done.code == Some(0) && done.output.starts_with("0 of at most "), "{}", done.output);
    assert_eq!(edit(&image, change).code, Some(0));
    assert_ne!(extol_ok(&["ls", "-R", "--json", path]), before);
    e2fsck(&image).assert_clean("after the script");
    let image = Image::mke2fs(scratch.path(), "b.img", 16 * MIB, &["-t", "ext2"]);
    let done = edit(&image, "mkdir /new\n");
    assert!(done.code == Some(32) && done.output.contains("no journal"), "{}", done.output);
}

const LIMIT: Duration = Duration::from_secs(30);

/// Killed at any moment, a script leaves the old tree or the new one.
#[test]
fn a_script_that_is_killed_is_done_or_not() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "a.img", 128 * MIB, &["-t", "ext4"]);
    let path = text(&image.path);
    let tree = scratch.dir("tree");
    for n in 0..300u32 {
        let bytes = (0..50_000).flat_map(|i: u32| (i ^ n).to_le_bytes()).collect::<Vec<_>>();
        std::fs::write(tree.join(format!("{n}")), &bytes[..(n as usize * 631) % 200_000])
            .expect("a file");
    }
    extol_ok(&["put", path, text(&tree), "/old"]);
    let list = |image: &Image| -> Vec<(String, u64)> {
        let list = extol_ok(&["ls", "-R", "--json", text(&image.path)]);
        let list: serde_json::Value = serde_json::from_str(&list).expect("JSON");
        let entry = |e: &serde_json::Value| {
            (e["path"].as_str().expect("a path").to_owned(), e["size"].as_u64().expect("a size"))
        };
        list["entries"].as_array().expect("a list").iter().map(entry).collect()
    };
    let mut script = format!("put {} /new\n", text(&tree));
    for n in 0..150 {
        script += &format!("truncate -s -77 /old/{n}\nmv /old/{n} /old/moved-{n}\n");
    }
    script += "rm -r /old\nmv /new /old\n";
    let before = list(&image);
    let done_image = image.copy_as("done.img");
    let began = std::time::Instant::now();
    assert_eq!(edit(&done_image, &script).code, Some(0));
    let took = began.elapsed();
    let after = list(&done_image);
    assert_eq!(before.len(), after.len());
    let (mut olds, mut news) = (0, 0);
    for round in 0..12 {
        let victim = image.copy_as("victim.img");
        let mut child = extol()
            .args(["edit", text(&victim.path)])
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("extol");
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin.write_all(format!("{script}mkdir /late\n").as_bytes()).expect("a script");
        drop(stdin);
        std::thread::sleep(took * round / 10);
        let pid = rustix::process::Pid::from_child(&child);
        let signal = if round % 2 == 0 { Signal::KILL } else { Signal::INT };
        let _ = rustix::process::kill_process(pid, signal);
        let ended = child.wait().expect("an end");
        let report = e2fsck_recovered(&victim);
        let found = list(&report);
        let is_new = found.iter().any(|(path, _)| path == "/late");
        if signal == Signal::INT {
            // One that comes when all is durable is too late.
            let code = ended.code();
            let expected = code == Some(130) || (is_new && code == Some(0));
            assert!(expected || ended.signal().is_some(), "{ended:?}");
            assert!(!dump_super(&victim).contains("needs_recovery") || ended.signal().is_some());
        }
        if is_new {
            news += 1;
            assert_eq!(found.len(), after.len() + 1);
        } else {
            olds += 1;
            assert_eq!(found, before);
            extol_ok(&["cp", text(&report.path), "/old", text(&scratch.path().join("copy"))]);
            run_ok(tool("diff").arg("-r").arg(&tree).arg(scratch.path().join("copy")));
            std::fs::remove_dir_all(scratch.path().join("copy")).expect("the copy");
        }
        report.remove();
    }
    assert!(olds > 0, "{olds} old, {news} new");
}

/// The image after a recovery, which has to be clean.
fn e2fsck_recovered(image: &Image) -> Image {
    let copy = image.copy_as("recovered.img");
    extol_ok(&["replay", text(&copy.path)]);
    e2fsck(&copy).assert_clean("after a kill");
    copy
}
