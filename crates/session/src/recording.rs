//! The protocol of a recording: frames of client requests, sent over the control socket.
//!
//! The server answers [`Request::Record`](crate::control::Request) with the line
//! [`Answer::Recording`](crate::control::Answer), and from then on sends frames. A frame begins with the
//! number of its requests (4 bytes), a flag that is 1 in the last frame and 0 otherwise (4 bytes), and the
//! number of requests dropped so far (8 bytes). Each request has 24 bytes: its time in nanoseconds since the
//! recording began (8), its offset (8), its length (4), the index of its volume among those named (2), its
//! operation (1; 0 read, 1 write, 2 trim), and a zero byte. Numbers are little-endian. The client ends the
//! recording by closing its sending side; the server then sends the remaining requests and the last frame.

use thiserror::Error;
use weir_model::{Bytes, Nanos, Op, VolumeOffset};

/// Sizes in bytes of a request in a frame and of a frame's header.
const ENTRY_LEN: usize = 24;
const HEADER_LEN: usize = 16;
/// Maximum number of requests in a frame.
pub const FRAME_MAX: usize = 2048;

/// One recorded request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedRequest {
    /// When the engine received the request (or the first part of a long one), since the recording began.
    pub at: Nanos,
    /// Index of the volume among those named.
    pub volume: u16,
    /// [`Op::Read`], [`Op::Write`] or [`Op::Trim`].
    pub op: Op,
    /// Offset of its first byte.
    pub offset: VolumeOffset,
    /// Length, at least 1 and less than 4 GiB.
    pub len: Bytes,
}

impl RecordedRequest {
    fn to_bytes(self) -> [u8; ENTRY_LEN] {
        let op = match self.op {
            Op::Write => 1,
            Op::Trim => 2,
            _ => 0,
        };
        let mut bytes = [0; ENTRY_LEN];
        bytes[..8].copy_from_slice(&self.at.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.0.to_le_bytes());
        bytes[16..20].copy_from_slice(&(self.len.0 as u32).to_le_bytes());
        bytes[20..22].copy_from_slice(&self.volume.to_le_bytes());
        bytes[22] = op;
        bytes
    }

    /// Decodes a request; returns `None` if the bytes are not one.
    fn from_bytes(bytes: &[u8; ENTRY_LEN]) -> Option<Self> {
        let op = *[Op::Read, Op::Write, Op::Trim].get(usize::from(bytes[22]))?;
        Some(Self {
            at: Nanos(number(bytes, 0, 8)),
            offset: VolumeOffset(number(bytes, 8, 8)),
            len: Bytes(number(bytes, 16, 4)),
            volume: number(bytes, 20, 2) as u16,
            op,
        })
    }
}

/// Decodes the little-endian number of `len` bytes at `at`.
fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    bytes[at..at + len].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// Appends a frame to `bytes`.
pub fn frame(
    bytes: &mut Vec<u8>,
    requests: impl ExactSizeIterator<Item = RecordedRequest>,
    dropped: u64,
    is_last: bool,
) {
    bytes.extend((requests.len() as u32).to_le_bytes());
    bytes.extend(u32::from(is_last).to_le_bytes());
    bytes.extend(dropped.to_le_bytes());
    requests.for_each(|request| bytes.extend(request.to_bytes()));
}

/// State of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordingState {
    /// More frames will follow.
    Active,
    /// The recording has ended, and all of it was received.
    Complete,
    /// The connection to the server ended early: the last requests may be missing.
    Truncated,
}

/// A malformed frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadFrame {
    /// It has more requests than a frame may have.
    #[error("the server sent an invalid frame")]
    TooLong,
    /// It has an operation that is never recorded.
    #[error("the server sent an invalid request")]
    UnknownOperation,
}

/// Decodes frames from bytes that arrive in any portions.
#[derive(Debug, Default)]
pub struct Frames {
    /// Bytes not decoded yet.
    bytes: Vec<u8>,
    /// Number of requests dropped so far because the client was too slow.
    pub dropped: u64,
}

impl Frames {
    /// Adds bytes that have arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// Passes the requests of all complete frames to `take`; returns [`RecordingState::Complete`] after the
    /// last frame.
    ///
    /// # Errors
    /// Fails if the bytes are not a frame.
    pub fn take(&mut self, take: &mut impl FnMut(RecordedRequest)) -> Result<RecordingState, BadFrame> {
        let mut at = 0;
        let mut heard = RecordingState::Active;
        while heard == RecordingState::Active && self.bytes.len() >= at + HEADER_LEN {
            let count = number(&self.bytes, at, 4) as usize;
            if count > FRAME_MAX {
                return Err(BadFrame::TooLong);
            }
            let end = at + HEADER_LEN + count * ENTRY_LEN;
            let Some(entries) = self.bytes.get(at + HEADER_LEN..end) else { break };
            for entry in entries.as_chunks().0 {
                take(RecordedRequest::from_bytes(entry).ok_or(BadFrame::UnknownOperation)?);
            }
            self.dropped = number(&self.bytes, at + 8, 8);
            if number(&self.bytes, at + 4, 4) != 0 {
                heard = RecordingState::Complete;
            }
            at = end;
        }
        self.bytes.drain(..at);
        Ok(heard)
    }
}
