//! A client's requests and their encoding.

use super::ClientProfile;
use crate::driver::RequestSpec;
use crate::driver::errors::Holders;
use crate::net::nbd::{self, EINVAL, ENOSPC};
use crate::net::recording::{RequestKey, recorded_as};
use crate::{Change, Oracle, Place, Ticket};
use std::fmt;
use weir_model::{BLOCK, Bytes, Op, SECTOR, VolumeOffset};

/// A client's request.
#[derive(Clone, Copy, PartialEq)]
pub enum ClientRequest {
    /// A request to the client's volume.
    Request(RequestSpec),
    /// A read whose data must come in one chunk, with structured replies.
    Whole(RequestSpec),
    /// A read without this many bytes at its start and its end, each less than a sector.
    Unaligned(RequestSpec, u16, u16),
    /// A block status, if negotiated; one run, or all.
    Status(VolumeOffset, Bytes, bool),
    /// An invalid request that must be refused without side effects.
    Invalid(InvalidRequest),
}

/// Kinds of invalid requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidRequest {
    /// A read beyond the end.
    ReadBehindEnd,
    /// A write of this many bytes beyond the end.
    WriteBehindEnd(u32),
    /// An unknown command.
    Unknown,
    /// A command that was not offered.
    Cache,
    /// Unknown flags.
    Flags,
    /// A block status that was not negotiated, or of zero bytes.
    Status,
}

impl fmt::Debug for ClientRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(ask) => ask.fmt(f),
            Self::Unaligned(ask, head, tail) => {
                write!(f, "{ask:?}, but {head} bytes before and {tail} behind")
            }
            Self::Whole(ask) => write!(f, "{ask:?}, in one piece"),
            Self::Status(at, len, one) => {
                write!(
                    f,
                    "{} of {} KiB at {at}",
                    if *one { "the status" } else { "all statuses" },
                    len.0 as f64 / 1024.0
                )
            }
            Self::Invalid(wrong) => wrong.fmt(f),
        }
    }
}

/// A request in flight.
#[derive(Clone, Debug)]
pub(super) struct PendingRequest {
    pub(super) ask: RequestSpec,
    pub(super) expectation: Expectation,
    /// Bytes before the part that the oracle knows of.
    pub(super) head: usize,
    /// For a read while devices may fail: the devices that held its blocks when it was sent.
    pub(super) holders: Option<Holders>,
    /// Offset and length on the wire.
    pub(super) offset: u64,
    pub(super) len: u32,
}

impl PendingRequest {
    /// Returns the range that the server has to access: all sectors that the request touches. The oracle
    /// knows only of those that are requested entirely.
    pub(super) fn touched(&self) -> RequestSpec {
        if self.ask.op != Op::Read || self.len == 0 {
            return self.ask;
        }
        let (start, end) = (self.offset / SECTOR, (self.offset + u64::from(self.len)).div_ceil(SECTOR));
        RequestSpec { offset: VolumeOffset(start * SECTOR), len: Bytes((end - start) * SECTOR), ..self.ask }
    }

    /// Returns the request in the form of a recording; `None` for invalid requests and those without data.
    pub(super) fn key(&self, offset: u64, len: u32) -> Option<(Ticket, RequestKey)> {
        match (self.expectation, self.ask.op) {
            (_, Op::Flush) => None,
            (Expectation::Request(ticket), op) => {
                Some((ticket, (self.ask.volume, recorded_as(op), offset, len.into())))
            }
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expectation {
    Request(Ticket),
    Status(Ticket),
    /// It must be refused with this error.
    Refused(u32),
}

/// An encoded request.
pub(super) struct EncodedRequest {
    pub(super) flags: u16,
    pub(super) kind: u16,
    pub(super) offset: u64,
    pub(super) len: u32,
    pub(super) pending: PendingRequest,
    pub(super) payload: Vec<u8>,
}

/// Encodes a request and registers it with the oracle.
pub(super) fn encode_request(
    request: ClientRequest,
    character: &ClientProfile,
    size: Bytes,
    oracle: &mut Oracle,
) -> EncodedRequest {
    let fitted = |ask: RequestSpec| fit(ask, character, size);
    match request {
        ClientRequest::Request(ask) => encode_aligned(fitted(ask), 0, oracle),
        ClientRequest::Whole(ask) => {
            let ask = fitted(RequestSpec { op: Op::Read, ..ask });
            let is_offered = character.is_structured && ask.len <= Bytes::kib(128);
            encode_aligned(ask, if is_offered { nbd::DF } else { 0 }, oracle)
        }
        ClientRequest::Unaligned(ask, head, tail) => {
            let ask = fitted(RequestSpec { op: Op::Read, ..ask });
            encode_unaligned(ask, u64::from(head) % SECTOR, u64::from(tail) % SECTOR, oracle)
        }
        ClientRequest::Status(offset, len, one) if character.has_context => {
            let ask = fitted(RequestSpec { volume: 0, op: Op::Trim, offset, len, fua: false });
            let ask = RequestSpec { op: Op::Read, ..ask };
            let ticket = oracle.read(place(&ask));
            let flags = if one { nbd::REQ_ONE } else { 0 };
            let open = PendingRequest {
                ask,
                expectation: Expectation::Status(ticket),
                head: 0,
                holders: None,
                offset: 0,
                len: 0,
            };
            let (offset, len) = (ask.offset.0, ask.len.0 as u32);
            EncodedRequest { flags, kind: nbd::BLOCK_STATUS, offset, len, pending: open, payload: vec![] }
        }
        ClientRequest::Status(..) => encode_invalid(InvalidRequest::Status, character, size),
        ClientRequest::Invalid(wrong) => encode_invalid(wrong, character, size),
    }
}

const fn place(ask: &RequestSpec) -> Place {
    Place { volume: ask.volume, offset: ask.offset, len: ask.len }
}

/// Limits the request to the volume's size and the client's longest request.
fn fit(ask: RequestSpec, character: &ClientProfile, size: Bytes) -> RequestSpec {
    let volume = character.volume;
    if ask.op == Op::Flush {
        return RequestSpec { volume, offset: VolumeOffset(0), len: Bytes(0), fua: false, ..ask };
    }
    let offset = VolumeOffset(ask.offset.0 % size.0 / SECTOR * SECTOR);
    let most = if ask.op.has_payload() { character.len_max } else { size };
    let len = ask.len.0.clamp(SECTOR, most.0).min(size.0 - offset.0);
    RequestSpec { volume, offset, len: Bytes(len), fua: ask.fua && ask.op.changes(), ..ask }
}

fn encode_aligned(ask: RequestSpec, flags: u16, oracle: &mut Oracle) -> EncodedRequest {
    let fua = if ask.fua { nbd::FUA } else { 0 };
    let (kind, more, ticket) = match ask.op {
        Op::Read => (nbd::READ, flags, oracle.read(place(&ask))),
        Op::Write => (nbd::WRITE, fua, oracle.change(place(&ask), Change::Write, ask.fua)),
        Op::Trim => (nbd::TRIM, fua, oracle.change(place(&ask), Change::Trim, ask.fua)),
        Op::WriteZeroes { no_hole } => {
            let no_hole = if no_hole { nbd::NO_HOLE } else { 0 };
            (nbd::WRITE_ZEROES, fua | no_hole, oracle.change(place(&ask), Change::Zero, ask.fua))
        }
        Op::Flush => (nbd::FLUSH, 0, oracle.flush(ask.volume)),
    };
    let mut payload = Vec::new();
    if ask.op == Op::Write {
        payload = vec![0; ask.len.0 as usize];
        oracle.fill(ticket, place(&ask), &mut payload);
    }
    let open = PendingRequest {
        ask,
        expectation: Expectation::Request(ticket),
        head: 0,
        holders: None,
        offset: 0,
        len: 0,
    };
    EncodedRequest { flags: more, kind, offset: ask.offset.0, len: ask.len.0 as u32, pending: open, payload }
}

/// Encodes an unaligned read. The oracle knows of its whole sectors; if there are none, the read is of the
/// entire range.
fn encode_unaligned(ask: RequestSpec, head: u64, tail: u64, oracle: &mut Oracle) -> EncodedRequest {
    let (before, behind) = (head.next_multiple_of(SECTOR), tail.next_multiple_of(SECTOR));
    if ask.len.0 <= before + behind {
        return encode_aligned(ask, 0, oracle);
    }
    let inner = VolumeOffset(ask.offset.0 + before);
    let mut laid = encode_aligned(
        RequestSpec { offset: inner, len: Bytes(ask.len.0 - before - behind), ..ask },
        0,
        oracle,
    );
    laid.pending.head = (before - head) as usize;
    (laid.offset, laid.len) = (ask.offset.0 + head, (ask.len.0 - head - tail) as u32);
    laid
}

/// Encodes an invalid request, with the error that the protocol specifies.
fn encode_invalid(wrong: InvalidRequest, character: &ClientProfile, size: Bytes) -> EncodedRequest {
    let (flags, kind, offset, len, error) = match wrong {
        InvalidRequest::ReadBehindEnd => (0, nbd::READ, size.0 - SECTOR, 2 * SECTOR as u32, EINVAL),
        InvalidRequest::WriteBehindEnd(len) => (0, nbd::WRITE, size.0, len, ENOSPC),
        InvalidRequest::Unknown => (0, 99, 0, BLOCK as u32, EINVAL),
        InvalidRequest::Cache => (0, nbd::CACHE, 0, BLOCK as u32, EINVAL),
        InvalidRequest::Flags => (1 << 9, nbd::TRIM, 0, BLOCK as u32, EINVAL),
        InvalidRequest::Status => (0, nbd::BLOCK_STATUS, 0, 0, EINVAL),
    };
    let (volume, offset_of_ask) = (character.volume, VolumeOffset(offset));
    let ask = RequestSpec { volume, op: Op::Read, offset: offset_of_ask, len: Bytes(len.into()), fua: false };
    let payload = if kind == nbd::WRITE { vec![0x5a; len as usize] } else { vec![] };
    EncodedRequest {
        flags,
        kind,
        offset,
        len,
        pending: PendingRequest {
            ask,
            expectation: Expectation::Refused(error),
            head: 0,
            holders: None,
            offset: 0,
            len: 0,
        },
        payload,
    }
}
