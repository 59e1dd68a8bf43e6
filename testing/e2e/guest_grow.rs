//! Logs of a volume that Linux was growing while it was mounted, when the power went.
//!
//! Linux logs bitmaps and descriptors of the new groups before the superblock that has them, and
//! each of these transactions may be the last one that is durable. So a log may have blocks behind
//! the end of the volume that any superblock states, at home or in the log. Linux and e2fsck
//! recover it.

use extol_guest::{End, Guest};
use extol_testkit::{
    Image, Need, Scratch, dump_super, e2fsck_fix, extol_ok, require, run_extol, run_ok, text, tool,
};

const NEEDS: [Need; 3] = [Need::Guest, Need::Tool("debugfs"), Need::Tool("dumpe2fs")];

/// Blocks of 4096 bytes before.
const BEFORE: u64 = 16_384;
/// Where the volume is to grow to, which the power cut leaves unreached: large, so that the guest
/// is in the middle of it.
const WISH: u64 = 200 << 30;

/// Grows the volume, makes transactions with a file beside it, and cuts the power when some groups
/// are there.
const CRASH: &str = r#"
mount -t ext4 -o noinit_itable,commit=300 /dev/vda /mnt || exit 1
echo before >/mnt/before
sync
resize2fs /dev/vda >/tmp/said 2>&1 &
i=0
blocks=0
while [ "$blocks" -lt 2000000 ]; do
    i=$((i + 1))
    echo $i >/mnt/file
    sync /mnt/file
    blocks=$(stat -f -c %b /mnt)
    kill -0 $! || exit 2
done
echo $((i + 1)) >/mnt/file
sync /mnt/file
echo $((i + 1))
power-cut
"#;

/// A durable transaction of the log.
struct Transaction {
    /// Block of the log with its commit.
    commit: u64,
    /// The highest block that it has a copy of.
    highest: u64,
}

/// The transactions that recovery has to look at, as `extol log` lists them.
fn transactions(log: &str) -> Vec<Transaction> {
    let mut all = Vec::new();
    let mut highest = 0;
    for line in log.lines() {
        let mut words = line.split_whitespace();
        let at = words.next().and_then(|word| word.parse().ok());
        let number = |word: Option<&str>| -> u64 {
            word.and_then(|word| word.trim_end_matches(',').parse().ok()).expect("a number")
        };
        match (at, words.next()) {
            (Some(_), Some("copy")) => highest = highest.max(number(words.nth(2))),
            (Some(commit), Some("commit")) if !line.contains("stale") => {
                all.push(Transaction { commit, highest });
                highest = 0;
            }
            _ => {}
        }
    }
    all
}

fn block_count(image: &Image) -> u64 {
    let said = dump_super(image);
    let line = said.lines().find(|line| line.starts_with("Block count:")).expect("a line");
    line.split_whitespace().nth(2).and_then(|word| word.parse().ok()).expect("a number")
}

/// Where a block of the log lies. (`-c`, as the bitmaps at home may be between two states.)
fn block_of_log(image: &Image, nr: u64) -> u64 {
    let request = format!("bmap <8> {nr}");
    let said = run_ok(tool("debugfs").args(["-c", "-R", &request]).arg(&image.path));
    said.lines().find_map(|line| line.trim().parse().ok()).expect("a block number")
}

/// What dumpe2fs shows of the volume, without times and the state of the log.
fn described(image: &Image) -> Vec<String> {
    let said = run_ok(tool("dumpe2fs").arg(&image.path));
    let passing = ["Last ", "Mount count", "Lifetime", "Checksum:", "Journal ", "dumpe2fs"];
    let stays = |line: &&str| !passing.iter().any(|name| line.starts_with(name));
    said.lines().filter(stays).map(str::to_owned).collect()
}

/// Linux gives the last group of each step a bitmap without a block, which e2fsck wants to have.
fn of_linux(repair: &str) -> bool {
    repair.contains("Last group block bitmap uninitialized")
}

/// Crashes that are tried: how far Linux comes is a matter of time.
const TRIES: usize = 4;

#[test]
fn a_grow_of_linux_that_crashed_is_recovered() {
    if !require(&NEEDS) {
        return;
    }
    // Without one of these the test shows nothing: a last transaction with blocks that no
    // superblock has yet.
    let shows = (0..TRIES).any(|_| recovered_after_a_crash() > 0);
    assert!(shows, "no transaction of {TRIES} crashes has blocks that no superblock has yet");
}

/// How many transactions have blocks behind the end that the superblock has after them.
fn recovered_after_a_crash() -> usize {
    let scratch = Scratch::new();
    let args = ["-t", "ext4", "-b", "4096", "-E", &format!("resize={}", WISH / 4096)];
    let image = Image::mke2fs(scratch.path(), "a.img", BEFORE * 4096, &args);
    std::fs::File::options()
        .write(true)
        .open(&image.path)
        .and_then(|file| file.set_len(WISH))
        .expect("make the image as long as it may become");
    let report = Guest::new().drive(&image.path).try_run(CRASH).expect("a run");
    assert_eq!(report.end, End::Cut, "{}", report.output);
    let synced = report.output.lines().last().expect("a number").to_owned() + "\n";
    assert_eq!(block_count(&image), BEFORE, "the superblock at home is the one before");
    let log = extol_ok(&["log", text(&image.path)]);
    let all = transactions(&log);
    assert!(all.last().is_some_and(|last| last.highest > BEFORE), "{log}");

    // Every moment at which the power may have gone: behind each transaction.
    let mut beyond = 0;
    for (nr, transaction) in all.iter().enumerate() {
        let what = format!("with {} of {} transactions", nr + 1, all.len());
        let cut = image.copy_as("cut.img");
        if let Some(next) = all.get(nr + 1) {
            cut.write_at(block_of_log(&cut, next.commit) * 4096, &[0; 4096]);
        }
        let (peer, ours) = (cut.copy_as("peer.img"), cut.copy_as("ours.img"));
        let fixed = e2fsck_fix(&peer);
        assert_eq!(fixed.unexpected_repairs_but(of_linux), None, "{what}: {}", fixed.output);
        let grown = block_count(&peer);
        beyond += usize::from(transaction.highest >= grown);

        let done = run_extol(&["replay", text(&ours.path)]);
        assert_eq!(done.code, Some(0), "{what}: {}", done.output);
        assert_eq!(block_count(&ours), grown, "{what}");
        let done = run_extol(&["check", text(&ours.path)]);
        assert!(matches!(done.code, Some(0 | 4)), "{what}: {}", done.output);
        eprintln!("{what}: {grown} blocks, {}", done.output);
        let fixed = e2fsck_fix(&ours);
        assert_eq!(fixed.unexpected_repairs_but(of_linux), None, "{what}: {}", fixed.output);
        assert_eq!(described(&ours), described(&peer), "{what}");
        assert_eq!(extol_ok(&["cat", text(&ours.path), "/before"]), "before\n", "{what}");
        if nr + 1 == all.len() {
            assert!(grown > BEFORE, "{what}: {grown}");
            assert_eq!(extol_ok(&["cat", text(&ours.path), "/file"]), synced, "{what}");
        }
        for image in [cut, peer, ours] {
            image.remove();
        }
    }
    beyond
}
