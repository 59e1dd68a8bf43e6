//! Which files of a set exist and which are in use, for loads that pick at random.

use rand::Rng;

/// Numbers of files. One that was taken belongs to the taker until it is put back.
#[derive(Debug, Default)]
pub(super) struct Pool {
    there: Vec<u64>,
    absent: Vec<u64>,
}

impl Pool {
    /// The files `0..total`, of which the first `there` exist.
    pub fn new(total: u64, there: u64) -> Self {
        Self { there: (0..there).collect(), absent: (there..total).collect() }
    }

    /// Takes one that exists. `None`: all are in use.
    pub fn take(&mut self, rng: &mut impl Rng) -> Option<u64> {
        pick(&mut self.there, rng)
    }

    /// Takes one that does not exist.
    pub fn take_absent(&mut self, rng: &mut impl Rng) -> Option<u64> {
        pick(&mut self.absent, rng)
    }

    /// Puts one back that exists.
    pub fn put(&mut self, number: u64) {
        self.there.push(number);
    }

    /// Puts one back that does not exist.
    pub fn put_absent(&mut self, number: u64) {
        self.absent.push(number);
    }
}

fn pick(from: &mut Vec<u64>, rng: &mut impl Rng) -> Option<u64> {
    if from.is_empty() {
        return None;
    }
    let at = rng.random_range(0..from.len());
    Some(from.swap_remove(at))
}

/// Writes `size` bytes from `offset` in pieces of at most `piece` bytes; `write` gets one piece's
/// offset and length.
pub(super) fn pieces(
    offset: u64,
    size: u64,
    piece: usize,
    mut write: impl FnMut(u64, usize) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let mut at = 0;
    while at < size {
        let len = (size - at).min(piece.max(1) as u64);
        write(offset + at, len as usize)?;
        at += len;
    }
    Ok(())
}
