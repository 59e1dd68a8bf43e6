//! How large directories become.

use extol_ondisk::dirent::{self, entry_len};

use super::lab::{Lab, Recipe};

const NAMES: usize = 10_000;

/// Names of one form that come in order, and names of many lengths.
fn names(lab: &mut Lab, random: bool) -> Vec<Vec<u8>> {
    (0..NAMES)
        .map(
            |n| if random { lab.new_name(8 + n % 40) } else { format!("file-{n:06}").into_bytes() },
        )
        .collect()
}

/// A directory takes no more than 1.15 times the blocks that Linux takes for the same names, and no
/// more than a division of full leaves in halves explains.
#[test]
fn no_larger_than_by_linux() {
    for random in [false, true] {
        let recipe = Recipe { size: 64 << 20, mke2fs: &["-t", "ext4", "-b", "4096"], tune: &[] };
        let mut lab = Lab::new(&recipe);
        let names = names(&mut lab, random);
        let linux = lab.size_by_linux(&names);
        let mut lab = Lab::new(&recipe);
        names.iter().for_each(|name| lab.add(name).unwrap());
        let size = lab.dir.raw.size;
        let used: usize = names.iter().map(|name| entry_len(name.len())).sum();
        let full = used.div_ceil(dirent::area_len(&lab.vol.geo)) * lab.vol.geo.block_len();
        println!("{size} bytes, {linux:?} by Linux, {full} if all leaves were full");
        assert!(size <= full as u64 * 2, "{size} bytes, {full} if all leaves were full");
        if let Some(linux) = linux {
            assert!(size * 100 <= linux * 115, "{size} bytes, {linux} by Linux");
        }
        lab.fsck("many names");
    }
}
