//! Watermarks: when eviction from a tier starts, and when it stops.

use weir_model::Bytes;

/// Shares of a tier's size: eviction starts when more than `high` of it is in use, and stops at `low`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Watermarks {
    /// From 0 to 1.
    pub high: f64,
    /// From 0 to `high`.
    pub low: f64,
}

impl Default for Watermarks {
    /// Returns 90 % and 85 %: a request finds free space while eviction is at work.
    fn default() -> Self {
        Self { high: 0.90, low: 0.85 }
    }
}

impl Watermarks {
    /// Those of TridentFS (section 3.4), with which requests wait for evictions.
    pub const PUBLISHED: Self = Self { high: 1.0, low: 0.95 };

    /// Returns the watermarks; `None` unless `0 <= low <= high <= 1`.
    pub fn new(high: f64, low: f64) -> Option<Self> {
        (0.0 <= low && low <= high && high <= 1.0).then_some(Self { high, low })
    }

    /// Whether eviction starts with `used` of `size` in use and requests waiting for `wanted` more.
    pub fn starts(self, used: Bytes, wanted: Bytes, size: Bytes) -> bool {
        (used.0 + wanted.0) as f64 > self.high * size.0 as f64
    }

    /// Returns the bytes to evict from there on, so that `used` with what requests wait for is at most `low`.
    pub fn excess(self, used: Bytes, wanted: Bytes, size: Bytes) -> Bytes {
        Bytes((used.0 + wanted.0).saturating_sub((self.low * size.0 as f64) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eviction_starts_above_the_high_and_ends_at_the_low_watermark() {
        let size = Bytes(1000);
        let marks = Watermarks::default();
        assert!(!marks.starts(Bytes(900), Bytes(0), size) && marks.starts(Bytes(900), Bytes(1), size));
        assert_eq!(marks.excess(Bytes(900), Bytes(10), size), Bytes(60));
        assert_eq!(marks.excess(Bytes(800), Bytes(0), size), Bytes(0));
        assert!(!Watermarks::PUBLISHED.starts(Bytes(1000), Bytes(0), size));
        for (high, low) in [(0.5, 0.6), (1.1, 1.0), (0.5, -0.1), (f64::NAN, 0.5)] {
            assert_eq!(Watermarks::new(high, low), None, "{high} {low}");
        }
        assert_eq!(Watermarks::new(1.0, 0.95), Some(Watermarks::PUBLISHED));
    }
}
