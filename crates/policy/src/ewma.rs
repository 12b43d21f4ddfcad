//! The moving average of the papers.

use weir_model::Nanos;

/// An exponentially weighted moving average: `avg = 0.99 * avg + 0.01 * sample`, the weight that
/// measurement-driven migration and Wardrop balancing use.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ewma(Option<f64>);

impl Ewma {
    /// An average without samples.
    pub const NONE: Self = Self(None);

    /// Adds a sample. The first one becomes the average.
    #[inline]
    pub fn add(&mut self, sample: Nanos) {
        let sample = sample.0 as f64;
        let avg = self.0.get_or_insert(sample);
        *avg += 0.01 * (sample - *avg);
    }

    /// Returns the average; `None` before the first sample.
    #[inline]
    pub fn get(self) -> Option<Nanos> {
        self.0.map(|ns| Nanos(ns as u64))
    }

    /// Returns the average in seconds.
    #[inline]
    pub fn seconds(self) -> Option<f64> {
        self.0.map(|ns| ns / 1e9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sample_has_weight_one_percent() {
        let mut mean = Ewma::default();
        assert_eq!(mean.get(), None);
        mean.add(Nanos(1000));
        assert_eq!(mean.get(), Some(Nanos(1000)));
        mean.add(Nanos(2000));
        assert_eq!(mean.get(), Some(Nanos(1010)));
        (0..1000).for_each(|_| mean.add(Nanos(500)));
        assert!(mean.seconds().is_some_and(|s| (s - 500e-9).abs() < 1e-9));
    }
}
