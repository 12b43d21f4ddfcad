//! Tests of a simple reply that has begun while a device is slow: replies held back behind it, and other
//! clients, which must not be delayed.

use super::streams::{Ask, Done, Plan, World};
use crate::nbd::wire::command;
use weir_model::{Bytes, DeviceId, DeviceOffset, IoError, IoKind, Memory, Op, RequestError};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn ask(kind: u16, offset: usize, len: usize) -> Ask {
    Ask { kind, flags: 0, offset, len: len as u32 }
}

fn simple(asks: Vec<Ask>) -> Plan {
    Plan { structured: false, half_closes: false, asks, broken: None }
}

/// Returns a long read, followed by every other kind of request.
fn long_read_and_others() -> Vec<Ask> {
    let mut asks = vec![
        ask(command::READ, 0, 2 * MIB),
        ask(command::READ, 3 * MIB, 4 * KIB),
        ask(command::FLUSH, 0, 0),
        ask(command::WRITE, 4 * MIB, 512 * KIB),
        ask(command::TRIM, 5 * MIB, 64 * KIB),
        ask(command::READ, 2 * MIB, MIB),
        ask(command::READ, 2 * MIB, 2 * MIB),
        ask(command::FLUSH, 0, 0),
    ];
    asks.extend((0..20).map(|number| ask(command::READ, 3 * MIB + number * 4096, 4096)));
    asks
}

/// Runs until everything but the second half of the first client's long read has completed.
fn held(plans: Vec<Plan>, spare: Bytes) -> World {
    let mut world = World::new(plans, Bytes::mib(16), spare, 1);
    // First the long read begins, then everything else completes.
    world.settle(|done| done.client == 0 && (done.offset >= MIB || done.reply.buffer.is_none()));
    world.settle(slow);
    assert!(!world.done.is_empty());
    world
}

fn slow(done: &Done) -> bool {
    done.client == 0 && (MIB..2 * MIB).contains(&done.offset) && done.reply.buffer.is_some()
}

#[test]
fn nothing_comes_between_the_parts_of_a_reply_that_has_begun() {
    let mut world = held(vec![simple(long_read_and_others())], Bytes::mib(64));
    let sent = world.clients[0].transmission().expect("the handshake is over").len();
    assert_eq!(sent, 16 + MIB, "the first half of the reply, and nothing else");
    world.settle(|_| false);
    assert!(world.clients[0].answers(false).iter().all(Option::is_some));
    world.check(false);
}

#[test]
fn what_is_held_back_leaves_other_clients_their_memory() {
    // The other client uses structured replies or simple ones, and the memory is no more than the sum of the
    // entitlements.
    let mut other = simple(long_read_and_others());
    other.asks.push(ask(command::READ, 0, 5 * MIB));
    let structured = Plan { structured: true, ..other.clone() };
    for spare in [Bytes(0), Bytes::mib(4), Bytes::mib(64)] {
        let mut plan = simple(long_read_and_others());
        plan.asks.extend((0..40).map(|_| ask(command::READ, 2 * MIB, MIB)));
        let mut world = World::new(vec![plan, other.clone(), structured.clone()], Bytes::mib(16), spare, 1);
        world.settle(slow);
        assert!(!world.done.is_empty());
        for client in &world.clients[1..] {
            assert!(client.answers(false).iter().all(Option::is_some), "with {spare} to spare");
        }
        world.settle(|_| false);
        world.check(true);
    }
}

#[test]
fn a_client_that_has_closed_its_side_still_gets_what_was_held_back() {
    let plan = Plan { half_closes: true, ..simple(long_read_and_others()) };
    let mut world = held(vec![plan], Bytes::mib(64));
    assert!(!world.clients[0].connection.is_over(), "replies are owed");
    world.settle(|_| false);
    world.check(false);
}

#[test]
fn a_client_that_goes_while_replies_are_held_back_leaves_nothing() {
    let mut world = held(vec![simple(long_read_and_others()), simple(long_read_and_others())], Bytes(0));
    world.clients[0].connection.kill();
    assert!(!world.clients[0].connection.wants_to_send());
    world.settle(|_| false);
    assert!(world.clients[1].answers(false).iter().all(Option::is_some));
    world.check_others(0);
}

#[test]
fn a_device_that_dies_ends_the_connection_whose_reply_has_begun_and_no_other() {
    let mut world =
        held(vec![simple(long_read_and_others()), simple(long_read_and_others())], Bytes::mib(64));
    // The engine gives up the device; the memory returns later, without passing through the connection.
    for done in std::mem::take(&mut world.done) {
        let Done { client, offset, mut reply } = done;
        let buffer = reply.buffer.take().expect("of a read");
        reply.result = Err(RequestError::Io {
            device: DeviceId(0),
            kind: IoKind::Read,
            at: DeviceOffset(offset as u64),
            len: Bytes(buffer.len.into()),
            error: IoError::Lost,
        });
        world.clients[client].connection.reply(reply, &mut world.memory);
        world.memory.give(buffer);
    }
    world.settle(|_| false);
    assert!(world.clients[0].connection.is_over(), "no other way to tell");
    assert!(world.clients[1].answers(false).iter().all(Option::is_some));
    world.check_others(0);
}

#[test]
fn a_long_read_begins_when_all_its_pieces_are_with_the_engine_or_it_is_alone() {
    let asks = vec![ask(command::READ, 5 * MIB, 4096), ask(command::READ, 0, 4 * MIB)];
    let first = |done: &Done| done.offset == 5 * MIB;
    for (each, begins) in [(Bytes::mib(1), false), (Bytes::mib(16), true)] {
        let mut world = World::new(vec![simple(asks.clone())], each, Bytes::mib(64), 1);
        world.settle(first);
        let sent = world.clients[0].transmission().expect("the handshake is over").len();
        assert_eq!(sent, if begins { 16 + 4 * MIB } else { 0 }, "each may hold {each}");
        world.settle(|_| false);
        world.check(true);
    }
}

#[test]
fn requests_behind_a_long_read_reach_the_engine_while_their_replies_are_held_back() {
    let world = held(vec![simple(long_read_and_others())], Bytes::mib(64));
    assert_eq!(world.asked(|op| op == Op::Flush), 2);
    assert_eq!(world.asked(|op| matches!(op, Op::Write)), 2, "two pieces");
}
