//! Linux's own NFS client, in the guest.

use extol_guest::{Guest, Report};
use extol_testkit::{ExtolExport, Image, Need, Scratch, e2fsck, extol_ok, require, text};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const NEEDS: [Need; 2] = [Need::Guest, Need::Tool("mke2fs")];

/// Begins each script: `nfs` mounts the export. A server that is killed just then refuses that, and
/// is there again soon.
pub(super) const BEGIN: &str = r#"
nfs() {
    tries=0
    until mount -t nfs -o "vers=3,proto=tcp,nolock,port=$PORT,mountport=$PORT,mountproto=tcp,$1" \
        10.0.2.2:/ /mnt; do
        tries=$((tries + 1)); [ $tries -lt 100 ] || exit 9
        sleep 0.3
    done
}
failed() { echo "failed: $*"; }
same() { [ "$2" = "$3" ] || failed "$1: '$2' is not '$3'"; }
"#;

/// What a client does with names, attributes and contents, by one command for each; and what is
/// odd: files that are removed or replaced while they are open, exclusive creation, holes.
const WORK: &str = r#"
nfs hard
cd /mnt
# Names.
mkdir -p tree/a/b/c
for i in $(seq 60); do echo $i >tree/a/f$i; mkdir tree/d$i; done
same files "$(ls tree/a | wc -l)" 61
rmdir tree/d7 && rm tree/a/f7
same removed "$(ls tree/a tree | grep -c -x -e f7 -e d7)" 0
mv tree/a/f1 tree/a/b/moved; same moved "$(cat tree/a/b/moved)" 1
mv tree/a/f2 tree/a/f3; same replaced "$(cat tree/a/f3)" 2
ln tree/a/f4 tree/hard; same links "$(stat -c %h tree/hard)" 2
ln -s a/f5 tree/soft; same soft "$(cat tree/soft)" 5
rmdir tree/a 2>/dev/null && failed "a full directory is removed"
mkdir tree/a 2>/dev/null && failed "a directory is made twice"
# Attributes.
chmod 6751 tree/hard; same mode "$(stat -c %a tree/a/f4)" 6751
chown 12:34 tree/hard; same owner "$(stat -c %u:%g tree/a/f4)" 12:34
touch -d '2001-02-03 04:05:06' tree/hard; same time "$(stat -c %Y tree/a/f4)" 981173106
mknod tree/null c 1 3; same device "$(stat -c %t:%T tree/null)" 1:3
mkfifo tree/fifo; [ -p tree/fifo ] || failed fifo
# Contents.
head -c 3000000 /dev/urandom >/tmp/data
cp /tmp/data tree/data; sync tree/data
cd /; umount /mnt; nfs hard; cd /mnt
cmp /tmp/data tree/data || failed contents
dd if=/tmp/data of=tree/data bs=999 count=70 seek=100 conv=notrunc 2>/dev/null
dd if=/tmp/data of=/tmp/data2 bs=999 count=70 2>/dev/null
dd if=tree/data bs=999 skip=100 count=70 2>/dev/null | cmp - /tmp/data2 || failed overwritten
echo end >>tree/data; same appended "$(tail -n 1 tree/data | tail -c 4)" end
truncate -s 1234 tree/data; same cut "$(stat -c %s tree/data)" 1234
truncate -s 5G tree/sparse; echo far | dd of=tree/sparse bs=1 seek=4500000000 conv=notrunc 2>/dev/null
same sparse "$(dd if=tree/sparse bs=1 skip=4500000000 count=3 2>/dev/null)" far
[ "$(stat -c %b tree/sparse)" -lt 100 ] || failed "a hole takes space"
# What is odd.
echo open >tree/open; exec 3<tree/open; rm tree/open
same unlinked "$(cat <&3)" open; exec 3<&-
echo old >tree/kept; exec 3<tree/kept; echo new >tree/new; mv tree/new tree/kept
same replaced "$(cat <&3) $(cat tree/kept)" "old new"; exec 3<&-
set -C; echo x >tree/lock; (echo y >tree/lock) 2>/dev/null && failed "a file is made twice"; set +C
same exclusive "$(cat tree/lock)" x
(cd tree && mkdir gone && cd gone && rmdir ../gone; echo x >y) 2>/dev/null && failed "a removed directory"
# Many names, listed in many parts.
mkdir many; i=0
while [ $i -lt 1500 ]; do : >"many/a name of some length $i"; i=$((i + 1)); done
same listed "$(ls many | wc -l)" 1500
ls many | head -n 700 | while read -r name; do rm "many/$name"; done
same left "$(ls many | wc -l)" 800
same removed "$(rm -r many; ls | grep -c many)" 0
same free "$(df -k /mnt | tail -n 1 | wc -w)" 6
md5sum tree/a/f* tree/data tree/kept tree/lock | sort
cd /
umount /mnt
"#;

fn image(scratch: &Scratch) -> Image {
    Image::mke2fs(scratch.path(), "a.img", 128 << 20, &["-t", "ext4", "-O", "fast_commit"])
}

fn guest(port: u16, limit: Duration, script: &str) -> Report {
    let guest = Guest::new().network().module("nfs").module("nfsv3").limit(limit);
    guest.run(&format!("PORT={port}\n{BEGIN}{script}"))
}

#[test]
fn linux_works_on_an_export() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = image(&scratch);
    let server = ExtolExport::start(&image.path, 0, &["-o", "no_root_squash"]);
    let report = guest(server.address.port(), Duration::from_secs(300), WORK);
    assert!(!report.output.contains("failed"), "{}\n{}", report.output, server.log());
    assert!(server.end().success());
    e2fsck(&image).assert_clean("after the guest");
    let sums: BTreeMap<_, _> =
        report.lines().into_iter().filter_map(|line| line.split_once("  ")).collect();
    assert!(sums.len() > 50, "{}", report.output);
    // What the guest has read through NFS is on the volume.
    let out = scratch.join("kept");
    extol_ok(&["cp", text(&image.path), "/tree/kept", text(&out)]);
    assert_eq!(std::fs::read_to_string(&out).expect("read"), "new\n");
}

/// Writes files one by one with fsync, and says so of each when it has returned.
const LOAD: &str = r#"
nfs hard,timeo=10,retrans=2
cd /mnt
end=$(($(date +%s) + SECONDS))
n=0
while [ "$(date +%s)" -lt $end ]; do
    n=$((n + 1))
    mkdir -p d$((n % 10))
    { echo "file $n"; head -c $((n * 37 % 30000)) /dev/zero; } >/tmp/now
    dd if=/tmp/now of=d$((n % 10))/f$n bs=64k conv=fsync 2>/dev/null && echo "kept $n"
    [ $((n % 7)) -eq 0 ] && mv d$((n % 10))/f$n d$((n % 10))/m$n && echo "moved $n"
done
cd /
umount /mnt
"#;

/// The server is killed again and again, and started again; the client goes on each time, and every
/// byte that it has committed is there.
#[test]
fn nothing_committed_is_lost_when_the_server_is_killed() {
    if !require(&NEEDS) {
        return;
    }
    let is_long = std::env::var_os("EXTOL_LONG").is_some();
    let seconds = if is_long { 150 } else { 20 };
    let scratch = Scratch::new();
    let image = image(&scratch);
    let args = ["-o", "no_root_squash"];
    let mut server = ExtolExport::start(&image.path, 0, &args);
    let port = server.address.port();
    let ended = AtomicBool::new(false);
    let (report, server, kills) = std::thread::scope(|scope| {
        let work = scope.spawn(|| {
            let script = format!("SECONDS={seconds}\n{LOAD}");
            let report = guest(port, Duration::from_secs(seconds * 3 + 200), &script);
            ended.store(true, Ordering::SeqCst);
            report
        });
        let mut kills = 0u32;
        // (The guest boots for a few seconds, and mounts.)
        std::thread::sleep(Duration::from_secs(6));
        while !ended.load(Ordering::SeqCst) && !work.is_finished() {
            std::thread::sleep(Duration::from_millis(300 + u64::from(kills * 97 % 800)));
            server.kill9();
            kills += 1;
            server = ExtolExport::start(&image.path, port, &args);
        }
        (work.join().expect("the guest"), server, kills)
    });
    assert!(server.end().success());
    e2fsck(&image).assert_clean("after the last server");
    let numbers = |what: &str| -> Vec<u64> {
        let said = report.lines().into_iter().filter_map(|line| line.strip_prefix(what));
        said.map(|number| number.parse().expect("a number")).collect()
    };
    let (kept, moved) = (numbers("kept "), numbers("moved "));
    assert!(kept.len() > 20 && kills > 5, "{} files, {kills} kills", kept.len());
    let out = scratch.dir("out");
    extol_ok(&["cp", text(&image.path), "/", text(&out)]);
    for number in &kept {
        let dir = out.join(format!("d{}", number % 10));
        let (here, there) = (dir.join(format!("f{number}")), dir.join(format!("m{number}")));
        // (A rename whose reply was lost may be done, and is not said.)
        let path = if moved.contains(number) || !here.exists() { there } else { here };
        let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let head = format!("file {number}\n");
        assert!(bytes.starts_with(head.as_bytes()), "{}", path.display());
        let rest = &bytes[head.len()..];
        assert_eq!(rest.len() as u64, number * 37 % 30000, "{}", path.display());
        assert!(rest.iter().all(|byte| *byte == 0), "{}", path.display());
    }
    eprintln!("{} files kept over {kills} kills", kept.len());
}
