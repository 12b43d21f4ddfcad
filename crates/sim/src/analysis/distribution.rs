//! Distribution of numbers: a histogram by powers of two, and percentiles.

use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::Serialize;

/// Collects numbers with a precision of 1 %. Memory: a few KiB, for any number of values.
#[derive(Clone, Debug)]
pub(super) struct DistributionCollector {
    counted: Histogram<u64>,
    sum: f64,
    min: u64,
    max: u64,
}

/// A distribution of numbers; percentiles are exact to 1 %. All figures are 0 if there are no numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Distribution")]
pub struct Spread {
    /// How many numbers.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// Minimum.
    pub min: u64,
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// Maximum.
    pub max: u64,
    /// Histogram by powers of two, from the first bucket that is not empty to the last.
    pub buckets: Vec<Bucket>,
}

/// Numbers from one power of two to below the next; the first bucket also counts zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Bucket {
    /// The power of two.
    pub from: u64,
    /// How many numbers.
    pub count: u64,
}

impl Default for DistributionCollector {
    fn default() -> Self {
        let counted = Histogram::new(DIGITS).unwrap_or_else(|_| unreachable!("two digits are possible"));
        Self { counted, sum: 0.0, min: u64::MAX, max: 0 }
    }
}

impl DistributionCollector {
    /// Adds a value; values above 2^62 are clamped.
    #[inline]
    pub(super) fn add(&mut self, number: u64) {
        self.add_many(number, 1);
    }

    /// Adds a value several times.
    #[inline]
    pub(super) fn add_many(&mut self, number: u64, times: u64) {
        let number = number.min(VALUE_MAX);
        // The histogram resizes itself.
        let _ = self.counted.record_n(number, times);
        (self.min, self.max) = (self.min.min(number), self.max.max(number));
        self.sum += number as f64 * times as f64;
    }

    /// Returns the distribution.
    pub(super) fn spread(&self) -> Spread {
        let count = self.counted.len();
        if count == 0 {
            return Spread::default();
        }
        let (min, max) = (self.min, self.max);
        // The lowest value of each histogram bin: powers of two are exact.
        let at = |share| self.counted.lowest_equivalent(self.counted.value_at_quantile(share)).max(min);
        let power = |number: u64| number.max(1).ilog2();
        let buckets = (power(min)..=power(max)).map(|power| {
            let from = 1 << power;
            let least = if power == 0 { 0 } else { from };
            Bucket { from, count: self.counted.count_between(least, (from - 1) + from) }
        });
        Spread {
            count,
            mean: self.sum / count as f64,
            min,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            max,
            buckets: buckets.collect(),
        }
    }
}

const VALUE_MAX: u64 = 1 << 62;
const DIGITS: u8 = 2;
