//! Accesses of a file in every way in which programs access files, and copies of its contents in memory.

use rand::Rng as _;
use rand::rngs::SmallRng;
use rustix::fs::{FallocateFlags, OFlags, SeekFrom, XattrFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Maximum size of a file: more than a chunk, so that files have each form.
pub(crate) const BYTES_MAX: usize = 3 << 20;
/// Unit of direct accesses, and of mappings.
const BLOCK: usize = 4096;

/// Part of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    at: usize,
    len: usize,
}

impl Part {
    const fn end(self) -> usize {
        self.at + self.len
    }

    /// Returns the whole blocks that it touches.
    const fn blocks(self) -> Self {
        let at = self.at / BLOCK * BLOCK;
        Self { at, len: self.end().next_multiple_of(BLOCK) - at }
    }
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    Plain,
    Direct,
    Append,
    Synchronous,
}

const OPENINGS: [Opening; 4] = [Opening::Plain, Opening::Direct, Opening::Append, Opening::Synchronous];

/// What `fallocate` is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allocation {
    Allocate,
    AllocateKeepingSize,
    Zero,
    ZeroKeepingSize,
    Punch,
}

const ALLOCATIONS: [Allocation; 5] = [
    Allocation::Allocate,
    Allocation::AllocateKeepingSize,
    Allocation::Zero,
    Allocation::ZeroKeepingSize,
    Allocation::Punch,
];

/// An access of a file.
#[derive(Clone, Debug)]
pub(crate) enum Access {
    Read(Part),
    Write(Part, u8),
    Append(usize, u8),
    WriteSynchronously(Part, u8),
    ReadDirectly(Part),
    WriteDirectly(Part, u8),
    ReadMapping(Part),
    WriteMapping(Part, u8, bool),
    SetSize(usize),
    Empty,
    Allocate(Allocation, Part),
    /// From another file, or another place of the same one.
    Copy {
        source: usize,
        part: Part,
        to: usize,
    },
    Sync {
        data_only: bool,
    },
    Close,
    CloseOne(Opening),
    /// Where data and holes are, from this offset on; whether they stay there meanwhile.
    Seek(usize, bool),
    Compare,
    /// To a tier if it is true, to the region if not, when it is closed.
    Move(bool),
}

/// What accesses there are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mix {
    /// Whether files are moved to tiers and back.
    pub(crate) moves: bool,
    /// Whether nothing else moves the files.
    pub(crate) is_placed: bool,
}

impl Mix {
    /// Chooses an access of a file of this size, which may take data from another one.
    pub(crate) fn access(
        self,
        random: &mut SmallRng,
        (size, other_size): (usize, usize),
        (file, other): (usize, usize),
    ) -> Access {
        let inside = part(random, size.max(1), size);
        let anywhere = part(random, BYTES_MAX, BYTES_MAX);
        let fill = random.random();
        match random.random_range(0..100) {
            0..15 => Access::Read(if random.random() { inside } else { anywhere }),
            15..27 => Access::Write(near(random, size), fill),
            27..31 => Access::Write(anywhere, fill),
            31..35 => Access::Append(length(random, BYTES_MAX - size), fill),
            35 if random.random_ratio(1, 3) => Access::WriteSynchronously(near(random, size), fill),
            35..43 => Access::ReadDirectly(inside),
            43..49 => Access::WriteDirectly(near(random, size), fill),
            49..56 => Access::ReadMapping(inside),
            56..64 => Access::WriteMapping(inside, fill, random.random_ratio(1, 8)),
            64..70 => Access::SetSize(if random.random_ratio(1, 3) { anywhere.at } else { inside.at }),
            70 if random.random_ratio(1, 3) => Access::Empty,
            70..80 => {
                let part = if random.random_ratio(2, 3) { near(random, size) } else { anywhere };
                Access::Allocate(ALLOCATIONS[random.random_range(0..ALLOCATIONS.len())], part)
            }
            80..84 => copy(random, (size, other_size), (file, other)),
            84 => Access::Sync { data_only: random.random() },
            85..89 => Access::CloseOne(OPENINGS[random.random_range(0..OPENINGS.len())]),
            89 | 90 => Access::Close,
            91..96 => Access::Seek(anywhere.at, self.is_placed),
            96 | 97 if self.moves => Access::Move(random.random()),
            _ => Access::Compare,
        }
    }
}

/// Chooses a length of up to `max`; small ones are as likely as large ones.
fn length(random: &mut SmallRng, max: usize) -> usize {
    let max = max.min(1 << random.random_range(0..=18));
    random.random_range(0..=max)
}

/// Chooses a part that begins before `start` and ends before `end`.
fn part(random: &mut SmallRng, start: usize, end: usize) -> Part {
    let at = random.random_range(0..start);
    // Ends of blocks are where mistakes are.
    let at = if random.random_ratio(1, 4) { at / BLOCK * BLOCK } else { at };
    let len = length(random, end.saturating_sub(at));
    let aligned = len.next_multiple_of(BLOCK);
    let is_aligned = random.random_ratio(1, 4) && at.is_multiple_of(BLOCK) && at + aligned <= end;
    Part { at, len: if is_aligned { aligned } else { len } }
}

/// Chooses a part of a file of this size, which may go beyond its end.
fn near(random: &mut SmallRng, size: usize) -> Part {
    part(random, (size + 2 * BLOCK).min(BYTES_MAX), BYTES_MAX)
}

fn copy(random: &mut SmallRng, (size, other_size): (usize, usize), (file, other): (usize, usize)) -> Access {
    let mut from = part(random, other_size.max(1), other_size);
    let to = near(random, size).at;
    from.len = from.len.min(BYTES_MAX - to);
    if file == other && from.at < to + from.len && to < from.end() {
        // Parts that overlap are refused.
        from.len = from.at.abs_diff(to);
    }
    Access::Copy { source: other, part: from, to }
}

/// A file and a copy of its contents.
pub(crate) struct Subject {
    path: PathBuf,
    contents: Vec<u8>,
    files: Vec<(Opening, File)>,
}

impl Subject {
    /// Creates a file.
    pub(crate) fn new(path: impl AsRef<Path>) -> Self {
        File::create_new(path.as_ref()).expect("space");
        Self { path: path.as_ref().to_owned(), contents: Vec::new(), files: Vec::new() }
    }

    pub(crate) const fn size(&self) -> usize {
        self.contents.len()
    }

    pub(crate) fn close(&mut self) {
        self.files.clear();
    }

    /// Opens the file, unless it is.
    fn open(&mut self, opening: Opening) -> Result<&File, String> {
        let place = match self.files.iter().position(|(it, _)| *it == opening) {
            Some(place) => place,
            None => {
                let flags = match opening {
                    Opening::Direct => OFlags::DIRECT,
                    Opening::Synchronous => OFlags::DSYNC,
                    Opening::Plain | Opening::Append => OFlags::empty(),
                };
                let mut options = OpenOptions::new();
                options.read(true).write(opening != Opening::Append).append(opening == Opening::Append);
                options.custom_flags(flags.bits().cast_signed());
                let file = options.open(&self.path).map_err(|error| format!("open: {error}"))?;
                self.files.push((opening, file));
                self.files.len() - 1
            }
        };
        Ok(&self.files[place].1)
    }

    /// Makes the copy larger, if this is beyond its end.
    fn grow(&mut self, size: usize) {
        if size > self.contents.len() {
            self.contents.resize(size, 0);
        }
    }

    fn put(&mut self, part: Part, bytes: &[u8]) {
        if part.len > 0 {
            self.grow(part.end());
            self.contents[part.at..part.end()].copy_from_slice(bytes);
        }
    }

    /// Returns what the copy has of a part.
    fn expected(&self, part: Part) -> &[u8] {
        let size = self.contents.len();
        &self.contents[part.at.min(size)..part.end().min(size)]
    }

    /// Compares the size and all contents.
    pub(crate) fn compare(&mut self) -> Result<(), String> {
        let size = std::fs::metadata(&self.path).map_err(|error| format!("stat: {error}"))?.len();
        if size != self.contents.len() as u64 {
            return Err(format!(
                "{} has {size} bytes instead of {}",
                self.path.display(),
                self.contents.len()
            ));
        }
        self.read(Opening::Plain, Part { at: 0, len: BYTES_MAX })
    }

    fn read(&mut self, opening: Opening, part: Part) -> Result<(), String> {
        let mut buffer = Aligned::new(part.len);
        let read = self.open(opening)?.read_at(buffer.bytes(), part.at as u64);
        let len = read.map_err(|error| format!("read: {error}"))?;
        same(&buffer.bytes()[..len], self.expected(part), part.at)
    }

    fn write(&mut self, opening: Opening, part: Part, fill: u8) -> Result<(), String> {
        let mut buffer = Aligned::new(part.len);
        buffer.bytes().iter_mut().enumerate().for_each(|(at, byte)| *byte = byte_at(part.at + at, fill));
        let part = match opening {
            Opening::Append => Part { at: self.contents.len(), len: part.len },
            _ => part,
        };
        let mut file = self.open(opening)?;
        match opening {
            Opening::Append => file.write_all(buffer.bytes()),
            _ => file.write_all_at(buffer.bytes(), part.at as u64),
        }
        .map_err(|error| format!("write: {error}"))?;
        self.put(part, buffer.bytes());
        Ok(())
    }
}

/// Returns a byte that tells its place and its write.
const fn byte_at(at: usize, fill: u8) -> u8 {
    (at as u8).wrapping_mul(7).wrapping_add((at >> 8) as u8).wrapping_add(fill) | 1
}

/// Compares bytes from this offset on.
fn same(found: &[u8], expected: &[u8], at: usize) -> Result<(), String> {
    if found == expected {
        return Ok(());
    }
    let differs = |(one, two): (&u8, &u8)| one != two;
    match found.iter().zip(expected).position(differs) {
        Some(place) => {
            let len = found.iter().zip(expected).skip(place).take_while(|pair| differs(*pair)).count();
            let (found, expected) = (found[place], expected[place]);
            Err(format!("{len} bytes from byte {} on differ: {found} instead of {expected}", at + place))
        }
        None => Err(format!("{} bytes at byte {at} instead of {}", found.len(), expected.len())),
    }
}

/// Memory for direct accesses.
struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    fn new(len: usize) -> Self {
        let bytes = vec![0; len + BLOCK];
        let start = bytes.as_ptr().align_offset(BLOCK);
        Self { bytes, start, len }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

/// Carries out an access of a file, by program and on the copy, and compares. Returns whether it moved the
/// file.
pub(crate) fn run(subjects: &mut [Subject], number: usize, access: &Access) -> Result<bool, String> {
    let subject = &mut subjects[number];
    match *access {
        Access::Read(part) => subject.read(Opening::Plain, part)?,
        Access::Write(part, fill) => subject.write(Opening::Plain, part, fill)?,
        Access::WriteSynchronously(part, fill) => subject.write(Opening::Synchronous, part, fill)?,
        Access::Append(len, fill) => subject.write(Opening::Append, Part { at: 0, len }, fill)?,
        Access::ReadDirectly(part) => subject.read(Opening::Direct, part.blocks())?,
        Access::WriteDirectly(part, fill) => subject.write(Opening::Direct, part.blocks(), fill)?,
        Access::ReadMapping(part) => read_mapping(subject, part)?,
        Access::WriteMapping(part, fill, syncs) => write_mapping(subject, part, fill, syncs)?,
        Access::SetSize(size) => {
            subject
                .open(Opening::Plain)?
                .set_len(size as u64)
                .map_err(|error| format!("truncate: {error}"))?;
            subject.contents.resize(size, 0);
        }
        Access::Empty => {
            File::create(&subject.path).map_err(|error| format!("open to empty: {error}"))?;
            subject.contents.clear();
        }
        Access::Allocate(allocation, part) => allocate(subject, allocation, part)?,
        Access::Copy { source, part, to } => copy_part(subjects, source, part, number, to)?,
        Access::Sync { data_only } => {
            let file = subject.open(Opening::Plain)?;
            let done = if data_only { file.sync_data() } else { file.sync_all() };
            done.map_err(|error| format!("fsync: {error}"))?;
        }
        Access::Close => subject.close(),
        Access::CloseOne(opening) => subject.files.retain(|(it, _)| *it != opening),
        Access::Seek(at, is_placed) => seek(subject, at, is_placed)?,
        Access::Compare => subject.compare()?,
        Access::Move(evicts) => return move_to(subject, evicts),
    }
    let file = subjects[number].files.first().map(|(_, file)| file.metadata());
    let size = file.transpose().map_err(|error| format!("fstat: {error}"))?.map(|it| it.len());
    match size {
        Some(size) if size != subjects[number].contents.len() as u64 => {
            Err(format!("the size is {size} instead of {}", subjects[number].contents.len()))
        }
        _ => Ok(false),
    }
}

/// Maps the whole blocks of a part, which is inside the file, for `use_it`.
fn with_mapping(
    subject: &mut Subject,
    part: Part,
    use_it: impl FnOnce(&mut [u8], *mut std::ffi::c_void) -> Result<(), String>,
) -> Result<(), String> {
    let blocks = part.blocks();
    if part.len == 0 {
        return Ok(());
    }
    let file = subject.open(Opening::Plain)?;
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: nothing else is mapped there; every page has a byte of the file, which only this thread uses.
    unsafe {
        let map =
            mmap(std::ptr::null_mut(), blocks.len, protection, MapFlags::SHARED, file, blocks.at as u64)
                .map_err(|error| format!("mmap: {error}"))?;
        let result = use_it(std::slice::from_raw_parts_mut(map.cast(), blocks.len), map);
        munmap(map, blocks.len).map_err(|error| format!("munmap: {error}"))?;
        result
    }
}

fn read_mapping(subject: &mut Subject, part: Part) -> Result<(), String> {
    let blocks = part.blocks();
    let mut expected = subject.expected(blocks).to_vec();
    // What is mapped beyond the end of the file is zeros.
    expected.resize(blocks.len, 0);
    with_mapping(subject, part, |bytes, _| same(bytes, &expected, blocks.at))
}

fn write_mapping(subject: &mut Subject, part: Part, fill: u8, syncs: bool) -> Result<(), String> {
    let blocks = part.blocks();
    let bytes: Vec<u8> = (part.at..part.end()).map(|at| byte_at(at, fill)).collect();
    with_mapping(subject, part, |map, address| {
        map[part.at - blocks.at..part.end() - blocks.at].copy_from_slice(&bytes);
        // SAFETY: it is mapped.
        let synced = if syncs { unsafe { msync(address, blocks.len, MsyncFlags::SYNC) } } else { Ok(()) };
        synced.map_err(|error| format!("msync: {error}"))
    })?;
    subject.put(part, &bytes);
    Ok(())
}

fn allocate(subject: &mut Subject, allocation: Allocation, part: Part) -> Result<(), String> {
    if part.len == 0 {
        return Ok(());
    }
    let (flags, grows, zeroes) = match allocation {
        Allocation::Allocate => (FallocateFlags::empty(), true, false),
        Allocation::AllocateKeepingSize => (FallocateFlags::KEEP_SIZE, false, false),
        Allocation::Zero => (FallocateFlags::ZERO_RANGE, true, true),
        Allocation::ZeroKeepingSize => (FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, false, true),
        Allocation::Punch => (FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, false, true),
    };
    rustix::fs::fallocate(subject.open(Opening::Plain)?, flags, part.at as u64, part.len as u64)
        .map_err(|error| format!("fallocate: {error}"))?;
    if grows {
        subject.grow(part.end());
    }
    if zeroes {
        let size = subject.contents.len();
        subject.contents[part.at.min(size)..part.end().min(size)].fill(0);
    }
    Ok(())
}

fn copy_part(
    subjects: &mut [Subject],
    source: usize,
    part: Part,
    target: usize,
    to: usize,
) -> Result<(), String> {
    subjects[target].open(Opening::Plain)?;
    subjects[source].open(Opening::Plain)?;
    let file = |subject: &Subject| {
        let mut files = subject.files.iter();
        let found = files.find(|(opening, _)| *opening == Opening::Plain).map(|(_, file)| file.try_clone());
        found.expect("it is open").map_err(|error| format!("dup: {error}"))
    };
    let (from_file, to_file) = (file(&subjects[source])?, file(&subjects[target])?);
    let (mut from_at, mut to_at) = (part.at as u64, to as u64);
    while from_at < part.end() as u64 {
        let left = part.end() - from_at as usize;
        let done =
            rustix::fs::copy_file_range(&from_file, Some(&mut from_at), &to_file, Some(&mut to_at), left);
        match done {
            Ok(0) => return Err(format!("copy_file_range ends {left} bytes early")),
            Ok(_) => {}
            Err(error) => return Err(format!("copy_file_range: {error}")),
        }
    }
    let bytes = subjects[source].expected(part).to_vec();
    subjects[target].put(Part { at: to, len: part.len }, &bytes);
    Ok(())
}

/// Compares where data and holes are with the copy.
fn seek(subject: &mut Subject, at: usize, is_placed: bool) -> Result<(), String> {
    let file = subject.open(Opening::Plain)?;
    let find = |from| match rustix::fs::seek(file, from) {
        Ok(found) => Ok(Some(found as usize)),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(format!("seek: {error}")),
    };
    let (data, hole) = (find(SeekFrom::Data(at as u64))?, find(SeekFrom::Hole(at as u64))?);
    let size = subject.contents.len();
    if at >= size {
        return match (data, hole) {
            (None, None) => Ok(()),
            found => Err(format!("data and hole {found:?} beyond the end")),
        };
    }
    let wrong = |what: &str| Err(format!("data at {data:?}, hole at {hole:?} from {at} on: {what}"));
    let data_at = data.unwrap_or(size);
    if data_at < at || data.is_some() && data_at >= size {
        return wrong("data outside of the file");
    }
    if subject.contents[at..data_at].iter().any(|byte| *byte != 0) {
        return wrong("data was passed over");
    }
    match hole {
        Some(hole) if (at..=size).contains(&hole) => {}
        _ => return wrong("no hole at the end"),
    }
    // One of them is at the offset itself.
    if is_placed && (data == Some(at)) == (hole == Some(at)) {
        return wrong("neither or both at once");
    }
    Ok(())
}

/// Evicts or promotes the file. A mapping or the kernel may use its container for a moment yet.
fn move_to(subject: &mut Subject, evicts: bool) -> Result<bool, String> {
    subject.close();
    let command = if evicts { "weir.evict" } else { "weir.promote" };
    match rustix::fs::setxattr(&subject.path, command, b"", XattrFlags::empty()) {
        Ok(()) => Ok(true),
        Err(Errno::TXTBSY | Errno::BUSY | Errno::AGAIN) => Ok(false),
        Err(error) => Err(format!("{command}: {error}")),
    }
}
