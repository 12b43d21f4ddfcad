//! Tests the connection with arbitrary requests, segmentation and damage.

use super::*;

/// A request of a random client.
#[derive(Clone, Debug)]
struct TestRequest {
    kind: u16,
    flags: u16,
    offset: u64,
    len: u32,
}

fn requests() -> impl Strategy<Value = Vec<TestRequest>> {
    let kind = prop_oneof![
        4 => Just(command::READ),
        4 => Just(command::WRITE),
        1 => Just(command::TRIM),
        1 => Just(command::WRITE_ZEROES),
        1 => Just(command::FLUSH),
        1 => Just(command::BLOCK_STATUS),
    ];
    let sectors = prop_oneof![5 => 1..40u32, 1 => 1..2000u32];
    let flags = prop_oneof![3 => Just(0), 1 => Just(flag::FUA), 1 => Just(flag::DF)];
    let ask = (kind, flags, 0..8500u64, sectors).prop_map(|(kind, flags, sector, sectors)| {
        let flags = if kind == command::READ { flags } else { flags & flag::FUA };
        TestRequest { kind, flags, offset: sector * 512, len: sectors * 512 }
    });
    prop::collection::vec(ask, 1..60)
}

fn stream(asks: &[TestRequest]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (cookie, ask) in (0..).zip(asks) {
        bytes.extend(request(ask.kind, ask.flags, cookie, ask.offset, ask.len));
        if ask.kind == command::WRITE {
            bytes.extend(pattern(cookie, ask.len as usize));
        }
    }
    bytes
}

/// Returns the expected final volume, and the expected data and error of every request.
fn expected(asks: &[TestRequest], size: usize) -> Vec<(u32, Vec<u8>)> {
    let mut volume = vec![0; size];
    let answers = (0..).zip(asks).map(|(cookie, ask)| {
        let range = ask.offset as usize..ask.offset as usize + ask.len as usize;
        let past = range.end > size;
        match ask.kind {
            command::FLUSH => {}
            command::READ if ask.flags & flag::DF != 0 && ask.len > 128 << 10 => return (75, vec![]),
            command::WRITE | command::WRITE_ZEROES if past => return (28, vec![]),
            _ if past => return (22, vec![]),
            command::READ => return (0, volume[range].to_vec()),
            command::WRITE => volume[range].copy_from_slice(&pattern(cookie, ask.len as usize)),
            command::WRITE_ZEROES => volume[range].fill(0),
            command::TRIM => {
                let (first, end) = (range.start.next_multiple_of(4096), range.end / 4096 * 4096);
                volume[first..end.max(first)].fill(0);
            }
            _ => {}
        }
        (0, vec![])
    });
    answers.collect()
}

/// Decodes structured replies as a client would.
fn received(asks: &[TestRequest], messages: &[ServerMessage]) -> Vec<(u32, Vec<u8>)> {
    let mut answers: Vec<Option<(u32, Vec<u8>)>> = vec![None; asks.len()];
    let mut finished = vec![false; asks.len()];
    for said in messages {
        let (cookie, done) = match said {
            ServerMessage::Simple { cookie, .. } | ServerMessage::Status { cookie, .. } => (*cookie, true),
            ServerMessage::Data { cookie, is_last: done, .. }
            | ServerMessage::Hole { cookie, is_last: done, .. }
            | ServerMessage::Error { cookie, is_last: done, .. } => (*cookie, *done),
        };
        let (ask, index) = (&asks[cookie as usize], cookie as usize);
        assert!(!std::mem::replace(&mut finished[index], done), "{said:?} after the last");
        let len = if ask.kind == command::READ { ask.len as usize } else { 0 };
        let (error, data) = answers[index].get_or_insert_with(|| (0, vec![0xee; len]));
        match said {
            ServerMessage::Data { offset, bytes, .. } => {
                data[(offset - ask.offset) as usize..][..bytes.len()].copy_from_slice(bytes);
            }
            ServerMessage::Hole { offset, len, .. } => {
                data[(offset - ask.offset) as usize..][..*len as usize].fill(0);
            }
            ServerMessage::Simple { error: number, .. } | ServerMessage::Error { error: number, .. } => {
                *error = *number;
                data.clear();
            }
            ServerMessage::Status { runs, .. } => {
                assert!(runs.iter().map(|run| u64::from(run.0)).sum::<u64>() <= ask.len.into());
            }
        }
    }
    assert!(finished.iter().all(|&done| done), "every request is answered");
    answers.into_iter().flatten().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Every request gets exactly one answer, and the right one, however the bytes arrive, in whatever order
    /// the engine answers, and however little memory there is.
    #[test]
    fn every_request_is_answered_correctly(
        asks in requests(), portion in prop_oneof![1..100usize, 1..300_000usize],
        backwards: bool, scarce: bool,
    ) {
        let mut wire = TestConnection::after_handshake(Bytes(4 * MIB), true);
        wire.reverse_replies = backwards;
        wire.receive_max = portion;
        if scarce {
            wire.credit.memory_per_client = Bytes::kib(300);
        }
        wire.send(&stream(&asks));
        prop_assert!(received(&asks, &decode_messages(&wire.output)) == expected(&asks, 4 << 20));
        wire.close();
    }

    /// The same bytes in other portions lead to the same replies. (Block statuses reflect the time at which
    /// they are sent; the test excludes them.)
    #[test]
    fn segmentation_does_not_matter(asks in requests(), portion in 1..5000usize, structured: bool) {
        let is_stable = |ask: &TestRequest| ask.kind != command::BLOCK_STATUS;
        let asks: Vec<TestRequest> = asks.into_iter().filter(is_stable).collect();
        let run = |portion| {
            let mut wire = TestConnection::new(Ram::new(Bytes(4 * MIB)));
            wire.receive_max = portion;
            let disc = request(command::DISC, 0, 0, 0, 0);
            wire.send(&[encode_handshake(structured), stream(&asks), disc].concat());
            assert!(wire.connection.is_finished());
            let output = std::mem::take(&mut wire.output);
            wire.close();
            output
        };
        prop_assert!(run(usize::MAX) == run(portion));
    }

    /// The connection terminates and leaks nothing, whatever a client sends.
    #[test]
    fn arbitrary_bytes_never_panic(
        start in prop_oneof![Just(vec![]), Just(encode_handshake(true)), Just(encode_handshake(false))],
        asks in requests(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
    ) {
        let mut bytes = [start, stream(&asks)].concat();
        bytes.truncate(200_000);
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        crate::fuzzing::client(&bytes);
        crate::fuzzing::transmission(&bytes);
    }
}
