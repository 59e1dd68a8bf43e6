//! UUIDs: read, and made of random bits or of the time.

use super::{MkfsError, Result};

/// The UUID that a word stands for: a UUID, `random` (no word means that, too), `time` (made of the
/// time of day, `since` 1970), or `clear`.
///
/// # Errors
/// No such word.
pub fn volume_uuid(word: Option<&str>, since: std::time::Duration) -> Result<[u8; 16]> {
    match word {
        None | Some("random") => Ok(random_uuid()),
        Some("time") => Ok(time_uuid(since)),
        Some("null" | "clear") => Ok([0; 16]),
        Some(text) => parse_uuid(text).ok_or_else(|| {
            MkfsError::Refused(format!(
                "bad UUID '{text}': it must be a UUID, or random, time or clear"
            ))
        }),
    }
}

/// Reads the usual form of a UUID.
pub(super) fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let bytes = text.as_bytes();
    if bytes.len() != 36 || [8, 13, 18, 23].iter().any(|i| bytes[*i] != b'-') {
        return None;
    }
    let hex: Vec<u8> = text.bytes().filter(|b| *b != b'-').collect();
    let mut uuid = [0; 16];
    for (byte, pair) in uuid.iter_mut().zip(hex.as_chunks::<2>().0) {
        let digit = |b: u8| char::from(b).to_digit(16);
        *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
    }
    (hex.len() == 32).then_some(uuid)
}

/// A new random UUID (version 4).
pub(super) fn random_uuid() -> [u8; 16] {
    let mut uuid = extol_proc::random_id();
    uuid[6] = uuid[6] & 0x0F | 0x40;
    uuid[8] = uuid[8] & 0x3F | 0x80;
    uuid
}

/// A UUID of the time `since` 1970 (version 1), with a random node in place of a network address.
pub(super) fn time_uuid(since: std::time::Duration) -> [u8; 16] {
    /// From the start of the Gregorian calendar to 1970, in the unit of these UUIDs.
    const GREGORIAN: u128 = 122_192_928_000_000_000;
    let ticks = (since.as_nanos() / 100 + GREGORIAN) as u64;
    let mut uuid = extol_proc::random_id();
    uuid[..4].copy_from_slice(&(ticks as u32).to_be_bytes());
    uuid[4..6].copy_from_slice(&((ticks >> 32) as u16).to_be_bytes());
    uuid[6..8].copy_from_slice(&((ticks >> 48) as u16 & 0x0FFF | 0x1000).to_be_bytes());
    uuid[8] = uuid[8] & 0x3F | 0x80;
    // The bit of a multicast address: no network card has such a one.
    uuid[10] |= 1;
    uuid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids() {
        let text = "00112233-4455-6677-8899-aAbBcCdDeEfF";
        let expected: [u8; 16] = std::array::from_fn(|i| i as u8 * 0x11);
        assert_eq!(parse_uuid(text), Some(expected));
        for bad in [
            "",
            "00112233-4455-6677-8899-aabbccddeef",
            "00112233x4455-6677-8899-aabbccddeeff",
            "gg112233-4455-6677-8899-aabbccddeeff",
            "0011223-34455-6677-8899-aabbccddeeff",
            "--------------------------------1234",
        ] {
            assert_eq!(parse_uuid(bad), None, "{bad}");
        }
        assert_ne!(random_uuid(), random_uuid());
        assert_eq!((random_uuid()[6] >> 4, random_uuid()[8] >> 6), (4, 2));
        // (The time in the example of RFC 9562.)
        let since = std::time::Duration::from_nanos(1_645_557_742_000_000_000);
        let uuid = time_uuid(since);
        assert_eq!(uuid[..8], [0xC2, 0x32, 0xAB, 0x00, 0x94, 0x14, 0x11, 0xEC]);
        assert_eq!((uuid[8] >> 6, uuid[10] & 1), (2, 1));
    }
}
