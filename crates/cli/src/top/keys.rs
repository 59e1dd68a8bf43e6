//! Keys, read from standard input, and the end of the terminal.
//!
//! A terminal that is gone is readable for ever, and every read of it returns nothing. So a read of
//! nothing, an error and a hang-up are the end, and no read waits: it follows a poll(2) that says
//! that there is something.

use std::io;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

/// What a key means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    Quit,
    /// Ctrl-C, which in raw mode is no signal.
    Interrupt,
    Pause,
    Faster,
    Slower,
}

/// What came from the terminal.
#[derive(PartialEq, Eq, Debug)]
pub enum Input {
    /// Keys that mean something, perhaps none.
    Keys(Vec<Key>),
    /// The terminal is gone.
    End,
}

/// Waits for keys, for so long at most. A signal ends the wait.
pub fn wait(timeout: Duration) -> Input {
    let (input, output) = (io::stdin(), io::stdout());
    let mut fds = [PollFd::new(&input, PollFlags::IN), PollFd::new(&output, PollFlags::empty())];
    let timeout = Timespec::try_from(timeout).ok();
    match rustix::event::poll(&mut fds, timeout.as_ref()) {
        Ok(0) | Err(Errno::INTR) => return Input::Keys(Vec::new()),
        Ok(_) => {}
        Err(_) => return Input::End,
    }
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    if fds.iter().any(|fd| fd.revents().intersects(gone)) {
        return Input::End;
    }
    let mut bytes = [0; 64];
    match rustix::io::read(&input, &mut bytes) {
        Ok(0) => Input::End,
        Ok(count) => Input::Keys(keys(bytes.get(..count).unwrap_or_default())),
        Err(Errno::INTR | Errno::AGAIN) => Input::Keys(Vec::new()),
        Err(_) => Input::End,
    }
}

/// The keys in what a terminal sends. What begins with Escape and goes on (arrows, say) is a key
/// that means nothing.
fn keys(mut bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    while let Some((first, rest)) = bytes.split_first() {
        bytes = rest;
        match first {
            0x1b if rest.is_empty() => keys.push(Key::Quit),
            0x1b => bytes = behind_sequence(rest),
            3 => keys.push(Key::Interrupt),
            b'q' | b'Q' => keys.push(Key::Quit),
            b'p' | b' ' => keys.push(Key::Pause),
            b'+' => keys.push(Key::Faster),
            b'-' => keys.push(Key::Slower),
            _ => {}
        }
    }
    keys
}

/// What follows an escape sequence, given what follows its Escape.
fn behind_sequence(bytes: &[u8]) -> &[u8] {
    let len = match bytes.first() {
        Some(b'[') => {
            let end = bytes.iter().skip(1).position(|byte| (0x40..0x7f).contains(byte));
            end.map_or(bytes.len(), |end| end + 2)
        }
        Some(b'O') => 2,
        _ => 1,
    };
    bytes.get(len..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_sequences() {
        for (bytes, expected) in [
            (&b""[..], &[][..]),
            (b"q", &[Key::Quit]),
            (b"\x1b", &[Key::Quit]),
            (b"\x03", &[Key::Interrupt]),
            (b"xp +-", &[Key::Pause, Key::Pause, Key::Faster, Key::Slower]),
            // Arrows, F5, Alt and a character, a sequence without an end.
            (b"\x1b[A\x1bOPp", &[Key::Pause]),
            (b"\x1b[15~+", &[Key::Faster]),
            (b"\x1bq", &[]),
            (b"\x1b[1;2", &[]),
        ] {
            assert_eq!(keys(bytes), expected, "{bytes:?}");
        }
    }
}
