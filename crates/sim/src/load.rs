//! What is asked of a pool: from a trace ([`Replay`](crate::Replay)) or made up ([`Synthetic`],
//! [`Postmark`], several of them side by side).

use crate::side_by_side::{SideBySide, Thinking};
use crate::synthetic::PATTERNS;
use crate::{Postmark, SimError, Synthetic};
use std::ops::Range;
use weir_model::{Bytes, ExtentIndex, ExtentSize, Nanos, Op, VolumeOffset};
use weir_trace::{Disk, Record};

/// A request that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When, counted from the load's start.
    pub at: Nanos,
    /// To which of the load's volumes.
    pub volume: usize,
    /// [`Op::Read`], [`Op::Write`], [`Op::Trim`] or [`Op::Flush`].
    pub op: Op,
    /// Its first byte, a multiple of 512.
    pub offset: VolumeOffset,
    /// Its length, a multiple of 512, at least 512; a flush has none.
    pub len: Bytes,
}

/// One of those who ask in a closed loop, counted from 0: it waits for the answer before it asks again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client(pub usize);

/// What a client does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It asks for this, then.
    Ask(Arrival),
    /// It asks for nothing before then, which is later than now.
    Wait(Nanos),
}

impl Next {
    /// When.
    pub const fn at(&self) -> Nanos {
        match self {
            Self::Ask(arrival) => arrival.at,
            Self::Wait(at) => *at,
        }
    }
}

/// What one volume has of the load's data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// The volume's size.
    pub size: Bytes,
    /// The extents that hold data before the load begins, as runs in ascending order.
    pub extents: Vec<Range<ExtentIndex>>,
}

impl Space {
    /// How many extents hold data.
    pub fn count(&self) -> u64 {
        self.extents.iter().map(|run| run.end.0 - run.start.0).sum()
    }

    /// What either of two loads has on the same volume.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        let size = self.size.max(other.size);
        let mut runs: Vec<_> = self.extents.into_iter().chain(other.extents).collect();
        runs.sort_unstable_by_key(|run| run.start);
        let mut extents: Vec<Range<ExtentIndex>> = Vec::with_capacity(runs.len());
        for run in runs {
            match extents.last_mut() {
                Some(last) if run.start <= last.end => last.end = last.end.max(run.end),
                _ => extents.push(run),
            }
        }
        Self { size, extents }
    }

    /// All bytes from the volume's start.
    pub fn all(size: Bytes, extent: ExtentSize) -> Self {
        let count = extent.count(size);
        Self {
            size: Bytes(count * extent.bytes().0),
            extents: std::iter::once(ExtentIndex(0)..ExtentIndex(count)).collect(),
        }
    }
}

/// A source of requests, endless.
pub trait Load {
    /// Its volumes, and what of them holds data, in extents of this size.
    fn spaces(&self, extent: ExtentSize) -> Vec<Space>;

    /// How long it takes by its own clock; what comes then is a repetition.
    fn lasts(&self) -> Nanos;

    /// The next request of an open loop. `now` is the time of the last arrival since the load's start;
    /// times never go backwards.
    fn next(&mut self, now: Nanos) -> Arrival;

    /// The next request in a closed loop of a client that has none under way at `now`: it comes at once, or
    /// when the client has thought about the last answer.
    fn next_of(&mut self, client: Client, now: Nanos) -> Next {
        let Client(_) = client;
        Next::Ask(Arrival { at: now, ..self.next(now) })
    }

    /// What has been done so far, in the load's own measure (transactions, operations), if it has one.
    fn done(&self) -> Option<u64> {
        None
    }
}

/// A load's requests until `until`, as a trace has them: without flushes, volume by volume a disk.
pub fn records(load: &mut dyn Load, until: Nanos) -> impl Iterator<Item = Record> {
    let mut now = Nanos(0);
    std::iter::from_fn(move || {
        loop {
            let Arrival { at, volume, op, offset, len } = load.next(now);
            now = at;
            if now >= until {
                return None;
            }
            if matches!(op, Op::Read | Op::Write | Op::Trim) {
                return Some(Record { at, disk: Disk(volume as u32), op, offset, len });
            }
        }
    })
}

/// Whether these words could be meant as a load that is made up, and not as a file's name.
pub fn is_made_up(words: &str) -> bool {
    let first = words.split([' ', '/']).next().unwrap_or_default();
    first == Postmark::NAME || PATTERNS.contains(&first) || KINDS.iter().any(|kind| kind.name == first)
}

/// A whole load that has a name.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// The words it stands for.
    pub words: &'static str,
    /// What it is like.
    pub about: &'static str,
}

/// Those there are.
pub const KINDS: &[Kind] = &[
    Kind {
        name: "phases",
        words: "zipf hot=1 reads=70% rate=1000 for=120s / scan size=256KiB rate=100 for=60s / \
                zipf hot=2 reads=30% size=4KiB:3,16KiB:1 rate=1000 for=120s / uniform reads=90% rate=500 for=60s",
        about: "other blocks become hot, a scan passes, writes outweigh reads, nothing is hot",
    },
    Kind {
        name: "oltp",
        words: "hotcold hot=first part=25% hits=99.8% reads=73% size=8KiB:5,64KiB:1 over=6GiB rate=1000",
        about: "a database that has its own memory: pages and extents of the quarter in use, history rarely",
    },
    Kind {
        name: "oltp+backup",
        words: "hotcold hot=first part=25% hits=99.8% reads=73% size=8KiB:5,64KiB:1 over=6GiB rate=1000 & \
                scan size=4MiB pieces=12MiB over=6GiB rate=7",
        about: "the same while all of it is read, again and again, piece by piece in no fixed order",
    },
];

/// The load these words describe: one of [`KINDS`], or see [`crate::synthetic`] and [`crate::postmark`]; several side by
/// side are parted by `|` if each has a volume of its own, by `&` if they ask the same one. With `think=` clients of a closed loop wait so long
/// after each answer. Sizes and times are read by `size` and `time`, which on refusal say what is allowed.
///
/// # Errors
/// What is wrong with the first word that makes no sense, and what would.
pub fn made_up(
    words: &str,
    seed: u64,
    size: impl Fn(&str) -> Result<Bytes, String>,
    time: impl Fn(&str) -> Result<Nanos, String>,
) -> Result<Box<dyn Load>, SimError> {
    let words = KINDS.iter().find(|kind| kind.name == words.trim()).map_or(words, |kind| kind.words);
    let on_one = |(number, words): (u64, &str)| {
        let seed = seed.wrapping_add(number);
        let loads = (0..).zip(words.split('&')).map(|(number, words): (u64, &str)| {
            // Apart from those with volumes of their own.
            one(words, seed.wrapping_add(number << 32), &size, &time)
        });
        Ok(several(loads.collect::<Result<_, _>>()?, SideBySide::on_the_same))
    };
    let loads = (0..).zip(words.split('|')).map(on_one);
    Ok(several(loads.collect::<Result<_, SimError>>()?, SideBySide::new))
}

fn several(mut loads: Vec<Box<dyn Load>>, join: fn(Vec<Box<dyn Load>>) -> SideBySide) -> Box<dyn Load> {
    match loads.pop() {
        Some(only) if loads.is_empty() => only,
        last => Box::new(join(loads.into_iter().chain(last).collect())),
    }
}

fn one(
    words: &str,
    seed: u64,
    size: impl Fn(&str) -> Result<Bytes, String>,
    time: impl Fn(&str) -> Result<Nanos, String>,
) -> Result<Box<dyn Load>, SimError> {
    const THINK: &str = "think=";
    let mut think = Nanos(0);
    let mut others = Vec::new();
    for word in words.split_ascii_whitespace() {
        match word.strip_prefix(THINK) {
            Some(value) => {
                let wrong = |allowed| SimError::Load(format!("{word:?} in a load: think must be {allowed}"));
                think = time(value).map_err(wrong)?;
            }
            None => others.push(word),
        }
    }
    let words = others.join(" ");
    let load: Box<dyn Load> = if others.first() == Some(&Postmark::NAME) {
        Box::new(Postmark::parse(&words, seed, size)?)
    } else {
        Box::new(Synthetic::parse(&words, seed, size, time)?)
    };
    Ok(if think > Nanos(0) { Box::new(Thinking::new(load, think)) } else { load })
}
