//! Listing a directory that changes: every name that is there all the time comes exactly once.

use std::collections::BTreeSet;

use super::lab::{Lab, Recipe};
use crate::dir;

fn churn(mke2fs: &[&str], stay: usize) {
    let mut lab = Lab::new(&Recipe { size: 16 << 20, mke2fs, tune: &[] });
    for _ in 0..stay {
        let name = lab.new_name(30);
        lab.add(&name).unwrap();
    }
    let stable: BTreeSet<Vec<u8>> = lab.model.keys().cloned().collect();
    let mut extras: Vec<Vec<u8>> = Vec::new();
    for step in [1, 3, 20] {
        let mut seen: Vec<Vec<u8>> = Vec::new();
        let mut cookie = 0;
        loop {
            let mut taken = 0;
            dir::iterate(&lab.vol, &lab.dir, cookie, &mut |entry| {
                if taken == step {
                    return false;
                }
                assert!(entry.cookie > cookie && entry.cookie < 1 << 63, "cookies ascend");
                cookie = entry.cookie;
                taken += 1;
                seen.push(entry.name);
                true
            })
            .unwrap();
            if taken < step {
                break;
            }
            for _ in 0..3 {
                if extras.len() > 60 {
                    lab.remove(&extras.swap_remove(0)).unwrap();
                } else {
                    let name = lab.new_name(40);
                    lab.add(&name).unwrap();
                    extras.push(name);
                }
            }
        }
        assert_eq!(&seen[..2], [b".".to_vec(), b"..".to_vec()]);
        let mut found: Vec<_> =
            seen.iter().filter(|name| stable.contains(*name)).cloned().collect();
        found.sort();
        assert!(found.iter().eq(&stable), "step {step}: {} of {}", found.len(), stable.len());
        let all: BTreeSet<_> = seen.iter().collect();
        assert_eq!(all.len(), seen.len(), "an extra came twice");
    }
    lab.check();
    lab.fsck("after churn");
}

#[test]
fn hashed() {
    churn(&["-t", "ext4", "-b", "1024"], 400);
}

#[test]
fn from_one_block_to_an_index() {
    churn(&["-t", "ext4", "-b", "1024"], 20);
}

#[test]
fn linear() {
    churn(&["-t", "ext2", "-b", "1024", "-O", "^dir_index"], 400);
}
