//! The receiving side of a connection with many requests in flight. A thread of its own reads the replies,
//! simple or structured, of any size and in any order.

use super::Client;
use std::collections::HashMap;
use std::io::{self, Read as _};
use std::os::unix::net::UnixStream;

/// The answer to a request: its error number, which is zero on success, and the data of a read.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) cookie: u64,
    pub(crate) error: u32,
    pub(crate) data: Vec<u8>,
}

/// Where the data of a request belongs: its offset, and the length of a read (zero for other requests).
pub(crate) type Expected = (u64, usize);

/// The receiving side of a [`Client`].
pub(crate) struct Replies {
    stream: UnixStream,
    /// Structured replies that are not complete yet.
    partial: HashMap<u64, (u32, Vec<u8>)>,
}

impl Client {
    /// Works as [`Client::connect`], with structured replies.
    pub(crate) fn connect_structured(socket: &std::path::Path, export: &str) -> io::Result<Self> {
        Self::connect_with(socket, export, true)
    }

    /// Returns the receiving side, which alone may receive from now on.
    pub(crate) fn replies(&self) -> io::Result<Replies> {
        Ok(Replies { stream: self.stream.try_clone()?, partial: HashMap::new() })
    }
}

impl Replies {
    /// Receives the next answer. `expected` is called with the cookie of each reply; it must reject a cookie
    /// that was never sent.
    ///
    /// # Panics
    /// Panics if the replies violate the protocol.
    pub(crate) fn next(&mut self, mut expected: impl FnMut(u64) -> Expected) -> io::Result<Answer> {
        loop {
            let mut head = [0; 16];
            self.stream.read_exact(&mut head)?;
            let cookie = u64::from_be_bytes(head[8..].try_into().expect("eight bytes"));
            match u32_at(&head, 0) {
                0x6744_6698 => {
                    let error = u32_at(&head, 4);
                    let (_, len) = expected(cookie);
                    let mut data = vec![0; if error == 0 { len } else { 0 }];
                    self.stream.read_exact(&mut data)?;
                    return Ok(Answer { cookie, error, data });
                }
                0x668e_33ef => {
                    if let Some(answer) = self.chunk(&head, cookie, expected(cookie))? {
                        return Ok(answer);
                    }
                }
                other => panic!("{other:#x} is neither a reply nor a chunk: the stream is lost"),
            }
        }
    }

    fn chunk(&mut self, head: &[u8], cookie: u64, (offset, len): Expected) -> io::Result<Option<Answer>> {
        let mut size = [0; 4];
        self.stream.read_exact(&mut size)?;
        let mut body = vec![0; u32::from_be_bytes(size) as usize];
        self.stream.read_exact(&mut body)?;
        let (error, data) = self.partial.entry(cookie).or_insert_with(|| (0, vec![0xee; len]));
        let at =
            |body: &[u8]| (u64::from_be_bytes(body[..8].try_into().expect("eight bytes")) - offset) as usize;
        match u16::from_be_bytes([head[6], head[7]]) {
            0 => {}
            1 => data[at(&body)..][..body.len() - 8].copy_from_slice(&body[8..]),
            2 => data[at(&body)..][..u32_at(&body, 8) as usize].fill(0),
            kind if kind >= 1 << 15 => *error = u32_at(&body, 0),
            kind => panic!("a chunk of type {kind}"),
        }
        if head[5] & 1 == 0 {
            return Ok(None);
        }
        let (error, data) = self.partial.remove(&cookie).expect("just made");
        Ok(Some(Answer { cookie, error, data }))
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}
