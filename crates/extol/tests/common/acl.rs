//! Access lists for tests.

/// The attribute of an access list of 500 users, which is longer than a block of 1024 bytes.
pub fn of_many_users() -> Vec<u8> {
    let mut list = 2u32.to_le_bytes().to_vec();
    let mut entry = |tag: u16, perm: u16, id: u32| {
        list.extend(tag.to_le_bytes());
        list.extend(perm.to_le_bytes());
        list.extend(id.to_le_bytes());
    };
    entry(1, 7, u32::MAX);
    (0..500).for_each(|n| entry(2, 5, 1000 + n));
    entry(4, 5, u32::MAX);
    entry(16, 7, u32::MAX);
    entry(32, 5, u32::MAX);
    list
}
