//! A quota file: whatever it holds, a change that fails has changed nothing, and one of a whole
//! file leaves it whole.

use extol_ondisk::quota::{Entry, InMemory, Kind, QuotaFile};

/// Ids that differ at each level of the tree, and some of a usual file.
const IDS: [u32; 6] = [0, 1, 0x100, 0x1_0000, 0x0100_0000, u32::MAX];

pub(super) fn quota(input: &[u8]) {
    for kind in Kind::ALL {
        let open = || QuotaFile::open(InMemory(input.to_vec()), kind).ok();
        let Some(mut file) = open() else { continue };
        let whole = file.verify().is_ok();
        assert!(!whole || file.entries().is_ok());
        for (id, mut file) in IDS.into_iter().filter_map(|id| Some((id, open()?))) {
            let entry = Entry { space: 4096, inodes: 1, ..Entry::new(id) };
            let set = file.set(&entry);
            assert!(set.is_err() || !whole || file.verify().is_ok());
            assert!(set.is_err() || !whole || file.get(id) == Ok(Some(entry)));
            assert!(set.is_ok() || file.into_blocks().0 == input);
        }
        for (id, mut file) in IDS.into_iter().filter_map(|id| Some((id, open()?))) {
            let removed = file.remove(id);
            assert!(removed.is_err() || !whole || file.verify().is_ok());
            assert!(removed.is_ok() || file.into_blocks().0 == input);
        }
    }
}
