//! Tests of a simple reply that has begun while a device is slow: replies held back behind it, and other
//! clients, which must not be delayed.

use super::streams::{ExecutedRequest, Plan, Simulation, TestRequest};
use crate::nbd::wire::command;
use weir_model::{Bytes, DeviceId, DeviceOffset, IoError, IoKind, Memory, Op, RequestError};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn ask(kind: u16, offset: usize, len: usize) -> TestRequest {
    TestRequest { kind, flags: 0, offset, len: len as u32 }
}

fn simple(asks: Vec<TestRequest>) -> Plan {
    Plan { structured: false, half_closes: false, requests: asks, broken: None }
}

/// Returns a long read, followed by every other kind of request.
fn long_read_and_others() -> Vec<TestRequest> {
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
fn until_reply_is_open(plans: Vec<Plan>, spare: Bytes) -> Simulation {
    let mut world = Simulation::new(plans, Bytes::mib(16), spare, 1);
    // First the long read begins, then everything else completes.
    world.settle(|done| done.client == 0 && (done.offset >= MIB || done.reply.buffer.is_none()));
    world.settle(slow);
    assert!(!world.executed.is_empty());
    world
}

fn slow(done: &ExecutedRequest) -> bool {
    done.client == 0 && (MIB..2 * MIB).contains(&done.offset) && done.reply.buffer.is_some()
}

#[test]
fn open_reply_is_not_interleaved() {
    let mut world = until_reply_is_open(vec![simple(long_read_and_others())], Bytes::mib(64));
    let sent = world.clients[0].transmission().expect("the handshake is over").len();
    assert_eq!(sent, 16 + MIB, "the first half of the reply, and nothing else");
    world.settle(|_| false);
    assert!(world.clients[0].answers(false).iter().all(Option::is_some));
    world.check(false);
}

#[test]
fn deferred_replies_leave_memory_for_others() {
    // The other client uses structured replies or simple ones, and the memory is no more than the sum of the
    // entitlements.
    let mut other = simple(long_read_and_others());
    other.requests.push(ask(command::READ, 0, 5 * MIB));
    let structured = Plan { structured: true, ..other.clone() };
    for spare in [Bytes(0), Bytes::mib(4), Bytes::mib(64)] {
        let mut plan = simple(long_read_and_others());
        plan.requests.extend((0..40).map(|_| ask(command::READ, 2 * MIB, MIB)));
        let mut world =
            Simulation::new(vec![plan, other.clone(), structured.clone()], Bytes::mib(16), spare, 1);
        world.settle(slow);
        assert!(!world.executed.is_empty());
        for client in &world.clients[1..] {
            assert!(client.answers(false).iter().all(Option::is_some), "with {spare} to spare");
        }
        world.settle(|_| false);
        world.check(true);
    }
}

#[test]
fn half_closed_client_gets_deferred_replies() {
    let plan = Plan { half_closes: true, ..simple(long_read_and_others()) };
    let mut world = until_reply_is_open(vec![plan], Bytes::mib(64));
    assert!(!world.clients[0].connection.is_finished(), "replies are owed");
    world.settle(|_| false);
    world.check(false);
}

#[test]
fn disconnect_releases_deferred_replies() {
    let mut world =
        until_reply_is_open(vec![simple(long_read_and_others()), simple(long_read_and_others())], Bytes(0));
    world.clients[0].connection.abort();
    assert!(!world.clients[0].connection.wants_to_send());
    world.settle(|_| false);
    assert!(world.clients[1].answers(false).iter().all(Option::is_some));
    world.check_others(0);
}

#[test]
fn device_failure_ends_only_open_reply() {
    let mut world = until_reply_is_open(
        vec![simple(long_read_and_others()), simple(long_read_and_others())],
        Bytes::mib(64),
    );
    // The engine gives up the device; the memory returns later, without passing through the connection.
    for done in std::mem::take(&mut world.executed) {
        let ExecutedRequest { client, offset, mut reply } = done;
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
    assert!(world.clients[0].connection.is_finished(), "no other way to tell");
    assert!(world.clients[1].answers(false).iter().all(Option::is_some));
    world.check_others(0);
}

#[test]
fn long_read_reply_begins_when_submitted() {
    let asks = vec![ask(command::READ, 5 * MIB, 4096), ask(command::READ, 0, 4 * MIB)];
    let first = |done: &ExecutedRequest| done.offset == 5 * MIB;
    for (each, begins) in [(Bytes::mib(1), false), (Bytes::mib(16), true)] {
        let mut world = Simulation::new(vec![simple(asks.clone())], each, Bytes::mib(64), 1);
        world.settle(first);
        let sent = world.clients[0].transmission().expect("the handshake is over").len();
        assert_eq!(sent, if begins { 16 + 4 * MIB } else { 0 }, "each may hold {each}");
        world.settle(|_| false);
        world.check(true);
    }
}

#[test]
fn requests_after_long_read_are_submitted() {
    let world = until_reply_is_open(vec![simple(long_read_and_others())], Bytes::mib(64));
    assert_eq!(world.request_count(|op| op == Op::Flush), 2);
    assert_eq!(world.request_count(|op| matches!(op, Op::Write)), 2, "two pieces");
}
