//! The recorder: a bounded queue of client requests, drained by a control session.
//!
//! Recording a request costs one check of its operation and a copy of 32 bytes, without allocation or
//! waiting. Requests leave in frames, so that a busy server sends few messages. If the session takes them
//! more slowly than they arrive, the queue fills up, and further requests are dropped and counted.

use crate::connection::ClientRequest;
use crate::recording::{FRAME_MAX, RecordedRequest, frame};
use std::collections::VecDeque;
use weir_model::{Mutant, Nanos, Op, Planted, VolumeId};

/// Capacity of the queue, in requests: 8 MiB.
const QUEUE_CAPACITY: usize = 1 << 18;
/// Longest time a request waits before it is sent.
const INTERVAL: Nanos = Nanos::millis(100);

/// An active recording.
pub(super) struct Recorder {
    volumes: Vec<VolumeId>,
    began: Nanos,
    queue: VecDeque<RecordedRequest>,
    dropped: u64,
    /// When the last frame was sent.
    sent: Nanos,
    /// True while a frame is in flight.
    pub(super) sending: bool,
    state: State,
    frame: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// No request is added any more.
    Ending,
    /// The last frame has been sent.
    Ended,
}

impl Recorder {
    pub(super) fn new(volumes: Vec<VolumeId>, now: Nanos) -> Self {
        Self {
            volumes,
            began: now,
            queue: VecDeque::with_capacity(QUEUE_CAPACITY),
            dropped: 0,
            sent: now,
            sending: false,
            state: State::Open,
            frame: Vec::new(),
        }
    }

    /// Records a client's request.
    #[inline]
    pub(super) fn note(&mut self, now: Nanos, request: ClientRequest, planted: Planted) {
        if self.sending && planted.is(Mutant::RecordedWithGaps) {
            return;
        }
        let op = match request.op {
            Op::Read | Op::Write | Op::Trim => request.op,
            Op::WriteZeroes { no_hole: true } => Op::Write,
            Op::WriteZeroes { no_hole: false } => Op::Trim,
            // A flush is not a request of a trace.
            Op::Flush => return,
        };
        let Some(volume) = self.volumes.iter().position(|volume| *volume == request.volume) else { return };
        match self.state {
            State::Open if self.queue.len() == QUEUE_CAPACITY => self.dropped += 1,
            State::Open => {
                let (at, volume) = (now.since(self.began), volume as u16);
                self.queue.push_back(RecordedRequest {
                    at,
                    volume,
                    op,
                    offset: request.offset,
                    len: request.len,
                });
            }
            State::Ending | State::Ended => {}
        }
    }

    /// Ends the recording: no more requests are added.
    pub(super) fn end(&mut self) {
        if self.state == State::Open {
            self.state = State::Ending;
        }
    }

    /// Reports whether everything has been sent.
    pub(super) fn has_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// Returns the time by which the next frame must be sent.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        let is_any = match self.state {
            State::Open => !self.queue.is_empty(),
            State::Ending => true,
            State::Ended => false,
        };
        (is_any && !self.sending).then(|| self.sent + INTERVAL)
    }

    /// Returns the frame to send now, if one is due. The frame stays available until
    /// [`note_send`](Self::note_send).
    pub(super) fn next_frame(&mut self, now: Nanos) -> Option<&[u8]> {
        let is_due = match self.state {
            State::Open => {
                self.queue.len() >= FRAME_MAX || self.deadline().is_some_and(|deadline| deadline <= now)
            }
            State::Ending => true,
            State::Ended => false,
        };
        if !is_due || self.sending {
            return None;
        }
        self.frame.clear();
        let count = self.queue.len().min(FRAME_MAX);
        let is_last = self.state == State::Ending && count == self.queue.len();
        frame(&mut self.frame, self.queue.range(..count).copied(), self.dropped, is_last);
        Some(&self.frame)
    }

    /// Notes whether the send of the frame has started. If it has not, for lack of memory, it is retried
    /// later.
    pub(super) fn note_send(&mut self, now: Nanos, started: bool) {
        self.sent = now;
        if started {
            self.sending = true;
            let count = self.queue.len().min(FRAME_MAX);
            self.queue.drain(..count);
            if self.state == State::Ending && self.queue.is_empty() {
                self.state = State::Ended;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::{Bytes, VolumeOffset};

    fn request(volume: u32, op: Op) -> ClientRequest {
        ClientRequest { volume: VolumeId(volume), op, offset: VolumeOffset(4096), len: Bytes(512) }
    }

    #[test]
    fn full_or_old_frames_are_sent() {
        let mut recorder = Recorder::new(vec![VolumeId(3)], Nanos::secs(1));
        let now = Nanos::secs(2);
        for (volume, op) in [(1, Op::Read), (3, Op::Flush)] {
            recorder.note(now, request(volume, op), Planted::NONE);
        }
        assert_eq!(
            (recorder.deadline(), recorder.next_frame(now)),
            (None, None),
            "nothing of that is recorded"
        );
        recorder.note(now, request(3, Op::Read), Planted::NONE);
        assert_eq!(recorder.deadline(), Some(Nanos::millis(1100)));
        assert_eq!(recorder.next_frame(now).map(<[u8]>::len), Some(16 + 24));
        recorder.note_send(now, false);
        assert_eq!(recorder.next_frame(now), None, "it is tried again later");
        let now = now + INTERVAL;
        assert!(recorder.next_frame(now).is_some());
        recorder.note_send(now, true);
        for _ in 0..QUEUE_CAPACITY + 5 {
            recorder.note(now, request(3, Op::WriteZeroes { no_hole: true }), Planted::NONE);
        }
        assert_eq!(recorder.next_frame(now), None, "one at a time");
        recorder.sending = false;
        let frame = recorder.next_frame(now).expect("a full one");
        assert_eq!((frame.len(), frame[8]), (16 + 24 * FRAME_MAX, 5));
        recorder.note_send(now, true);
        recorder.end();
        recorder.note(now, request(3, Op::Trim), Planted::NONE);
        let mut frames = 1;
        while !recorder.has_ended() {
            recorder.sending = false;
            let is_last = recorder.next_frame(now).expect("what is left")[4] == 1;
            recorder.note_send(now, true);
            assert_eq!(is_last, recorder.has_ended());
            frames += 1;
        }
        assert_eq!(frames, QUEUE_CAPACITY / FRAME_MAX);
    }
}
