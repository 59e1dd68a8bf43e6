//! Numbers and bytes as XDR (RFC 4506) has them.

/// The bytes are not what the procedure takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Garbage;

pub(crate) type Result<T> = std::result::Result<T, Garbage>;

/// Arguments that are left to read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Args<'a>(&'a [u8]);

impl<'a> Args<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Garbage)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Bytes of a length that is known, and what pads them.
    pub(crate) fn fixed<const N: usize>(&mut self) -> Result<[u8; N]> {
        let bytes = self.take(N)?.try_into().map_err(|_| Garbage)?;
        self.take(padding(N))?;
        Ok(bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_be_bytes(self.fixed()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_be_bytes(self.fixed()?))
    }

    pub(crate) fn bool(&mut self) -> Result<bool> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Garbage),
        }
    }

    /// Bytes behind their length, at most so many.
    pub(crate) fn opaque(&mut self, most: usize) -> Result<&'a [u8]> {
        let len = self.u32()? as usize;
        if len > most {
            return Err(Garbage);
        }
        let bytes = self.take(len)?;
        self.take(padding(len))?;
        Ok(bytes)
    }

    /// A value that may be left out.
    pub(crate) fn optional<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<Option<T>> {
        if self.bool()? { read(self).map(Some) } else { Ok(None) }
    }

    /// Err if anything is left.
    pub(crate) fn end(&self) -> Result<()> {
        if self.0.is_empty() { Ok(()) } else { Err(Garbage) }
    }
}

/// Bytes that follow so many, up to a whole word.
pub(crate) fn padding(len: usize) -> usize {
    len.next_multiple_of(4) - len
}

/// A reply that is being written.
#[derive(Debug, Default)]
pub(crate) struct Out(Vec<u8>);

impl Out {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(crate) fn bool(&mut self, value: bool) -> &mut Self {
        self.u32(value.into())
    }

    /// Bytes without their length.
    pub(crate) fn fixed(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self.zeros(padding(bytes.len()))
    }

    pub(crate) fn opaque(&mut self, bytes: &[u8]) -> &mut Self {
        self.u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        self.fixed(bytes)
    }

    pub(crate) fn zeros(&mut self, bytes: usize) -> &mut Self {
        self.0.resize(self.0.len() + bytes, 0);
        self
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    /// Sets a word that was written before.
    pub(crate) fn set_u32(&mut self, at: usize, value: u32) {
        if let Some(place) = self.0.get_mut(at..at + 4) {
            place.copy_from_slice(&value.to_be_bytes());
        }
    }

    /// Room for data of at most so many bytes behind their length, which `fill` fills; it gives how
    /// many there are.
    pub(crate) fn opaque_with<E>(
        &mut self,
        most: usize,
        fill: impl FnOnce(&mut [u8]) -> std::result::Result<usize, E>,
    ) -> std::result::Result<usize, E> {
        let length_at = self.0.len();
        self.u32(0);
        let start = self.0.len();
        self.0.resize(start + most, 0);
        let filled = fill(&mut self.0[start..]);
        let len = *filled.as_ref().unwrap_or(&0);
        self.0.truncate(start + len);
        self.zeros(padding(len));
        self.set_u32(length_at, u32::try_from(len).unwrap_or(u32::MAX));
        filled
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        let mut out = Out::default();
        out.u32(7).u64(1 << 40).bool(true).opaque(b"hello").fixed(b"123").opaque(b"");
        let bytes = out.into_bytes();
        assert_eq!(bytes.len() % 4, 0);
        let mut args = Args::new(&bytes);
        assert_eq!(args.u32(), Ok(7));
        assert_eq!(args.u64(), Ok(1 << 40));
        assert_eq!(args.bool(), Ok(true));
        assert_eq!(args.opaque(5), Ok(&b"hello"[..]));
        assert_eq!(args.fixed(), Ok(*b"123"));
        assert_eq!(args.opaque(0), Ok(&b""[..]));
        assert_eq!(args.end(), Ok(()));
    }

    #[test]
    fn lengths_that_lie_are_garbage() {
        for bytes in [&b"\0\0\0\x05hell"[..], b"\xff\xff\xff\xff", b"\0\0", b"\0\0\0\x01a"] {
            assert_eq!(Args::new(bytes).opaque(usize::MAX), Err(Garbage), "{bytes:?}");
        }
        assert_eq!(Args::new(b"\0\0\0\x05hello\0\0\0").opaque(4), Err(Garbage));
        assert_eq!(Args::new(b"\0\0\0\x02").bool(), Err(Garbage));
        assert_eq!(Args::new(b"a").end(), Err(Garbage));
    }

    #[test]
    fn data_of_unknown_length_is_padded() {
        let mut out = Out::default();
        let filled: std::result::Result<usize, ()> = out.opaque_with(8, |room| {
            room[..3].copy_from_slice(b"abc");
            Ok(3)
        });
        assert_eq!(filled, Ok(3));
        assert_eq!(out.into_bytes(), b"\0\0\0\x03abc\0");
    }
}
