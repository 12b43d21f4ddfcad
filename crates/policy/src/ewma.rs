//! The moving average of the papers, and the moving standard deviation.

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

/// A moving mean and standard deviation: those of all samples up to a hundred, then exponentially weighted as
/// [`Ewma`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MovingDeviation {
    /// The number of samples, at most [`Self::SAMPLES`].
    count: u8,
    mean: f64,
    variance: f64,
}

impl MovingDeviation {
    /// A deviation without samples.
    pub const NONE: Self = Self { count: 0, mean: 0.0, variance: 0.0 };
    /// The number of samples from which on each new one has a weight of one in this many.
    const SAMPLES: u8 = 100;

    /// Adds a sample.
    #[inline]
    pub fn add(&mut self, sample: Nanos) {
        self.count = (self.count + 1).min(Self::SAMPLES);
        let weight = 1.0 / f64::from(self.count);
        let difference = sample.0 as f64 - self.mean;
        self.mean += weight * difference;
        self.variance = (1.0 - weight) * (self.variance + weight * difference * difference);
    }

    /// Returns the mean; `None` before the first sample.
    #[inline]
    pub fn mean(&self) -> Option<Nanos> {
        (self.count > 0).then_some(Nanos(self.mean as u64))
    }

    /// Returns the standard deviation; zero before the second sample.
    #[inline]
    pub fn deviation(&self) -> Nanos {
        Nanos(self.variance.sqrt() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deviation_is_that_of_the_samples() {
        let mut few = MovingDeviation::NONE;
        assert_eq!((few.mean(), few.deviation()), (None, Nanos(0)));
        few.add(Nanos(1000));
        assert_eq!((few.mean(), few.deviation()), (Some(Nanos(1000)), Nanos(0)));
        [2000, 3000, 4000, 5000].into_iter().for_each(|sample| few.add(Nanos(sample)));
        assert_eq!(few.mean(), Some(Nanos(3000)));
        assert_eq!(few.deviation(), Nanos(1414), "the root of 2, in thousands");
    }

    #[test]
    fn old_samples_of_a_deviation_are_forgotten() {
        let mut all = MovingDeviation::NONE;
        (0..200).for_each(|i| all.add(Nanos(if i % 2 == 0 { 1_000_000 } else { 9_000_000 })));
        assert!((3_900_000..=4_100_000).contains(&all.deviation().0), "{all:?}");
        (0..1000).for_each(|i| all.add(Nanos(if i % 2 == 0 { 1000 } else { 1200 })));
        assert!((1090..=1400).contains(&all.mean().map_or(0, |mean| mean.0)), "{all:?}");
        assert!(all.deviation() < Nanos(60_000), "{all:?}");
    }

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
