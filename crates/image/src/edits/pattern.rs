//! Patterns of names, as `--exclude` and `--verity` take them.
//!
//! `*` and `?` match no slash, `**` does, `[a-z]` and `[!a-z]` match one character, `\` takes the
//! next one as it is. A pattern without a slash is for names in every directory; one with a slash
//! is for paths from the root of the image, as is one that begins with `./`. A slash at the end
//! means directories only.
//!
//! A pattern is a small automaton whose state is the set of places in it where a match may be. The
//! state behind a directory is kept while its entries are looked at, so a path is never read twice,
//! and no pattern takes longer than its length for each character.

use crate::error::{BuildError, Result};

/// A character, or a byte that is none.
type Symbol = u32;

/// The symbol of a byte that is no UTF-8.
const BYTES: u32 = 0x11_0000;

/// A pattern of names.
#[derive(Clone, Debug)]
pub struct Pattern {
    tokens: Vec<Token>,
    /// For paths from the root.
    anchored: bool,
    dirs_only: bool,
}

#[derive(Clone, Debug)]
enum Token {
    One(Symbol),
    /// `?`
    Any,
    /// `[...]`
    Set {
        ranges: Vec<(Symbol, Symbol)>,
        not: bool,
    },
    /// `*`
    Star,
    /// `**`
    StarStar,
    /// Matches nothing, with or without the two tokens behind it: before `**/`.
    SkipTwo,
}

/// Patterns together: what one of them matches.
#[derive(Clone, Debug, Default)]
pub struct Patterns(Vec<Pattern>);

/// Where matches of each pattern may be in a directory.
#[derive(Clone, Debug)]
pub struct States(Vec<State>);

/// Where matches of one pattern may be: a bit for each token, and one behind the last.
#[derive(Clone, Debug, PartialEq, Eq)]
struct State(Vec<bool>);

impl Patterns {
    /// Adds one.
    pub fn push(&mut self, pattern: Pattern) {
        self.0.push(pattern);
    }

    /// True if nothing matches.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The state of the entries of the root directory.
    #[must_use]
    pub fn start(&self) -> States {
        States(self.0.iter().map(Pattern::start).collect())
    }

    /// The state of the entries of a directory, from that of the one it is in.
    #[must_use]
    pub fn enter(&self, states: &States, name: &[u8]) -> States {
        States(self.0.iter().zip(&states.0).map(|(one, state)| one.enter(state, name)).collect())
    }

    /// True if the entry of that name matches.
    #[must_use]
    pub fn matches(&self, states: &States, name: &[u8], is_dir: bool) -> bool {
        self.0.iter().zip(&states.0).any(|(one, state)| one.matches(state, name, is_dir))
    }
}

impl Pattern {
    /// Reads a pattern, which an option has.
    ///
    /// # Errors
    /// A pattern that matches nothing or is not complete.
    pub fn parse(option: &str, text: &[u8]) -> Result<Self> {
        let refuse = |why: &str| {
            let shown = crate::error::shown(text);
            Err(BuildError::Refused(format!("{option} '{shown}': {why}")))
        };
        let trimmed = text.strip_suffix(b"/").unwrap_or(text);
        let mut path = trimmed.strip_prefix(b"/").unwrap_or(trimmed);
        // As archives have it: from the root.
        while let Some(rest) = path.strip_prefix(b"./") {
            let name = rest.iter().position(|byte| *byte != b'/').unwrap_or(rest.len());
            path = rest.get(name..).unwrap_or_default();
        }
        if matches!(path, b"" | b".") {
            return refuse("matches no name");
        }
        let symbols: Vec<_> = symbols(path).collect();
        match tokens(&symbols) {
            Some(tokens) => Ok(Self {
                tokens,
                anchored: trimmed.contains(&b'/'),
                dirs_only: trimmed.len() < text.len(),
            }),
            None => refuse("ends within brackets or behind a backslash"),
        }
    }

    /// The state before anything was read.
    fn start(&self) -> State {
        let mut state = State(vec![false; self.tokens.len() + 1]);
        state.0[0] = true;
        self.take_nothing(&mut state);
        state
    }

    /// The state of the entries of a directory, from that of its own entries and its name.
    fn enter(&self, state: &State, name: &[u8]) -> State {
        if self.anchored { self.read(&self.read(state, name), b"/") } else { state.clone() }
    }

    /// True if the entry of that name matches.
    fn matches(&self, state: &State, name: &[u8], is_dir: bool) -> bool {
        (is_dir || !self.dirs_only) && self.read(state, name).0.last() == Some(&true)
    }

    fn read(&self, state: &State, name: &[u8]) -> State {
        let (mut now, mut next) = (state.clone(), State(Vec::new()));
        for symbol in symbols(name) {
            next.0.clear();
            next.0.resize(now.0.len(), false);
            for (at, token) in self.tokens.iter().enumerate().filter(|&(at, _)| now.0[at]) {
                if token.takes(symbol) {
                    next.0[if token.repeats() { at } else { at + 1 }] = true;
                }
            }
            self.take_nothing(&mut next);
            std::mem::swap(&mut now, &mut next);
        }
        now
    }

    /// Stars may also match nothing.
    fn take_nothing(&self, state: &mut State) {
        for (at, token) in self.tokens.iter().enumerate() {
            if !state.0[at] {
                continue;
            }
            match token {
                Token::Star | Token::StarStar => state.0[at + 1] = true,
                Token::SkipTwo => {
                    state.0[at + 1] = true;
                    state.0[at + 3] = true;
                }
                Token::One(_) | Token::Any | Token::Set { .. } => {}
            }
        }
    }
}

impl Token {
    fn takes(&self, symbol: Symbol) -> bool {
        let slash = symbol == Symbol::from(b'/');
        match self {
            Self::One(one) => *one == symbol,
            Self::Any | Self::Star => !slash,
            Self::StarStar => true,
            Self::SkipTwo => false,
            Self::Set { ranges, not } => {
                !slash && ranges.iter().any(|(a, b)| (*a..=*b).contains(&symbol)) != *not
            }
        }
    }

    fn repeats(&self) -> bool {
        matches!(self, Self::Star | Self::StarStar)
    }
}

/// Characters, and the bytes between them that are none.
fn symbols(bytes: &[u8]) -> impl Iterator<Item = Symbol> {
    bytes.utf8_chunks().flat_map(|chunk| {
        let invalid = chunk.invalid().iter().map(|byte| BYTES + u32::from(*byte));
        chunk.valid().chars().map(u32::from).chain(invalid)
    })
}

fn tokens(text: &[Symbol]) -> Option<Vec<Token>> {
    let is = |at: usize, byte: u8| text.get(at) == Some(&Symbol::from(byte));
    let (mut tokens, mut at) = (Vec::new(), 0);
    while at < text.len() {
        at += 1;
        let token = match u8::try_from(text[at - 1]) {
            Ok(b'\\') => {
                at += 1;
                Token::One(*text.get(at - 1)?)
            }
            Ok(b'?') => Token::Any,
            Ok(b'*') if is(at, b'*') => {
                while is(at, b'*') {
                    at += 1;
                }
                // `a/**/b` is for `a/b` as well.
                let behind_slash = matches!(tokens.last(), None | Some(Token::One(0x2f)));
                if behind_slash && is(at, b'/') {
                    tokens.push(Token::SkipTwo);
                }
                Token::StarStar
            }
            Ok(b'*') => Token::Star,
            Ok(b'[') => set(text, &mut at)?,
            _ => Token::One(text[at - 1]),
        };
        tokens.push(token);
    }
    Some(tokens)
}

/// What is in brackets, from behind the first one.
fn set(text: &[Symbol], at: &mut usize) -> Option<Token> {
    let next = |at: &mut usize| {
        *at += 1;
        text.get(*at - 1).copied()
    };
    let close = Symbol::from(b']');
    let not = matches!(text.get(*at).copied().map(u8::try_from), Some(Ok(b'!' | b'^')));
    *at += usize::from(not);
    let (first, mut ranges) = (*at, Vec::new());
    loop {
        let mut low = next(at)?;
        // A bracket that comes first is one of the characters.
        if low == close && *at > first + 1 {
            return Some(Token::Set { ranges, not });
        }
        if low == Symbol::from(b'\\') {
            low = next(at)?;
        }
        let range = text.get(*at) == Some(&Symbol::from(b'-')) && text.get(*at + 1)? != &close;
        let mut high = low;
        if range {
            *at += 1;
            high = next(at)?;
            if high == Symbol::from(b'\\') {
                high = next(at)?;
            }
        }
        ranges.push((low, high));
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    /// As the walk over a tree does it.
    fn matches(pattern: &str, path: &str) -> bool {
        let pattern = Pattern::parse("--exclude", pattern.as_bytes()).expect(pattern);
        let is_dir = path.ends_with('/');
        let parts: Vec<_> = path.trim_end_matches('/').split('/').collect();
        let (name, above) = parts.split_last().expect("a name");
        let state =
            above.iter().fold(pattern.start(), |state, dir| pattern.enter(&state, dir.as_bytes()));
        pattern.matches(&state, name.as_bytes(), is_dir)
    }

    #[test]
    fn names_and_paths() {
        for (pattern, yes, no) in [
            ("*.o", vec!["a.o", "d/b.o", ".o", "a.o/"], vec!["a.oo", "a.o/b"]),
            ("/*.o", vec!["a.o"], vec!["d/a.o"]),
            ("d/*", vec!["d/a"], vec!["d", "d/a/b", "x/d/a"]),
            ("d/**", vec!["d/a", "d/a/b"], vec!["d", "e/d/a"]),
            ("a/**/b", vec!["a/b", "a/x/b", "a/x/y/b"], vec!["a/xb", "ab", "x/a/b"]),
            ("**/b", vec!["b", "a/b", "a/c/b"], vec!["ab", "a/cb"]),
            ("./d/a", vec!["d/a"], vec!["x/d/a", "a"]),
            ("././/tmp/", vec!["tmp/"], vec!["tmp", "x/tmp/"]),
            ("./*.o", vec!["a.o"], vec!["d/a.o"]),
            ("tmp/", vec!["tmp/", "x/tmp/"], vec!["tmp"]),
            ("/tmp/", vec!["tmp/"], vec!["tmp", "x/tmp/"]),
            ("?", vec!["a", "\u{e9}", "\u{1F600}"], vec!["ab", ""]),
            ("[a-c]x", vec!["ax", "cx"], vec!["dx", "x", "aax"]),
            ("[!a-c]x", vec!["dx", "\u{e9}x"], vec!["ax"]),
            ("[]a]", vec!["]", "a"], vec!["b"]),
            ("[a-]", vec!["a", "-"], vec!["b"]),
            ("\\*", vec!["*"], vec!["a"]),
            ("a*b*c", vec!["abc", "axxbxxc", "abbcc"], vec!["acb", "abcd"]),
            ("**", vec!["a", "a/b"], vec![]),
        ] {
            for path in yes {
                assert!(matches(pattern, path), "{pattern} is for {path}");
            }
            for path in no {
                assert!(!matches(pattern, path), "{pattern} is not for {path}");
            }
        }
    }

    #[test]
    fn bytes_that_are_no_text() {
        let pattern = Pattern::parse("--exclude", b"a?\xff").expect("parses");
        assert!(pattern.matches(&pattern.start(), b"a\xfe\xff", false));
        assert!(!pattern.matches(&pattern.start(), b"a\xff\xfe", false));
    }

    #[test]
    fn long_names_take_no_longer_than_their_length() {
        let pattern = Pattern::parse("--exclude", "a*".repeat(60).as_bytes()).expect("parses");
        assert!(!pattern.matches(&pattern.start(), &[b'b'; 255], false));
        assert!(!pattern.matches(&pattern.start(), &[b'a'; 59], false));
        assert!(pattern.matches(&pattern.start(), &[b'a'; 255], false));
    }

    #[test]
    fn what_is_no_pattern() {
        for text in ["", "/", "//", ".", "./", ".//", "/./", "[a", "a\\", "[!", "[a-"] {
            let error = Pattern::parse("--exclude", text.as_bytes()).expect_err(text).to_string();
            assert!(error.starts_with("--exclude '"), "{error}");
        }
    }
}
