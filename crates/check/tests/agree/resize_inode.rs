//! Blocks of the resize inode that nothing keeps for it: e2fsck passes over them, and a file would
//! get them.

use extol::{Ext4, MountOptions};
use extol_check::Kind;
use extol_testkit::{Image, Need, Scratch, debugfs, require, run_ok, tool};

use crate::cases::checked;

const MIB: u64 = 1 << 20;
/// A block that is free, behind the journal.
const FREE: u32 = 30_000;
/// A place in the double indirect block behind those that e2fsck looks at.
const SLOT: u64 = 200;

fn able() -> bool {
    let tools = ["mke2fs", "e2fsck", "debugfs"].map(Need::Tool);
    require(&[&tools[..], &[Need::NewE2fsck]].concat())
}

fn set(image: &Image, commands: &[&str]) {
    for command in commands {
        run_ok(tool("debugfs").args(["-w", "-R", command]).arg(&image.path));
    }
}

/// The number behind a word of what debugfs tells of the inode.
fn told(image: &Image, word: &str) -> u32 {
    let text = debugfs(image, "stat <7>");
    let number = text.split(word).nth(1).expect("the word").trim_start();
    let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number")
}

#[test]
fn blocks_that_are_free() {
    if !able() {
        return;
    }
    let scratch = Scratch::in_memory();
    let count = |image: &Image, more: i32| {
        let blocks = i64::from(told(image, "Blockcount:")) + i64::from(more);
        set(image, &[&format!("sif <7> blocks {blocks}")]);
    };
    type Damage<'d> = &'d dyn Fn(&Image);
    let cases: [(&str, Damage<'_>); 2] = [
        ("a block without the feature", &|image| {
            set(image, &["feature -resize_inode", &format!("sif <7> block[0] {FREE}")]);
            count(image, 2);
        }),
        ("a reserved block that is another", &|image| {
            let root = u64::from(told(image, "(DIND):"));
            image.write_at(root * 1024 + 4 * SLOT, &FREE.to_le_bytes());
            // (The other block named its copies in groups 1 and 3.)
            count(image, -4);
        }),
    ];
    for (what, damage) in cases {
        let options = ["-t", "ext4", "-b", "1024"];
        let image = Image::mke2fs(scratch.path(), "a.img", 32 * MIB, &options);
        damage(&image);
        let report = checked(&image, what);
        let is_it = |found: &&extol_check::Finding| {
            found.kind == Kind::ResizeInode && found.beyond_e2fsck && found.block.is_some()
        };
        assert!(report.findings.iter().any(|found| is_it(&found)), "{what}: {report}");
        let writing = Ext4::open_path(&image.path, &MountOptions::default());
        let refused = writing.map(drop).expect_err(what).to_string();
        assert!(refused.contains("the resize inode (7) names block"), "{what}: {refused}");
        Ext4::open_path(&image.path, &MountOptions::default().read_only()).expect(what);
        image.remove();
    }
}
