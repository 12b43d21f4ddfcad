//! `touch_count`: blocks touched before enter, counted by large segments of the disk (TC).
//!
//! Source: HEC (the dissertation behind it, section 3.4.1).
//!
//! Rule: each segment that a request touches counts the touch. If the previous touches of any of them reach
//! the threshold, the whole request is admitted. Counts are kept in several maps; the latest one counts, and
//! all are added up; after a fixed number of bytes, or a fixed time, the oldest is emptied and becomes the
//! latest.
//!
//! Constants: segments of 4 MB (taken as 4 MiB), one map of one bit per segment, never emptied, as in the
//! published experiment; with one bit the threshold is one previous touch. All of them are settings.
//!
//! When not: where most segments are touched at all.

use super::{Admission, BlockRequest};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use weir_model::{Bytes, Nanos};

/// The parameters of counting touches. The default is that of the published experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TouchSettings {
    /// The segment size; at least 1.
    pub segment: Bytes,
    /// The number of previous touches that admit a request; no request is admitted if it is above
    /// [`touches_max`](Self::touches_max).
    pub threshold: u32,
    /// The number of bits of a count, 1 to 8: it stops at the largest number they hold.
    pub bits: u8,
    /// The number of bytes requested after which a map ends; `None`: never.
    pub rotate_after: Option<Bytes>,
    /// The time after which a map ends; `None`: never.
    pub rotate_every: Option<Nanos>,
    /// The number of maps; at least 1.
    pub maps: usize,
}

impl Default for TouchSettings {
    fn default() -> Self {
        Self {
            segment: Bytes::mib(4),
            threshold: 1,
            bits: 1,
            rotate_after: None,
            rotate_every: None,
            maps: 1,
        }
    }
}

impl TouchSettings {
    /// Returns the highest count of a segment in one map.
    const fn count_max(&self) -> u8 {
        match self.bits {
            0 => 1,
            8.. => u8::MAX,
            bits => (1 << bits) - 1,
        }
    }

    /// Returns the highest count of a segment: that of all maps.
    pub fn touches_max(&self) -> u64 {
        self.maps as u64 * u64::from(self.count_max())
    }
}

/// An admission policy by previous touches.
#[derive(Debug)]
pub struct TouchCount {
    touches: TouchSettings,
    /// The maps, the latest last. Counts stop at the highest number of their bits.
    maps: VecDeque<FxHashMap<(u32, u64), u8>>,
    /// The bytes requested since the latest map began.
    bytes: u64,
    /// The time of the request with which the latest map began; `None` before the first.
    since: Option<Nanos>,
}

impl TouchCount {
    /// Creates a policy without touches.
    pub fn new(touches: TouchSettings) -> Self {
        Self { touches, maps: VecDeque::from([FxHashMap::default()]), bytes: 0, since: None }
    }

    fn rotate(&mut self, at: Nanos, bytes: Bytes) {
        self.bytes = self.bytes.saturating_add(bytes.0);
        let since = *self.since.get_or_insert(at);
        let is_full = self.touches.rotate_after.is_some_and(|most| self.bytes > most.0);
        let is_old = self.touches.rotate_every.is_some_and(|every| at.since(since) >= every);
        if is_full || is_old {
            self.bytes = bytes.0;
            self.since = Some(at);
            if self.maps.len() >= self.touches.maps {
                self.maps.pop_front();
            }
            self.maps.push_back(FxHashMap::default());
        }
    }
}

impl Admission for TouchCount {
    fn request(&mut self, request: BlockRequest) -> bool {
        self.rotate(request.at, request.len);
        let TouchSettings { segment, threshold, .. } = self.touches;
        let (first, last) = (request.offset.0 / segment.0.max(1), (request.end() - 1) / segment.0.max(1));
        let mut admitted = false;
        for key in (first..=last).map(|segment| (request.disk, segment)) {
            let before: u32 = self.maps.iter().filter_map(|map| map.get(&key)).map(|n| u32::from(*n)).sum();
            admitted |= before >= threshold;
            if let Some(latest) = self.maps.back_mut() {
                let count = latest.entry(key).or_default();
                *count = count.saturating_add(1).min(self.touches.count_max());
            }
        }
        admitted
    }
}
