//! Client of a recording: receives a running server's client requests from its control socket.
//!
//! [`weir_session::recording`] defines the frames.

use crate::control::{Answer, Request, begin};
use std::io::{self, ErrorKind, Read};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use weir_session::recording::Frames;

pub use weir_session::recording::{RecordedRequest, RecordingState};

/// Timeout of the server's confirmation that it records.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of the remaining requests when a recording ends.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// An active recording. Dropping it ends the recording.
#[derive(Debug)]
pub struct Recording {
    stream: UnixStream,
    frames: Frames,
}

impl Recording {
    /// Makes the server whose control socket is at `path` record requests to these volumes.
    ///
    /// # Errors
    /// As [`ask`](crate::control::ask). The inner error is the server's answer if it does not record.
    pub fn begin(path: &Path, volumes: &[String]) -> io::Result<Result<Self, Answer>> {
        let request = Request::Record { volumes: volumes.to_vec() };
        let (answer, behind) = begin(path, &request, BEGIN_TIMEOUT)?;
        let mut frames = Frames::default();
        frames.push(behind.buffer());
        Ok(match answer {
            Answer::Recording => Ok(Self { stream: behind.into_inner(), frames }),
            answer => Err(answer),
        })
    }

    /// Returns the number of requests dropped so far because they were not received fast enough.
    pub const fn dropped(&self) -> u64 {
        self.frames.dropped
    }

    /// Waits at most `patience` for requests, and passes those that arrived to `take`.
    ///
    /// # Errors
    /// Fails if the server sends malformed frames.
    pub fn receive(
        &mut self,
        patience: Duration,
        mut take: impl FnMut(RecordedRequest),
    ) -> io::Result<RecordingState> {
        // Frames that arrived together with the answer.
        if self.take_frames(&mut take)? == RecordingState::Complete {
            return Ok(RecordingState::Complete);
        }
        self.stream.set_read_timeout(Some(patience.max(Duration::from_millis(1))))?;
        let mut room = [0; 64 << 10];
        match self.stream.read(&mut room) {
            Ok(0) => return Ok(RecordingState::Truncated),
            Ok(count) => self.frames.push(&room[..count]),
            Err(error) if is_timeout(error.kind()) => return Ok(RecordingState::Active),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(RecordingState::Truncated),
            Err(error) => return Err(error),
        }
        self.take_frames(&mut take)
    }

    /// Ends the recording: requests that arrive from now on are not part of it. Passes the remaining requests
    /// to `take`, and returns the number that were dropped.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub fn end(mut self, mut take: impl FnMut(RecordedRequest)) -> io::Result<(RecordingState, u64)> {
        let _ = self.stream.shutdown(Shutdown::Write);
        let until = std::time::Instant::now() + END_TIMEOUT;
        loop {
            let left = until.saturating_duration_since(std::time::Instant::now());
            match self.receive(left, &mut take)? {
                RecordingState::Active if !left.is_zero() => {}
                RecordingState::Active => return Ok((RecordingState::Truncated, self.dropped())),
                ended => return Ok((ended, self.dropped())),
            }
        }
    }

    fn take_frames(&mut self, take: &mut impl FnMut(RecordedRequest)) -> io::Result<RecordingState> {
        self.frames.take(take).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
    }
}

/// Reports whether a receive ended because nothing arrived in time or a signal interrupted it.
fn is_timeout(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write as _;
    use weir_model::{Bytes, Nanos, Op, VolumeOffset};
    use weir_session::recording::frame;

    fn recorded() -> impl Strategy<Value = RecordedRequest> {
        let op = prop_oneof![Just(Op::Read), Just(Op::Write), Just(Op::Trim)];
        (any::<u64>(), any::<u16>(), op, any::<u64>(), 1..=u32::MAX).prop_map(
            |(at, volume, op, offset, len)| RecordedRequest {
                at: Nanos(at),
                volume,
                op,
                offset: VolumeOffset(offset),
                len: Bytes(len.into()),
            },
        )
    }

    fn pair() -> (UnixStream, Recording) {
        let (server, stream) = UnixStream::pair().expect("a pair");
        (server, Recording { stream, frames: Frames::default() })
    }

    proptest! {
        #[test]
        fn frames_split_anywhere_are_received(
            all in prop::collection::vec(recorded(), 0..50), cut in 0..1300usize, split in 0..50usize,
        ) {
            let (mut server, mut recording) = pair();
            let (one, two) = all.split_at(split.min(all.len()));
            let mut bytes = Vec::new();
            frame(&mut bytes, one.iter().copied(), 1, false);
            frame(&mut bytes, two.iter().copied(), 7, true);
            let (first, second) = bytes.split_at(cut.min(bytes.len()));
            let mut heard = Vec::new();
            server.write_all(first).unwrap();
            if !first.is_empty() {
                recording.receive(Duration::from_secs(9), |one| heard.push(one)).unwrap();
            }
            server.write_all(second).unwrap();
            let whole = first.len() == bytes.len();
            if !whole {
                let (how, dropped) = recording.end(|one| heard.push(one)).unwrap();
                prop_assert_eq!((how, dropped), (RecordingState::Complete, 7));
            }
            prop_assert_eq!(heard, all);
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let (mut server, mut recording) = pair();
            server.write_all(&bytes).unwrap();
            drop(server);
            let mut count = 0;
            let timeout = Duration::from_secs(9);
            while let Ok(RecordingState::Active) = recording.receive(timeout, |_| count += 1) {}
            prop_assert!(count <= bytes.len() / 24);
        }
    }

    #[test]
    fn frames_sent_with_reply_are_received() {
        let one = RecordedRequest {
            at: Nanos(7),
            volume: 0,
            op: Op::Read,
            offset: VolumeOffset(4096),
            len: Bytes(512),
        };
        for (is_last, how) in [(true, RecordingState::Complete), (false, RecordingState::Truncated)] {
            let (server, mut recording) = pair();
            let mut bytes = Vec::new();
            frame(&mut bytes, [one].into_iter(), 0, is_last);
            recording.frames.push(&bytes);
            drop(server);
            let mut heard = Vec::new();
            assert_eq!(recording.end(|one| heard.push(one)).unwrap(), (how, 0));
            assert_eq!(heard, [one]);
        }
    }

    #[test]
    fn server_disconnect_is_detected() {
        let (mut server, mut recording) = pair();
        server.write_all(&[0; 15]).unwrap();
        assert_eq!(recording.receive(Duration::from_secs(9), |_| {}).unwrap(), RecordingState::Active);
        assert_eq!(recording.receive(Duration::from_millis(1), |_| {}).unwrap(), RecordingState::Active);
        drop(server);
        assert_eq!(recording.end(|_| {}).unwrap(), (RecordingState::Truncated, 0));
    }
}
