//! What a daemon has given away.

use super::*;

/// Does `work` in a thread for which, and for whose children, the kernel does not know these system
/// calls.
fn without<T: Send>(calls: &[i64], work: impl FnOnce() -> T + Send) -> T {
    use seccompiler::{SeccompAction, SeccompFilter};
    let unknown = calls.iter().map(|&call| (call, Vec::new())).collect();
    let (pass, refuse) = (SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS as u32));
    let arch = std::env::consts::ARCH.try_into().expect("an architecture with filters");
    let filter = SeccompFilter::new(unknown, pass, refuse, arch).unwrap();
    let filter: seccompiler::BpfProgram = filter.try_into().unwrap();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            seccompiler::apply_filter(&filter).expect("a filter");
            work()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[test]
fn a_daemon_has_given_its_rights_away() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let (image, dir) = (image(&scratch), scratch.dir("mnt"));
    for background in [false, true] {
        // With a descriptor that it does not know of, and a secret in its environment.
        let flags = if background { "" } else { "-f" };
        let line = format!(
            "exec 7</etc/hostname; exec {} mount {flags} --metrics 0 {} {}",
            extol_path().display(),
            image.path.display(),
            dir.display()
        );
        let mut command = tool("sh");
        command.args(["-c", &line]).env("PASSWORD", "hush");
        let mount = if background {
            run_ok(&mut command);
            None
        } else {
            Some(ExtolMount::spawn(command, &dir).expect("a mount"))
        };
        wait_until("the root", || dir.join("lost+found").is_dir());
        let (pid, monitor) = processes(&dir);
        assert_confined(pid, kept());
        let status = threads(pid).remove(0);
        assert_eq!(status["Groups"], "");
        assert_eq!(capabilities(&status, "CapBnd") & 0xffff_ffff, 0);

        let environ = std::fs::read_to_string(format!("/proc/{pid}/environ")).unwrap();
        assert!(!environ.contains("hush") && !environ.contains("HOME="), "{environ}");
        let open: Vec<PathBuf> = std::fs::read_dir(format!("/proc/{pid}/fd"))
            .unwrap()
            .filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
            .collect();
        assert!(open.contains(&image.path.canonicalize().unwrap()), "{open:?}");
        assert!(!open.iter().any(|path| path.ends_with("hostname")), "{open:?}");
        let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        assert_eq!(core.split_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["0", "0"]);
        let score = std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
        let may = kept() & 1 << 24 != 0;
        assert!(score.trim() == "-900" || !may, "{score}");

        // It has one process beside it, the monitor, which has the right to unmount and little
        // else.
        let monitor = monitor.expect("a monitor");
        wait_until("the end of the cleanup process", || children(pid) == [monitor]);
        assert!(
            command_line(monitor).starts_with("extol mount-monitor"),
            "{}",
            command_line(monitor)
        );
        for status in threads(monitor) {
            assert_eq!(capabilities(&status, "CapEff") & !(1 << 21 | 1 << 19 | 1 << 2), 0);
            assert_eq!((status["NoNewPrivs"].as_str(), status["Seccomp"].as_str()), ("1", "2"));
        }
        let shown = extol_ok(&["stat", "--all", text(&dir)]);
        let line = shown.lines().find(|line| line.starts_with("sandbox")).expect("a line");
        assert!(line.contains("no groups, no_new_privs, seccomp, Landlock"), "{line}");

        signal(pid, Signal::TERM);
        wait_until("the end", || !is_running(pid) && !is_running(monitor));
        assert_eq!(mounted_type(&dir), None);
        if let Some(mount) = mount {
            mount.ended();
        }
    }
    e2fsck(&image).assert_clean("after two mounts");
}

/// Another user's daemon is nothing to look into for processes of the same user.
#[test]
fn without_a_sandbox_it_has_kept_them() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let (image, dir) = (image(&scratch), scratch.dir("mnt"));
    let mut command = extol();
    command.args(["mount", "-f", "--no-sandbox"]).arg(&image.path).arg(&dir);
    let mount = ExtolMount::spawn(command, &dir).expect("a mount");
    assert!(
        extol_ok(&["stat", "--all", text(&dir)])
            .lines()
            .any(|line| line == "sandbox              off")
    );
    let pid = mount.pid().unwrap();
    assert!(threads(pid).iter().all(|status| status["Seccomp"] == "0"));
    mount.terminate(Signal::TERM);
}

/// A kernel that lacks a part gives what it has, and says so; `untrusted` wants all of it.
#[test]
fn older_kernels() {
    if !require(&NEEDS) {
        return;
    }
    let landlock = &[
        libc::SYS_landlock_create_ruleset,
        libc::SYS_landlock_add_rule,
        libc::SYS_landlock_restrict_self,
    ];
    for (calls, shown, wanted) in [
        (&landlock[..], "no_new_privs, seccomp, NO Landlock", "Landlock"),
        (&[libc::SYS_seccomp][..], "no_new_privs, NO seccomp, Landlock", "seccomp"),
    ] {
        for transport in transports() {
            let scratch = Scratch::new();
            let (image, dir) = (image(&scratch), scratch.dir("mnt"));
            let mount = without(calls, || ExtolMount::start(&image.path, &dir, &[transport]));
            let stat = extol_ok(&["stat", "--all", text(&dir)]);
            assert!(stat.contains(shown), "{stat}");
            assert!(stat.contains(&comes_over(transport)), "{}\n{stat}", mount.log());
            load(&dir);
            extol_ok(&["remount", "-o", "discard,commit=1", text(&dir)]);
            extol_ok(&["checkpoint", "--discard", text(&dir)]);
            mount.terminate(Signal::TERM);
            // In the background, too, which opens more.
            let done = without(calls, || run_extol(&["mount", text(&image.path), text(&dir)]));
            assert!(done.success(), "{}", done.output);
            load(&dir);
            extol_ok(&["umount", text(&dir)]);
            let args = ["mount", "-f", "-o", "untrusted", text(&image.path), text(&dir)];
            let done = without(calls, || run_extol(&args));
            assert!(
                done.code == Some(2) && done.output.contains(wanted),
                "{:?} {}",
                done.code,
                done.output
            );
            e2fsck(&image).assert_clean(shown);
        }
    }
}
