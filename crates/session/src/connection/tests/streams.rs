//! Tests of several clients on one memory, with events in random order: requests of all sizes, the engine's
//! replies, slow sends. An independent parser reads each client's stream.

use super::super::*;
use crate::client::{encode_handshake, request};
use crate::nbd::wire::{command, flag};
use crate::ram::Ram;
use crate::volumes::Volumes;
use proptest::prelude::*;
use std::ops::Range;
use weir_model::{HeapMemory, Nanos, Reply, RequestId};

/// Size of each client's region of the volume.
const REGION: usize = 6 << 20;
/// Size of the read-only start of a region, which contains the broken blocks.
const FIXED: usize = 2 << 20;
/// Reads up to this length fail with an error reply, unless memory is scarce.
const BUFFERED: u32 = 1 << 20;

#[derive(Clone, Debug)]
pub(super) struct TestRequest {
    pub(super) kind: u16,
    pub(super) flags: u16,
    /// Offset within the client's region.
    pub(super) offset: usize,
    pub(super) len: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) structured: bool,
    /// True if the client closes its sending side after the last request.
    pub(super) half_closes: bool,
    pub(super) requests: Vec<TestRequest>,
    /// A block that cannot be read.
    pub(super) broken: Option<usize>,
}

fn requests() -> impl Strategy<Value = Vec<TestRequest>> {
    let kind = prop_oneof![
        8 => Just(command::READ),
        3 => Just(command::WRITE),
        1 => Just(command::TRIM),
        1 => Just(command::WRITE_ZEROES),
        1 => Just(command::FLUSH),
        1 => Just(command::BLOCK_STATUS),
    ];
    let sectors = prop_oneof![6 => 1..40u32, 3 => 256..2100u32, 1 => 2100..8192u32];
    let flags = prop_oneof![3 => Just(0), 1 => Just(flag::FUA), 1 => Just(flag::DF)];
    let ask = (kind, flags, any::<prop::sample::Index>(), sectors).prop_map(|(kind, flags, at, sectors)| {
        let flags = if kind == command::READ { flags } else { flags & flag::FUA };
        let changes = matches!(kind, command::WRITE | command::TRIM | command::WRITE_ZEROES);
        let from = if changes { FIXED } else { 0 };
        let len = (sectors as usize * 512).min(REGION - from);
        let offset = from + at.index((REGION - from - len) / 512 + 1) * 512;
        if kind == command::FLUSH {
            return TestRequest { kind, flags: 0, offset: 0, len: 0 };
        }
        TestRequest { kind, flags, offset, len: len as u32 }
    });
    prop::collection::vec(ask, 1..40)
}

fn plans() -> impl Strategy<Value = Vec<Plan>> {
    let broken = prop_oneof![3 => Just(None), 1 => (0..FIXED / 4096).prop_map(Some)];
    let plan = (prop::bool::weighted(0.35), any::<bool>(), requests(), broken);
    let plan = plan.prop_map(|(structured, half_closes, asks, broken)| Plan {
        structured,
        half_closes,
        requests: asks,
        broken,
    });
    prop::collection::vec(plan, 1..4)
}

/// Fills `bytes` with the data of the write with this cookie; no two writes have an aligned eight-byte word
/// in common.
fn fill(cookie: u64, bytes: &mut [u8]) {
    for (number, word) in (1u64..).zip(bytes.chunks_mut(8)) {
        let value = ((number << 24) | (cookie + 1)).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        word.copy_from_slice(&value[..word.len()]);
    }
}

/// Returns the initial contents of the region: data and holes.
fn initial(client: usize) -> Vec<u8> {
    let mut bytes = vec![0; REGION];
    for (number, part) in (0..).zip(bytes.chunks_mut(300 << 10)) {
        if number % 3 != 2 {
            fill((1 << 16) | ((client as u64) << 8) | number, part);
        }
    }
    bytes
}

pub(super) struct Client {
    plan: Plan,
    pub(super) connection: Connection,
    input: Vec<u8>,
    arrived: usize,
    closed: bool,
    wants_bytes: bool,
    /// The send in flight, and the number of bytes of it that the client has.
    sending: Vec<Buffer>,
    acknowledged: usize,
    output: Vec<u8>,
}

pub(super) struct Simulation {
    ram: Ram,
    pub(super) memory: HeapMemory,
    free: Bytes,
    credit: Credit,
    pub(super) clients: Vec<Client>,
    /// Requests that the engine has executed and not answered.
    pub(super) executed: Vec<ExecutedRequest>,
    /// Requests that the engine has received.
    ops: Vec<Op>,
    random: u64,
}

/// A request that the engine has executed.
pub(super) struct ExecutedRequest {
    pub(super) client: usize,
    /// Offset within the client's region.
    pub(super) offset: usize,
    pub(super) reply: Reply,
}

impl Simulation {
    pub(super) fn new(plans: Vec<Plan>, each: Bytes, spare: Bytes, seed: u64) -> Self {
        let count = plans.len();
        let mut ram = Ram::new(Bytes((count * REGION) as u64));
        let credit = Credit::new(count as u16, each, Bytes::kib(64));
        let entitled = count as u64 * Connection::ENTITLED.0.next_multiple_of(512 << 10);
        let mut memory =
            HeapMemory::new(Bytes((credit.reserve.0 + entitled + spare.0).next_multiple_of(1 << 20)));
        let free = memory.free();
        for client in 0..count {
            let bytes = initial(client);
            let base = client * REGION;
            for start in (0..REGION).step_by(4096) {
                let part = &bytes[start..start + 4096];
                if part.iter().any(|&byte| byte != 0) {
                    let buffer = memory.take(Bytes(4096)).unwrap();
                    memory.bytes_mut(buffer).copy_from_slice(part);
                    put(&mut ram, &mut memory, (base + start) as u64, buffer);
                    memory.give(buffer);
                }
            }
        }
        ram.replies().clear();
        let clients = (0..).zip(plans).map(|(number, plan)| {
            let base = number * REGION;
            plan.broken.into_iter().for_each(|block| ram.fail_block((base + block * 4096) as u64));
            let input = stream(&plan, base);
            let connection = Connection::new(number as u32, &credit, &mut memory).unwrap();
            Client {
                plan,
                connection,
                input,
                arrived: 0,
                closed: false,
                wants_bytes: false,
                sending: Vec::new(),
                acknowledged: 0,
                output: Vec::new(),
            }
        });
        let clients = clients.collect();
        Self { ram, memory, free, credit, clients, executed: Vec::new(), ops: Vec::new(), random: seed }
    }

    /// Returns a random number below `end` (SplitMix64).
    fn random_below(&mut self, end: usize) -> usize {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % end as u64) as usize
    }

    /// Runs random events, then every kind of event in turn until nothing happens any more.
    fn run(&mut self) {
        for _ in 0..200 * self.clients.len() {
            let client = self.random_below(self.clients.len());
            match self.random_below(6) {
                0 => {
                    let most = if self.random_below(2) == 0 { 1 + self.random_below(200) } else { 1 << 20 };
                    self.receive(client, most);
                }
                1 | 2 => {
                    let steps = 1 + self.random_below(20);
                    self.step(client, steps);
                }
                3 => {
                    for _ in 0..1 + self.random_below(4) {
                        self.reply(|_| false);
                    }
                }
                4 => _ = self.gather(client),
                _ => {
                    let most = if self.random_below(2) == 0 { 1 + self.random_below(5000) } else { 1 << 20 };
                    self.send(client, most);
                }
            }
        }
        self.settle(|_| false);
    }

    /// Runs all events until nothing happens any more, except replies of the engine that `keeps` holds back.
    pub(super) fn settle(&mut self, keeps: impl Fn(&ExecutedRequest) -> bool) {
        let mut quiet = false;
        while !std::mem::replace(&mut quiet, true) {
            for client in 0..self.clients.len() {
                quiet &= !self.step(client, usize::MAX);
                quiet &= !self.receive(client, usize::MAX);
                quiet &= !self.gather(client);
                quiet &= !self.send(client, usize::MAX);
            }
            quiet &= !self.reply(&keeps);
        }
    }

    fn receive(&mut self, client: usize, most: usize) -> bool {
        let client = &mut self.clients[client];
        let rest = client.input.len() - client.arrived;
        if !client.wants_bytes || client.closed || (rest == 0 && !client.plan.half_closes) {
            return false;
        }
        let Some(room) = client.connection.receive(&mut self.memory) else { return false };
        client.wants_bytes = false;
        let mut got = 0;
        for &part in room.parts() {
            let len = (rest - got).min(part.len as usize).min(most - got);
            let from = client.arrived + got;
            self.memory.bytes_mut(part.part(0, len as u32)).copy_from_slice(&client.input[from..from + len]);
            got += len;
            if len < part.len as usize {
                break;
            }
        }
        client.arrived += got;
        client.closed = got == 0;
        client.connection.received(Bytes(got as u64));
        true
    }

    fn step(&mut self, number: usize, most: usize) -> bool {
        let exports = self.ram.exports();
        let client = &mut self.clients[number];
        for done in 0..most {
            if client.wants_bytes {
                return done > 0;
            }
            match client.connection.step(&exports, &self.credit, &mut self.memory) {
                Step::Request(request) => {
                    let offset = (request.offset.0 as usize).saturating_sub(number * REGION);
                    self.ops.push(request.op);
                    self.ram.submit(Nanos(0), request, &mut self.memory);
                    let replies = self.ram.replies().drain(..);
                    self.executed.extend(replies.map(|reply| ExecutedRequest {
                        client: number,
                        offset,
                        reply,
                    }));
                }
                Step::Receive => {
                    client.wants_bytes = true;
                    return true;
                }
                Step::Negotiated => {}
                Step::Wait | Step::Finished => return done > 0,
            }
        }
        true
    }

    fn reply(&mut self, keeps: impl Fn(&ExecutedRequest) -> bool) -> bool {
        let ready: Vec<usize> =
            (0..self.executed.len()).filter(|&index| !keeps(&self.executed[index])).collect();
        if ready.is_empty() {
            return false;
        }
        let index = ready[self.random_below(ready.len())];
        let done = self.executed.swap_remove(index);
        self.clients[done.client].connection.reply(done.reply, &mut self.memory);
        true
    }

    fn gather(&mut self, client: usize) -> bool {
        let client = &mut self.clients[client];
        if !client.connection.wants_to_send() {
            return false;
        }
        let ram = &self.ram;
        client.sending = client.connection.gather(&mut self.memory, |of, runs| ram.runs(of, runs)).to_vec();
        client.acknowledged = 0;
        !client.sending.is_empty()
    }

    /// Lets the client take some of the send in flight; its buffers are free when the client has all of it.
    fn send(&mut self, client: usize, most: usize) -> bool {
        let client = &mut self.clients[client];
        let len: usize = client.sending.iter().map(|part| part.len as usize).sum();
        if len == 0 {
            return false;
        }
        let (from, to) = (client.acknowledged, client.acknowledged.saturating_add(most).min(len));
        let mut at = 0;
        for &part in &client.sending {
            let here = from.clamp(at, at + part.len as usize) - at..to.clamp(at, at + part.len as usize) - at;
            client.output.extend_from_slice(&self.memory.bytes(part)[here]);
            at += part.len as usize;
        }
        client.acknowledged = to;
        if to == len {
            client.sending.clear();
            client.connection.sent(&mut self.memory);
        }
        true
    }

    /// Checks that every client has its answers and that no memory is leaked. With `scarce` memory a failure
    /// may end a connection that would otherwise get an error reply.
    pub(super) fn check(mut self, scarce: bool) {
        assert!(self.executed.is_empty());
        (0..self.clients.len()).for_each(|number| self.check_client(number, scarce));
        self.disconnect_all();
    }

    /// Like [`Self::check`], except for one client whose connection has ended.
    pub(super) fn check_others(mut self, ended: usize) {
        assert!(self.clients[ended].connection.is_finished());
        (0..self.clients.len()).filter(|&number| number != ended).for_each(|n| self.check_client(n, false));
        self.disconnect_all();
    }

    /// Returns the number of matching requests that the engine has received.
    pub(super) fn request_count(&self, which: impl Fn(Op) -> bool) -> usize {
        self.ops.iter().filter(|&&op| which(op)).count()
    }

    fn check_client(&self, number: usize, scarce: bool) {
        let client = &self.clients[number];
        let over = client.connection.is_finished();
        let expected = expected(&client.plan, number);
        // A reply that has begun cannot report a failure: the connection ends.
        let cannot_be_told = |(ask, expected): (&TestRequest, &(u32, Vec<u8>))| {
            !client.plan.structured && expected.0 == 5 && (scarce || ask.len > BUFFERED)
        };
        let may_be_cut = over && client.plan.requests.iter().zip(&expected).any(cannot_be_told);
        let answers = client.answers(may_be_cut);
        for (cookie, (answer, expected)) in answers.iter().zip(&expected).enumerate() {
            let ask = &client.plan.requests[cookie];
            match answer {
                Some(answer) => assert!(
                    answer == expected,
                    "client {number}: {ask:?}: {} and {} bytes instead of {} and {}",
                    answer.0,
                    answer.1.len(),
                    expected.0,
                    expected.1.len()
                ),
                None => assert!(may_be_cut, "client {number} has no answer to {cookie}: {ask:?}"),
            }
        }
        assert_eq!(over, client.closed || answers.contains(&None), "client {number}");
    }

    fn disconnect_all(&mut self) {
        for client in self.clients.drain(..) {
            let mut connection = client.connection;
            connection.abort();
            if !client.sending.is_empty() {
                connection.sent(&mut self.memory);
            }
            assert!(connection.is_idle());
            connection.release(&mut self.memory);
        }
        assert_eq!(self.memory.free(), self.free, "all memory came back");
    }
}

fn put(ram: &mut Ram, memory: &mut HeapMemory, at: u64, buffer: Buffer) {
    let request = Request {
        id: RequestId(0),
        volume: VolumeId(0),
        op: Op::Write,
        offset: VolumeOffset(at),
        len: Bytes(buffer.len.into()),
        fua: false,
        hint: weir_model::Hint::None,
        buffer: Some(buffer),
    };
    ram.submit(Nanos(0), request, memory);
}

/// Returns all bytes that the client sends.
fn stream(plan: &Plan, base: usize) -> Vec<u8> {
    let mut bytes = encode_handshake(plan.structured);
    for (cookie, ask) in (0..).zip(&plan.requests) {
        let offset = if ask.kind == command::FLUSH { 0 } else { base + ask.offset };
        bytes.extend(request(ask.kind, ask.flags, cookie, offset as u64, ask.len));
        if ask.kind == command::WRITE {
            let start = bytes.len();
            bytes.resize(start + ask.len as usize, 0);
            fill(cookie, &mut bytes[start..]);
        }
    }
    bytes
}

/// Returns the expected error and data of every request.
fn expected(plan: &Plan, client: usize) -> Vec<(u32, Vec<u8>)> {
    let mut region = initial(client);
    let answer = |(cookie, ask): (u64, &TestRequest)| {
        let range = ask.offset..ask.offset + ask.len as usize;
        let broken = plan.broken.map_or(0..0, |block| block * 4096..block * 4096 + 4096);
        match ask.kind {
            command::READ if plan.structured && ask.flags & flag::DF != 0 && ask.len > 128 << 10 => {
                return (75, vec![]);
            }
            command::READ if overlap(&range, &broken) => return (5, vec![]),
            command::READ => return (0, region[range].to_vec()),
            command::WRITE => fill(cookie, &mut region[range]),
            command::WRITE_ZEROES => region[range].fill(0),
            command::TRIM => {
                let (first, end) = (range.start.next_multiple_of(4096), range.end / 4096 * 4096);
                region[first..end.max(first)].fill(0);
            }
            command::BLOCK_STATUS if !plan.structured => return (22, vec![]),
            _ => {}
        }
        (0, vec![])
    };
    (0..).zip(&plan.requests).map(answer).collect()
}

fn overlap(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}

impl Client {
    /// Returns the bytes received since the handshake.
    pub(super) fn transmission(&self) -> Option<&[u8]> {
        after_the_handshake(&self.output, self.plan.structured)
    }

    /// Decodes the replies as an independent client does: byte by byte, as the protocol specifies. A stream
    /// that is `cut` may end anywhere.
    pub(super) fn answers(&self, cut: bool) -> Vec<Option<(u32, Vec<u8>)>> {
        let (asks, base) = (&self.plan.requests, self.connection.number as usize * REGION);
        let rest = self.transmission();
        assert!(cut || rest.is_some(), "the stream ends within the handshake");
        let mut rest = rest.unwrap_or_default();
        let mut answers = vec![None; asks.len()];
        let mut partial: Vec<Option<(u32, Vec<u8>)>> = vec![None; asks.len()];
        while !rest.is_empty() {
            let Some(used) = message(rest, asks, base, &mut partial, &mut answers) else {
                assert!(cut, "the stream ends within a reply, {} bytes before its end", rest.len());
                break;
            };
            rest = &rest[used..];
        }
        answers
    }
}

/// Decodes one message; returns its length, or `None` if it is incomplete.
fn message(
    rest: &[u8],
    asks: &[TestRequest],
    base: usize,
    partial: &mut [Option<(u32, Vec<u8>)>],
    answers: &mut [Option<(u32, Vec<u8>)>],
) -> Option<usize> {
    let cookie = u64_at(rest, 8)? as usize;
    if u32_at(rest, 0)? == 0x6744_6698 {
        let error = u32_at(rest, 4)?;
        let ask = asks.get(cookie).expect("a cookie that was sent");
        let len = if ask.kind == command::READ && error == 0 { ask.len as usize } else { 0 };
        let data = rest.get(16..16 + len)?.to_vec();
        assert!(answers[cookie].replace((error, data)).is_none(), "{ask:?} is answered twice");
        return Some(16 + len);
    }
    assert_eq!(u32_at(rest, 0), Some(0x668e_33ef), "neither a reply nor a chunk");
    let ask = asks.get(cookie).expect("a cookie that was sent");
    let (flags, kind, len) = (u16_at(rest, 4)?, u16_at(rest, 6)?, u32_at(rest, 16)? as usize);
    let body = rest.get(20..20 + len)?;
    let size = if ask.kind == command::READ { ask.len as usize } else { 0 };
    let (error, data) = partial[cookie].get_or_insert_with(|| (0, vec![0xee; size]));
    let at = || u64_at(body, 0).expect("an offset") as usize - base - ask.offset;
    match kind {
        1 => data[at()..][..len - 8].copy_from_slice(&body[8..]),
        2 => data[at()..][..u32_at(body, 8)? as usize].fill(0),
        5 => {
            let runs = body[4..].chunks(8).map(|run| u32_at(run, 0).expect("a length"));
            assert!((1..=ask.len).contains(&runs.sum()), "{ask:?}");
        }
        _ if kind >= 1 << 15 => *error = u32_at(body, 0)?,
        _ => panic!("a chunk of type {kind}"),
    }
    if flags & 1 == 1 {
        let (error, data) = partial[cookie].take().expect("just made");
        let data = if error == 0 { data } else { vec![] };
        assert!(answers[cookie].replace((error, data)).is_none(), "{ask:?} is answered twice");
    } else {
        assert!(ask.flags & flag::DF == 0 || ask.len > 128 << 10, "{ask:?} is answered in two chunks");
    }
    Some(20 + len)
}

/// Returns the bytes after the server's part of the handshake, if there are any.
fn after_the_handshake(output: &[u8], structured: bool) -> Option<&[u8]> {
    let mut at = 18;
    for _ in 0..if structured { 3 } else { 0 } {
        at += 20 + u32_at(output, at + 16)? as usize;
    }
    output.get(at + 10..)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[expect(clippy::disallowed_methods, reason = "how long to try is for whoever runs the test to say")]
fn rounds() -> u32 {
    std::env::var("WEIR_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(64)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(rounds()))]

    /// Each client can follow its stream, finds the right bytes, and gets every reply, whatever the requests,
    /// the order of the engine's replies and the pace of the sockets.
    #[test]
    fn every_stream_is_decodable(
        plans in plans(),
        each in prop_oneof![Just(Bytes::kib(256)), Just(Bytes::kib(300)), Just(Bytes::mib(2)), Just(Bytes::mib(16))],
        spare in prop_oneof![Just(Bytes(0)), Just(Bytes::mib(1)), Just(Bytes::mib(64))],
        seed: u64,
    ) {
        let scarce = each < Bytes::mib(16) || spare < Bytes::mib(64);
        let mut world = Simulation::new(plans, each, spare, seed);
        world.run();
        world.check(scarce);
    }
}
