//! What a file may hold after a crash.
//!
//! Linux's promise, and Extol's: what fsync covered is there; of what came later, any part may be.
//! So every byte must be one that the file had at this place at its last fsync or since, and its
//! size one between those it had. Where the file was shorter, its byte counts as zero.
//!
//! One more thing is allowed. File data goes to its blocks ahead of the commit. If a range was cut
//! out or put in since the last fsync and *that* is lost, the blocks are at their old places again,
//! with newer data in them. So every version after such a shift counts also as it looks without the
//! shift (an *echo*), for bytes and not for sizes.

/// Everything from `at` on moved by `len`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shift {
    pub at: usize,
    pub len: usize,
    pub inserted: bool,
}

impl Shift {
    fn undo(self, bytes: &mut Vec<u8>) {
        if self.inserted {
            let end = self.at + self.len;
            bytes.resize(bytes.len().max(end), 0);
            bytes.drain(self.at..end);
        } else {
            bytes.resize(bytes.len().max(self.at), 0);
            bytes.splice(self.at..self.at, std::iter::repeat_n(0, self.len));
        }
    }
}

/// The versions of a file since its last fsync.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    versions: Vec<Vec<u8>>,
    echoes: Vec<Vec<u8>>,
    shifts: Vec<Shift>,
}

impl History {
    /// This is durable; what was before cannot come back.
    pub fn durable(&mut self, bytes: &[u8]) {
        self.versions = vec![bytes.to_vec()];
        self.echoes.clear();
        self.shifts.clear();
    }

    /// The file has become this, by a shift or by anything else.
    pub fn changed(&mut self, bytes: &[u8], shift: Option<Shift>) {
        if let Some(Shift { at, len, inserted: false }) = shift {
            // First the range becomes a hole, then the rest moves.
            let mut hole = self.versions.last().cloned().unwrap_or_default();
            let end = (at + len).min(hole.len());
            hole[at.min(end)..end].fill(0);
            self.versions.push(hole);
        }
        self.versions.push(bytes.to_vec());
        let mut echo = bytes.to_vec();
        for shift in self.shifts.iter().rev() {
            shift.undo(&mut echo);
            self.echoes.push(echo.clone());
        }
        self.shifts.extend(shift);
    }

    /// Whether a crash may leave this.
    pub fn verify(&self, found: &[u8]) -> Result<(), String> {
        let sizes = || self.versions.iter().map(Vec::len);
        let (least, most) = (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0));
        if found.len() < least || found.len() > most {
            return Err(format!("{} bytes after the crash, not {least} to {most}", found.len()));
        }
        let all = || self.versions.iter().chain(&self.echoes);
        for (n, byte) in found.iter().enumerate() {
            if !all().any(|v| v.get(n).copied().unwrap_or(0) == *byte) {
                let had: Vec<u8> = all().map(|v| v.get(n).copied().unwrap_or(0)).take(20).collect();
                return Err(format!(
                    "byte {n} of {} is {byte} after the crash; it was {had:?}",
                    found.len()
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_must_be_of_some_version_since_the_last_sync() {
        let mut h = History::default();
        h.changed(&[9; 4], None);
        h.durable(&[1, 1, 1, 1]);
        h.changed(&[2, 2, 1, 1, 5], None);
        assert!(h.verify(&[1, 2, 1, 1]).is_ok());
        assert!(h.verify(&[2, 1, 1, 1, 0]).is_ok(), "longer, the data lost");
        assert!(h.verify(&[2, 2, 2, 1]).is_err(), "never there");
        assert!(h.verify(&[9, 1, 1, 1]).is_err(), "from before the sync");
        assert!(h.verify(&[1, 1, 1]).is_err(), "never so short");
    }

    #[test]
    fn a_lost_shift_leaves_newer_data_at_older_places() {
        let mut h = History::default();
        h.durable(&[1, 2, 3, 4]);
        h.changed(&[1, 0, 0, 2, 3, 4], Some(Shift { at: 1, len: 2, inserted: true }));
        h.changed(&[1, 0, 0, 2, 3, 7], None);
        assert!(h.verify(&[1, 2, 3, 7]).is_ok());
        assert!(h.verify(&[1, 2, 7, 4]).is_err());
    }
}
