//! The warning thresholds that have been passed.

use crate::units::Percent;

/// Remembers the highest threshold passed. It counts as passed until use is one percent below it, so that a
/// pool at a threshold does not warn repeatedly.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gauge {
    passed: Option<Percent>,
}

impl Gauge {
    /// Returns the threshold that counts as passed when `used` of `total` are in use.
    pub(super) fn threshold_for(self, thresholds: &[Percent], used: u64, total: u64) -> Option<Percent> {
        let reaches = |percent: u8| u128::from(used) * 100 >= u128::from(percent) * u128::from(total);
        let counts =
            |at: &&Percent| reaches(if Some(**at) <= self.passed { at.0.saturating_sub(1) } else { at.0 });
        thresholds.iter().filter(counts).max().copied()
    }

    /// Notes the use. Returns the threshold if a higher one than before was passed.
    pub(super) fn note(&mut self, thresholds: &[Percent], used: u64, total: u64) -> Option<Percent> {
        let before = self.passed;
        self.passed = self.threshold_for(thresholds, used, total);
        self.passed.filter(|at| before.is_none_or(|before| *at > before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_threshold_warns_once() {
        let thresholds = [Percent(80), Percent(95)];
        let mut gauge = Gauge::default();
        let mut said = |used| gauge.note(&thresholds, used, 1000).map(|at| at.0);
        assert_eq!([said(799), said(800), said(801), said(949)], [None, Some(80), None, None]);
        assert_eq!([said(1000), said(945), said(950)], [Some(95), None, None], "within a hundredth");
        assert_eq!([said(939), said(950)], [None, Some(95)], "left and passed again");
        assert_eq!([said(0), said(950)], [None, Some(95)], "the highest of those passed at once");
        assert_eq!(gauge.threshold_for(&thresholds, 941, 1000), Some(Percent(95)));
        assert_eq!(
            gauge.threshold_for(&thresholds, 939, 1000),
            Some(Percent(80)),
            "as it is now, whether or not it was noted"
        );
    }
}
