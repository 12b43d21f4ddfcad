//! Tests of single clients, byte by byte, and of random request sequences.

mod arbitrary;
mod held_back;
mod lost;
mod streams;

use super::*;
use crate::client::{ServerMessage, decode_messages, encode_handshake, pattern, request, write};
use crate::nbd::wire::{command, flag};
use crate::ram::Ram;
use crate::volumes::Volumes;
use proptest::prelude::*;
use std::collections::VecDeque;
use weir_model::{HeapMemory, Nanos};

const MIB: u64 = 1 << 20;
const CREDIT: Credit = Credit::new(4, Bytes::mib(64), Bytes::mib(1));

/// A connection between a scripted client and a volume in memory.
struct TestConnection {
    connection: Connection,
    memory: HeapMemory,
    free: Bytes,
    ram: Ram,
    credit: Credit,
    /// Bytes that the client has sent and the connection has not received.
    input: VecDeque<u8>,
    /// Bytes that the client has received.
    output: Vec<u8>,
    /// Maximum number of bytes that arrive at once.
    receive_max: usize,
    /// True if replies come back in reverse order.
    reverse_replies: bool,
    /// True if the connection waits for bytes.
    wants_bytes: bool,
}

impl TestConnection {
    fn new(ram: Ram) -> Self {
        let mut memory = HeapMemory::new(Bytes::mib(256));
        let free = memory.free();
        let connection = Connection::new(7, &CREDIT, &mut memory).unwrap();
        let (input, output) = (VecDeque::new(), Vec::new());
        let (portion, backwards, hungry) = (usize::MAX, false, false);
        Self {
            connection,
            memory,
            free,
            ram,
            credit: CREDIT,
            input,
            output,
            receive_max: portion,
            reverse_replies: backwards,
            wants_bytes: hungry,
        }
    }

    /// Creates a connection that has completed its handshake.
    fn after_handshake(size: Bytes, structured: bool) -> Self {
        Self::after_handshake_on(Ram::new(size), structured)
    }

    fn after_handshake_on(ram: Ram, structured: bool) -> Self {
        let mut wire = Self::new(ram);
        wire.send(&encode_handshake(structured));
        wire.output.clear();
        wire
    }

    /// Sends these bytes and runs until nothing more happens.
    fn send(&mut self, bytes: &[u8]) {
        self.input.extend(bytes);
        while self.turn() {}
    }

    /// Runs one turn of a driver's loop; returns whether anything happened.
    fn turn(&mut self) -> bool {
        let mut progress = self.receive();
        let exports = self.ram.exports();
        loop {
            let step = self.connection.step(&exports, &self.credit, &mut self.memory);
            self.wants_bytes = matches!(step, Step::Receive);
            if matches!(step, Step::Negotiated) {
                continue;
            }
            let Step::Request(request) = step else { break };
            assert_eq!(request.id.0 >> 16, 7);
            self.ram.submit(Nanos(0), request, &mut self.memory);
            progress = true;
            if !self.reverse_replies {
                self.reply();
            }
        }
        self.ram.replies().make_contiguous().reverse();
        self.reply();
        while self.connection.wants_to_send() {
            let ram = &self.ram;
            for &part in self.connection.gather(&mut self.memory, |of, runs| ram.runs(of, runs)) {
                self.output.extend_from_slice(self.memory.bytes(part));
            }
            self.connection.sent(&mut self.memory);
            progress = true;
        }
        progress || (self.wants_bytes && !self.input.is_empty())
    }

    /// Receives what the client has sent, and takes the requests for the engine without executing them.
    fn take_requests(&mut self) -> Vec<Request> {
        let exports = self.ram.exports();
        let mut requests = Vec::new();
        loop {
            match self.connection.step(&exports, &self.credit, &mut self.memory) {
                Step::Request(request) => requests.push(request),
                Step::Receive if !self.input.is_empty() => {
                    self.wants_bytes = true;
                    self.receive();
                }
                step => {
                    self.wants_bytes = matches!(step, Step::Receive);
                    return requests;
                }
            }
        }
    }

    fn reply(&mut self) {
        while let Some(reply) = self.ram.next_reply() {
            self.connection.reply(reply, &mut self.memory);
        }
    }

    fn receive(&mut self) -> bool {
        if self.input.is_empty() || !self.wants_bytes {
            return false;
        }
        let Some(room) = self.connection.receive(&mut self.memory) else { return false };
        let mut arrived = 0;
        for &part in room.parts() {
            let len = self.input.len().min(part.len as usize).min(self.receive_max - arrived);
            let bytes = self.memory.bytes_mut(part.part(0, len as u32));
            bytes.iter_mut().zip(self.input.drain(..len)).for_each(|(to, from)| *to = from);
            arrived += len;
            if len < part.len as usize {
                break;
            }
        }
        self.connection.received(Bytes(arrived as u64));
        true
    }

    /// Ends the connection and checks that nothing of it is left.
    fn close(mut self) {
        self.connection.abort();
        self.reply();
        assert!(self.connection.is_idle());
        self.connection.release(&mut self.memory);
        assert_eq!(self.memory.free(), self.free, "all memory came back");
    }
}

#[test]
fn writes_reads_and_flushes_are_answered() {
    let mut wire = TestConnection::after_handshake(Bytes(4 * MIB), true);
    let bytes = pattern(1, 1536);
    wire.send(&write(1, 512, &bytes));
    wire.send(&request(command::READ, 0, 2, 512, 1536));
    wire.send(&request(command::FLUSH, 0, 3, 0, 0));
    assert_eq!(
        decode_messages(&wire.output),
        [
            ServerMessage::Simple { cookie: 1, error: 0 },
            ServerMessage::Data { cookie: 2, is_last: true, offset: 512, bytes: bytes.clone() },
            ServerMessage::Simple { cookie: 3, error: 0 },
        ]
    );
    assert_eq!(wire.ram.contents()[512..2048], bytes);
    wire.close();
}

#[test]
fn simple_replies_carry_the_data_in_order_holes_and_all() {
    for backwards in [false, true] {
        let mut wire = TestConnection::after_handshake(Bytes(4 * MIB), false);
        wire.reverse_replies = backwards;
        let bytes = pattern(2, 4096);
        wire.send(&write(1, 300 << 10, &bytes));
        wire.output.clear();
        wire.send(&request(command::READ, 0, 2, 0, 1 << 20));
        assert_eq!(wire.output[..16], *b"\x67\x44\x66\x98\0\0\0\0\0\0\0\0\0\0\0\x02");
        assert_eq!(wire.output[16..], wire.ram.contents()[..1 << 20]);
        wire.close();
    }
}

#[test]
fn holes_are_not_transferred() {
    let mut wire = TestConnection::after_handshake(Bytes(4 * MIB), true);
    wire.send(&write(1, 8192, &pattern(3, 4096)));
    wire.output.clear();
    wire.send(&request(command::READ, 0, 2, 512, 16384));
    wire.send(&request(command::READ, 0, 3, MIB, 4096));
    assert_eq!(
        decode_messages(&wire.output),
        [
            ServerMessage::Hole { cookie: 2, is_last: false, offset: 512, len: 8192 - 512 },
            ServerMessage::Data { cookie: 2, is_last: false, offset: 8192, bytes: pattern(3, 4096) },
            ServerMessage::Hole { cookie: 2, is_last: true, offset: 12288, len: 4096 + 512 },
            ServerMessage::Hole { cookie: 3, is_last: true, offset: MIB, len: 4096 },
        ]
    );
    wire.close();
}

#[test]
fn a_reader_may_ask_for_one_chunk() {
    let mut wire = TestConnection::after_handshake(Bytes(4 * MIB), true);
    wire.send(&write(1, 200 << 10, &pattern(4, 512)));
    wire.output.clear();
    wire.send(&request(command::READ, flag::DF, 2, 130 << 10, 128 << 10));
    wire.send(&request(command::READ, flag::DF, 3, 0, (128 << 10) + 512));
    let said = decode_messages(&wire.output);
    let bytes = wire.ram.contents()[130 << 10..258 << 10].to_vec();
    assert!(said[0] == ServerMessage::Data { cookie: 2, is_last: true, offset: 130 << 10, bytes });
    assert_eq!(said[1..], [ServerMessage::Error { cookie: 3, is_last: true, error: 75, at: None }]);
    wire.close();
}

#[test]
fn failed_simple_read_is_reported() {
    // The reply of a long read begins as soon as all its pieces are in the engine.
    for (len, at, told) in [(MIB, 0, true), (MIB, MIB - 1, true), (2 * MIB, 0, true), (2 * MIB, MIB, false)] {
        let mut ram = Ram::new(Bytes(4 * MIB));
        ram.fail_block(at);
        let mut wire = TestConnection::after_handshake_on(ram, false);
        wire.send(&request(command::READ, 0, 1, 0, len as u32));
        assert_eq!(wire.connection.is_finished(), !told, "hard disconnect is the only way out");
        if told {
            assert_eq!(decode_messages(&wire.output), [ServerMessage::Simple { cookie: 1, error: 5 }]);
        }
        wire.close();
    }
}

#[test]
fn invalid_requests_are_refused() {
    let mut wire = TestConnection::after_handshake(Bytes(4 * MIB), false);
    wire.send(&write(1, 4 * MIB - 512, &pattern(6, 100_352)));
    wire.send(&write(2, 4 * MIB - 1, &pattern(6, 2)));
    wire.send(&request(command::READ, 0, 3, 4 * MIB + 1, 0));
    wire.send(&request(77, 0, 4, 0, 512));
    wire.send(&request(command::READ, 0, 5, 0, u32::MAX));
    wire.send(&request(command::BLOCK_STATUS, 0, 6, 0, 512));
    wire.send(&request(command::TRIM, 0, 7, 4 * MIB, 512));
    wire.send(&request(command::FLUSH, 0, 8, 0, 0));
    let errors = [28, 28, 22, 22, 22, 22, 22, 0];
    let expected: Vec<ServerMessage> =
        (1..).zip(errors).map(|(cookie, error)| ServerMessage::Simple { cookie, error }).collect();
    assert_eq!(decode_messages(&wire.output), expected);
    assert!(!wire.connection.is_finished());
    wire.close();
}

#[test]
fn malformed_stream_ends_after_pending_replies() {
    let oversized = request(command::WRITE, 0, 2, 0, (32 << 20) + 512);
    let garbage = vec![0x55; 28];
    let goodbye = request(command::DISC, 0, 2, 0, 0);
    for (last, extra) in [(oversized, Some(22)), (garbage, None), (goodbye, None)] {
        let mut wire = TestConnection::after_handshake(Bytes(4 * MIB), false);
        wire.send(&[write(1, 0, &pattern(7, 4096)), last, vec![9; 5000]].concat());
        let mut expected = vec![ServerMessage::Simple { cookie: 1, error: 0 }];
        expected.extend(extra.map(|error| ServerMessage::Simple { cookie: 2, error }));
        assert_eq!(decode_messages(&wire.output), expected);
        assert!(wire.connection.is_finished());
        wire.close();
    }
}

#[test]
fn end_of_stream_ends_connection() {
    let mut wire = TestConnection::after_handshake(Bytes(4 * MIB), false);
    let long = write(1, 0, &pattern(8, 1 << 20));
    wire.send(&long[..700_000]);
    assert!(wire.connection.receive(&mut wire.memory).is_some());
    wire.connection.received(Bytes(0));
    while wire.turn() {}
    assert!(wire.output.is_empty() && wire.connection.is_finished());
    wire.close();
}

#[test]
fn status_reports_runs() {
    let mut wire = TestConnection::after_handshake(Bytes(4 * MIB), true);
    wire.send(&write(1, 8192, &pattern(9, 4096)));
    wire.output.clear();
    wire.send(&request(command::BLOCK_STATUS, 0, 2, 0, 1 << 20));
    wire.send(&request(command::BLOCK_STATUS, flag::REQ_ONE, 3, 8192, 1 << 20));
    assert_eq!(
        decode_messages(&wire.output),
        [
            ServerMessage::Status { cookie: 2, runs: vec![(8192, 3), (4096, 0), ((1 << 20) - 12288, 3)] },
            ServerMessage::Status { cookie: 3, runs: vec![(4096, 0)] },
        ]
    );
    wire.close();
}

#[test]
fn slow_reader_is_bounded_by_credit() {
    let mut wire = TestConnection::after_handshake(Bytes(4 * MIB), true);
    wire.send(&write(1, 0, &pattern(10, 4 << 20)));
    let most = Bytes::mib(2);
    wire.credit.memory_per_client = most;
    let before = wire.memory.free();
    (0..100).for_each(|cookie| wire.input.extend(request(command::READ, 0, cookie, 0, 4 << 20)));
    // A driver whose sends never complete.
    let exports = wire.ram.exports();
    for _ in 0..50 {
        wire.receive();
        wire.wants_bytes = loop {
            match wire.connection.step(&exports, &wire.credit, &mut wire.memory) {
                Step::Request(request) => wire.ram.submit(Nanos(0), request, &mut wire.memory),
                Step::Negotiated => {}
                step => break matches!(step, Step::Receive),
            }
        };
        wire.reply();
        let ram = &wire.ram;
        wire.connection.gather(&mut wire.memory, |of, runs| ram.runs(of, runs));
        assert!(before.0 - wire.memory.free().0 <= most.0);
    }
    assert!(!wire.wants_bytes, "it is not read any more");
    wire.close();
}

#[test]
fn any_length_is_read_and_written() {
    for structured in [false, true] {
        let mut wire = TestConnection::after_handshake(Bytes::mib(1), structured);
        wire.send(&write(1, 4095, &pattern(1, 300_001)));
        wire.send(&request(command::WRITE_ZEROES, 0, 2, 4097, 3));
        wire.send(&request(command::TRIM, 0, 3, 1, 4000));
        for (cookie, kind) in [(4, command::WRITE), (5, command::TRIM), (6, command::WRITE_ZEROES)] {
            wire.send(&request(kind, 0, cookie, MIB, 0));
        }
        assert_eq!(
            decode_messages(&wire.output),
            [1, 2, 3, 4, 5, 6].map(|cookie| ServerMessage::Simple { cookie, error: 0 })
        );
        wire.output.clear();
        // A read of no bytes, and one past the end: neither reply has data.
        wire.send(&request(command::READ, 0, 7, 3, 0));
        let none = match structured {
            true => b"\x66\x8e\x33\xef\0\x01\0\0\0\0\0\0\0\0\0\x07\0\0\0\0".to_vec(),
            false => b"\x67\x44\x66\x98\0\0\0\0\0\0\0\0\0\0\0\x07".to_vec(),
        };
        assert_eq!(wire.output, none);
        let mut expected = vec![0; MIB as usize];
        expected[4095..4095 + 300_001].copy_from_slice(&pattern(1, 300_001));
        expected[4097..4100].fill(0);
        assert!(wire.ram.contents() == expected);
        wire.output.clear();
        wire.send(&request(command::READ, 0, 8, 4090, 19));
        let data = wire.output[wire.output.len() - 19..].to_vec();
        assert_eq!(data, expected[4090..4109]);
        wire.close();
    }
}

#[test]
fn idle_client_keeps_one_block() {
    let mut wire = TestConnection::after_handshake(Bytes::mib(1), true);
    for round in 0..3u64 {
        let long = pattern(round, 200_000);
        wire.send(&write(round, 512, &long));
        wire.send(&request(command::READ, 0, 100 + round, 512, 200_000));
        wire.output.clear();
        assert!(wire.free.0 - wire.memory.free().0 > 64 << 10, "it has what it works with");
        // The receive that waits for the next request is in flight.
        assert!(wire.connection.receive(&mut wire.memory).is_some());
        assert_eq!(wire.connection.release_buffers(&mut wire.memory), ReleaseOutcome::Receiving);
        wire.connection.receive_cancelled();
        assert_eq!(wire.connection.release_buffers(&mut wire.memory), ReleaseOutcome::Released);
        assert_eq!(wire.free.0 - wire.memory.free().0, 4096);
        assert_eq!(wire.connection.release_buffers(&mut wire.memory), ReleaseOutcome::Released);
        // It no longer is: there is nothing to cancel.
        wire.wants_bytes = true;
    }
    // Half a write has arrived: the client is not idle.
    wire.send(&write(9, 0, &pattern(9, 8192))[..5000]);
    assert_eq!(wire.connection.release_buffers(&mut wire.memory), ReleaseOutcome::Busy);
    wire.close();
}

#[test]
fn new_client_allocates_one_block() {
    let mut wire = TestConnection::new(Ram::new(Bytes::mib(1)));
    wire.send(&[0, 0, 0, 3]);
    let mut option = b"IHAVEOPT\0\0\0\x63\0\0\x80\0".to_vec();
    option.extend(vec![0; 32 << 10]);
    wire.send(&option[..4000]);
    assert!(wire.free.0 - wire.memory.free().0 <= 4096 + (16 << 10), "an inbox of one block, and an outbox");
    wire.output.clear();
    wire.send(&option[4000..]);
    assert!(!wire.output.is_empty(), "an option of 32 KiB is answered");
    wire.close();
}

#[test]
fn status_flood_is_answered_in_batches() {
    let mut wire = TestConnection::after_handshake(Bytes::mib(1), true);
    (0..100).for_each(|cookie| wire.input.extend(request(command::BLOCK_STATUS, 0, cookie, 0, 4096)));
    let exports = wire.ram.exports();
    while wire.receive() {
        let step = wire.connection.step(&exports, &wire.credit, &mut wire.memory);
        wire.wants_bytes = matches!(step, Step::Receive);
    }
    assert_eq!(wire.connection.take_statuses(), 100);
    let mut walks = 0;
    let ram = &wire.ram;
    wire.connection.gather(&mut wire.memory, |of, runs| {
        walks += 1;
        ram.runs(of, runs);
    });
    assert_eq!(walks, 4, "in one send");
    wire.connection.sent(&mut wire.memory);
    while wire.turn() {}
    assert_eq!(decode_messages(&wire.output).len(), 96);
    wire.close();
}

#[test]
fn greedy_clients_leave_memory_for_others() {
    let mut memory = HeapMemory::new(Bytes::mib(16));
    let credit = Credit::new(20, Bytes::mib(8), Bytes::mib(1));
    let ram = Ram::new(Bytes::mib(32));
    let exports = ram.exports();
    let mut greedy = Vec::new();
    for number in 0..20 {
        let mut connection = Connection::new(number, &credit, &mut memory).unwrap();
        let mut bytes = encode_handshake(true);
        (0..8).for_each(|cookie| bytes.extend(request(command::READ, 0, cookie, 0, 4 << 20)));
        // The handshake's answers leave, the data never does.
        let mut sends = 0;
        loop {
            match connection.step(&exports, &credit, &mut memory) {
                Step::Request(_) | Step::Negotiated => {}
                Step::Receive if !bytes.is_empty() => {
                    let room = connection.receive(&mut memory).unwrap().parts()[0];
                    let len = bytes.len().min(room.len as usize);
                    memory.bytes_mut(room.part(0, len as u32)).copy_from_slice(&bytes[..len]);
                    bytes.drain(..len);
                    connection.received(Bytes(len as u64));
                }
                Step::Wait if sends < 8 => {
                    sends += 1;
                    if !connection.gather(&mut memory, |_, _| {}).is_empty() {
                        connection.sent(&mut memory);
                    }
                }
                _ => break,
            }
        }
        assert!(connection.submitted > 0, "client {number} gets nothing");
        greedy.push(connection);
    }
    assert_eq!(greedy.len(), 20);
    assert!(memory.free() >= credit.reserve, "{} is free", memory.free());
}
