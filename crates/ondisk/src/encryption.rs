//! What encrypted inodes and names look like, without a key.

/// Name of the extended attribute that holds the context of an encrypted inode, in the name space
/// [`ENCRYPTION`](crate::xattr::index::ENCRYPTION).
pub const XATTR: &[u8] = b"c";
/// Bytes of the nonce of an inode, at the end of its context.
pub const NONCE_LEN: usize = 16;
/// Bytes of the descriptor of a key (policies of version 1).
pub const DESCRIPTOR_LEN: usize = 8;
/// Bytes of the identifier of a key (policies of version 2).
pub const IDENTIFIER_LEN: usize = 16;
/// Bytes of a context of version 1.
pub const V1_LEN: usize = 4 + DESCRIPTOR_LEN + NONCE_LEN;
/// Bytes of a context of version 2.
pub const V2_LEN: usize = 8 + IDENTIFIER_LEN + NONCE_LEN;
/// Bytes of the shortest encrypted name or target.
pub const MIN_NAME: usize = 16;

/// The policy and the nonce in a context: inodes have one policy if the former are the same bytes.
/// None if version and length do not fit.
#[must_use]
pub fn split(context: &[u8]) -> Option<(&[u8], &[u8; NONCE_LEN])> {
    match (context.first()?, context.len()) {
        (1, V1_LEN) | (2, V2_LEN) => context.split_last_chunk(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_has_the_length_of_its_version() {
        for version in 0..4 {
            for len in 0..60 {
                let mut context = vec![9; len];
                if let Some(first) = context.first_mut() {
                    *first = version;
                }
                let fits = matches!((version, len), (1, 28) | (2, 40));
                let found = split(&context);
                assert_eq!(found.is_some(), fits, "{version} {len}");
                if let Some((policy, nonce)) = found {
                    assert_eq!((policy.len() + 16, *nonce), (len, [9; 16]));
                }
            }
        }
    }
}
