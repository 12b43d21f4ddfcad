//! Tests of writes that a device has lost, and of the replies that report it.

use super::*;
use weir_model::{DeviceId, Planted, ReadShape, Reply, RequestError};

#[test]
fn partly_lost_write_fails() {
    let wire = TestConnection::after_handshake(Bytes(4 * MIB), true);
    let mut wire = TestConnection { connection: wire.connection.with_mutants(Planted::for_tests()), ..wire };
    let long = write(1, 0, &pattern(1, 300 << 10));
    let (first, rest) = long.split_at(260 << 10);
    wire.send(first);
    assert_eq!(wire.ram.contents()[..4096], pattern(1, 300 << 10)[..4096], "the first piece is carried out");
    wire.connection.note_lost_writes(RequestError::FlushFailed(DeviceId(0)));
    wire.send(rest);
    // No part of this write can have been lost.
    wire.send(&write(2, 0, &pattern(2, 300 << 10)));
    let answers =
        [ServerMessage::Simple { cookie: 1, error: 5 }, ServerMessage::Simple { cookie: 2, error: 0 }];
    assert_eq!(decode_messages(&wire.output), answers);
    wire.close();
}

#[test]
fn failed_flush_is_reported() {
    let wire = TestConnection::after_handshake(Bytes(4 * MIB), true);
    let mut wire = TestConnection { connection: wire.connection.with_mutants(Planted::for_tests()), ..wire };
    wire.input.extend(request(command::FLUSH, 0, 1, 0, 0));
    wire.receive();
    let exports = wire.ram.exports();
    let flush = loop {
        match wire.connection.step(&exports, &wire.credit, &mut wire.memory) {
            Step::Request(request) => break request,
            Step::Receive => assert!(wire.connection.receive(&mut wire.memory).is_some()),
            _ => {}
        }
    };
    let result = Err(RequestError::FlushFailed(DeviceId(0)));
    wire.connection.reply(Reply { id: flush.id, result, buffer: None, response: Nanos(0) }, &mut wire.memory);
    wire.turn();
    assert_eq!(decode_messages(&wire.output), [ServerMessage::Simple { cookie: 1, error: 5 }]);
    wire.close();
}

#[test]
fn failures_are_reported_at_their_offset() {
    let mut ram = Ram::new(Bytes(4 * MIB));
    ram.fail_block(MIB + 5000);
    let mut wire = TestConnection::after_handshake_on(ram, true);
    wire.send(&request(command::READ, 0, 1, MIB - (256 << 10), 512 << 10));
    wire.send(&write(2, MIB, &pattern(5, 1 << 20)));
    wire.send(&request(command::WRITE_ZEROES, 0, 3, MIB, 8192));
    wire.send(&request(command::READ, 0, 4, 0, 512));
    let all = decode_messages(&wire.output);
    assert_eq!(all.iter().filter(|said| matches!(said, ServerMessage::Error { cookie: 1, .. })).count(), 1);
    assert!(
        all.contains(&ServerMessage::Error { cookie: 1, is_last: true, error: 5, at: Some(MIB) }),
        "{all:?}"
    );
    assert!(all.contains(&ServerMessage::Simple { cookie: 2, error: 5 }));
    assert!(all.contains(&ServerMessage::Simple { cookie: 3, error: 5 }));
    assert!(all.contains(&ServerMessage::Hole { cookie: 4, is_last: true, offset: 0, len: 512 }));
    wire.close();
}

/// A long write fails while one of its pieces is in the engine. What is left of its payload after the piece
/// that is being received is discarded, and the reply comes when the pieces have ended: until then the write
/// may still change the volume.
#[test]
fn failed_write_is_answered_after_its_last_piece() {
    let mut wire = TestConnection::after_handshake(Bytes(4 * MIB), false);
    let long = write(1, 0, &pattern(1, 1 << 20));
    let (first, rest) = long.split_at(long.len() - (512 << 10));
    wire.input.extend(first);
    let pieces = wire.take_requests();
    assert_eq!(pieces.len(), 2);
    let lost = Err(RequestError::FlushFailed(DeviceId(0)));
    let reply = |request: &Request, result| Reply {
        id: request.id,
        result,
        buffer: request.buffer,
        response: Nanos(0),
    };
    wire.connection.reply(reply(&pieces[0], lost), &mut wire.memory);
    wire.send(rest);
    assert!(wire.output.is_empty(), "a piece is in the engine");
    wire.connection.reply(reply(&pieces[1], Ok(ReadShape::Data)), &mut wire.memory);
    wire.send(&request(command::FLUSH, 0, 2, 0, 0));
    let answers =
        [ServerMessage::Simple { cookie: 1, error: 5 }, ServerMessage::Simple { cookie: 2, error: 0 }];
    assert_eq!(decode_messages(&wire.output), answers);
    wire.close();
}

/// A hung device keeps the buffers of the requests that it does not answer. They no longer count as the
/// client's memory, so that it can continue.
#[test]
fn buffers_that_a_device_keeps_are_not_charged() {
    let mut wire = TestConnection::after_handshake(Bytes(4 * MIB), true);
    wire.credit.memory_per_client = Bytes::mib(1);
    for cookie in 0..20 {
        wire.input.extend(request(command::READ, 0, cookie, 0, 256 << 10));
        let pieces = wire.take_requests();
        assert_eq!(pieces.len(), 1, "request {cookie}");
        let result = Err(RequestError::FlushFailed(DeviceId(0)));
        let reply = Reply { id: pieces[0].id, result, buffer: None, response: Nanos(0) };
        wire.connection.reply(reply, &mut wire.memory);
        while wire.turn() {}
        pieces[0].buffer.into_iter().for_each(|buffer| wire.memory.give(buffer));
    }
    assert_eq!(decode_messages(&wire.output).len(), 20);
    wire.close();
}
