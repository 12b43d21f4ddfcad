//! Buffered input that is consumed by lines or by bytes.

use std::io::{self, Read};
use std::ops::Range;

/// Size of the buffer; more than twice [`LINE_MAX`].
const BUFFER: usize = 256 << 10;
/// Maximum length of a line of a trace.
pub(crate) const LINE_MAX: usize = 64 << 10;

/// Input that has been read and not consumed yet. Memory is constant.
pub(crate) struct Input<'a> {
    input: Box<dyn Read + Send + 'a>,
    buffer: Vec<u8>,
    /// The part of the buffer that has been read and not consumed.
    buffered: Range<usize>,
    ended: bool,
    /// Error that ended the input early.
    error: Option<io::Error>,
    /// Number of bytes read.
    read: u64,
}

/// The next line of the input.
pub(crate) enum Next<'l> {
    /// A line, without its line terminator.
    Line(&'l [u8]),
    /// The non-empty rest after the last line terminator.
    Last(&'l [u8]),
    /// A line of more than [`LINE_MAX`] bytes.
    TooLong,
    /// The end. With an error, the input ended early; a partial line is dropped.
    End(Option<io::Error>),
}

impl<'a> Input<'a> {
    pub(crate) fn new(input: Box<dyn Read + Send + 'a>) -> Self {
        Self { input, buffer: vec![0; BUFFER], buffered: 0..0, ended: false, error: None, read: 0 }
    }

    /// Returns the next `count` bytes, at most the size of the buffer; fewer if the input ends.
    #[inline]
    pub(crate) fn peek(&mut self, count: usize) -> &[u8] {
        while self.buffered.len() < count.min(BUFFER) && !self.ended {
            self.fill();
        }
        let ready = &self.buffer[self.buffered.clone()];
        &ready[..count.min(ready.len())]
    }

    /// Reads more bytes after those peeked at; returns `false` if there are none, or no room for them.
    pub(crate) fn read_more(&mut self) -> bool {
        let before = self.buffered.len();
        while self.buffered.len() == before && before < BUFFER && !self.ended {
            self.fill();
        }
        self.buffered.len() > before
    }

    /// Returns the available part of the next `count` bytes: at least one, unless the input ends.
    #[inline]
    pub(crate) fn available(&mut self, count: usize) -> &[u8] {
        self.peek(1);
        let ready = &self.buffer[self.buffered.clone()];
        &ready[..count.min(ready.len())]
    }

    /// Consumes `count` of the bytes peeked at.
    #[inline]
    pub(crate) fn skip(&mut self, count: usize) {
        self.buffered.start = (self.buffered.start + count).min(self.buffered.end);
    }

    /// Returns the number of bytes consumed so far.
    pub(crate) fn consumed(&self) -> u64 {
        self.read - self.buffered.len() as u64
    }

    /// Returns the error that ended the input early, if there was one.
    pub(crate) fn error(&self) -> Option<&io::Error> {
        self.error.as_ref()
    }

    #[inline]
    pub(crate) fn next_line(&mut self) -> Next<'_> {
        let mut searched = 0;
        loop {
            let ready = &self.buffer[self.buffered.clone()];
            let len = memchr::memchr(b'\n', &ready[searched..]).map(|at| searched + at);
            searched = ready.len();
            if len.unwrap_or(searched) > LINE_MAX {
                return Next::TooLong;
            }
            let start = self.buffered.start;
            if let Some(len) = len {
                self.buffered.start += len + 1;
                return Next::Line(&self.buffer[start..start + len]);
            }
            if self.ended {
                let rest = std::mem::take(&mut self.buffered);
                return match self.error.take() {
                    None if !rest.is_empty() => Next::Last(&self.buffer[rest]),
                    error => Next::End(error),
                };
            }
            self.fill();
        }
    }

    /// Reads more bytes after the unconsumed ones, which do not fill the buffer.
    fn fill(&mut self) {
        self.buffer.copy_within(self.buffered.clone(), 0);
        self.buffered = 0..self.buffered.len();
        match self.input.read(&mut self.buffer[self.buffered.end..]) {
            Ok(0) => self.ended = true,
            Ok(count) => {
                self.buffered.end += count;
                self.read += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => (self.ended, self.error) = (true, Some(error)),
        }
    }
}
