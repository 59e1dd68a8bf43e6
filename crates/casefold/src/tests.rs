use proptest::prelude::*;

use super::*;

fn folded(name: &str) -> String {
    String::from_utf8(fold(name.as_bytes()).expect("text can be folded")).expect("still text")
}

#[test]
fn case_is_folded_in_full() {
    for (name, form) in [
        ("", ""),
        ("ReadMe.TXT", "readme.txt"),
        ("ÄÖÜ", "a\u{308}o\u{308}u\u{308}"),
        ("Straße", "strasse"),
        ("STRAẞE", "strasse"),
        ("ΣΊΣΥΦΟΣ", "σι\u{301}συφοσ"),
        ("ς", "σ"),
        ("İ", "i\u{307}"),
        ("I", "i"),
        ("ı", "ı"),
        ("ﬃ", "ffi"),
        ("ᾼ", "αι"),
        ("Ꭰ", "Ꭰ"),
        ("ꭰ", "Ꭰ"),
        ("𐐀", "𐐨"),
    ] {
        assert_eq!(folded(name), form, "{name:?}");
    }
}

#[test]
fn names_are_decomposed_and_ordered() {
    for (name, form) in [
        ("é", "e\u{301}"),
        ("\u{1EAD}", "a\u{323}\u{302}"),
        ("a\u{302}\u{323}", "a\u{323}\u{302}"),
        ("\u{212B}", "a\u{30A}"),
        ("\u{212A}", "k"),
        ("豈", "豈"),
        // Compatibility decompositions are not canonical.
        ("①", "①"),
        ("가", "\u{1100}\u{1161}"),
        ("각", "\u{1100}\u{1161}\u{11A8}"),
        ("힣", "\u{1112}\u{1175}\u{11C2}"),
        // U+0345 combines until it is folded to iota.
        ("α\u{345}\u{323}", "αι\u{323}"),
        ("\u{308}\u{323}", "\u{323}\u{308}"),
    ] {
        assert_eq!(folded(name), form, "{name:?}");
    }
}

#[test]
fn ignored_code_points_vanish_and_still_end_a_run() {
    assert_eq!(folded("so\u{AD}ft"), "soft");
    assert_eq!(folded("❤\u{FE0F}"), "❤");
    assert_eq!(folded("\u{200D}\u{E0001}\u{E0FFF}"), "");
    assert_eq!(folded("a\u{302}\u{34F}\u{323}"), "a\u{302}\u{323}");
    assert!(equal(b"\xE2\x80\x8D", b"\xF3\xA0\x80\x81"));
    assert!(!equal(b"\xE2\x80\x8D", b"a"));
}

#[test]
fn what_is_not_assigned_stays() {
    for name in ["\u{378}", "\u{FDD0}", "\u{10FFFF}", "\u{E000}", "\u{1FAD6}", "\u{E1000}"] {
        assert_eq!(folded(name), name);
        assert!(is_valid(name.as_bytes()));
    }
    // Assigned later than 12.1, with a lower case that 12.1 does not know.
    assert_eq!(folded("\u{A7C7}"), "\u{A7C7}");
}

#[test]
fn malformed_names_equal_only_themselves() {
    for name in [
        &b"\xC9T\xE9"[..],
        b"A\xFF",
        b"A\xC0\x80",
        b"A\xE0\x80\x80",
        b"A\xED\xA0\x80",
        b"A\xF4\x90\x80\x80",
        b"A\xE2\x82",
        b"\x80A",
    ] {
        assert_eq!(fold(name), None, "{name:?}");
        assert!(!is_valid(name));
        let wanted = Wanted::new(name);
        assert_eq!(wanted.hashed(), name);
        assert!(wanted.matches(name));
        assert!(!wanted.matches(&name.to_ascii_lowercase()), "{name:?}");
        assert!(!Wanted::new(b"a").matches(name));
    }
}

#[test]
fn stray_bytes_are_taken_over() {
    assert_eq!(fold(b"50\xB0C").as_deref(), Some(&b"50\xB0c"[..]));
    assert!(equal(b"50\xB0C", b"50\xB0c"));
    assert!(!is_valid(b"50\xB0C"));
    // Two classes: once for the search, and once for each.
    let run = "A\u{302}\u{323}";
    let name = [run.as_bytes(), b"\x80"].concat();
    assert_eq!(fold(&name).as_deref(), Some(&b"a\x80\xCC\xA3\x80\xCC\x82\x80"[..]));
}

#[test]
fn a_name_ends_at_a_nul_byte() {
    assert_eq!(fold(b"Ab\0C\xFF").as_deref(), Some(&b"ab"[..]));
    assert!(equal(b"aB", b"Ab\0c"));
    assert!(equal(b"Ab\0c", b"aB"));
}

#[test]
fn forms_that_are_too_long_are_not_hashed() {
    // One combining character of each class, and stray bytes that are taken over for each class.
    let mut classes = std::collections::BTreeMap::new();
    for char in '\u{300}'..'\u{800}' {
        if let tables::Entry::Same { class: class @ 1.. } = tables::look_up(char) {
            classes.insert(class, char);
        }
    }
    let with_strays = |strays: usize| {
        let mut name = vec![b'A'];
        name.extend(classes.values().collect::<String>().into_bytes());
        name.resize(name.len() + strays, 0x80);
        name
    };
    for (strays, is_hashed) in [(0, true), (20, true), (150, false)] {
        let name = with_strays(strays);
        assert!(name.len() <= 255);
        let form = fold(&name).expect("no byte is refused");
        assert_eq!(form.len(), name.len() + strays * classes.len());
        assert_eq!(form.len() <= MAX_HASHED, is_hashed);
        assert_eq!(Wanted::new(&name).hashed(), if is_hashed { &form } else { &name });
    }
}

#[test]
fn mappings_hold_only_what_stays_as_it_is() {
    let mut longest = 0;
    for char in '\0'..=char::MAX {
        if let tables::Entry::Becomes(chars) = tables::look_up(char) {
            assert!(!chars.is_empty());
            for last in chars {
                assert!(matches!(tables::look_up(*last), tables::Entry::Same { .. }), "{char:?}");
            }
        }
        let len = folded(char.encode_utf8(&mut [0; 4])).len();
        longest = longest.max(len.div_ceil(char.len_utf8()));
    }
    assert_eq!(longest, MAX_EXPANSION);
}

#[test]
fn names_with_what_is_ignored_are_known() {
    for name in ["❤\u{FE0F}", "\u{AD}", "a\u{200D}b"] {
        assert!(has_ignored(name.as_bytes()), "{name}");
    }
    assert!(has_ignored("\u{200D}".as_bytes()) && has_ignored(b"\xFF\xC2\xAD"));
    for name in ["plain", "❤", "Straße"] {
        assert!(!has_ignored(name.as_bytes()), "{name}");
    }
    assert!(!has_ignored(b"\xC2"));
}

proptest! {
    #[test]
    fn folding_twice_is_folding_once(name in ".{0,40}") {
        let once = folded(&name);
        prop_assert_eq!(folded(&once), once.as_str());
        prop_assert!(name.is_empty() || once.len() <= name.len() * MAX_EXPANSION);
        prop_assert!(equal(name.as_bytes(), once.as_bytes()) || name.contains('\0'));
    }

    #[test]
    fn matching_is_having_the_same_form(one in any::<Vec<u8>>(), other in any::<Vec<u8>>()) {
        let alike = |a: &[u8], b: &[u8]| a == b || fold(a).is_some() && fold(a) == fold(b);
        prop_assert_eq!(equal(&one, &other), alike(&one, &other));
        let upper = one.to_ascii_uppercase();
        prop_assert_eq!(equal(&one, &upper), alike(&one, &upper));
        prop_assert_eq!(equal(&upper, &one), alike(&one, &upper));
    }
}
