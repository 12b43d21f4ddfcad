//! Reads and writes dumps: files that hold a pool's metadata as numbered parts with checksums. For the format
//! see `docs/reference/format.md`, Dump.

use std::io::{self, Read, Write};
use weir_map::{PAGE, PoolId, crc32c};
use weir_model::{Bytes, DeviceId, DeviceOffset};

/// The first eight bytes of every part; the last two are the version.
const MAGIC: [u8; 8] = *b"weirDP01";
const HEADER: usize = 40;
const CRC_AT: usize = 8;
/// The maximum length of a part's payload, in bytes.
pub const PAYLOAD_MAX: usize = 1 << 20;
const KIND_POOL: u8 = 1;
const KIND_PAGES: u8 = 2;
const KIND_END: u8 = 3;

/// A pool's position in its history. Of two states of one pool, the newer one is higher in at least one
/// field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Generation of the superblocks.
    pub generation: u64,
    /// Sequence number of the root that opening would use; 0 if no root is usable.
    pub root: u64,
    /// Sequence number of the next journal frame; 0 if no root is usable.
    pub frame: u64,
}

impl Position {
    /// Returns whether this state may hold changes that the other does not.
    pub fn is_newer_than(self, other: Self) -> bool {
        self.generation > other.generation || self.root > other.root || self.frame > other.frame
    }
}

/// Identifies the pool and the state that a dump holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpIdentity {
    /// Id of the pool.
    pub pool: PoolId,
    /// The pool's position when it was dumped.
    pub position: Position,
    /// Sizes of the pool's devices, by id; zero for a device that was absent.
    pub sizes: Vec<Bytes>,
}

/// One part of a dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The first part: the pool.
    Pool(DumpIdentity),
    /// Whole pages of metadata.
    Pages {
        /// Device of the pages.
        device: DeviceId,
        /// Offset of the first page on the device.
        at: DeviceOffset,
        /// Contents of the pages.
        bytes: Vec<u8>,
    },
    /// The last part. A dump without it is truncated.
    End,
}

/// The reason why a file cannot be read as a dump.
#[derive(Debug)]
pub enum DumpReadError {
    /// The operating system reported an error.
    Io(io::Error),
    /// The file is not a dump, or differs from what was written; the text says where and how.
    Damaged(String),
}

impl From<io::Error> for DumpReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Writes a dump, part by part.
#[derive(Debug)]
pub struct Writer<W> {
    to: W,
    parts: u64,
    /// Number of bytes written.
    pub written: u64,
}

impl<W: Write> Writer<W> {
    /// Begins a dump of this pool.
    ///
    /// # Errors
    /// Fails if the first part cannot be written.
    pub fn new(to: W, saved: &DumpIdentity) -> io::Result<Self> {
        let mut writer = Self { to, parts: 0, written: 0 };
        let mut payload = saved.pool.0.to_vec();
        let Position { generation, root, frame } = saved.position;
        let numbers = [generation, root, frame].into_iter().chain(saved.sizes.iter().map(|size| size.0));
        numbers.for_each(|number| payload.extend(number.to_le_bytes()));
        writer.part(KIND_POOL, DeviceId(0), DeviceOffset(0), &payload)?;
        Ok(writer)
    }

    /// Adds a part with pages, at most [`PAYLOAD_MAX`] bytes.
    ///
    /// # Errors
    /// Fails if the part cannot be written.
    pub fn pages(&mut self, device: DeviceId, at: DeviceOffset, bytes: &[u8]) -> io::Result<()> {
        self.part(KIND_PAGES, device, at, bytes)
    }

    /// Ends the dump and returns the writer to which it was written.
    ///
    /// # Errors
    /// Fails if the last part cannot be written.
    pub fn end(mut self) -> io::Result<W> {
        self.part(KIND_END, DeviceId(0), DeviceOffset(0), &[])?;
        self.to.flush()?;
        Ok(self.to)
    }

    fn part(&mut self, kind: u8, device: DeviceId, at: DeviceOffset, payload: &[u8]) -> io::Result<()> {
        let mut part = Vec::with_capacity(HEADER + payload.len());
        part.extend(MAGIC);
        part.extend([0; 4]);
        part.extend([kind, device.0, 0, 0]);
        for number in [self.parts, at.0, payload.len() as u64] {
            part.extend(number.to_le_bytes());
        }
        part.extend_from_slice(payload);
        let crc = crc32c(&part);
        part[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        self.to.write_all(&part)?;
        self.parts += 1;
        self.written += part.len() as u64;
        Ok(())
    }
}

/// Reads a dump, part by part. Nothing may follow [`Part::End`].
#[derive(Debug)]
pub struct Reader<R> {
    from: R,
    parts: u64,
    at: u64,
}

impl<R: Read> Reader<R> {
    /// Creates a reader that is positioned at the first part.
    pub fn new(from: R) -> Self {
        Self { from, parts: 0, at: 0 }
    }

    /// Reads the next part. At most one part is in memory.
    ///
    /// # Errors
    /// Fails if the part differs from what was written, or if the file cannot be read.
    pub fn read_part(&mut self) -> Result<Part, DumpReadError> {
        let (number, start) = (self.parts, self.at);
        let damaged = |what: &str| DumpReadError::Damaged(format!("part {number} at {start}: {what}"));
        let mut part = vec![0; HEADER];
        self.fill(&mut part, "the file ends too early")?;
        let u64_at = |part: &[u8], at: usize| u64::from_le_bytes(std::array::from_fn(|i| part[at + i]));
        if part[..6] != MAGIC[..6] {
            return Err(damaged("this is no dump of a pool"));
        }
        if part[..8] != MAGIC {
            return Err(damaged("a version of the format this weir does not know; use a newer weir"));
        }
        let length = u64_at(&part, 32);
        if length > PAYLOAD_MAX as u64 {
            return Err(damaged("it is longer than any part"));
        }
        part.resize(HEADER + length as usize, 0);
        self.fill(&mut part[HEADER..], "the file ends too early")?;
        let stored = u32::from_le_bytes(std::array::from_fn(|i| part[CRC_AT + i]));
        part[CRC_AT..CRC_AT + 4].fill(0);
        if stored != crc32c(&part) {
            return Err(damaged("wrong checksum"));
        }
        if u64_at(&part, 16) != self.parts {
            return Err(damaged("parts are missing before it, or out of order"));
        }
        self.parts += 1;
        let (kind, device, at) = (part[12], DeviceId(part[13]), DeviceOffset(u64_at(&part, 24)));
        let payload = part.split_off(HEADER);
        let is_whole = payload.len().is_multiple_of(PAGE) && at.0.is_multiple_of(PAGE as u64);
        match kind {
            KIND_POOL if number == 0 => parse_identity(&payload).map(Part::Pool),
            KIND_PAGES if number > 0 && is_whole && !payload.is_empty() => {
                Some(Part::Pages { device, at, bytes: payload })
            }
            KIND_END if number > 0 && payload.is_empty() => {
                if self.from.read(&mut [0])? != 0 {
                    return Err(damaged("more follows the end"));
                }
                Some(Part::End)
            }
            _ => None,
        }
        .ok_or_else(|| damaged("it makes no sense here"))
    }

    fn fill(&mut self, bytes: &mut [u8], short: &str) -> Result<(), DumpReadError> {
        self.at += bytes.len() as u64;
        self.from.read_exact(bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => DumpReadError::Damaged(format!("part {}: {short}", self.parts)),
            _ => DumpReadError::Io(error),
        })
    }
}

fn parse_identity(payload: &[u8]) -> Option<DumpIdentity> {
    let (pool, numbers) = payload.split_at_checked(16)?;
    let (numbers, rest) = numbers.as_chunks::<8>();
    let numbers: Vec<u64> = numbers.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
    let [generation, root, frame, sizes @ ..] = &numbers[..] else { return None };
    let position = Position { generation: *generation, root: *root, frame: *frame };
    let good = rest.is_empty() && (1..=255).contains(&sizes.len());
    let sizes = sizes.iter().map(|size| Bytes(*size)).collect();
    good.then_some(DumpIdentity { pool: PoolId(pool.try_into().ok()?), position, sizes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written() -> (DumpIdentity, Vec<u8>) {
        let position = Position { generation: 3, root: 7, frame: 40 };
        let saved =
            DumpIdentity { pool: PoolId([7; 16]), position, sizes: vec![Bytes::mib(8), Bytes::mib(9)] };
        let mut writer = Writer::new(Vec::new(), &saved).expect("memory");
        writer.pages(DeviceId(1), DeviceOffset(65_536), &[5; 2 * PAGE]).expect("memory");
        (saved, writer.end().expect("memory"))
    }

    fn read(bytes: &[u8]) -> Result<Vec<Part>, DumpReadError> {
        let (mut reader, mut parts) = (Reader::new(bytes), Vec::new());
        while parts.last() != Some(&Part::End) {
            parts.push(reader.read_part()?);
        }
        Ok(parts)
    }

    #[test]
    fn dump_round_trips() {
        let (saved, bytes) = written();
        let pages = Part::Pages { device: DeviceId(1), at: DeviceOffset(65_536), bytes: vec![5; 2 * PAGE] };
        assert_eq!(read(&bytes).expect("it is whole"), [Part::Pool(saved), pages, Part::End]);
    }

    #[test]
    fn damage_and_truncation_are_noticed_anywhere() {
        let (_, bytes) = written();
        for at in (0..bytes.len()).step_by(7).chain(0..2 * HEADER) {
            let mut bad = bytes.clone();
            bad[at] ^= 0x40;
            assert!(matches!(read(&bad), Err(DumpReadError::Damaged(_))), "byte {at}");
            assert!(matches!(read(&bytes[..at]), Err(DumpReadError::Damaged(_))), "cut at {at}");
        }
        let more = [&bytes[..], &[0]].concat();
        assert!(matches!(read(&more), Err(DumpReadError::Damaged(_))));
        // The dump lacks the part in its middle.
        let end = bytes.len() - HEADER;
        let without = [&bytes[..HEADER + 16 + 5 * 8], &bytes[end..]].concat();
        assert!(matches!(read(&without), Err(DumpReadError::Damaged(_))));
    }
}
