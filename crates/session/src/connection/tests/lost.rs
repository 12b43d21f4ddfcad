//! Tests of writes that a device has lost, and of the replies that report it.

use super::*;
use weir_model::{DeviceId, Planted, Reply, RequestError};

#[test]
fn a_change_of_which_a_part_was_lost_before_the_rest_was_done_fails() {
    let wire = Wire::ready(Bytes(4 * MIB), true);
    let mut wire = Wire { connection: wire.connection.with(Planted::for_tests()), ..wire };
    let long = write(1, 0, &pattern(1, 300 << 10));
    let (first, rest) = long.split_at(260 << 10);
    wire.send(first);
    assert_eq!(wire.ram.contents()[..4096], pattern(1, 300 << 10)[..4096], "the first piece is carried out");
    wire.connection.note_lost_writes(RequestError::FlushFailed(DeviceId(0)));
    wire.send(rest);
    // No part of this write can have been lost.
    wire.send(&write(2, 0, &pattern(2, 300 << 10)));
    let answers = [Said::Simple { cookie: 1, error: 5 }, Said::Simple { cookie: 2, error: 0 }];
    assert_eq!(said(&wire.output), answers);
    wire.end();
}

#[test]
fn a_flush_that_failed_is_told() {
    let wire = Wire::ready(Bytes(4 * MIB), true);
    let mut wire = Wire { connection: wire.connection.with(Planted::for_tests()), ..wire };
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
    assert_eq!(said(&wire.output), [Said::Simple { cookie: 1, error: 5 }]);
    wire.end();
}

#[test]
fn failures_are_told_where_they_happened_and_the_rest_goes_on() {
    let mut ram = Ram::new(Bytes(4 * MIB));
    ram.break_at(MIB + 5000);
    let mut wire = Wire::ready_on(ram, true);
    wire.send(&request(command::READ, 0, 1, MIB - (256 << 10), 512 << 10));
    wire.send(&write(2, MIB, &pattern(5, 1 << 20)));
    wire.send(&request(command::WRITE_ZEROES, 0, 3, MIB, 8192));
    wire.send(&request(command::READ, 0, 4, 0, 512));
    let all = said(&wire.output);
    assert_eq!(all.iter().filter(|said| matches!(said, Said::Error { cookie: 1, .. })).count(), 1);
    assert!(all.contains(&Said::Error { cookie: 1, done: true, error: 5, at: Some(MIB) }), "{all:?}");
    assert!(all.contains(&Said::Simple { cookie: 2, error: 5 }));
    assert!(all.contains(&Said::Simple { cookie: 3, error: 5 }));
    assert!(all.contains(&Said::Hole { cookie: 4, done: true, offset: 0, len: 512 }));
    wire.end();
}
