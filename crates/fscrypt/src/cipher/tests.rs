//! The ciphers against vectors of others.

use proptest::prelude::*;

use super::*;

struct Vector {
    mode: Mode,
    key: Vec<u8>,
    iv: Iv,
    plain: Vec<u8>,
    encrypted: Vec<u8>,
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().map(|digit| digit.to_digit(16).expect("a digit") as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// A paragraph: the mode, then each field's name and its lines.
fn vector(paragraph: &str) -> Vector {
    let mut lines = paragraph.lines();
    let name = lines.next().unwrap();
    let mode = Mode::ALL.into_iter().find(|mode| mode.name() == name).expect(name);
    let mut fields = [const { String::new() }; 4];
    let mut at: Option<usize> = None;
    for line in lines {
        match line.strip_prefix("  ") {
            Some(digits) => fields[at.unwrap()].push_str(digits),
            None => at = ["key", "iv", "plain", "encrypted"].iter().position(|tag| *tag == line),
        }
    }
    let [key, iv, plain, encrypted] = fields.map(|field| unhex(&field));
    Vector { mode, key, iv: iv.try_into().expect("32 bytes"), plain, encrypted }
}

fn vectors() -> Vec<Vector> {
    let text = include_str!("vectors.txt");
    text.split("\n\n").skip(1).filter(|text| !text.trim().is_empty()).map(vector).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn all_modes_give_what_others_give() {
    let mut seen = std::collections::HashMap::new();
    for Vector { mode, key, iv, plain, encrypted } in vectors() {
        let cipher = Cipher::new(mode, &Derived::new(&key));
        let mut data = plain.clone();
        cipher.encrypt(&iv, &mut data);
        assert_eq!(hex(&data), hex(&encrypted), "{mode:?}, {} bytes", plain.len());
        cipher.decrypt(&iv, &mut data);
        assert_eq!(hex(&data), hex(&plain), "{mode:?}, {} bytes back", plain.len());
        *seen.entry(mode).or_insert(0) += 1;
    }
    for mode in Mode::ALL {
        assert!(seen.get(&mode).is_some_and(|&count| count >= 2), "{mode:?} has vectors");
    }
}

/// Whether a mode is for contents: then data are whole data units.
fn for_contents(mode: Mode) -> bool {
    matches!(mode, Mode::Aes256Xts | Mode::Aes128Cbc | Mode::Sm4Xts)
}

proptest! {
    #[test]
    fn what_is_encrypted_is_decrypted(
        iv in any::<[u8; 32]>(),
        data in proptest::collection::vec(any::<u8>(), 16..2200),
    ) {
        for mode in Mode::ALL {
            let cipher = Cipher::new(mode, &Derived::new(&vec![0x5C; mode.key_len()]));
            let len = if for_contents(mode) { data.len() / 16 * 16 } else { data.len() };
            let mut there = data[..len].to_vec();
            cipher.encrypt(&iv, &mut there);
            prop_assert_ne!(&there, &data[..len]);
            cipher.decrypt(&iv, &mut there);
            prop_assert_eq!(&there, &data[..len]);
        }
    }
}
