//! What clients ask for, as it is told at the control socket while somebody records it.
//!
//! The server answers [`Request::Record`] with a line, [`Answer::Recording`](crate::control::Answer), and from then on
//! sends frames: 4 bytes that say how many requests are in it, 4 bytes that are 1 in the last frame and else 0, 8 bytes that
//! say how many requests were dropped so far, and for each request 24 bytes: 8 of the time in nanoseconds since the
//! recording began, 8 of the offset, 4 of the length, 2 of the volume's number among those that were named, 1 of the operation (0
//! read, 1 write, 2 trim), and a zero. The lowest byte of a number comes first. Whoever records ends the recording by sending
//! no more: the server sends what is left, and the last frame.

use thiserror::Error;
use weir_model::{Bytes, Nanos, Op, VolumeOffset};

/// Bytes of a request in a frame, and of what is before them.
const ENTRY: usize = 24;
const HEAD: usize = 16;
/// The most requests in a frame.
pub const FRAME_MAX: usize = 2048;

/// One request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// When the engine got it, or the first part of a long one, since the recording began.
    pub at: Nanos,
    /// The number of its volume, among those that were named.
    pub volume: u16,
    /// [`Op::Read`], [`Op::Write`] or [`Op::Trim`].
    pub op: Op,
    /// Where it begins.
    pub offset: VolumeOffset,
    /// Its length, at least 1 and less than 4 GiB.
    pub len: Bytes,
}

impl Recorded {
    fn to_bytes(self) -> [u8; ENTRY] {
        let op = match self.op {
            Op::Write => 1,
            Op::Trim => 2,
            _ => 0,
        };
        let mut bytes = [0; ENTRY];
        bytes[..8].copy_from_slice(&self.at.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.0.to_le_bytes());
        bytes[16..20].copy_from_slice(&(self.len.0 as u32).to_le_bytes());
        bytes[20..22].copy_from_slice(&self.volume.to_le_bytes());
        bytes[22] = op;
        bytes
    }

    /// `None` if that is no request.
    fn from_bytes(bytes: &[u8; ENTRY]) -> Option<Self> {
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

/// The number of so many bytes from here.
fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    bytes[at..at + len].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// Puts a frame behind what is in `bytes`.
pub fn frame(
    bytes: &mut Vec<u8>,
    requests: impl ExactSizeIterator<Item = Recorded>,
    dropped: u64,
    is_last: bool,
) {
    bytes.extend((requests.len() as u32).to_le_bytes());
    bytes.extend(u32::from(is_last).to_le_bytes());
    bytes.extend(dropped.to_le_bytes());
    requests.for_each(|request| bytes.extend(request.to_bytes()));
}

/// How a recording stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It goes on.
    More,
    /// It has ended, and everything was heard.
    Whole,
    /// The server went away: the last requests may be missing.
    Broken,
}

/// What a server sent as a frame is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadFrame {
    /// It has more requests than a frame can have.
    #[error("the server sent an invalid frame")]
    TooLong,
    /// An operation that is not recorded.
    #[error("the server sent an invalid request")]
    NoRequest,
}

/// Takes frames apart, in whatever portions their bytes arrive.
#[derive(Debug, Default)]
pub struct Frames {
    /// What has arrived and was not looked at.
    bytes: Vec<u8>,
    /// Requests that were dropped so far, because the recorder was slower than they came.
    pub dropped: u64,
}

impl Frames {
    /// More has arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// Gives the requests of all whole frames to `take`; [`Heard::Whole`] after the last frame.
    ///
    /// # Errors
    /// If what arrived is no frame.
    pub fn take(&mut self, take: &mut impl FnMut(Recorded)) -> Result<Heard, BadFrame> {
        let mut at = 0;
        let mut heard = Heard::More;
        while heard == Heard::More && self.bytes.len() >= at + HEAD {
            let count = number(&self.bytes, at, 4) as usize;
            if count > FRAME_MAX {
                return Err(BadFrame::TooLong);
            }
            let end = at + HEAD + count * ENTRY;
            let Some(entries) = self.bytes.get(at + HEAD..end) else { break };
            for entry in entries.as_chunks().0 {
                take(Recorded::from_bytes(entry).ok_or(BadFrame::NoRequest)?);
            }
            self.dropped = number(&self.bytes, at + 8, 8);
            if number(&self.bytes, at + 4, 4) != 0 {
                heard = Heard::Whole;
            }
            at = end;
        }
        self.bytes.drain(..at);
        Ok(heard)
    }
}
