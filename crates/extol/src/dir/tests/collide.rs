//! Many names with one hash: chains over several leaves.

use std::collections::BTreeSet;

use super::lab::{Lab, Recipe};
use crate::dir;
use extol_ondisk::htree::Hasher;
use extol_vfs::FsError;

/// With 240 times `x` before them, all of these have the same legacy hash.
const ENDS: [&str; 24] = [
    "aaaaaaa", "b8o345q", "d3w5gh5", "d8ueft9", "fxu9wym", "fxxsg5l", "f8uv5kn", "g8ag1yy",
    "h1nnlb1", "ia22axq", "jntth9v", "klr74uf", "n6s0idz", "ola7knl", "p49av1f", "suo32bw",
    "uxiegn8", "uz3t6gy", "weghv0s", "wlmzbyb", "w5r7fns", "xbpo89v", "ya68iba", "yemuzkm",
];

fn colliding() -> Vec<Vec<u8>> {
    ENDS.iter().map(|end| format!("{}{end}", "x".repeat(240)).into_bytes()).collect()
}

fn lab() -> Lab {
    // 1 KiB blocks hold three of these names.
    let tune = &["set_super_value def_hash_version legacy"];
    let lab = Lab::new(&Recipe { size: 16 << 20, mke2fs: &["-t", "ext4", "-b", "1024"], tune });
    let hasher = Hasher::default_for(&lab.vol.geo);
    let hashes: BTreeSet<u32> = colliding().iter().map(|name| hasher.hash(name).hash).collect();
    assert_eq!(hashes.len(), 1, "the names collide");
    lab
}

#[test]
fn chain_over_many_leaves() {
    let mut lab = lab();
    let names = colliding();
    for (i, name) in names.iter().enumerate() {
        lab.add(name).unwrap();
        lab.play(6, 60, 1.0);
        assert_eq!(lab.add(&names[i / 2]), Err(FsError::Exists), "found anywhere in the chain");
    }
    lab.check();
    lab.fsck("chain");
    lab.ask_linux();
    for name in names.iter().step_by(2) {
        lab.remove(name).unwrap();
    }
    lab.check();
    for name in names.iter().step_by(2) {
        lab.add(name).unwrap();
        lab.play(40, 200, 0.8);
    }
    for name in &names {
        let _ = lab.replace(name, 2);
    }
    lab.check();
    lab.fsck("changed chain");
    lab.ask_linux();
}

#[test]
fn listing_a_chain_that_changes() {
    let mut lab = lab();
    let names = colliding();
    let (stay, come) = names.split_at(14);
    for name in stay {
        lab.add(name).unwrap();
    }
    for step in 1..5 {
        let mut seen = Vec::new();
        let mut cookie = 0;
        let mut turn = 0;
        loop {
            let mut taken = 0;
            dir::iterate(&lab.vol, &lab.dir, cookie, &mut |entry| {
                if taken == step {
                    return false;
                }
                taken += 1;
                cookie = entry.cookie;
                seen.push(entry.name);
                true
            })
            .unwrap();
            if taken < step {
                break;
            }
            let extra = &come[turn % come.len()];
            match lab.model.contains_key(extra) {
                true => lab.remove(extra).unwrap(),
                false => lab.add(extra).unwrap(),
            }
            turn += 1;
        }
        let unique: BTreeSet<_> = seen.iter().collect();
        assert_eq!(unique.len(), seen.len(), "step {step}: a name came twice");
        assert!(stay.iter().all(|name| unique.contains(name)), "step {step}: a name was lost");
    }
    lab.fsck("chain after listing");
}
