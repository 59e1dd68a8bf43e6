//! Archives made by hand, for tests.

/// An archive made by hand: headers of any kind.
#[derive(Clone, Default)]
pub(super) struct Maker(pub Vec<u8>);

impl Maker {
    pub fn header(&mut self, name: &[u8], kind: u8, size: u64, link: &[u8]) -> &mut [u8] {
        let at = self.0.len();
        self.0.resize(at + 512, 0);
        let header = &mut self.0[at..];
        header[..name.len()].copy_from_slice(name);
        header[100..108].copy_from_slice(b"0000644\0");
        header[108..116].copy_from_slice(b"0000001\0");
        header[116..124].copy_from_slice(b"0000002\0");
        header[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
        header[136..148].copy_from_slice(b"00000000007\0");
        header[156] = kind;
        header[157..157 + link.len()].copy_from_slice(link);
        header[257..265].copy_from_slice(b"ustar\x0000");
        Self::seal(header);
        &mut self.0[at..]
    }

    pub fn seal(header: &mut [u8]) {
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }

    pub fn entry(mut self, name: &str, kind: u8, data: &[u8]) -> Self {
        self.header(name.as_bytes(), kind, data.len() as u64, b"");
        self.0.extend_from_slice(data);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    pub fn link(mut self, name: &str, kind: u8, target: &str) -> Self {
        self.header(name.as_bytes(), kind, 0, target.as_bytes());
        self
    }

    pub fn pax(self, records: &[(&str, &str)]) -> Self {
        self.records(b'x', records)
    }

    pub fn records(self, kind: u8, records: &[(&str, &str)]) -> Self {
        let mut text = String::new();
        for (key, value) in records {
            let body = key.len() + value.len() + 3;
            let len = (body..).find(|len| body + len.to_string().len() == *len);
            text += &format!("{} {key}={value}\n", len.expect("a length"));
        }
        self.entry("pax", kind, text.as_bytes())
    }

    /// Without the blocks of zeros at the end.
    pub fn unended(self) -> Vec<u8> {
        self.0
    }

    pub fn end(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 1024, 0);
        self.0
    }
}
