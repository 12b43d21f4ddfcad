//! Bytes, a buffer's worth at a time, to be taken by lines or by number.

use std::io::{self, Read};
use std::ops::Range;

/// What is read at once; more than twice [`LINE_MAX`].
const BUFFER: usize = 256 << 10;
/// A longer line is no line of a trace.
pub(crate) const LINE_MAX: usize = 64 << 10;

/// What is read, and not taken yet. Takes constant memory.
pub(crate) struct Input<'a> {
    input: Box<dyn Read + Send + 'a>,
    buffer: Vec<u8>,
    /// What of the buffer was read and is not taken yet.
    ready: Range<usize>,
    ended: bool,
    /// Why the input ended early.
    error: Option<io::Error>,
    /// Bytes that were read.
    read: u64,
}

/// What comes next.
pub(crate) enum Next<'l> {
    /// A line, without its end.
    Line(&'l [u8]),
    /// What follows the last line's end, not empty.
    Last(&'l [u8]),
    /// A line of more than [`LINE_MAX`] bytes.
    TooLong,
    /// Nothing. With an error there might have been more, were it not for that; what was read of a
    /// line is left out.
    End(Option<io::Error>),
}

impl<'a> Input<'a> {
    pub(crate) fn new(input: Box<dyn Read + Send + 'a>) -> Self {
        Self { input, buffer: vec![0; BUFFER], ready: 0..0, ended: false, error: None, read: 0 }
    }

    /// The first so many bytes of what comes, at most as many as the buffer holds; less if there are not as many.
    #[inline]
    pub(crate) fn peek(&mut self, count: usize) -> &[u8] {
        while self.ready.len() < count.min(BUFFER) && !self.ended {
            self.fill();
        }
        let ready = &self.buffer[self.ready.clone()];
        &ready[..count.min(ready.len())]
    }

    /// Waits for more bytes behind those that were looked at; `false` if there are none, or there is no room for them.
    pub(crate) fn wait_for_more(&mut self) -> bool {
        let before = self.ready.len();
        while self.ready.len() == before && before < BUFFER && !self.ended {
            self.fill();
        }
        self.ready.len() > before
    }

    /// What is there of the next so many bytes: at least one, unless there are no more.
    #[inline]
    pub(crate) fn ready(&mut self, count: usize) -> &[u8] {
        self.peek(1);
        let ready = &self.buffer[self.ready.clone()];
        &ready[..count.min(ready.len())]
    }

    /// So many of the bytes that were looked at are done with.
    #[inline]
    pub(crate) fn skip(&mut self, count: usize) {
        self.ready.start = (self.ready.start + count).min(self.ready.end);
    }

    /// How many bytes were taken so far.
    pub(crate) fn taken(&self) -> u64 {
        self.read - self.ready.len() as u64
    }

    /// Why the input has ended early, if it has.
    pub(crate) fn error(&self) -> Option<&io::Error> {
        self.error.as_ref()
    }

    #[inline]
    pub(crate) fn next_line(&mut self) -> Next<'_> {
        let mut searched = 0;
        loop {
            let ready = &self.buffer[self.ready.clone()];
            let len = memchr::memchr(b'\n', &ready[searched..]).map(|at| searched + at);
            searched = ready.len();
            if len.unwrap_or(searched) > LINE_MAX {
                return Next::TooLong;
            }
            let start = self.ready.start;
            if let Some(len) = len {
                self.ready.start += len + 1;
                return Next::Line(&self.buffer[start..start + len]);
            }
            if self.ended {
                let rest = std::mem::take(&mut self.ready);
                return match self.error.take() {
                    None if !rest.is_empty() => Next::Last(&self.buffer[rest]),
                    error => Next::End(error),
                };
            }
            self.fill();
        }
    }

    /// Reads more behind what is ready, which is less than the buffer holds.
    fn fill(&mut self) {
        self.buffer.copy_within(self.ready.clone(), 0);
        self.ready = 0..self.ready.len();
        match self.input.read(&mut self.buffer[self.ready.end..]) {
            Ok(0) => self.ended = true,
            Ok(count) => {
                self.ready.end += count;
                self.read += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => (self.ended, self.error) = (true, Some(error)),
        }
    }
}
