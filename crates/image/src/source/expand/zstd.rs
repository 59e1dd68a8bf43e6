//! Zstandard: frames one after the other, some to be skipped, each with its checksum.

use std::error::Error as _;
use std::io::{self, BufRead, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// The frames of a stream.
pub(super) struct Frames<R> {
    input: R,
    decoder: FrameDecoder,
    /// Within a frame; its bytes that have come out.
    frame: Option<u64>,
}

impl<R: BufRead> Frames<R> {
    pub(super) fn new(input: R, window: u64) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(window);
        Self { input, decoder, frame: None }
    }

    pub(super) fn input(&self) -> &R {
        &self.input
    }

    /// Begins the next frame. False at the end.
    fn next_frame(&mut self) -> io::Result<bool> {
        loop {
            if self.input.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.reset(&mut self.input) {
                Ok(()) => {
                    self.frame = Some(0);
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    let mut skipped = (&mut self.input).take(length);
                    if io::copy(&mut skipped, &mut io::sink())? < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(error_of(error)),
            }
        }
    }

    /// What a frame says of itself must be so.
    fn end_frame(&mut self, given: u64) -> io::Result<()> {
        self.frame = None;
        let checksum = self.decoder.get_checksum_from_data();
        let damaged =
            checksum.is_some_and(|sum| Some(sum) != self.decoder.get_calculated_checksum());
        let size = self.decoder.content_size();
        if damaged || (size != 0 && size != given) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "zstd: checksum mismatch"));
        }
        Ok(())
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(given) = self.frame else {
                if self.next_frame()? {
                    continue;
                }
                return Ok(0);
            };
            if self.decoder.can_collect() > 0 {
                let len = self.decoder.read(buf)?;
                self.frame = Some(given + len as u64);
                return Ok(len);
            }
            if self.decoder.is_finished() {
                self.end_frame(given)?;
                continue;
            }
            let one = BlockDecodingStrategy::UptoBlocks(1);
            self.decoder.decode_blocks(&mut self.input, one).map_err(error_of)?;
        }
    }
}

/// What is wrong with a frame. (What the decoder says of damage is of use to its authors.)
fn error_of(error: FrameDecoderError) -> io::Error {
    let why = match error {
        FrameDecoderError::WindowSizeTooBig { requested, max } => {
            format!("its window has {requested} bytes, and {max} are the most: use no --long")
        }
        error => match read_error(&error) {
            Some(why) => why,
            None => "it is damaged, or cut short".to_owned(),
        },
    };
    io::Error::new(io::ErrorKind::InvalidData, format!("zstd: {why}"))
}

/// The error of reading below an error of the decoder, if it is no end of the file.
fn read_error(error: &FrameDecoderError) -> Option<String> {
    let mut cause = error.source();
    while let Some(error) = cause {
        let read = error.downcast_ref::<io::Error>();
        if let Some(error) = read.filter(|e| e.kind() != io::ErrorKind::UnexpectedEof) {
            return Some(error.to_string());
        }
        cause = error.source();
    }
    None
}
