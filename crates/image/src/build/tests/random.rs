//! Trees of any shape.

use super::*;
use proptest::prelude::*;

fn what() -> impl Strategy<Value = What> {
    prop_oneof![
        4 => Just(What::Dir),
        6 => (0usize..60_000, any::<u32>()).prop_map(|(len, seed)| What::File(noise(len, seed))),
        1 => (1u64..200_000_000, prop::collection::vec((any::<u32>(), 1usize..9000), 0..8))
            .prop_map(|(size, pieces)| What::Sparse(size, pieces_in(size, pieces))),
        1 => (1usize..1500).prop_map(|len| What::Link(noise(len.min(1000), 1))),
        1 => (0u32..4096, 0u32..1 << 20).prop_map(|(major, minor)| What::Char(major, minor)),
        1 => Just(What::Fifo),
    ]
}

/// Pieces inside of a file, in order and apart from each other.
fn pieces_in(size: u64, pieces: Vec<(u32, usize)>) -> Vec<(u64, Vec<u8>)> {
    let mut all: Vec<(u64, Vec<u8>)> = Vec::new();
    let mut starts: Vec<(u64, usize)> =
        pieces.into_iter().map(|(at, len)| (u64::from(at) % size, len)).collect();
    starts.sort_unstable();
    for (at, len) in starts {
        let free = all.last().is_none_or(|(start, bytes)| start + bytes.len() as u64 <= at);
        if free && at + len as u64 <= size {
            all.push((at, noise(len, at as u32)));
        }
    }
    all
}

fn source() -> impl Strategy<Value = Made> {
    let name = prop_oneof![
        8 => "[a-e]{1,2}",
        1 => "[a-z]{1,255}",
    ];
    let path = prop::collection::vec(name, 1..6).prop_map(|parts| parts.join("/"));
    let attribute = prop::option::of((0usize..900, any::<bool>()));
    let entry = (path, what(), attribute);
    (prop::collection::vec(entry, 0..120), 0usize..400, any::<bool>()).prop_map(
        |(entries, many, tells_holes)| {
            let mut made = Made { tells_holes, ..Made::default() };
            // Once a directory, always a directory: what would replace it is left out.
            let mut files = std::collections::HashSet::new();
            for (path, what, attribute) in entries {
                let parts: Vec<&str> = path.split('/').collect();
                if (1..parts.len()).any(|n| files.contains(&parts[..n].join("/"))) {
                    continue;
                }
                let known = made.entries.iter().any(|(known, ..)| {
                    known.starts_with(format!("{path}/").as_bytes()) || known == path.as_bytes()
                });
                if known {
                    continue;
                }
                if !matches!(what, What::Dir) {
                    files.insert(path.clone());
                }
                made.add(&path, what);
                if let Some((len, large)) = attribute {
                    made.with("user.a", &noise(len, 1));
                    if large {
                        made.with("security.b", &noise(30, len as u32));
                    }
                }
            }
            for n in 0..many {
                made.add(format!("zz/many names of some length, {n}"), What::Fifo);
            }
            made
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Each is sound, of the size that was measured, and the same with other threads.
    #[test]
    fn any_tree_is_built(
        source in source(),
        variant in 0usize..VARIANTS.len(),
        threads in 1usize..5,
        free in 0u64..1 << 20,
    ) {
        let words = VARIANTS[variant];
        let size = SizeWish::AsNeeded(Free::Bytes(free));
        let options = BuildOptions { size, threads, ..options(words) };
        let mut listed = source.clone();
        let tree = list(&mut listed, &options).expect("list");
        let measured = match measure(&listed, &tree, &options, &mut go_on) {
            Ok(measured) => measured,
            // An attribute, or a link, that is too large for a block.
            Err(BuildError::Source { why, .. }) => {
                prop_assert!(why.contains("blocks"), "{}", why);
                return Ok(());
            }
            Err(error) => panic!("{error}"),
        };
        let built = |threads| {
            let options = BuildOptions { threads, ..options.clone() };
            let device = Arc::new(MemDevice::new(measured.bytes));
            let told = &mut go_on;
            build_tree(&device, &listed, &tree, Some(&measured), &options, told).expect(words);
            device
        };
        let device = built(threads);
        check(&device, words);
        prop_assert!(built(5 - threads).to_bytes() == device.to_bytes());
    }
}
