//! The same files give the same bytes.

use super::*;

/// Other orders, numbers of threads and knowledge of holes change nothing.
#[test]
fn nothing_but_files_and_options_enters() {
    let size = 100 << 20;
    let mut source = everything();
    for words in ["-b 4096", "-b 1024 -t ext3"] {
        let bytes = |source: &Made, threads: usize| {
            let options = BuildOptions { threads, ..options(words) };
            made(source, size, &options).expect("built").0.to_bytes()
        };
        let first = bytes(&source, 1);
        for threads in [2, 3, 8] {
            assert!(bytes(&source, threads) == first, "{words}: {threads} threads");
        }
        source.tells_holes = true;
        assert!(bytes(&source, 4) == first, "{words}: with holes known");
        // Links and the directories that entries imply stay where they were.
        let mut other = source.clone();
        let (links, mut files): (Vec<_>, Vec<_>) =
            other.entries.drain(..).partition(|(_, what, _)| matches!(what, What::Hard(_)));
        files.reverse();
        other.entries = files;
        other.entries.extend(links);
        let implied = |source: &Made| {
            let mut source = source.clone();
            let whole = ["bin", "dev", "many", "dirs", "shared"];
            for dir in whole {
                source.add(dir, What::Dir);
            }
            for i in 0..60 {
                for dir in ["deep", "deep/er"] {
                    source.add(format!("dirs/{i}/{dir}"), What::Dir);
                }
            }
            source
        };
        assert!(
            bytes(&implied(&source), 2) == bytes(&implied(&other), 2),
            "{words}: in another order"
        );
        source.tells_holes = false;
    }
}

#[test]
fn what_is_given_wins_and_the_rest_follows_from_the_files() {
    use extol_ondisk::Superblock;
    let superblock = |source: &Made, options: &BuildOptions| {
        let (device, _) = made(source, 20 << 20, options).expect("built");
        let mut bytes = [0; 1024];
        device.read_at(&mut bytes, 1024).expect("read");
        Superblock::decode(&bytes).expect("superblock")
    };
    let mut source = Made::default();
    source.add("a", What::File(noise(5000, 1)));
    let plain = superblock(&source, &options(""));
    assert_eq!((plain.uuid[6] >> 4, plain.uuid[8] >> 6), (8, 2), "a UUID of version 8");
    assert!((1_600_000_000..1_600_001_000).contains(&plain.mkfs_time), "{}", plain.mkfs_time);
    let mut other = Made::default();
    other.add("a", What::File(noise(5000, 2)));
    let content = superblock(&other, &options(""));
    assert_eq!(content.hash_seed, plain.hash_seed, "metadata is the same");
    assert_ne!(content.uuid, plain.uuid);
    other.add("b", What::Fifo);
    assert_ne!(superblock(&other, &options("")).hash_seed, plain.hash_seed);
    let uuid = "00112233-4455-6677-8899-aabbccddeeff";
    let mut given = options(&format!("-U {uuid} -E hash_seed={uuid}"));
    given.source_date_epoch = Some(1_000_000);
    let sb = superblock(&source, &given);
    assert_eq!((uuid_text(&sb.uuid).as_str(), sb.mkfs_time), (uuid, 1_000_000));
    assert_eq!(sb.hash_seed[0].to_le_bytes(), [0, 0x11, 0x22, 0x33]);
    let random = options("-U random");
    assert_ne!(superblock(&source, &random).uuid, superblock(&source, &random).uuid);
}

/// Zeros are never written, and tables only as far as they are used.
#[test]
fn holes_stay_holes() {
    let mut source = Made::default();
    source.add("hole", What::Sparse(4 << 30, vec![(3 << 30, vec![1])]));
    source.add("zeros", What::File(vec![0; 5 << 20]));
    source.tells_holes = true;
    let (device, built) = made(&source, 1 << 30, &options("-b 4096")).expect("built");
    check(&device, "holes");
    assert_eq!(built.data, 4096);
    assert!(device.allocated() < 4 << 20, "{} bytes written", device.allocated());
}
