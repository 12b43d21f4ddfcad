//! The journal: a ring of frames, each a batch of deltas that becomes durable as a whole. See
//! `docs/reference/format.md` for the encoding and the effect of a power loss.

use crate::format::checksum::crc32c_without;
use crate::format::codec::Reader;
use crate::format::root::JournalPosition;
use crate::log::delta::Delta;
use crate::{PAGE, PoolId};
use weir_model::{Bytes, Mutant, Planted};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The maximum length of a frame, in bytes.
pub const FRAME_MAX: usize = 256 << 10;
const MAGIC: [u8; 4] = *b"wJF1";
const CRC_AT: usize = 4;
const HEADER: usize = size_of::<Header>();

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone)]
#[repr(C)]
struct Header {
    magic: [u8; 4],
    crc: U32,
    pool: [u8; 16],
    journal: U64,
    sequence: U64,
    durable: U64,
    length: U32,
    chain: U32,
    incarnation: U32,
    deltas: U32,
}

const _: () = assert!(HEADER == 64 && FRAME_MAX.is_multiple_of(PAGE));

/// A decoded frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The journal's id.
    pub journal: u64,
    /// The sequence.
    pub sequence: u64,
    /// The highest sequence known to be durable when the frame was written.
    pub durable: u64,
    /// The CRC of its predecessor.
    pub chain: u32,
    /// The pool's generation when the journal began.
    pub incarnation: u32,
    /// The frame's own CRC.
    pub crc: u32,
    /// The length in the ring, in bytes: a multiple of 4096.
    pub stored: u64,
    /// The changes.
    pub deltas: Vec<Delta>,
}

impl Frame {
    /// Decodes the frame at the start of `bytes`; `None` unless it is complete and of this pool.
    pub fn decode(bytes: &[u8], pool: PoolId, blocks: u16) -> Option<Self> {
        Self::decode_with(bytes, pool, blocks, Planted::NONE)
    }

    fn decode_with(bytes: &[u8], pool: PoolId, blocks: u16, planted: Planted) -> Option<Self> {
        let (header, _) = Header::ref_from_prefix(bytes).ok()?;
        let length = header.length.get() as usize;
        if header.magic != MAGIC || header.pool != pool.0 || !(HEADER..=FRAME_MAX).contains(&length) {
            return None;
        }
        let whole = bytes.get(..length)?;
        let whole_and_good = header.crc.get() == crc32c_without(whole, CRC_AT);
        if !whole_and_good && !planted.is(Mutant::TornFrameAccepted) {
            return None;
        }
        let mut r = Reader::new(&whole[HEADER..]);
        let count = header.deltas.get();
        let deltas: Vec<_> = (0..count).map_while(|_| Delta::decode(blocks, &mut r)).collect();
        // The rest of a torn frame seldom decodes, which would be a second line of defence.
        let is_read = deltas.len() == count as usize && r.is_empty();
        (is_read || !whole_and_good).then(|| Self {
            journal: header.journal.get(),
            sequence: header.sequence.get(),
            durable: header.durable.get(),
            chain: header.chain.get(),
            incarnation: header.incarnation.get(),
            crc: header.crc.get(),
            stored: (length as u64).next_multiple_of(PAGE as u64),
            deltas,
        })
    }

    /// Whether it is the frame that belongs at this position.
    fn follows(&self, at: JournalPosition, planted: Planted) -> bool {
        (self.journal, self.incarnation) == (at.journal, at.incarnation)
            && self.sequence == at.sequence
            && (self.chain == at.chain || planted.is(Mutant::FrameChainIgnored))
    }
}

/// Builds one frame.
#[derive(Debug)]
pub(crate) struct FrameBuilder {
    /// The maximum length of a frame, in bytes.
    max_len: usize,
    bytes: Vec<u8>,
    deltas: u32,
    scratch: Vec<u8>,
}

impl FrameBuilder {
    pub(crate) fn new(most: usize) -> Self {
        Self { max_len: most, bytes: vec![0; HEADER], deltas: 0, scratch: Vec::new() }
    }

    /// Returns the maximum length of a frame, in bytes: a multiple of 4096.
    pub(crate) fn capacity(&self) -> usize {
        self.max_len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.deltas == 0
    }

    /// Adds deltas that belong together. Returns `false`, adding none, if the frame has no space for them.
    #[must_use]
    pub(crate) fn add(&mut self, deltas: &[Delta], blocks: u16) -> bool {
        self.scratch.clear();
        for delta in deltas {
            delta.encode(blocks, &mut self.scratch);
        }
        if self.bytes.len() + self.scratch.len() > self.max_len {
            return false;
        }
        self.bytes.extend_from_slice(&self.scratch);
        self.deltas += deltas.len() as u32;
        true
    }

    pub(crate) fn stored_len(&self) -> u64 {
        (self.bytes.len() as u64).next_multiple_of(PAGE as u64)
    }

    /// Returns the finished bytes, as whole pages, and empties the builder.
    fn seal(&mut self, pool: PoolId, at: JournalPosition, durable: u64, out: &mut Vec<u8>) -> u32 {
        let header = Header {
            magic: MAGIC,
            crc: 0.into(),
            pool: pool.0,
            journal: at.journal.into(),
            sequence: at.sequence.into(),
            durable: durable.into(),
            length: (self.bytes.len() as u32).into(),
            chain: at.chain.into(),
            incarnation: at.incarnation.into(),
            deltas: self.deltas.into(),
        };
        self.bytes[..HEADER].copy_from_slice(header.as_bytes());
        let crc = crc32c_without(&self.bytes, CRC_AT);
        self.bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        out.clear();
        out.extend_from_slice(&self.bytes);
        out.resize(self.stored_len() as usize, 0);
        self.bytes.truncate(HEADER);
        self.deltas = 0;
        crc
    }
}

/// The position of the next frame, and the part of the ring that may be overwritten.
///
/// Positions in the ring are kept as ever-growing offsets; the offset modulo the ring's length is the
/// position of the byte.
#[derive(Clone, Debug)]
pub(crate) struct Journal {
    pool: PoolId,
    ring: u64,
    incarnation: u32,
    id: u64,
    head: u64,
    sequence: u64,
    chain: u32,
    durable: u64,
    /// The start of the frames that the older root needs.
    older_root_start: u64,
    /// The start of the frames that the newer root needs.
    newest_root_start: u64,
    planted: Planted,
}

impl Journal {
    /// Creates an empty journal in a ring of this many bytes; its first frame goes to the start.
    pub(crate) fn new(pool: PoolId, ring: Bytes, first: JournalPosition, planted: Planted) -> Self {
        Self {
            pool,
            ring: ring.0,
            incarnation: first.incarnation,
            id: first.journal,
            head: 0,
            sequence: first.sequence,
            chain: 0,
            durable: first.sequence - 1,
            older_root_start: 0,
            newest_root_start: 0,
            planted,
        }
    }

    /// Returns the position of the next frame.
    pub(crate) fn position(&self) -> JournalPosition {
        JournalPosition {
            journal: self.id,
            offset: self.head % self.ring,
            sequence: self.sequence,
            chain: self.chain,
            incarnation: self.incarnation,
        }
    }

    /// Returns the head that belongs to [`Self::position`], for [`Self::mark_root_durable`].
    pub(crate) fn head(&self) -> u64 {
        self.head
    }

    /// Returns the padding before a frame of this length, in bytes, so that it does not cross the ring's end.
    fn padding(&self, len: u64) -> u64 {
        let left = self.ring - self.head % self.ring;
        if len > left { left } else { 0 }
    }

    /// Whether a frame of this length may be written without overwriting frames that a root needs.
    pub(crate) fn has_space(&self, len: u64) -> bool {
        let padding = if self.planted.is(Mutant::RingPaddingForgotten) { 0 } else { self.padding(len) };
        self.planted.is(Mutant::JournalOverrun)
            || self.head + padding + len - self.older_root_start <= self.ring
    }

    /// Returns the bytes since the newest root's position, which replay would read.
    pub(crate) fn since_root(&self) -> u64 {
        self.head - self.newest_root_start
    }

    /// Returns the length of the ring in bytes.
    pub(crate) fn ring(&self) -> u64 {
        self.ring
    }

    /// Seals the frame into `out` and advances. Returns the offset in the ring to write it to. The caller has
    /// checked [`Self::has_space`].
    pub(crate) fn append(&mut self, frame: &mut FrameBuilder, out: &mut Vec<u8>) -> u64 {
        self.head += self.padding(frame.stored_len());
        let at = self.position();
        self.chain = frame.seal(self.pool, at, self.durable, out);
        self.head += out.len() as u64;
        self.sequence += 1;
        at.offset
    }

    /// Notes that every frame appended so far is durable.
    pub(crate) fn mark_all_durable(&mut self) {
        if !self.planted.is(Mutant::DurableSequenceStale) {
            self.durable = self.sequence - 1;
        }
    }

    /// Notes that the root taken at `head` is durable: frames that only the root before the previous one
    /// needed may be overwritten.
    pub(crate) fn mark_root_durable(&mut self, head: u64) {
        let given_up = self.planted.is(Mutant::OlderJournalGivenUp);
        self.older_root_start = if given_up { head } else { self.newest_root_start };
        self.newest_root_start = head;
    }
}

/// The reason why replay ended before the ring did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReplayEnd {
    /// The tail: the next frame was never written, or not completely.
    Tail,
    /// The next frame is bad although a later one says it was durable.
    Damaged {
        /// The sequence of the bad frame.
        sequence: u64,
        /// Its expected offset in the ring.
        offset: u64,
    },
    /// A journal that began later has a frame: the root that began it is lost, or cannot be used.
    Superseded {
        /// The id of that journal.
        journal: u64,
        /// The offset of that frame in the ring.
        offset: u64,
    },
}

impl ReplayEnd {
    /// Returns the fault and its offset in the ring; `None` if there is none.
    pub(crate) fn fault(&self) -> Option<(u64, String)> {
        match self {
            Self::Tail => None,
            Self::Damaged { sequence, offset } => {
                Some((*offset, format!("frame {sequence} was durable once and does not verify")))
            }
            Self::Superseded { journal, offset } => Some((
                *offset,
                format!("a frame of journal {journal}, and no root that can be used began it"),
            )),
        }
    }
}

/// Replays the frames from `from` on, passing each to `apply`. Returns where and why it ended. `rings` are
/// the copies of the ring, one per member: a frame counts if it is complete in any of them.
pub(crate) fn replay(
    rings: &[Vec<u8>],
    from: JournalPosition,
    pool: PoolId,
    blocks: u16,
    planted: Planted,
    mut apply: impl FnMut(Frame),
) -> (JournalPosition, ReplayEnd) {
    let len = rings.iter().map(Vec::len).min().unwrap_or(0) as u64;
    let mut at = from;
    loop {
        let next = |ring: &Vec<u8>, offset: u64| {
            let bytes = ring.get(offset as usize..)?;
            let frame = Frame::decode_with(bytes, pool, blocks, planted);
            frame.filter(|f| f.follows(at, planted)).map(|f| (offset, f))
        };
        // A frame that did not fit before the end went to the start.
        let found = [at.offset, 0].into_iter().find_map(|o| rings.iter().find_map(|ring| next(ring, o)));
        match found {
            Some((offset, frame)) => {
                at.offset = (offset + frame.stored) % len;
                at.sequence += 1;
                at.chain = frame.crc;
                apply(frame);
            }
            None if planted.is(Mutant::DamageTakenForTail) => return (at, ReplayEnd::Tail),
            None => return (at, classify_end(rings, at, pool, blocks)),
        }
    }
}

/// Returns the journal and sequence in the header at the start of `bytes`, whether or not its frame is
/// complete; `None` if it is no header of this pool.
pub(crate) fn parse_identity(bytes: &[u8], pool: PoolId) -> Option<(u64, u64)> {
    let (header, _) = Header::ref_from_prefix(bytes).ok()?;
    let is_header = header.magic == MAGIC && header.pool == pool.0;
    is_header.then(|| (header.journal.get(), header.sequence.get()))
}

/// Determines whether some frame says that the missing one was durable, or that this journal is not the last.
/// (A frame of an earlier incarnation proves nothing: its changes were rolled back.)
fn classify_end(rings: &[Vec<u8>], at: JournalPosition, pool: PoolId, blocks: u16) -> ReplayEnd {
    let vouches = |f: &Frame| {
        (f.journal, f.incarnation) == (at.journal, at.incarnation)
            && f.sequence > at.sequence
            && f.durable >= at.sequence
    };
    let supersedes = |f: &Frame| {
        let is_past = f.incarnation.wrapping_sub(at.incarnation) > u32::MAX / 2;
        f.journal > at.journal && !is_past
    };
    let mut end = ReplayEnd::Tail;
    for (ring, offset) in
        rings.iter().flat_map(|ring| (0..ring.len()).step_by(PAGE).map(move |at| (ring, at)))
    {
        let bytes = &ring[offset..];
        let frame = bytes.starts_with(&MAGIC).then(|| Frame::decode(bytes, pool, blocks)).flatten();
        match frame {
            Some(f) if vouches(&f) => return ReplayEnd::Damaged { sequence: at.sequence, offset: at.offset },
            Some(f) if supersedes(&f) => {
                end = ReplayEnd::Superseded { journal: f.journal, offset: offset as u64 };
            }
            _ => {}
        }
    }
    end
}

#[cfg(test)]
mod tests;
