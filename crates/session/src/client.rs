//! Encodes and decodes a client's side of the NBD protocol, for tests.

use crate::nbd::wire::{Reader, chunk, command};

/// Encodes the handshake of a client that uses the volume in memory.
pub fn encode_handshake(structured: bool) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, 3];
    if structured {
        bytes.extend_from_slice(b"IHAVEOPT\0\0\0\x08\0\0\0\0");
        bytes.extend_from_slice(
            b"IHAVEOPT\0\0\0\x0a\0\0\0\x1e\0\0\0\x03ram\0\0\0\x01\0\0\0\x0fbase:allocation",
        );
    }
    bytes.extend_from_slice(b"IHAVEOPT\0\0\0\x01\0\0\0\x03ram");
    bytes
}

/// Encodes a request without payload.
pub fn request(kind: u16, flags: u16, cookie: u64, offset: u64, len: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513u32.to_be_bytes().to_vec();
    bytes.extend_from_slice(&flags.to_be_bytes());
    bytes.extend_from_slice(&kind.to_be_bytes());
    bytes.extend_from_slice(&cookie.to_be_bytes());
    bytes.extend_from_slice(&offset.to_be_bytes());
    bytes.extend_from_slice(&len.to_be_bytes());
    bytes
}

/// Encodes a write with its payload.
pub fn write(cookie: u64, offset: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = request(command::WRITE, 0, cookie, offset, payload.len() as u32);
    bytes.extend_from_slice(payload);
    bytes
}

/// One decoded message of the server.
#[derive(Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the protocol")]
pub enum ServerMessage {
    /// A reply without data.
    Simple { cookie: u64, error: u32 },
    /// A chunk of data.
    Data { cookie: u64, is_last: bool, offset: u64, bytes: Vec<u8> },
    /// A chunk of zeros.
    Hole { cookie: u64, is_last: bool, offset: u64, len: u32 },
    /// A chunk that reports an error.
    Error { cookie: u64, is_last: bool, error: u32, at: Option<u64> },
    /// A block status: lengths and flags of runs.
    Status { cookie: u64, runs: Vec<(u32, u32)> },
}

/// Decodes the server's output, which may have no simple reply with data.
///
/// # Panics
/// Panics if `output` is not a sequence of whole messages.
pub fn decode_messages(output: &[u8]) -> Vec<ServerMessage> {
    let mut reader = Reader(output);
    let mut all = Vec::new();
    while !reader.is_empty() {
        let one = message(&mut reader);
        all.push(one.unwrap_or_else(|| panic!("no message after {all:?}")));
    }
    all
}

fn message(reader: &mut Reader<'_>) -> Option<ServerMessage> {
    let magic = reader.u32()?;
    if magic == 0x6744_6698 {
        let error = reader.u32()?;
        return Some(ServerMessage::Simple { error, cookie: reader.u64()? });
    }
    if magic != 0x668e_33ef {
        return None;
    }
    let (flags, kind) = (reader.u16()?, reader.u16()?);
    let (cookie, len) = (reader.u64()?, reader.u32()?);
    let mut body = Reader(reader.take(len as usize)?);
    let done = flags & chunk::DONE != 0;
    match kind {
        chunk::OFFSET_DATA => {
            Some(ServerMessage::Data { cookie, is_last: done, offset: body.u64()?, bytes: body.0.to_vec() })
        }
        chunk::OFFSET_HOLE => {
            Some(ServerMessage::Hole { cookie, is_last: done, offset: body.u64()?, len: body.u32()? })
        }
        chunk::ERROR | chunk::ERROR_OFFSET => {
            let error = body.u32()?;
            let message = body.u16()?;
            body.take(message.into())?;
            Some(ServerMessage::Error { cookie, is_last: done, error, at: body.u64() })
        }
        chunk::BLOCK_STATUS if done && body.u32() == Some(1) => {
            let runs = body.0.chunks(8).map(|run| {
                let mut run = Reader(run);
                Some((run.u32()?, run.u32()?))
            });
            Some(ServerMessage::Status { cookie, runs: runs.collect::<Option<_>>()? })
        }
        _ => None,
    }
}

/// Returns non-zero bytes that differ between seeds.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| ((i + seed) * 31 % 251) as u8 + 1).collect()
}
