//! Drives a connection with arbitrary bytes: for the fuzz target and for tests of hostile clients.

use crate::connection::{Connection, Credit, Step};
use crate::ram::Ram;
use crate::volumes::Volumes;
use weir_model::{Bytes, HeapMemory, Memory, Nanos};

/// Like [`client`], but past the handshake, which random bytes rarely pass. The bytes are requests, once of a
/// client with structured replies and once of one without.
///
/// # Panics
/// As [`client`].
pub fn transmission(bytes: &[u8]) {
    const STRUCTURED: &[u8] = b"\0\0\0\x03IHAVEOPT\0\0\0\x08\0\0\0\0";
    const SIMPLE: &[u8] = b"\0\0\0\x03";
    const CONTEXT: &[u8] = b"IHAVEOPT\0\0\0\x0a\0\0\0\x1e\0\0\0\x03ram\0\0\0\x01\0\0\0\x0fbase:allocation";
    const START: &[u8] = b"IHAVEOPT\0\0\0\x01\0\0\0\x03ram";
    client(&[STRUCTURED, CONTEXT, START, bytes].concat());
    client(&[SIMPLE, START, bytes].concat());
}

/// Feeds `bytes` to a connection as a client would, then closes it. The bytes themselves determine the
/// portions and the order of replies.
///
/// # Panics
/// Panics if the connection panics, does not terminate, or leaks memory.
pub fn client(bytes: &[u8]) {
    let mut memory = HeapMemory::new(Bytes::mib(2));
    let free = memory.free();
    let credit = Credit::new(1, Bytes::mib(1), Bytes::kib(64));
    let mut ram = Ram::new(Bytes::mib(1));
    ram.fail_block(512 << 10);
    let exports = ram.exports();
    let Some(mut connection) = Connection::new(1, &credit, &mut memory) else { return };
    let (mut portions, mut hungry) = (bytes, false);
    // Every portion brings bytes or the end of the stream, so the number of turns is bounded.
    for turn in 0..2 * bytes.len() + 8 {
        let choice = bytes.get(turn * 7 % bytes.len().max(1)).copied().unwrap_or(0);
        if hungry && let Some(room) = connection.receive(&mut memory) {
            let mut arrived = 0;
            for &part in room.parts() {
                let most = if choice & 3 == 0 { usize::from(choice >> 2) + 1 } else { 1 << 20 };
                let len = portions.len().min(part.len as usize).min(most);
                memory.bytes_mut(part.part(0, len as u32)).copy_from_slice(&portions[..len]);
                portions = &portions[len..];
                arrived += len;
                if len < part.len as usize {
                    break;
                }
            }
            connection.received(Bytes(arrived as u64));
        }
        hungry = loop {
            match connection.step(&exports, &credit, &mut memory) {
                Step::Request(request) => ram.submit(Nanos(0), request, &mut memory),
                Step::Negotiated => {}
                step => break matches!(step, Step::Receive),
            }
        };
        let replies = ram.replies();
        if choice & 4 == 0 {
            replies.make_contiguous().reverse();
        }
        if choice & 8 == 0 {
            replies.drain(..).for_each(|reply| connection.reply(reply, &mut memory));
        }
        if choice & 16 == 0 && !connection.gather(&mut memory, |of, runs| ram.runs(of, runs)).is_empty() {
            connection.sent(&mut memory);
        }
    }
    connection.abort();
    ram.replies().drain(..).for_each(|reply| connection.reply(reply, &mut memory));
    assert!(connection.is_idle(), "every request was answered");
    connection.release(&mut memory);
    assert_eq!(memory.free(), free, "all memory came back");
}
