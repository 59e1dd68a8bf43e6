//! What a server of a network block device says.

use extol_nbd::negotiate::{Negotiation, Step};
use extol_nbd::wire::{
    CHUNK_LEN, ChunkKind, Coverage, Head, SIMPLE_LEN, decode_error, decode_hole,
};
use extol_nbd::{Export, Uri, extents};

/// What the client asks for in a reply that follows the negotiation.
const ASKED: (u64, u32) = (4096, 1 << 16);

/// A byte for TLS, then all that the server says; or an address.
pub(super) fn nbd(input: &[u8]) {
    if let Ok(text) = std::str::from_utf8(input)
        && let Ok(uri) = Uri::parse(text)
    {
        assert_eq!(Uri::parse(&uri.to_string()), Ok(uri));
    }
    let Some((tls, mut rest)) = input.split_first() else { return };
    let mut negotiation = Negotiation::new(b"disk", tls & 1 != 0);
    let export = loop {
        let Some((now, later)) = rest.split_at_checked(negotiation.needs()) else { return };
        rest = later;
        match negotiation.feed(now) {
            Ok(Step::Send(_) | Step::StartTls(_)) => {}
            Ok(Step::Ready(export)) => break export,
            Err(_) => return,
        }
    };
    let limits = export.limits;
    assert!(limits.min.is_power_of_two() && limits.max >= limits.min);
    assert!(limits.max.is_multiple_of(limits.min));
    assert!(export.size.is_multiple_of(limits.min.into()));
    replies(&export, rest);
}

/// Replies to a read and to a block status of the same range.
fn replies(export: &Export, mut rest: &[u8]) {
    let (offset, len) = ASKED;
    let asked = offset..offset + u64::from(len);
    let mut come = Coverage::new(offset, len);
    let mut bytes = 0;
    while let Some(first) = rest.first_chunk() {
        let Ok(head_len) = Head::len_of(*first) else { return };
        assert!([SIMPLE_LEN, CHUNK_LEN].contains(&head_len));
        let Some((head, later)) = rest.split_at_checked(head_len) else { return };
        let Ok(Head::Chunk { kind, len, .. }) = Head::decode(head) else { return };
        let Some((contents, later)) = later.split_at_checked(len as usize) else { return };
        rest = later;
        let piece = match kind {
            ChunkKind::Data => contents
                .split_first_chunk::<8>()
                .map(|(at, data)| (u64::from_be_bytes(*at), data.len() as u64)),
            ChunkKind::Hole => decode_hole(contents).ok().map(|(at, len)| (at, len.into())),
            ChunkKind::BlockStatus => {
                let context = export.allocation.unwrap_or_default();
                if let Ok(found) = extents::decode(contents, context, asked.clone()) {
                    assert_eq!(found.first().map(|extent| extent.range.start), Some(offset));
                    assert!(found.last().is_some_and(|extent| extent.range.end <= asked.end));
                    assert!(found.windows(2).all(|two| two[0].range.end == two[1].range.start));
                }
                None
            }
            ChunkKind::Error | ChunkKind::ErrorAt => {
                assert_ne!(decode_error(contents), Ok(0));
                None
            }
            ChunkKind::None => None,
        };
        if let Some((at, len)) = piece
            && let Ok(place) = come.add(at, len)
        {
            assert!(at >= asked.start && at + len <= asked.end);
            assert_eq!(place as u64, at - asked.start);
            bytes += len;
        }
        assert_eq!(come.is_whole(), bytes == asked.end - asked.start);
    }
}
