//! Commands on a volume that is not mounted.

use super::*;
use std::process::{Child, Stdio};

/// A command that has opened its image and waits: for a reader of its output, or for input.
fn waiting(words: &[&str], reads: bool) -> Child {
    let mut command = extol();
    command.args(words).stdout(Stdio::piped()).stderr(Stdio::null());
    command.stdin(if reads { Stdio::piped() } else { Stdio::null() });
    command.spawn().expect("a command")
}

fn end(mut command: Child) {
    command.kill().expect("kill");
    command.wait().expect("wait");
}

#[test]
fn a_command_is_confined_before_it_reads_the_volume() {
    if !require(&[Need::Root, Need::Tool("mke2fs")]) {
        return;
    }
    let scratch = Scratch::new();
    let image = image(&scratch);
    let (name, new) = (text(&image.path), scratch.join("new.img"));
    let large = scratch.join("large");
    std::fs::write(&large, noise(1, 8 << 20)).expect("write");
    extol_ok(&["put", name, text(&large), "/large"]);
    let cases: [(&[&str], bool); 4] = [
        (&["cat", name, "/large"], false),
        (&["tar", name], false),
        (&["put", name, "-", "/stream"], true),
        (&["mkfs", "-q", "-d", "-", text(&new)], true),
    ];
    for (words, reads) in cases {
        let command = waiting(words, reads);
        let pid = command.id();
        let filtered = |status: &BTreeMap<String, String>| {
            status["Seccomp"] == "2" && status["NoNewPrivs"] == "1"
        };
        wait_until("the sandbox", || {
            let threads = threads(pid);
            !threads.is_empty() && threads.iter().all(filtered)
        });
        // Fewer capabilities than it began with: none to load code or to trace (SYS_MODULE,
        // SYS_PTRACE), and in threads that open nothing none at all.
        for status in threads(pid) {
            assert_eq!(capabilities(&status, "CapPrm") & (1 << 16 | 1 << 19), 0, "{words:?}");
            assert_eq!(capabilities(&status, "CapInh"), 0, "{words:?}");
            if status["Name"] == "signals" {
                assert_eq!(capabilities(&status, "CapPrm"), 0, "{words:?}");
            }
        }
        end(command);
        let free = [&[words[0], "--no-sandbox"], &words[1..]].concat();
        let command = waiting(&free, reads);
        let pid = command.id();
        wait_until("the image", || {
            let fds = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
            let path = |fd: std::fs::DirEntry| std::fs::read_link(fd.path()).unwrap_or_default();
            words[0] == "mkfs" || fds.map(path).any(|path| path == image.path)
        });
        assert!(threads(pid).iter().all(|status| status["Seccomp"] == "0"), "{free:?}");
        end(command);
    }
}

/// Everything that has inputs and outputs of its own works in the sandbox, wherever they are.
#[test]
fn commands_do_in_the_sandbox_what_they_do_without() {
    if !require(&[Need::Root, Need::Tool("mke2fs"), Need::Tool("tar")]) {
        return;
    }
    let scratch = Scratch::new();
    let image = image(&scratch);
    let name = text(&image.path);
    let [tree, out, cwd] = ["tree", "out", "cwd"].map(|dir| scratch.dir(dir));
    std::fs::create_dir(tree.join("sub")).expect("mkdir");
    std::fs::write(tree.join("sub/file"), "contents").expect("write");
    std::fs::hard_link(tree.join("sub/file"), tree.join("link")).expect("link");
    std::os::unix::fs::symlink("sub/file", tree.join("symlink")).expect("symlink");
    rustix::fs::setxattr(
        tree.join("sub/file"),
        "trusted.x",
        b"value",
        rustix::fs::XattrFlags::empty(),
    )
    .expect("setxattr");
    for more in [&[][..], &["--no-sandbox"]] {
        let on = |words: &[&str]| {
            let mut command = extol();
            command.arg(words[0]).args(more).args(&words[1..]).current_dir(&cwd);
            run_ok(&mut command)
        };
        on(&["put", name, text(&tree), "/"]);
        on(&["cp", "-a", name, "/tree", text(&out)]);
        on(&["cp", name, "/tree/sub/file", "copied"]);
        assert_eq!(std::fs::read(cwd.join("copied")).expect("read"), b"contents");
        run_ok(tool("diff").args(["-r", text(&tree), text(&out.join("tree"))]));
        let mut value = [0; 16];
        let len = rustix::fs::getxattr(out.join("tree/sub/file"), "trusted.x", &mut value[..]);
        assert_eq!(len.map(|len| value[..len].to_vec()).expect("trusted.x"), b"value");
        on(&["tar", "-f", "a.tar.gz", name]);
        on(&["mkfs", "-qF", "-d", "a.tar.gz", "made.img"]);
        on(&["mkfs", "-qF", "-d", text(&tree), "made.img"]);
        on(&["mkfs", "-qF", "made.img", "8M"]);
        std::fs::write(cwd.join("script"), format!("put {} /again\nrm -r /tree\n", text(&tree)))
            .expect("write");
        on(&["edit", "-f", "script", name]);
        on(&["check", name]);
        on(&["info", name]);
        on(&["log", name]);
        on(&["replay", name]);
        on(&["tune", "-L", "label", name]);
        on(&["resize", name, "128M"]);
        on(&["resize", name, "96M"]);
        on(&["defrag", name]);
        on(&["rm", "-r", name, "/again"]);
        for file in ["copied", "a.tar.gz", "made.img"] {
            std::fs::remove_file(cwd.join(file)).expect("remove");
        }
        std::fs::remove_dir_all(out.join("tree")).expect("remove");
    }
    e2fsck(&image).assert_clean("after all of it");
}

/// The lines of a script are in the sandbox of the command that reads it.
#[test]
fn a_line_of_a_script_leaves_no_sandbox() {
    if !require(&[Need::Tool("mke2fs")]) {
        return;
    }
    let scratch = Scratch::new();
    let image = image(&scratch);
    let script = scratch.join("script");
    std::fs::write(&script, "put --no-sandbox /etc/hostname /x\n").expect("write");
    let done = run_extol(&["edit", "-f", text(&script), text(&image.path)]);
    assert!(done.code == Some(1) && done.stderr.contains("--no-sandbox"), "{}", done.output);
}
