//! A client's parser of the NBD protocol, written from the protocol's document (`doc/proto.md` of the NBD
//! project), not from the server's code. It is strict: any deviation is an error, after which the stream
//! cannot be followed.

use std::collections::BTreeMap;

/// Why the stream cannot be followed any more.
pub(super) type StreamError = String;

pub(super) const READ: u16 = 0;
pub(super) const WRITE: u16 = 1;
pub(super) const DISC: u16 = 2;
pub(super) const FLUSH: u16 = 3;
pub(super) const TRIM: u16 = 4;
pub(super) const CACHE: u16 = 5;
pub(super) const WRITE_ZEROES: u16 = 6;
pub(super) const BLOCK_STATUS: u16 = 7;

pub(super) const EIO: u32 = 5;
pub(super) const EINVAL: u32 = 22;
pub(super) const ENOSPC: u32 = 28;
pub(super) const ESHUTDOWN: u32 = 108;

pub(super) const FUA: u16 = 1 << 0;
pub(super) const NO_HOLE: u16 = 1 << 1;
pub(super) const DF: u16 = 1 << 2;
pub(super) const REQ_ONE: u16 = 1 << 3;

/// Encodes a request; the payload follows if it is a write.
pub(super) fn request(flags: u16, kind: u16, cookie: u64, offset: u64, len: u32) -> Vec<u8> {
    let mut bytes = vec![0x25, 0x60, 0x95, 0x13];
    bytes.extend(flags.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes
}

/// The reply to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) cookie: u64,
    /// Error code, if it failed.
    pub(super) error: Option<u32>,
    /// Data of a successful read.
    pub(super) data: Vec<u8>,
    /// Lengths and flags of a block status.
    pub(super) runs: Vec<(u32, u32)>,
}

/// The client's knowledge of an unanswered request.
#[derive(Debug)]
struct Expected {
    kind: u16,
    /// True if its data must come in one chunk.
    in_one_chunk: bool,
    offset: u64,
    data: Vec<u8>,
    /// Parts of the data that have arrived: start and end, from the request's start.
    received: BTreeMap<u32, u32>,
    error: Option<u32>,
    runs: Vec<(u32, u32)>,
}

/// Parses the server's replies after the handshake.
#[derive(Debug, Default)]
pub(super) struct Transmission {
    is_structured: bool,
    /// Received bytes; the first `parsed` of them are parsed.
    bytes: Vec<u8>,
    parsed: usize,
    expected: BTreeMap<u64, Expected>,
}

/// Reads fields from the front of bytes.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn number(&mut self, len: usize) -> Option<u64> {
        let (field, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(field.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }
}

impl Transmission {
    /// Creates a parser; `bytes` followed the handshake.
    pub(super) fn new(is_structured: bool, bytes: Vec<u8>) -> Self {
        Self { is_structured, bytes, parsed: 0, expected: BTreeMap::new() }
    }

    /// Registers a request that is sent.
    pub(super) fn expect(&mut self, flags: u16, kind: u16, cookie: u64, offset: u64, len: u32) {
        let data = if kind == READ { vec![0; len as usize] } else { Vec::new() };
        let (have, runs, whole) = (BTreeMap::new(), Vec::new(), flags & DF != 0);
        self.expected.insert(
            cookie,
            Expected { kind, in_one_chunk: whole, offset, data, received: have, error: None, runs },
        );
    }

    /// Adds received bytes.
    pub(super) fn push_bytes(&mut self, bytes: &[u8]) {
        self.bytes.drain(..std::mem::take(&mut self.parsed));
        self.bytes.extend(bytes);
    }

    /// Reports whether the received bytes end at a message boundary.
    pub(super) fn is_between_messages(&self) -> bool {
        self.bytes.len() == self.parsed
    }

    /// Returns the next complete reply.
    pub(super) fn next(&mut self) -> Result<Option<Reply>, StreamError> {
        loop {
            let mut fields = Fields(&self.bytes[self.parsed..]);
            let Some(magic) = fields.number(4) else { return Ok(None) };
            let (used, answered) = match magic {
                0x6744_6698 => match self.simple()? {
                    Some((used, cookie)) => (used, Some(cookie)),
                    None => return Ok(None),
                },
                0x668e_33ef if self.is_structured => match self.chunk()? {
                    Some(taken) => taken,
                    None => return Ok(None),
                },
                _ => return Err(format!("{magic:#010x} is the start of no reply")),
            };
            self.parsed += used;
            if let Some((cookie, expected)) = answered.and_then(|cookie| self.expected.remove_entry(&cookie))
            {
                let Expected { data, error, runs, .. } = expected;
                return Ok(Some(Reply { cookie, error, data, runs }));
            }
        }
    }

    /// Parses a simple reply, if it is complete: its length and cookie.
    fn simple(&mut self) -> Result<Option<(usize, u64)>, StreamError> {
        let mut fields = Fields(&self.bytes[self.parsed + 4..]);
        let (Some(error), Some(cookie)) = (fields.number(4), fields.number(8)) else { return Ok(None) };
        let Some(expected) = self.expected.get_mut(&cookie) else {
            return Err(format!("a simple reply to {cookie:#x}, which is no request"));
        };
        if self.is_structured && matches!(expected.kind, READ | BLOCK_STATUS) {
            return Err(format!("a simple reply to {cookie:#x} where chunks were agreed on"));
        }
        let len = expected.data.len();
        if error != 0 {
            expected.error = Some(error as u32);
            return Ok(Some((16, cookie)));
        }
        let Some(data) = fields.0.get(..len) else { return Ok(None) };
        expected.data.copy_from_slice(data);
        Ok(Some((16 + len, cookie)))
    }

    /// Parses a chunk, if it is complete: its length, and the cookie if it is the last one.
    fn chunk(&mut self) -> Result<Option<(usize, Option<u64>)>, StreamError> {
        let mut fields = Fields(&self.bytes[self.parsed + 4..]);
        let (Some(flags), Some(kind), Some(cookie), Some(len)) =
            (fields.number(2), fields.number(2), fields.number(8), fields.number(4))
        else {
            return Ok(None);
        };
        let Some(expected) = self.expected.get_mut(&cookie) else {
            return Err(format!("a chunk for {cookie:#x}, which is no request"));
        };
        if len > expected.data.len() as u64 + 8192 {
            return Err(format!("a chunk of {len} bytes for {cookie:#x}"));
        }
        let Some(body) = fields.0.get(..len as usize) else { return Ok(None) };
        let is_last = match flags {
            0 => false,
            1 => true,
            _ => return Err(format!("a chunk with flags {flags:#x}")),
        };
        let fault = |what: &str| format!("a chunk of kind {kind:#x} for {cookie:#x}: {what}");
        expected.handle_chunk(kind as u16, body).map_err(|what| fault(&what))?;
        if is_last {
            expected.check_complete().map_err(|what| fault(&what))?;
        }
        Ok(Some((20 + len as usize, is_last.then_some(cookie))))
    }
}

impl Expected {
    fn handle_chunk(&mut self, kind: u16, body: &[u8]) -> Result<(), StreamError> {
        let mut fields = Fields(body);
        let mut number = |len| fields.number(len).ok_or_else(|| "too short".to_owned());
        match (kind, self.kind) {
            (0, _) if body.is_empty() => Ok(()),
            (1, READ) => {
                let at = number(8)?;
                let from = self.note_received(at, fields.0.len() as u64)?;
                self.data[from..from + fields.0.len()].copy_from_slice(fields.0);
                Ok(())
            }
            (2, READ) => {
                let (at, len) = (number(8)?, number(4)?);
                if !fields.0.is_empty() {
                    return Err("too long".to_owned());
                }
                self.note_received(at, len).map(drop)
            }
            (5, BLOCK_STATUS) => {
                let context = number(4)?;
                if context != 1 || !self.runs.is_empty() || fields.0.is_empty() || fields.0.len() % 8 != 0 {
                    return Err(format!("context {context}, {} bytes", fields.0.len()));
                }
                while let (Some(len), Some(flags)) = (fields.number(4), fields.number(4)) {
                    self.runs.push((len as u32, flags as u32));
                }
                Ok(())
            }
            (0x8001 | 0x8002, _) => {
                let (error, len) = (number(4)?, number(2)?);
                let more = if kind == 0x8002 { 8 } else { 0 };
                if error == 0 || fields.0.len() as u64 != len + more {
                    return Err(format!("error {error}, {} bytes", fields.0.len()));
                }
                self.error.get_or_insert(error as u32);
                Ok(())
            }
            _ => Err(format!("for a request of kind {}", self.kind)),
        }
    }

    /// Notes that a part of the data has arrived; returns its position.
    fn note_received(&mut self, at: u64, len: u64) -> Result<usize, StreamError> {
        let wrong = || Err(format!("{len} bytes at {at} of {} at {}", self.data.len(), self.offset));
        let Some(from) = at.checked_sub(self.offset) else { return wrong() };
        if len == 0 || from + len > self.data.len() as u64 {
            return wrong();
        }
        let (from, to) = (from as u32, (from + len) as u32);
        let before = self.received.range(..to).next_back();
        if before.is_some_and(|(_, end)| *end > from) {
            return Err(format!("{len} bytes at {at} once more"));
        }
        self.received.insert(from, to);
        if self.in_one_chunk && self.received.len() > 1 {
            return Err("a part, and the data was to come whole".to_owned());
        }
        Ok(from as usize)
    }

    /// Checks that no data is missing.
    fn check_complete(&self) -> Result<(), StreamError> {
        let have: u32 = self.received.iter().map(|(from, to)| to - from).sum();
        if self.error.is_none() && have as usize != self.data.len() {
            return Err(format!("the last one, with {have} bytes of {}", self.data.len()));
        }
        if self.error.is_none() && self.kind == BLOCK_STATUS && self.runs.is_empty() {
            return Err("the last one, without a status".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
