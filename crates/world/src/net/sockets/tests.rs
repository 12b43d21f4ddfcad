//! Tests of the guarantees of each call of the port.

use super::*;
use weir_model::{Bytes, Errno};

const WIRE: SocketProfile = SocketProfile { to_server: 8, to_client: 8, delay: Nanos(10), transfer_max: 3 };

struct Ends {
    sockets: Sockets,
    memory: WorldMemory,
    conn: ConnId,
    buffer: Buffer,
    reports: Vec<Report>,
}

impl Ends {
    /// Creates an accepted connection.
    fn new(seed: u64) -> Self {
        let mut memory = WorldMemory::new(Bytes::kib(64));
        let buffer = memory.take(Bytes(4096)).expect("memory");
        let mut sockets = Sockets::new(Seed(seed), Nanos(0));
        let conn = sockets.connect(&WIRE, Peer::Process(1), false).expect("somebody listens");
        let mut ends = Self { sockets, memory, conn, buffer, reports: Vec::new() };
        ends.settle();
        assert_eq!(ends.take_reports(), [Report::Accepted { conn, peer: Peer::Process(1), control: false }]);
        ends
    }

    /// Runs all events that need no action of either side.
    fn settle(&mut self) {
        while let Some(next) = self.sockets.next_event() {
            let next = next.max(self.sockets.now);
            self.sockets.advance(next, &mut self.memory, &mut self.reports);
        }
    }

    fn take_reports(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.reports)
    }

    fn bytes(&self, len: u32) -> &[u8] {
        self.memory.bytes(self.buffer.part(0, len))
    }

    /// Lets the client receive until nothing more arrives.
    fn receive_all(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            self.settle();
            match self.sockets.take(self.conn, 5) {
                ReceiveResult::Bytes(bytes) => all.extend(bytes),
                ReceiveResult::End => return all,
                ReceiveResult::Nothing => match self.sockets.readable(self.conn) {
                    Some(at) => self.sockets.now = self.sockets.now.max(at),
                    None => return all,
                },
            }
        }
    }
}

#[test]
fn receive_returns_available_whole_or_end() {
    for seed in 0..50 {
        let mut ends = Ends::new(seed);
        let conn = ends.conn;
        assert_eq!(ends.sockets.put(conn, b"abcdefghij"), Some(8), "as much as fits");
        ends.sockets.recv(conn, &[ends.buffer.part(0, 2), ends.buffer.part(2, 100)], ReceiveMode::Any);
        ends.settle();
        let reports = ends.take_reports();
        let [Report::Received { result: Ok(len @ 1..=8), .. }] = reports[..] else { panic!("{reports:?}") };
        assert_eq!(ends.bytes(len as u32), &b"abcdefgh"[..len]);
        // With `ReceiveMode::Whole`, the receive ends only with its last byte.
        ends.sockets.recv(conn, &[ends.buffer.part(0, 12 - len as u32)], ReceiveMode::Full);
        ends.settle();
        assert_eq!(ends.take_reports(), []);
        assert_eq!(ends.sockets.put(conn, b"ijkl"), Some(4));
        ends.settle();
        assert_eq!(ends.take_reports(), [Report::Received { conn, result: Ok(12 - len) }]);
        assert_eq!(ends.bytes(12 - len as u32), &b"abcdefghijkl"[len..]);
        ends.sockets.put(conn, b"m");
        ends.sockets.shut(conn);
        let mut gone = Vec::new();
        ends.sockets.poll_hung_up(&[conn], &mut gone);
        assert_eq!(gone, [conn], "at once, whatever is still to be received");
        for expected in [1, 0] {
            ends.sockets.recv(conn, &[ends.buffer.part(0, 9)], ReceiveMode::Full);
            ends.settle();
            assert_eq!(ends.take_reports(), [Report::Received { conn, result: Ok(expected) }]);
        }
    }
}

#[test]
fn cancelled_receive_loses_no_bytes() {
    let mut outcomes = [0; 2];
    for seed in 0..50 {
        let mut ends = Ends::new(seed);
        let conn = ends.conn;
        ends.sockets.recv(conn, &[ends.buffer], ReceiveMode::Any);
        ends.settle();
        ends.sockets.put(conn, b"abc");
        ends.sockets.cancel_recv(conn);
        let mut heard = 0;
        while heard < 3 {
            ends.settle();
            let reports = ends.take_reports();
            let [Report::Received { result, .. }] = reports[..] else { panic!("{reports:?}") };
            outcomes[usize::from(result.is_ok())] += 1;
            let len = result.unwrap_or(0);
            assert_eq!(ends.bytes(len as u32), &b"abc"[heard..heard + len]);
            heard += len;
            ends.sockets.recv(conn, &[ends.buffer], ReceiveMode::Any);
        }
    }
    assert!(outcomes.iter().all(|count| *count > 0), "{outcomes:?}");
}

#[test]
fn send_reads_buffer_when_transmitted() {
    let mut ends = Ends::new(1);
    let (conn, buffer) = (ends.conn, ends.buffer);
    ends.memory.bytes_mut(buffer).fill(1);
    ends.sockets.send(conn, &[buffer.part(0, 20)]);
    ends.settle();
    // The owner reuses the buffer before the send has ended.
    ends.memory.bytes_mut(buffer).fill(2);
    let bytes = ends.receive_all();
    assert_eq!((bytes.len(), &bytes[..8], bytes[19]), (20, &[1; 8][..], 2));
    assert_eq!(ends.take_reports(), [Report::Sent { conn, result: Ok(()) }]);
    ends.sockets.close_client(conn);
    ends.sockets.send(conn, &[buffer]);
    ends.settle();
    assert_eq!(ends.take_reports(), [Report::Sent { conn, result: Err(IoError::Os(Errno::EPIPE)) }]);
}

#[test]
fn closing_is_reported_once_and_last_and_the_client_receives_what_was_sent() {
    for seed in 0..20 {
        let mut ends = Ends::new(seed);
        let (conn, buffer) = (ends.conn, ends.buffer);
        ends.memory.bytes_mut(buffer.part(0, 4)).copy_from_slice(b"last");
        ends.sockets.send(conn, &[buffer.part(0, 4)]);
        ends.settle();
        assert_eq!(ends.take_reports().len(), 1);
        ends.sockets.recv(conn, &[buffer], ReceiveMode::Any);
        ends.sockets.put(conn, b"abc");
        ends.sockets.close(conn);
        ends.sockets.close(conn);
        ends.settle();
        ends.sockets.recv(conn, &[buffer], ReceiveMode::Any);
        ends.settle();
        assert_eq!(ends.take_reports(), [Report::Closed { conn }]);
        assert_eq!(ends.receive_all(), b"last");
        assert_eq!(ends.sockets.put(conn, b"d"), None);
        ends.sockets.close_client(conn);
        assert_eq!(ends.sockets.count(), 0);
        assert_ne!(ends.sockets.connect(&WIRE, Peer::Process(1), false), Some(conn));
    }
}

#[test]
fn unaccepted_clients_wait_or_are_refused() {
    let mut ends = Ends::new(1);
    ends.sockets.set_accepting(false);
    let other = ends.sockets.connect(&WIRE, Peer::Process(2), true).expect("it listens");
    ends.settle();
    assert_eq!(ends.take_reports(), []);
    ends.sockets.stop_listening();
    assert_eq!(ends.sockets.take(other, 1), ReceiveResult::End);
    assert_eq!(ends.sockets.connect(&WIRE, Peer::Process(2), true), None);
}
