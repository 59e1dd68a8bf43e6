//! Digests, trees and descriptors are those of fsverity(1).

use std::path::Path;

use extol_testkit::{Need, require, tool};
use extol_verity::{Algorithm, Builder, Descriptor, Params, Salt, VerityError};

/// What this crate makes of a file: the digest, the tree and the descriptor.
fn ours(params: &Params, data: &[u8]) -> (String, Vec<u8>, Vec<u8>) {
    let mut builder = Builder::new(params, data.len() as u64).unwrap();
    let mut tree = vec![0; usize::try_from(builder.tree().size()).unwrap()];
    let mut write = |at: u64, block: &[u8]| {
        let at = usize::try_from(at).unwrap();
        tree[at..at + block.len()].copy_from_slice(block);
        Ok::<_, VerityError>(())
    };
    builder.push(data, &mut write).unwrap();
    let root = builder.finish(&mut write).unwrap();
    let descriptor = Descriptor::new(params.clone(), data.len() as u64, &root, Vec::new()).unwrap();
    (descriptor.digest().to_string(), tree, descriptor.to_bytes())
}

/// What fsverity(1) makes of it.
fn theirs(dir: &Path, params: &Params, data: &[u8]) -> (String, Vec<u8>, Vec<u8>) {
    let [file, tree, descriptor] = ["data", "tree", "descriptor"].map(|name| dir.join(name));
    std::fs::write(&file, data).unwrap();
    let mut command = tool("fsverity");
    command.arg("digest").arg("--compact").arg(&file);
    command.arg(format!("--hash-alg={}", params.algorithm().name()));
    command.arg(format!("--block-size={}", params.block_size()));
    command.arg(format!("--out-merkle-tree={}", tree.display()));
    command.arg(format!("--out-descriptor={}", descriptor.display()));
    let salt = params.salt().bytes();
    if !salt.is_empty() {
        let digits: String = salt.iter().map(|byte| format!("{byte:02x}")).collect();
        command.arg(format!("--salt={digits}"));
    }
    let out = command.output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let digest = format!("{}:{}", params.algorithm().name(), text(&out.stdout));
    (digest, std::fs::read(&tree).unwrap(), std::fs::read(&descriptor).unwrap())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap().trim().to_owned()
}

#[test]
fn digests_trees_and_descriptors_are_those_of_fsverity() {
    if !require(&[Need::Tool("fsverity")]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let contents: Vec<u8> = (0..3_000_000_usize).map(|i| ((i * i) >> 9) as u8).collect();
    let mut compared = 0;
    for algorithm in Algorithm::ALL {
        for block_size in [1024, 4096] {
            for salt in [&b""[..], b"s", &[0x5A; 32]] {
                let params = Params::new(algorithm, block_size, Salt::new(salt).unwrap()).unwrap();
                let per_block = block_size as usize / algorithm.len() * block_size as usize;
                let edges = [0, 1, block_size as usize, per_block];
                for size in edges.into_iter().flat_map(|edge| [edge, edge + 1]).chain([3_000_000]) {
                    let data = &contents[..size];
                    let theirs = theirs(dir.path(), &params, data);
                    assert!(ours(&params, data) == theirs, "{params:?}, {size} bytes: {theirs:?}");
                    compared += 1;
                }
            }
        }
    }
    assert_eq!(compared, 2 * 2 * 3 * 9);
}
