//! A mark of threads that have handled secrets: clear text of encrypted files, or their keys.
//!
//! The file system sets it where it encrypts or decrypts. A front end takes it after each request,
//! and overwrites the memory of that request: clear text must not outlive the key that is taken
//! away.

use std::cell::Cell;

thread_local! {
    static SECRET: Cell<bool> = const { Cell::new(false) };
}

/// Notes that this thread handles a secret.
pub fn note_secret() {
    SECRET.set(true);
}

/// True if this thread has handled a secret since this was asked.
#[must_use]
pub fn take_secret() -> bool {
    SECRET.take()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_is_of_one_thread_and_taken_once() {
        note_secret();
        assert!(!std::thread::spawn(take_secret).join().expect("no panic"));
        assert!(take_secret() && !take_secret());
    }
}
