//! The journal: a ring of frames, each a batch of deltas that becomes durable as a whole.
//! See `docs/reference/format.md` for the bytes and what a power cut does to them.

use crate::format::checksum::crc32c_without;
use crate::format::codec::Reader;
use crate::format::root::JournalPosition;
use crate::log::delta::Delta;
use crate::{PAGE, PoolId};
use weir_model::{Bytes, Mutant, Planted};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Longest frame, in bytes.
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

/// A frame read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its journal.
    pub journal: u64,
    /// Its sequence.
    pub sequence: u64,
    /// Highest sequence known durable when it was written.
    pub durable: u64,
    /// CRC of its predecessor.
    pub chain: u32,
    /// The pool's generation when its journal began.
    pub incarnation: u32,
    /// Its own CRC.
    pub crc: u32,
    /// Bytes in the ring: a multiple of 4096.
    pub stored: u64,
    /// What it says.
    pub deltas: Vec<Delta>,
}

impl Frame {
    /// Reads the frame at the start of `bytes`; `None` unless it is whole and of this pool.
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
        // The rest of a torn frame seldom makes sense: that would be a second defence.
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

    /// Whether it is the one that belongs at this position.
    fn follows(&self, at: JournalPosition, planted: Planted) -> bool {
        (self.journal, self.incarnation) == (at.journal, at.incarnation)
            && self.sequence == at.sequence
            && (self.chain == at.chain || planted.is(Mutant::FrameChainIgnored))
    }
}

/// Builds one frame.
#[derive(Debug)]
pub(crate) struct FrameBuilder {
    /// Longest frame to build, in bytes.
    most: usize,
    bytes: Vec<u8>,
    deltas: u32,
    scratch: Vec<u8>,
}

impl FrameBuilder {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, bytes: vec![0; HEADER], deltas: 0, scratch: Vec::new() }
    }

    /// Longest frame it builds, in bytes: a multiple of 4096.
    pub(crate) fn capacity(&self) -> usize {
        self.most
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.deltas == 0
    }

    /// Adds deltas that belong together; `false`, adding none, if the frame has no room for them.
    #[must_use]
    pub(crate) fn add(&mut self, deltas: &[Delta], blocks: u16) -> bool {
        self.scratch.clear();
        for delta in deltas {
            delta.encode(blocks, &mut self.scratch);
        }
        if self.bytes.len() + self.scratch.len() > self.most {
            return false;
        }
        self.bytes.extend_from_slice(&self.scratch);
        self.deltas += deltas.len() as u32;
        true
    }

    pub(crate) fn stored_len(&self) -> u64 {
        (self.bytes.len() as u64).next_multiple_of(PAGE as u64)
    }

    /// The finished bytes, whole pages; the builder is empty again.
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

/// Where the next frame goes and what may be overwritten.
///
/// Positions in the ring are kept as ever-growing offsets; modulo the ring's length they are the
/// bytes' places.
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
    /// Everything from here on is needed by the older root.
    keep_from: u64,
    /// … by the newer root.
    newest_from: u64,
    planted: Planted,
}

impl Journal {
    /// A new journal, empty, in a ring of this many bytes; its first frame goes to its start.
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
            keep_from: 0,
            newest_from: 0,
            planted,
        }
    }

    /// Where the next frame goes.
    pub(crate) fn position(&self) -> JournalPosition {
        JournalPosition {
            journal: self.id,
            offset: self.head % self.ring,
            sequence: self.sequence,
            chain: self.chain,
            incarnation: self.incarnation,
        }
    }

    /// The head to go with [`Self::position`], for [`Self::root_durable`].
    pub(crate) fn head(&self) -> u64 {
        self.head
    }

    /// Bytes of padding before a frame of this length, so that it does not cross the ring's end.
    fn padding(&self, len: u64) -> u64 {
        let left = self.ring - self.head % self.ring;
        if len > left { left } else { 0 }
    }

    /// Whether a frame of this length may be written without overwriting what a root needs.
    pub(crate) fn has_room(&self, len: u64) -> bool {
        let padding = if self.planted.is(Mutant::RingPaddingForgotten) { 0 } else { self.padding(len) };
        self.planted.is(Mutant::JournalOverrun) || self.head + padding + len - self.keep_from <= self.ring
    }

    /// Bytes since the newest root's position: what replay would read.
    pub(crate) fn since_root(&self) -> u64 {
        self.head - self.newest_from
    }

    /// Bytes of the ring.
    pub(crate) fn ring(&self) -> u64 {
        self.ring
    }

    /// Seals the frame into `out` and moves on; gives the offset in the ring to write it to.
    /// The caller has checked [`Self::has_room`].
    pub(crate) fn append(&mut self, frame: &mut FrameBuilder, out: &mut Vec<u8>) -> u64 {
        self.head += self.padding(frame.stored_len());
        let at = self.position();
        self.chain = frame.seal(self.pool, at, self.durable, out);
        self.head += out.len() as u64;
        self.sequence += 1;
        at.offset
    }

    /// Every frame appended so far is durable.
    pub(crate) fn all_durable(&mut self) {
        if !self.planted.is(Mutant::DurableSequenceStale) {
            self.durable = self.sequence - 1;
        }
    }

    /// The root taken at `head` is durable: what only the root before the previous one needed may be
    /// overwritten.
    pub(crate) fn root_durable(&mut self, head: u64) {
        let given_up = self.planted.is(Mutant::OlderJournalGivenUp);
        self.keep_from = if given_up { head } else { self.newest_from };
        self.newest_from = head;
    }
}

/// Why replay ended before the ring did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// At the tail: the next frame was never written, or not wholly.
    Tail,
    /// The next frame is bad although a later one calls it durable.
    Damaged {
        /// Sequence of the bad frame.
        sequence: u64,
        /// Where in the ring it should be.
        offset: u64,
    },
    /// A journal that began later has a frame: the root that began it is lost, or cannot be used.
    Superseded {
        /// Its id.
        journal: u64,
        /// Where in the ring that frame is.
        offset: u64,
    },
}

impl End {
    /// What is wrong, and where in the ring; `None` if nothing is.
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

/// Replays the frames from `from` on, giving each to `apply`; says where and why it ended. `rings` are
/// the copies there are of the ring, one per member: a frame counts if it is whole in any of them.
pub(crate) fn replay(
    rings: &[Vec<u8>],
    from: JournalPosition,
    pool: PoolId,
    blocks: u16,
    planted: Planted,
    mut apply: impl FnMut(Frame),
) -> (JournalPosition, End) {
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
            None if planted.is(Mutant::DamageTakenForTail) => return (at, End::Tail),
            None => return (at, end_at(rings, at, pool, blocks)),
        }
    }
}

/// The journal and sequence the header at the start of `bytes` speaks of, whether or not its frame is
/// whole; `None` if it is no header of this pool.
pub(crate) fn claims(bytes: &[u8], pool: PoolId) -> Option<(u64, u64)> {
    let (header, _) = Header::ref_from_prefix(bytes).ok()?;
    let is_header = header.magic == MAGIC && header.pool == pool.0;
    is_header.then(|| (header.journal.get(), header.sequence.get()))
}

/// Whether some frame says the missing one was durable, or that this journal is not the last. (One of an earlier
/// incarnation says nothing: what it changed was rolled back.)
fn end_at(rings: &[Vec<u8>], at: JournalPosition, pool: PoolId, blocks: u16) -> End {
    let vouches = |f: &Frame| {
        (f.journal, f.incarnation) == (at.journal, at.incarnation)
            && f.sequence > at.sequence
            && f.durable >= at.sequence
    };
    let supersedes = |f: &Frame| {
        let is_past = f.incarnation.wrapping_sub(at.incarnation) > u32::MAX / 2;
        f.journal > at.journal && !is_past
    };
    let mut end = End::Tail;
    for (ring, offset) in
        rings.iter().flat_map(|ring| (0..ring.len()).step_by(PAGE).map(move |at| (ring, at)))
    {
        let bytes = &ring[offset..];
        let frame = bytes.starts_with(&MAGIC).then(|| Frame::decode(bytes, pool, blocks)).flatten();
        match frame {
            Some(f) if vouches(&f) => return End::Damaged { sequence: at.sequence, offset: at.offset },
            Some(f) if supersedes(&f) => {
                end = End::Superseded { journal: f.journal, offset: offset as u64 };
            }
            _ => {}
        }
    }
    end
}

#[cfg(test)]
mod tests;
