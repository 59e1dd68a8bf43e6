//! Numbers in the headers of images.

/// Bytes with numbers in them. A number past the end is 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers<'b>(pub &'b [u8]);

impl Numbers<'_> {
    fn at<const N: usize>(&self, at: usize) -> [u8; N] {
        let bytes = at.checked_add(N).and_then(|end| self.0.get(at..end));
        bytes.and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; N])
    }

    pub fn le16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.at(at))
    }

    pub fn le32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.at(at))
    }

    #[cfg(feature = "formats")]
    pub fn le64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.at(at))
    }

    #[cfg(feature = "formats")]
    pub fn be32(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.at(at))
    }

    #[cfg(feature = "formats")]
    pub fn be64(&self, at: usize) -> u64 {
        u64::from_be_bytes(self.at(at))
    }
}
