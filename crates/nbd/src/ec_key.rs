//! Private keys of elliptic curves, written as rustls reads them.
//!
//! RFC 5915 gives the number of a key as many bytes as the order of its curve has. Other programs
//! write it as a signed integer, with a zero byte in front if its first bit is set, or leave the
//! zero bytes out that it begins with. OpenSSL reads all of these, so such keys are in use; rustls
//! reads none but the first. The number is the same, and it is written anew with its length.

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer};

const INTEGER: u8 = 0x02;
const OCTETS: u8 = 0x04;
const NAME: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
/// Of RFC 5915: the curve of a key.
const PARAMETERS: u8 = 0xa0;

/// `id-ecPublicKey`.
const IS_CURVE: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
/// The curves, and the bytes of their orders: P-256 and P-384.
const CURVES: [(&[u8], usize); 2] = [
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07], 32),
    (&[0x2b, 0x81, 0x04, 0x00, 0x22], 48),
];

/// A key with a number of the right length. What is no such key stays as it is.
pub(crate) fn of_right_length(key: PrivateKeyDer<'static>) -> PrivateKeyDer<'static> {
    let mended = match &key {
        PrivateKeyDer::Sec1(der) => sec1(der.secret_sec1_der(), None)
            .map(|der| PrivateKeyDer::from(PrivateSec1KeyDer::from(der))),
        PrivateKeyDer::Pkcs8(der) => pkcs8(der.secret_pkcs8_der())
            .map(|der| PrivateKeyDer::from(PrivatePkcs8KeyDer::from(der))),
        _ => None,
    };
    mended.unwrap_or(key)
}

/// The key of RFC 5208 anew. `None`: it is none of a known curve, or has the right length.
fn pkcs8(der: &[u8]) -> Option<Vec<u8>> {
    let (body, _) = element(der, SEQUENCE)?;
    let (version, rest) = element(body, INTEGER)?;
    let (algorithm, rest) = element(rest, SEQUENCE)?;
    let (kind, curve) = element(algorithm, NAME)?;
    if kind != IS_CURVE {
        return None;
    }
    let (key, more) = element(rest, OCTETS)?;
    let key = sec1(key, Some(order_of(curve)?))?;
    let mut body = written(INTEGER, version);
    body.extend(written(SEQUENCE, algorithm));
    body.extend(written(OCTETS, &key));
    body.extend_from_slice(more);
    Some(written(SEQUENCE, &body))
}

/// The key of RFC 5915 anew. `order`: the bytes of the order, if the key does not say its curve.
fn sec1(der: &[u8], order: Option<usize>) -> Option<Vec<u8>> {
    let (body, _) = element(der, SEQUENCE)?;
    let (version, rest) = element(body, INTEGER)?;
    let (number, more) = element(rest, OCTETS)?;
    let order = match order {
        Some(order) => order,
        None => order_of(element(more, PARAMETERS)?.0)?,
    };
    if number.len() == order {
        return None;
    }
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    let digits = number.get(zeros..)?;
    let mut exact = vec![0; order.checked_sub(digits.len())?];
    exact.extend_from_slice(digits);
    let mut body = written(INTEGER, version);
    body.extend(written(OCTETS, &exact));
    body.extend_from_slice(more);
    Some(written(SEQUENCE, &body))
}

/// The bytes of the order of the curve that is named.
fn order_of(name: &[u8]) -> Option<usize> {
    let (name, _) = element(name, NAME)?;
    CURVES.iter().find(|(curve, _)| *curve == name).map(|(_, order)| *order)
}

/// What the first element of DER holds, if it has this tag, and what is behind it.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&[found, first], rest) = der.split_first_chunk()?;
    if found != tag {
        return None;
    }
    let (len, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81 => (usize::from(*rest.first()?), rest.get(1..)?),
        0x82 => {
            let (len, rest) = rest.split_first_chunk()?;
            (usize::from(u16::from_be_bytes(*len)), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(len)
}

/// An element of DER.
fn written(tag: u8, contents: &[u8]) -> Vec<u8> {
    let len = contents.len();
    let mut out = vec![tag];
    match u8::try_from(len) {
        Ok(short @ 0..0x80) => out.push(short),
        Ok(long) => out.extend([0x81, long]),
        // (Longer than 64 KiB is no key that was read.)
        Err(_) => {
            out.push(0x82);
            out.extend(u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes());
        }
    }
    out.extend_from_slice(contents);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key of P-256 whose number begins with a zero byte, as OpenSSL has made it for this test.
    const KEY: &str = "\
        3077020101042000c06019f669d0e17c8e2bc13006e63140a249b53afef7d41fa82a36d03aeb39a0\
        0a06082a8648ce3d030107a144034200040dd233fdf1ae1f488e525ced649dd37af52b35c365efa6\
        df509263992a061adabd855811ba6a500a8cc557258bf876631db9bb7bf8a80adeee6e460b369d0e\
        a4";

    fn key() -> Vec<u8> {
        let digits = KEY.as_bytes().chunks(2).map(|two| std::str::from_utf8(two).expect("digits"));
        digits.map(|two| u8::from_str_radix(two, 16).expect("a digit")).collect()
    }

    /// The same key with its number written so.
    fn with_number(change: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
        let key = key();
        let (body, _) = element(&key, SEQUENCE).expect("a key");
        let (version, rest) = element(body, INTEGER).expect("a version");
        let (number, more) = element(rest, OCTETS).expect("a number");
        let parts = [&written(INTEGER, version), &written(OCTETS, &change(number)), more];
        written(SEQUENCE, &parts.concat())
    }

    fn wrapped(key: &[u8]) -> Vec<u8> {
        let curve = [written(NAME, IS_CURVE), written(NAME, CURVES[0].0)].concat();
        let version = written(INTEGER, &[0]);
        written(SEQUENCE, &[version, written(SEQUENCE, &curve), written(OCTETS, key)].concat())
    }

    fn is_read(key: &PrivateKeyDer<'static>) -> bool {
        rustls::crypto::ring::sign::any_supported_type(key).is_ok()
    }

    #[test]
    fn numbers_get_their_length() {
        assert!(with_number(<[u8]>::to_vec) == key() && sec1(&key(), None).is_none());
        let more = with_number(|number| [&[0], number].concat());
        let many = with_number(|number| [&[0; 200], number].concat());
        let less = with_number(|number| number[1..].to_vec());
        for odd in [more, many, less] {
            assert_eq!(sec1(&odd, None), Some(key()));
            assert_eq!(pkcs8(&wrapped(&odd)), Some(wrapped(&key())));
            for der in [
                PrivateKeyDer::from(PrivateSec1KeyDer::from(odd.clone())),
                PrivateKeyDer::from(PrivatePkcs8KeyDer::from(wrapped(&odd))),
            ] {
                assert!(!is_read(&der), "rustls reads it: nothing needs to be done");
                assert!(is_read(&of_right_length(der)));
            }
        }
    }

    #[test]
    fn what_is_no_such_key_stays() {
        let long = with_number(|number| [&[1], number].concat());
        assert_eq!(sec1(&long, None), None);
        for len in 0..key().len() {
            let cut = &key()[..len];
            assert_eq!((sec1(cut, None), pkcs8(cut)), (None, None), "{len}");
        }
    }
}
