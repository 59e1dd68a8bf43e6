//! Bind mounts that map owners.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use extol_testkit::{Image, Need, Scratch, Subject, e2fsck, require, run, tool};

const NEEDS: [Need; 4] = [Need::Root, Need::Fuse, Need::Loop, Need::Tool("perl")];

/// Binds `$ARGV[0]` on `$ARGV[1]` with the owners of a user namespace that maps 0 to 100000.
/// (mount(8) has no option for that before 2.39.)
const BIND: &str = r#"
    use strict; use warnings;
    my ($from, $to) = @ARGV;
    my $empty = "";
    pipe(my $ready, my $tell) or die "pipe: $!";
    our $pid = fork() // die "fork: $!";
    if ($pid == 0) {
        syscall(272, 0x10000000) == 0 or die "unshare: $!";      # CLONE_NEWUSER
        syswrite($tell, "x");
        sleep 60;
        exit;
    }
    END { kill 9, $pid if $pid; }
    sysread($ready, my $byte, 1) == 1 or die "no user namespace";
    for my $map ("uid_map", "gid_map") {
        open(my $file, ">", "/proc/$pid/$map") or die "$map: $!";
        syswrite($file, "0 100000 65536") or die "$map: $!";
    }
    open(my $ns, "<", "/proc/$pid/ns/user") or die "namespace: $!";
    my $tree = syscall(428, -100, $from, 0x80001);               # open_tree, OPEN_TREE_CLONE
    $tree >= 0 or die "open_tree: $!";
    my $attr = pack("Q4", 0x100000, 0, 0, fileno($ns));          # MOUNT_ATTR_IDMAP
    syscall(442, $tree, $empty, 0x1000, $attr, 32) == 0 or die "mount_setattr: $!";
    syscall(429, $tree, $empty, -100, $to, 4) == 0 or die "move_mount: $!";
"#;

fn bind(from: &Path, to: &Path) -> extol_testkit::Finished {
    run(tool("perl").args(["-e", BIND]).arg(from).arg(to), Duration::from_secs(60))
}

/// What is made through such a mount belongs to the mapped owner, and is seen by it as its own; on
/// Linux's ext4 as well.
#[test]
fn owners_are_mapped() {
    for subject in [Subject::Kernel, Subject::Extol] {
        if !require(&NEEDS) {
            return;
        }
        let scratch = Scratch::new();
        let image = Image::mke2fs(scratch.path(), "a.img", 32 << 20, &["-t", "ext4"]);
        let options: &[&str] = if subject.is_extol() { &["allow_idmap"] } else { &[] };
        let mount = subject.mount(&image, &scratch.dir("mnt"), options);
        let mapped = scratch.dir("mapped");
        std::fs::write(mount.path().join("old"), b"x").unwrap();
        let done = bind(mount.path(), &mapped);
        assert!(done.success(), "{subject:?}: {}", done.output);
        let owner = |path: &Path| std::fs::metadata(path).map(|m| (m.uid(), m.gid())).unwrap();
        // In the volume 0 is 100000 out here, and back.
        assert_eq!(owner(&mapped.join("old")), (100_000, 100_000), "{subject:?}");
        let dir = mapped.join("dir");
        assert!(
            std::fs::create_dir(&dir).is_err(),
            "{subject:?}: root out here is nothing in there"
        );
        std::fs::set_permissions(mount.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let mut make = tool("setpriv");
        make.args(["--reuid=100007", "--regid=100008", "--clear-groups", "mkdir"]).arg(&dir);
        let made = run(&mut make, Duration::from_secs(60));
        assert!(made.success(), "{subject:?}: {}", made.output);
        assert_eq!(owner(&dir), (100_007, 100_008), "{subject:?}");
        assert_eq!(owner(&mount.path().join("dir")), (7, 8), "{subject:?}");
        std::os::unix::fs::chown(dir.as_path(), Some(100_001), Some(100_002)).unwrap();
        assert_eq!(owner(&mount.path().join("dir")), (1, 2), "{subject:?}");
        extol_testkit::unmount(&mapped);
        mount.unmount();
        e2fsck(&image).assert_clean("after a mapped mount");
    }
}

/// Without the option such a bind mount is refused, as the kernel does for file systems that have
/// none.
#[test]
fn not_unless_asked_for() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "a.img", 32 << 20, &["-t", "ext4"]);
    let subject = Subject::Extol;
    let mount = subject.mount(&image, &scratch.dir("mnt"), &[]);
    let done = bind(mount.path(), &scratch.dir("mapped"));
    assert!(!done.success() && done.output.contains("mount_setattr"), "{}", done.output);
    mount.unmount();
}
