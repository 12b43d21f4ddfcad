//! The handshake: from the first byte to the choice of an export.
//!
//! The server sends its [`greeting`], then answers options one by one ([`Handshake::step`]) until one of them
//! starts the transmission or ends the connection.

use super::wire::{GREETING, OPTION_MAGIC, OPTION_REPLY_MAGIC};
use super::wire::{Reader, answer, export, hello, info, option};
use super::{Export, OPTION_MAX, PAYLOAD_MAX, find};
use weir_model::{BLOCK, Bytes, SECTOR, VolumeId};

/// Name of the only metadata context.
const ALLOCATION: &[u8] = b"base:allocation";
/// Id of that context in replies.
pub const ALLOCATION_ID: u32 = 1;

/// Result of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NegotiatedExport {
    /// The volume to serve.
    pub volume: VolumeId,
    /// Its size at the time of the choice; a volume does not shrink.
    pub size: Bytes,
    /// True if reads are answered in structured chunks.
    pub structured: bool,
    /// True if block status may be requested, for `base:allocation`.
    pub allocation: bool,
}

/// Outcome of one message of the client. The numbers are bytes of input consumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The message is incomplete.
    NeedMore,
    /// Continue with the next message.
    Next(usize),
    /// The transmission starts.
    Start(usize, NegotiatedExport),
    /// Send the pending answers, then close.
    End,
}

/// State of a handshake. It allocates nothing: options are answered directly from the input.
#[derive(Debug, Default)]
pub struct Handshake {
    client_flags: Option<u32>,
    structured: bool,
    /// The volume for which the client has selected `base:allocation`.
    allocation: Option<VolumeId>,
}

/// Returns the server's first message.
pub fn greeting() -> [u8; 18] {
    let mut bytes = [0; 18];
    bytes[..8].copy_from_slice(&GREETING.to_be_bytes());
    bytes[8..16].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
    bytes[16..].copy_from_slice(&(hello::FIXED_NEWSTYLE | hello::NO_ZEROES).to_be_bytes());
    bytes
}

impl Handshake {
    /// Consumes the first message of `input` and appends the answer to `out`: at most [`OPTION_MAX`] bytes
    /// and 4 KiB, except for a list, whose length is that of the names.
    pub fn step(&mut self, input: &[u8], exports: &[Export], out: &mut Vec<u8>) -> Step {
        let mut reader = Reader(input);
        if self.client_flags.is_none() {
            let Some(flags) = reader.u32() else { return Step::NeedMore };
            if flags & !u32::from(hello::FIXED_NEWSTYLE | hello::NO_ZEROES) != 0 {
                return Step::End;
            }
            self.client_flags = Some(flags);
            return Step::Next(4);
        }
        let (Some(magic), Some(number), Some(len)) = (reader.u64(), reader.u32(), reader.u32()) else {
            return Step::NeedMore;
        };
        if magic != OPTION_MAGIC {
            return Step::End;
        }
        if len > OPTION_MAX {
            refuse(out, number, answer::ERR_TOO_BIG, "option is longer than 32 KiB");
            return Step::End;
        }
        let Some(data) = reader.take(len as usize) else { return Step::NeedMore };
        let used = input.len() - reader.0.len();
        self.option(number, data, exports, out).after(used)
    }

    fn option(&mut self, number: u32, data: &[u8], exports: &[Export], out: &mut Vec<u8>) -> Outcome {
        match number {
            option::EXPORT_NAME => return self.answer_export_name(data, exports, out),
            option::ABORT => {
                reply(out, number, answer::ACK, &[]);
                return Outcome::End;
            }
            option::GO | option::INFO => return self.answer_describe(number, data, exports, out),
            option::LIST if data.is_empty() => list(exports, out),
            option::STRUCTURED_REPLY if data.is_empty() => {
                self.structured = true;
                reply(out, number, answer::ACK, &[]);
            }
            option::LIST | option::STRUCTURED_REPLY => {
                refuse(out, number, answer::ERR_INVALID, "option takes no data");
            }
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                self.answer_contexts(number, data, exports, out);
            }
            _ => refuse(out, number, answer::ERR_UNSUP, "option not supported"),
        }
        Outcome::Next
    }

    fn negotiated(&self, chosen: &Export) -> NegotiatedExport {
        NegotiatedExport {
            volume: chosen.volume,
            size: chosen.size,
            structured: self.structured,
            allocation: self.structured && self.allocation == Some(chosen.volume),
        }
    }

    fn transmission_flags(&self) -> u16 {
        let always = export::HAS_FLAGS
            | export::SEND_FLUSH
            | export::SEND_FUA
            | export::SEND_TRIM
            | export::SEND_WRITE_ZEROES
            | export::CAN_MULTI_CONN
            | export::SEND_FAST_ZERO;
        if self.structured { always | export::SEND_DF } else { always }
    }

    /// Answers EXPORT_NAME, the old way to start. It has no error replies: an unknown name ends the
    /// connection.
    fn answer_export_name(&self, name: &[u8], exports: &[Export], out: &mut Vec<u8>) -> Outcome {
        let Some(chosen) = find(exports, name) else { return Outcome::End };
        out.extend_from_slice(&chosen.size.0.to_be_bytes());
        out.extend_from_slice(&self.transmission_flags().to_be_bytes());
        if self.client_flags.unwrap_or(0) & u32::from(hello::NO_ZEROES) == 0 {
            out.extend_from_slice(&[0; 124]);
        }
        Outcome::Start(self.negotiated(chosen))
    }

    fn answer_describe(&self, number: u32, data: &[u8], exports: &[Export], out: &mut Vec<u8>) -> Outcome {
        let Some((name, wanted)) = parse_describe(data) else {
            refuse(out, number, answer::ERR_INVALID, "malformed request for an export");
            return Outcome::Next;
        };
        let Some(chosen) = find(exports, name) else {
            refuse(out, number, answer::ERR_UNKNOWN, "no volume of that name; a list names those there are");
            return Outcome::Next;
        };
        self.append_information(number, chosen, wanted, out);
        reply(out, number, answer::ACK, &[]);
        if number == option::GO { Outcome::Start(self.negotiated(chosen)) } else { Outcome::Next }
    }

    /// Appends size, flags and block sizes, and name and description where the client asks for them.
    fn append_information(&self, number: u32, chosen: &Export, wanted: &[u8], out: &mut Vec<u8>) {
        let wants = |kind: u16| wanted.chunks_exact(2).any(|bytes| bytes == kind.to_be_bytes());
        let mut bytes = info::EXPORT.to_be_bytes().to_vec();
        bytes.extend_from_slice(&chosen.size.0.to_be_bytes());
        bytes.extend_from_slice(&self.transmission_flags().to_be_bytes());
        reply(out, number, answer::INFO, &bytes);

        bytes.clear();
        bytes.extend_from_slice(&info::BLOCK_SIZE.to_be_bytes());
        for size in [SECTOR as u32, BLOCK as u32, PAYLOAD_MAX] {
            bytes.extend_from_slice(&size.to_be_bytes());
        }
        reply(out, number, answer::INFO, &bytes);

        if wants(info::NAME) {
            bytes.clear();
            bytes.extend_from_slice(&info::NAME.to_be_bytes());
            bytes.extend_from_slice(chosen.name.as_bytes());
            reply(out, number, answer::INFO, &bytes);
        }
        if wants(info::DESCRIPTION) {
            bytes.clear();
            bytes.extend_from_slice(&info::DESCRIPTION.to_be_bytes());
            bytes.extend_from_slice(b"weir thin volume");
            reply(out, number, answer::INFO, &bytes);
        }
    }

    fn answer_contexts(&mut self, number: u32, data: &[u8], exports: &[Export], out: &mut Vec<u8>) {
        let set = number == option::SET_META_CONTEXT;
        if set {
            self.allocation = None;
        }
        if !self.structured {
            return refuse(out, number, answer::ERR_INVALID, "negotiate structured replies first");
        }
        let Some((name, chosen)) = parse_contexts(data, set) else {
            return refuse(out, number, answer::ERR_INVALID, "malformed request for metadata contexts");
        };
        let Some(volume) = find(exports, name) else {
            return refuse(out, number, answer::ERR_UNKNOWN, "no volume of that name");
        };
        if chosen {
            // In a list the id has no meaning and is zero.
            let id = if set { ALLOCATION_ID } else { 0 };
            let mut bytes = id.to_be_bytes().to_vec();
            bytes.extend_from_slice(ALLOCATION);
            reply(out, number, answer::META_CONTEXT, &bytes);
            if set {
                self.allocation = Some(volume.volume);
            }
        }
        reply(out, number, answer::ACK, &[]);
    }
}

/// Outcome of a complete message; see [`Step`].
enum Outcome {
    Next,
    Start(NegotiatedExport),
    End,
}

impl Outcome {
    fn after(self, used: usize) -> Step {
        match self {
            Self::Next => Step::Next(used),
            Self::Start(agreed) => Step::Start(used, agreed),
            Self::End => Step::End,
        }
    }
}

/// Parses INFO and GO: the name and the requested kinds of information (two bytes each).
fn parse_describe(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut reader = Reader(data);
    let name = reader.string()?;
    let count = reader.u16()?;
    let wanted = reader.take(usize::from(count) * 2)?;
    reader.is_empty().then_some((name, wanted))
}

/// Parses a context option: the name, and whether any query selects `base:allocation`. A list may ask for
/// everything, or for everything of `base:`; a selection must name it.
fn parse_contexts(data: &[u8], set: bool) -> Option<(&[u8], bool)> {
    let mut reader = Reader(data);
    let name = reader.string()?;
    let count = reader.u32()?;
    let mut chosen = count == 0 && !set;
    for _ in 0..count {
        let query = reader.string()?;
        chosen |= query == ALLOCATION || (!set && query == b"base:");
    }
    reader.is_empty().then_some((name, chosen))
}

fn list(exports: &[Export], out: &mut Vec<u8>) {
    for export in exports {
        let mut bytes = (export.name.len() as u32).to_be_bytes().to_vec();
        bytes.extend_from_slice(export.name.as_bytes());
        reply(out, option::LIST, answer::SERVER, &bytes);
    }
    reply(out, option::LIST, answer::ACK, &[]);
}

fn refuse(out: &mut Vec<u8>, number: u32, kind: u32, why: &str) {
    reply(out, number, kind, why.as_bytes());
}

fn reply(out: &mut Vec<u8>, number: u32, kind: u32, data: &[u8]) {
    out.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&number.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&(data.len() as u32).to_be_bytes());
    out.extend_from_slice(data);
}

#[cfg(test)]
mod tests;
