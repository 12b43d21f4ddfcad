//! A client's bytes, made and understood, for the tests.

use crate::nbd::wire::{Reader, chunk, command};

/// The handshake of a client that wants the volume in memory.
pub(crate) fn hello(structured: bool) -> Vec<u8> {
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

/// A request without payload.
pub(crate) fn request(kind: u16, flags: u16, cookie: u64, offset: u64, len: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513u32.to_be_bytes().to_vec();
    bytes.extend_from_slice(&flags.to_be_bytes());
    bytes.extend_from_slice(&kind.to_be_bytes());
    bytes.extend_from_slice(&cookie.to_be_bytes());
    bytes.extend_from_slice(&offset.to_be_bytes());
    bytes.extend_from_slice(&len.to_be_bytes());
    bytes
}

/// A write with its payload.
pub(crate) fn write(cookie: u64, offset: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = request(command::WRITE, 0, cookie, offset, payload.len() as u32);
    bytes.extend_from_slice(payload);
    bytes
}

/// One message of the server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Simple { cookie: u64, error: u32 },
    Data { cookie: u64, done: bool, offset: u64, bytes: Vec<u8> },
    Hole { cookie: u64, done: bool, offset: u64, len: u32 },
    Error { cookie: u64, done: bool, error: u32, at: Option<u64> },
    Status { cookie: u64, runs: Vec<(u32, u32)> },
}

/// What the server said, if no simple reply has data.
pub(crate) fn said(output: &[u8]) -> Vec<Said> {
    let mut reader = Reader(output);
    let mut all = Vec::new();
    while !reader.is_empty() {
        let magic = reader.u32().unwrap();
        if magic == 0x6744_6698 {
            let error = reader.u32().unwrap();
            all.push(Said::Simple { error, cookie: reader.u64().unwrap() });
            continue;
        }
        assert_eq!(magic, 0x668e_33ef, "after {all:?}");
        let (flags, kind) = (reader.u16().unwrap(), reader.u16().unwrap());
        let (cookie, len) = (reader.u64().unwrap(), reader.u32().unwrap());
        let mut body = Reader(reader.take(len as usize).unwrap());
        let done = flags & chunk::DONE != 0;
        all.push(match kind {
            chunk::OFFSET_DATA => {
                Said::Data { cookie, done, offset: body.u64().unwrap(), bytes: body.0.to_vec() }
            }
            chunk::OFFSET_HOLE => {
                Said::Hole { cookie, done, offset: body.u64().unwrap(), len: body.u32().unwrap() }
            }
            chunk::ERROR | chunk::ERROR_OFFSET => {
                let error = body.u32().unwrap();
                let message = body.u16().unwrap();
                body.take(message.into()).unwrap();
                Said::Error { cookie, done, error, at: body.u64() }
            }
            chunk::BLOCK_STATUS => {
                assert!(done);
                assert_eq!(body.u32(), Some(1));
                let runs = body.0.chunks(8).map(|mut run| {
                    let mut run = Reader(std::mem::take(&mut run));
                    (run.u32().unwrap(), run.u32().unwrap())
                });
                Said::Status { cookie, runs: runs.collect() }
            }
            other => panic!("chunk of type {other}"),
        });
    }
    all
}

/// Bytes that differ from seed to seed, none of them zero.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| ((i + seed) * 31 % 251) as u8 + 1).collect()
}
