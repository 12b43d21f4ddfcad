//! Parses synthetic loads from their words.

use super::concurrent::{ConcurrentLoads, ThinkTimeLoad};
use super::synthetic::PATTERNS;
use super::{Arrival, Load, Postmark, Synthetic};
use crate::SimError;
use weir_model::{Bytes, Nanos, Op};
use weir_trace::{Disk, Record};

#[cfg(test)]
mod tests;

/// Returns a load's requests until `until` as trace records: without flushes; each volume is a disk.
pub fn records(load: &mut dyn Load, until: Nanos) -> impl Iterator<Item = Record> {
    let mut now = Nanos(0);
    std::iter::from_fn(move || {
        loop {
            let Arrival { at, volume, op, offset, len, hint } = load.next_arrival(now);
            now = at;
            if now >= until {
                return None;
            }
            if matches!(op, Op::Read | Op::Write | Op::Trim) {
                return Some(Record { at, disk: Disk(volume as u32), op, offset, len, hint });
            }
        }
    })
}

/// Reports whether the words look like a synthetic load, as opposed to a file name.
pub fn is_synthetic(words: &str) -> bool {
    let first = words.split([' ', '/']).next().unwrap_or_default();
    first == Postmark::NAME || PATTERNS.contains(&first) || NAMED_LOADS.iter().any(|load| load.name == first)
}

/// A predefined load.
#[derive(Clone, Copy, Debug)]
pub struct NamedLoad {
    /// Name.
    pub name: &'static str,
    /// The words it stands for.
    pub words: &'static str,
    /// Description.
    pub about: &'static str,
}

/// All predefined loads.
pub const NAMED_LOADS: &[NamedLoad] = &[
    NamedLoad {
        name: "phases",
        words: "zipf hot=1 reads=70% rate=1000 for=120s / scan size=256KiB rate=100 for=60s / \
                zipf hot=2 reads=30% size=4KiB:3,16KiB:1 rate=1000 for=120s / uniform reads=90% rate=500 for=60s",
        about: "other blocks become hot, a scan passes, writes outweigh reads, nothing is hot",
    },
    NamedLoad {
        name: "oltp",
        words: "hotcold hot=first part=25% hits=99.8% reads=73% size=8KiB:5,64KiB:1 over=6GiB rate=1000",
        about: "a database that has its own memory: pages and extents of the quarter in use, history rarely",
    },
    NamedLoad {
        name: "oltp+backup",
        words: "hotcold hot=first part=25% hits=99.8% reads=73% size=8KiB:5,64KiB:1 over=6GiB rate=1000 & \
                scan size=4MiB pieces=12MiB over=6GiB rate=7",
        about: "the same while all of it is read, again and again, piece by piece in no fixed order",
    },
];

/// Parses a load: one of [`NAMED_LOADS`], or the words of [`synthetic`](super::synthetic) and
/// [`postmark`](super::postmark). Concurrent loads are separated by `|` if each has a volume of its own, by
/// `&` if they use the same one. `think=` sets the think time of the clients of a closed loop. `size` and
/// `time` parse sizes and times and return what is allowed on an error.
///
/// # Errors
/// Returns what is wrong with the first invalid word, and what would be right.
pub fn parse(
    words: &str,
    seed: u64,
    size: impl Fn(&str) -> Result<Bytes, String>,
    time: impl Fn(&str) -> Result<Nanos, String>,
) -> Result<Box<dyn Load>, SimError> {
    let words = NAMED_LOADS.iter().find(|load| load.name == words.trim()).map_or(words, |load| load.words);
    let on_one = |(number, words): (u64, &str)| {
        let seed = seed.wrapping_add(number);
        let loads = (0..).zip(words.split('&')).map(|(number, words): (u64, &str)| {
            // These seeds differ from those of loads with volumes of their own.
            parse_one(words, seed.wrapping_add(number << 32), &size, &time)
        });
        Ok(combine(loads.collect::<Result<_, _>>()?, ConcurrentLoads::on_shared_volumes))
    };
    let loads = (0..).zip(words.split('|')).map(on_one);
    Ok(combine(loads.collect::<Result<_, SimError>>()?, ConcurrentLoads::new))
}

fn combine(mut loads: Vec<Box<dyn Load>>, join: fn(Vec<Box<dyn Load>>) -> ConcurrentLoads) -> Box<dyn Load> {
    match loads.pop() {
        Some(only) if loads.is_empty() => only,
        last => Box::new(join(loads.into_iter().chain(last).collect())),
    }
}

fn parse_one(
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
    Ok(if think > Nanos(0) { Box::new(ThinkTimeLoad::new(load, think)) } else { load })
}
