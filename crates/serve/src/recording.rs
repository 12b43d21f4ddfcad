//! What clients ask for, as it is told at the control socket while somebody records it.
//!
//! The server answers [`Request::Record`] with a line, [`Answer::Recording`](crate::control::Answer), and from then on
//! sends frames: 4 bytes that say how many requests are in it, 4 bytes that are 1 in the last frame and else 0, 8 bytes that
//! say how many requests were dropped so far, and for each request 24 bytes: 8 of the time in nanoseconds since the
//! recording began, 8 of the offset, 4 of the length, 2 of the volume's number among those that were named, 1 of the operation (0
//! read, 1 write, 2 trim), and a zero. The lowest byte of a number comes first. Whoever records ends the recording by sending
//! no more: the server sends what is left, and the last frame.

use crate::control::{Answer, Request, begin};
use std::io::{self, ErrorKind, Read};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use weir_model::{Bytes, Nanos, Op, VolumeOffset};

/// Bytes of a request in a frame, and of what is before them.
const ENTRY: usize = 24;
const HEAD: usize = 16;
/// The most requests in a frame.
pub(crate) const FRAME_MAX: usize = 2048;
/// How long the server may take to say that it records.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the server may take to send what is left when a recording ends.
const FAREWELL: Duration = Duration::from_secs(10);

/// One request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// When the engine got it, or the first part of a long one, since the recording began.
    pub at: Nanos,
    /// The number of its volume, among those that were named.
    pub volume: u16,
    /// [`Op::Read`], [`Op::Write`] or [`Op::Trim`].
    pub op: Op,
    /// Where it begins.
    pub offset: VolumeOffset,
    /// Its length, at least 1 and less than 4 GiB.
    pub len: Bytes,
}

impl Recorded {
    fn to_bytes(self) -> [u8; ENTRY] {
        let op = match self.op {
            Op::Write => 1,
            Op::Trim => 2,
            _ => 0,
        };
        let mut bytes = [0; ENTRY];
        bytes[..8].copy_from_slice(&self.at.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.0.to_le_bytes());
        bytes[16..20].copy_from_slice(&(self.len.0 as u32).to_le_bytes());
        bytes[20..22].copy_from_slice(&self.volume.to_le_bytes());
        bytes[22] = op;
        bytes
    }

    /// `None` if that is no request.
    fn from_bytes(bytes: &[u8; ENTRY]) -> Option<Self> {
        let op = *[Op::Read, Op::Write, Op::Trim].get(usize::from(bytes[22]))?;
        Some(Self {
            at: Nanos(number(bytes, 0, 8)),
            offset: VolumeOffset(number(bytes, 8, 8)),
            len: Bytes(number(bytes, 16, 4)),
            volume: number(bytes, 20, 2) as u16,
            op,
        })
    }
}

/// The number of so many bytes from here.
fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    bytes[at..at + len].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// Puts a frame behind what is in `bytes`.
pub(crate) fn frame(
    bytes: &mut Vec<u8>,
    requests: impl ExactSizeIterator<Item = Recorded>,
    dropped: u64,
    is_last: bool,
) {
    bytes.extend((requests.len() as u32).to_le_bytes());
    bytes.extend(u32::from(is_last).to_le_bytes());
    bytes.extend(dropped.to_le_bytes());
    requests.for_each(|request| bytes.extend(request.to_bytes()));
}

/// How a recording stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It goes on.
    More,
    /// It has ended, and everything was heard.
    Whole,
    /// The server went away: the last requests may be missing.
    Broken,
}

/// A recording under way, at whoever asked for it. Dropping it ends it.
#[derive(Debug)]
pub struct Recording {
    stream: UnixStream,
    /// What has arrived and was not looked at.
    bytes: Vec<u8>,
    /// Requests that were dropped so far, because the recorder was slower than they came.
    pub dropped: u64,
}

impl Recording {
    /// Has the server whose control socket is at `path` record the requests to these volumes.
    ///
    /// # Errors
    /// As [`ask`](crate::control::ask); within, the answer if it is another than that it records.
    pub fn begin(path: &Path, volumes: &[String]) -> io::Result<Result<Self, Answer>> {
        let request = Request::Record { volumes: volumes.to_vec() };
        let (answer, behind) = begin(path, &request, PATIENCE)?;
        let bytes = behind.buffer().to_vec();
        Ok(match answer {
            Answer::Recording => Ok(Self { stream: behind.into_inner(), bytes, dropped: 0 }),
            answer => Err(answer),
        })
    }

    /// Waits at most so long for requests, and gives those that came to `take`.
    ///
    /// # Errors
    /// If what is sent is no frame.
    pub fn hear(&mut self, patience: Duration, mut take: impl FnMut(Recorded)) -> io::Result<Heard> {
        // What came with the answer.
        if self.take_frames(&mut take)? == Heard::Whole {
            return Ok(Heard::Whole);
        }
        self.stream.set_read_timeout(Some(patience.max(Duration::from_millis(1))))?;
        let mut room = [0; 64 << 10];
        match self.stream.read(&mut room) {
            Ok(0) => return Ok(Heard::Broken),
            Ok(count) => self.bytes.extend(&room[..count]),
            Err(error) if is_pause(error.kind()) => return Ok(Heard::More),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(Heard::Broken),
            Err(error) => return Err(error),
        }
        self.take_frames(&mut take)
    }

    /// Ends it: no request that comes from now on is in it. What was recorded is given to `take`.
    ///
    /// # Errors
    /// As [`hear`](Self::hear).
    pub fn end(mut self, mut take: impl FnMut(Recorded)) -> io::Result<(Heard, u64)> {
        let _ = self.stream.shutdown(Shutdown::Write);
        let until = std::time::Instant::now() + FAREWELL;
        loop {
            let left = until.saturating_duration_since(std::time::Instant::now());
            match self.hear(left, &mut take)? {
                Heard::More if !left.is_zero() => {}
                Heard::More => return Ok((Heard::Broken, self.dropped)),
                ended => return Ok((ended, self.dropped)),
            }
        }
    }

    fn take_frames(&mut self, take: &mut impl FnMut(Recorded)) -> io::Result<Heard> {
        let mut at = 0;
        let mut heard = Heard::More;
        while heard == Heard::More && self.bytes.len() >= at + HEAD {
            let count = number(&self.bytes, at, 4) as usize;
            if count > FRAME_MAX {
                return Err(io::Error::new(ErrorKind::InvalidData, "the server sent what is no frame"));
            }
            let end = at + HEAD + count * ENTRY;
            let Some(entries) = self.bytes.get(at + HEAD..end) else { break };
            for entry in entries.as_chunks().0 {
                let no_request =
                    || io::Error::new(ErrorKind::InvalidData, "the server sent what is no request");
                take(Recorded::from_bytes(entry).ok_or_else(no_request)?);
            }
            self.dropped = number(&self.bytes, at + 8, 8);
            if number(&self.bytes, at + 4, 4) != 0 {
                heard = Heard::Whole;
            }
            at = end;
        }
        self.bytes.drain(..at);
        Ok(heard)
    }
}

/// Nothing came for a while, or a signal did.
fn is_pause(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write as _;

    fn recorded() -> impl Strategy<Value = Recorded> {
        let op = prop_oneof![Just(Op::Read), Just(Op::Write), Just(Op::Trim)];
        (any::<u64>(), any::<u16>(), op, any::<u64>(), 1..=u32::MAX).prop_map(
            |(at, volume, op, offset, len)| Recorded {
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
        (server, Recording { stream, bytes: Vec::new(), dropped: 0 })
    }

    proptest! {
        #[test]
        fn what_is_sent_in_any_pieces_is_heard(all in prop::collection::vec(recorded(), 0..50), cut in 0..1300usize, split in 0..50usize) {
            let (mut server, mut recording) = pair();
            let (one, two) = all.split_at(split.min(all.len()));
            let mut bytes = Vec::new();
            frame(&mut bytes, one.iter().copied(), 1, false);
            frame(&mut bytes, two.iter().copied(), 7, true);
            let (first, second) = bytes.split_at(cut.min(bytes.len()));
            let mut heard = Vec::new();
            server.write_all(first).unwrap();
            if !first.is_empty() {
                recording.hear(Duration::from_secs(9), |one| heard.push(one)).unwrap();
            }
            server.write_all(second).unwrap();
            let whole = first.len() == bytes.len();
            if !whole {
                let (how, dropped) = recording.end(|one| heard.push(one)).unwrap();
                prop_assert_eq!((how, dropped), (Heard::Whole, 7));
            }
            prop_assert_eq!(heard, all);
        }

        #[test]
        fn any_bytes_are_heard_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let (mut server, mut recording) = pair();
            server.write_all(&bytes).unwrap();
            drop(server);
            let mut count = 0;
            while let Ok(Heard::More) = recording.hear(Duration::from_secs(9), |_| count += 1) {}
            prop_assert!(count <= bytes.len() / ENTRY);
        }
    }

    #[test]
    fn what_comes_with_the_answer_is_heard_though_nothing_follows() {
        let one =
            Recorded { at: Nanos(7), volume: 0, op: Op::Read, offset: VolumeOffset(4096), len: Bytes(512) };
        for (is_last, how) in [(true, Heard::Whole), (false, Heard::Broken)] {
            let (server, mut recording) = pair();
            frame(&mut recording.bytes, [one].into_iter(), 0, is_last);
            drop(server);
            let mut heard = Vec::new();
            assert_eq!(recording.end(|one| heard.push(one)).unwrap(), (how, 0));
            assert_eq!(heard, [one]);
        }
    }

    #[test]
    fn a_server_that_goes_away_is_noticed() {
        let (mut server, mut recording) = pair();
        server.write_all(&[0; HEAD - 1]).unwrap();
        assert_eq!(recording.hear(Duration::from_secs(9), |_| {}).unwrap(), Heard::More);
        assert_eq!(recording.hear(Duration::from_millis(1), |_| {}).unwrap(), Heard::More);
        drop(server);
        assert_eq!(recording.end(|_| {}).unwrap(), (Heard::Broken, 0));
    }
}
