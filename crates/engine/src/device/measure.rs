//! Measurements of each device: distribution of response times by direction and size, utilization, queue
//! depth, throughput.
//!
//! This code runs for every command: plain counters of the engine's one thread, no clock of its own, no
//! allocation.

use weir_model::{Bytes, Nanos};
use weir_policy::placement::{MeasuredCommand, SizeClass};

/// Buckets per power of two: response times are resolved to an eighth.
const BUCKETS_PER_OCTAVE: u32 = 8;
/// The base-2 logarithm of the shortest response time resolved, in nanoseconds: about a microsecond.
const LOG2_MIN: u32 = 10;
/// The base-2 logarithm of the longest response time resolved, in nanoseconds: about a minute.
const LOG2_MAX: u32 = 36;
const BUCKETS: usize = ((LOG2_MAX - LOG2_MIN) * BUCKETS_PER_OCTAVE) as usize + 2;
/// The shortest interval over which rates are computed.
const WINDOW: Nanos = Nanos::secs(1);

/// A histogram of response times.
#[derive(Clone, Debug)]
struct Histogram {
    counts: [u64; BUCKETS],
    longest: Nanos,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], longest: Nanos(0) }
    }
}

impl Histogram {
    #[inline]
    const fn bucket(response: Nanos) -> usize {
        let log = response.0.checked_ilog2();
        match log {
            Some(log) if log >= LOG2_MIN => {
                let part = response.0 >> (log - BUCKETS_PER_OCTAVE.ilog2()) & (BUCKETS_PER_OCTAVE as u64 - 1);
                let at = ((log - LOG2_MIN) * BUCKETS_PER_OCTAVE) as usize + part as usize + 1;
                if at < BUCKETS { at } else { BUCKETS - 1 }
            }
            _ => 0,
        }
    }

    /// Returns the longest response time of a bucket.
    const fn upper_bound(bucket: usize) -> Nanos {
        let (log, part) =
            (bucket as u32 / BUCKETS_PER_OCTAVE + LOG2_MIN, bucket as u64 % BUCKETS_PER_OCTAVE as u64);
        Nanos(((BUCKETS_PER_OCTAVE as u64 + part) << (log - BUCKETS_PER_OCTAVE.ilog2())) - 1)
    }

    #[inline]
    fn add(&mut self, response: Nanos) {
        self.counts[Self::bucket(response)] += 1;
        if response > self.longest {
            self.longest = response;
        }
    }

    /// Returns a response time that this fraction of all do not exceed; it is too long by an eighth at most.
    fn quantile(&self, part: f64) -> Nanos {
        let all: u64 = self.counts.iter().sum();
        let wanted = (part * all as f64).ceil() as u64;
        let mut seen = 0;
        let at = self.counts.iter().position(|c| {
            seen += *c;
            seen >= wanted
        });
        at.map_or(self.longest, |at| Self::upper_bound(at).min(self.longest))
    }

    fn summary(&self) -> Option<Responses> {
        let count: u64 = self.counts.iter().sum();
        (count > 0).then(|| Responses {
            count,
            median: self.quantile(0.5),
            p99: self.quantile(0.99),
            p999: self.quantile(0.999),
            longest: self.longest,
        })
    }
}

/// The distribution of response times since the start. Quantiles are too long by an eighth at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Responses {
    /// The number of commands.
    pub count: u64,
    /// The median.
    pub median: Nanos,
    /// The 99th percentile.
    pub p99: Nanos,
    /// The 99.9th percentile.
    pub p999: Nanos,
    /// The maximum.
    pub longest: Nanos,
}

/// Response times of commands of about one size in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponsesBySize {
    /// Whether these are writes.
    pub write: bool,
    /// The size class.
    pub size: SizeClass,
    /// The response times.
    pub responses: Responses,
}

/// The recent load of a device: over the last complete second, or since then if that is longer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Reads per second.
    pub reads: f64,
    /// Writes per second.
    pub writes: f64,
    /// Bytes read per second.
    pub read_bytes: f64,
    /// Bytes written per second.
    pub written_bytes: f64,
    /// The fraction of time with commands in flight, 0 to 1.
    pub busy: f64,
    /// The mean queue depth.
    pub depth: f64,
}

/// The monotonic counters.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    /// Commands and bytes, by direction: reads, writes.
    commands: [u64; 2],
    bytes: [u64; 2],
    busy: Nanos,
    /// The integral of the queue depth over time.
    depth: u128,
}

/// The measurements of one device.
#[derive(Clone, Debug)]
pub(crate) struct Measurements {
    totals: Totals,
    flushes: u64,
    in_flight: u32,
    /// The busy time charged so far to a command present since the start: each interval divided by the
    /// commands in flight.
    busy_per_command: Nanos,
    /// The time at which `in_flight` last changed.
    changed_at: Nanos,
    /// The start of the current window, and the totals at that time.
    window_start: Nanos,
    window_totals: Totals,
    last_load: Load,
    responses: Box<[[Histogram; SizeClass::COUNT]; 2]>,
}

impl Measurements {
    pub(crate) fn new() -> Self {
        Self {
            totals: Totals::default(),
            flushes: 0,
            in_flight: 0,
            busy_per_command: Nanos(0),
            changed_at: Nanos(0),
            window_start: Nanos(0),
            window_totals: Totals::default(),
            last_load: Load::default(),
            responses: Box::default(),
        }
    }

    /// Adds an interval with `in_flight` commands.
    #[inline]
    fn add_interval(totals: &mut Totals, in_flight: u32, time: Nanos) {
        if in_flight > 0 {
            totals.busy += time;
            totals.depth += u128::from(time.0) * u128::from(in_flight);
        }
    }

    /// Advances the time.
    #[inline]
    fn advance_to(&mut self, now: Nanos) {
        if now == self.changed_at {
            // Commands begin and end in batches, and the division costs more than all the rest.
            return;
        }
        let time = now.since(self.changed_at);
        Self::add_interval(&mut self.totals, self.in_flight, time);
        self.busy_per_command += Nanos(time.0 / u64::from(self.in_flight.max(1)));
        self.changed_at = now;
        if now.since(self.window_start) >= WINDOW {
            self.last_load = self.window_load(self.totals, now);
            (self.window_start, self.window_totals) = (now, self.totals);
        }
    }

    /// Notes that a command begins. Returns the value that [`Self::end`] counts from.
    #[inline]
    pub(crate) fn begin(&mut self, now: Nanos) -> Nanos {
        self.advance_to(now);
        self.in_flight += 1;
        self.busy_per_command
    }

    /// Notes that a command ended, successfully or not. Returns its service time: its share of the device's
    /// time, which it divided with the other commands.
    #[inline]
    pub(crate) fn end(&mut self, now: Nanos, since: Nanos) -> Nanos {
        self.advance_to(now);
        self.in_flight = self.in_flight.saturating_sub(1);
        Nanos(self.busy_per_command.0 - since.0)
    }

    /// Notes a read or write that succeeded.
    #[inline]
    pub(crate) fn note(&mut self, command: &MeasuredCommand) {
        let direction = usize::from(command.write);
        self.totals.commands[direction] += 1;
        self.totals.bytes[direction] += command.len.0;
        self.responses[direction][command.size.index()].add(command.response);
    }

    /// Notes a flush that succeeded.
    pub(crate) fn note_flush(&mut self) {
        self.flushes += 1;
    }

    /// Returns the flushes completed since the start.
    pub(crate) fn flushes(&self) -> u64 {
        self.flushes
    }

    /// Returns the number of commands in flight.
    #[inline]
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Returns the time with commands in flight since the start.
    pub(crate) fn busy(&self, now: Nanos) -> Nanos {
        let mut totals = self.totals;
        Self::add_interval(&mut totals, self.in_flight, now.since(self.changed_at));
        totals.busy
    }

    fn window_load(&self, totals: Totals, now: Nanos) -> Load {
        let time = now.since(self.window_start).as_secs_f64();
        let rate = |of: fn(&Totals) -> u64| (of(&totals) - of(&self.window_totals)) as f64 / time;
        Load {
            reads: rate(|t| t.commands[0]),
            writes: rate(|t| t.commands[1]),
            read_bytes: rate(|t| t.bytes[0]),
            written_bytes: rate(|t| t.bytes[1]),
            busy: rate(|t| t.busy.0) / 1e9,
            depth: (totals.depth - self.window_totals.depth) as f64 / 1e9 / time,
        }
    }

    /// Returns the recent load.
    pub(crate) fn load(&self, now: Nanos) -> Load {
        if now.since(self.window_start) < WINDOW {
            return self.last_load;
        }
        let mut totals = self.totals;
        Self::add_interval(&mut totals, self.in_flight, now.since(self.changed_at));
        self.window_load(totals, now)
    }

    /// Returns the reads or writes completed since the start, and their bytes.
    pub(crate) fn completed(&self, write: bool) -> (u64, Bytes) {
        let at = usize::from(write);
        (self.totals.commands[at], Bytes(self.totals.bytes[at]))
    }

    /// Returns the distributions of response times.
    pub(crate) fn responses(&self) -> Vec<ResponsesBySize> {
        let both = [false, true].into_iter().zip(self.responses.iter());
        let all = both.flat_map(|(write, sizes)| SizeClass::all().zip(sizes).map(move |it| (write, it)));
        let summary = |(write, (size, histogram)): (bool, (SizeClass, &Histogram))| {
            histogram.summary().map(|responses| ResponsesBySize { write, size, responses })
        };
        all.filter_map(summary).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn command(write: bool, kib: u64, response: Nanos) -> MeasuredCommand {
        MeasuredCommand::new(write, Bytes::kib(kib), 1, response, Nanos(0))
    }

    #[test]
    fn load_covers_the_window() {
        let mut measure = Measurements::new();
        let ms = Nanos::millis;
        // Busy for 300 of 1000 ms, 200 of them with two commands.
        let begun = [measure.begin(ms(100)), measure.begin(ms(200))];
        let took = begun.map(|since| {
            measure.note(&command(false, 4, ms(200)));
            measure.end(ms(400), since)
        });
        assert_eq!(took, [ms(200), ms(100)], "they shared the last 200 ms");
        assert_eq!(measure.load(ms(500)), Load::default(), "no second is over");
        let load = measure.load(ms(1000));
        assert!((load.busy - 0.3).abs() < 1e-9 && (load.depth - 0.5).abs() < 1e-9, "{load:?}");
        assert_eq!((load.reads, load.read_bytes, load.writes), (2.0, 8192.0, 0.0));
        let since = measure.begin(ms(1000));
        measure.note(&command(true, 8, ms(1000)));
        assert_eq!(measure.end(ms(2000), since), ms(1000));
        let load = measure.load(ms(2500));
        assert_eq!((load.reads, load.writes), (0.0, 1.0), "over the second that ended last");
        // The device is idle: the rate covers all of the time since the last window.
        assert_eq!(measure.load(ms(4000)).writes, 0.0);
    }

    #[test]
    fn responses_split_by_direction_and_size() {
        let mut measure = Measurements::new();
        measure.note(&command(false, 4, Nanos::micros(100)));
        measure.note(&command(true, 128, Nanos::millis(5)));
        let all = measure.responses();
        let short: Vec<_> = all.iter().map(|r| (r.write, r.size.index(), r.responses.count)).collect();
        assert_eq!(short, [(false, 0, 1), (true, 3, 1)]);
        assert_eq!(all[0].responses.median, Nanos::micros(100), "never beyond the longest");
    }

    proptest! {
        /// Compares with a naive twin: all response times, sorted.
        #[test]
        fn quantile_error_is_at_most_an_eighth(
            mut all in prop::collection::vec(1_100u64..60_000_000_000, 1..200),
            part in 0.01f64..1.0,
        ) {
            let mut histogram = Histogram::default();
            all.iter().for_each(|ns| histogram.add(Nanos(*ns)));
            all.sort_unstable();
            let exact = all[((part * all.len() as f64).ceil() as usize).clamp(1, all.len()) - 1];
            let quantile = histogram.quantile(part).0;
            prop_assert!(quantile >= exact && quantile as f64 <= exact as f64 * 1.126, "{quantile} {exact}");
        }

        #[test]
        fn every_response_has_a_bucket(ns: u64) {
            let bucket = Histogram::bucket(Nanos(ns));
            prop_assert!(bucket < BUCKETS);
            let counted = bucket == BUCKETS - 1 || ns <= Histogram::upper_bound(bucket).0;
            prop_assert!(counted, "{ns} in {bucket} to {}", Histogram::upper_bound(bucket));
        }
    }
}
