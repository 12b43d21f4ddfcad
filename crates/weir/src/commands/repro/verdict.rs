//! Compares a measured figure with a published one.
//!
//! Ratios are compared by their natural logarithms, so a ratio and its inverse get the same verdict. A
//! printed figure stands for the interval of the values that round to it; the point of the interval next to
//! the measured figure is compared.

use super::published::{Direction, Published};

/// The result of comparing a measured figure with a published one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    /// The gain is about the published one.
    Agrees,
    /// The better configuration of the publication is the better one here, by another factor.
    InDirection,
    /// The better configuration of the publication is not the better one here, or the words do not hold.
    Differs,
}

/// A published gain and a measured one agree if they are this factor apart or less, however small the
/// published one is.
const ALWAYS_AGREES: f64 = 1.05;
/// They never agree if they are further apart than this factor.
const NEVER_AGREES: f64 = 1.5;
/// A measured ratio has a direction if it is this far from 1, or further.
const MEASURED_DIRECTION: f64 = 1.02;
/// So has a published one.
const PUBLISHED_DIRECTION: f64 = 1.03;
/// "Nearly", "similar" and "slightly" mean within this factor.
const NEARLY: f64 = 1.1;
/// Shares and hit ratios agree if they are this far apart or less.
const SHARE: f64 = 0.10;

impl Published {
    /// Compares this figure with the measured one, a ratio to the baseline or a share. Returns `None` if the
    /// measured figure is not a positive number (for a share: not a number), or if there is nothing to
    /// compare with.
    pub(super) fn verdict(&self, measured: f64) -> Option<Verdict> {
        if !measured.is_finite() {
            return None;
        }
        if let Self::Share(interval) = self {
            let is_near = (measured - interval.nearest(measured)).abs() <= SHARE + 1e-12;
            return Some(if is_near { Verdict::Agrees } else { Verdict::Differs });
        }
        if measured <= 0.0 {
            return None;
        }
        let log = measured.ln();
        let is_in_direction = |sign: f64| sign * log >= MEASURED_DIRECTION.ln();
        Some(match self {
            Self::Ratio(interval) => {
                let published = interval.nearest(measured).ln();
                let tolerance = (published.abs() / 2.0).max(ALWAYS_AGREES.ln()).min(NEVER_AGREES.ln());
                if (log - published).abs() <= tolerance {
                    Verdict::Agrees
                } else if published.abs() >= PUBLISHED_DIRECTION.ln() && is_in_direction(published.signum()) {
                    Verdict::InDirection
                } else {
                    Verdict::Differs
                }
            }
            Self::Direction(direction) => match direction {
                Direction::More if is_in_direction(1.0) => Verdict::InDirection,
                Direction::Less if is_in_direction(-1.0) => Verdict::InDirection,
                _ => Verdict::Differs,
            },
            Self::Words(_) if log.abs() <= NEARLY.ln() => Verdict::Agrees,
            Self::WordsOr(_, Direction::More) if log >= -NEARLY.ln() => Verdict::Agrees,
            Self::WordsOr(_, Direction::Less) if log <= NEARLY.ln() => Verdict::Agrees,
            Self::Words(_) | Self::WordsOr(..) => Verdict::Differs,
            Self::Share(_) | Self::Unreadable(_) => return None,
        })
    }
}

impl Published {
    /// Returns how far a measured figure is from this one: as a logarithm, or for a share as a difference;
    /// 0 where it has the published direction, or the words hold. `None` as for [`Self::verdict`].
    pub(super) fn distance(&self, measured: f64) -> Option<f64> {
        if !measured.is_finite() || measured <= 0.0 && !matches!(self, Self::Share(_)) {
            return None;
        }
        let log = measured.ln();
        let beyond = |sign: f64, least: f64| (least - sign * log).max(0.0);
        Some(match self {
            Self::Share(interval) => (measured - interval.nearest(measured)).abs(),
            Self::Ratio(interval) => (log - interval.nearest(measured).ln()).abs(),
            Self::Direction(Direction::More) => beyond(1.0, MEASURED_DIRECTION.ln()),
            Self::Direction(Direction::Less) => beyond(-1.0, MEASURED_DIRECTION.ln()),
            Self::Words(_) => (log.abs() - NEARLY.ln()).max(0.0),
            Self::WordsOr(_, Direction::More) => beyond(1.0, -NEARLY.ln()),
            Self::WordsOr(_, Direction::Less) => beyond(-1.0, -NEARLY.ln()),
            Self::Unreadable(_) => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::repro::published::Interval;
    use proptest::prelude::*;

    fn ratio(least: f64, most: f64) -> Published {
        Published::Ratio(Interval { least, most })
    }

    #[test]
    fn a_ratio_agrees_within_half_its_gain() {
        let verdict = |published: f64, measured| ratio(published, published).verdict(measured);
        assert_eq!(verdict(1.38, 1.30), Some(Verdict::Agrees));
        assert_eq!(verdict(1.38, 1.10), Some(Verdict::InDirection));
        assert_eq!(verdict(1.38, 0.98), Some(Verdict::Differs), "no gain is not a gain");
        assert_eq!(verdict(1.38, 1.019), Some(Verdict::Differs));
        assert_eq!(verdict(1.02, 1.0), Some(Verdict::Agrees));
        assert_eq!(verdict(1.02, 1.2), Some(Verdict::Differs), "the published figure has no direction");
        assert_eq!(verdict(8.0, 4.0), Some(Verdict::InDirection), "never more than a factor of 1.5");
        assert_eq!(verdict(2.0, f64::NAN), None);
        assert_eq!(verdict(2.0, 0.0), None, "no work");
        assert_eq!(verdict(2.0, f64::INFINITY), None);
    }

    #[test]
    fn an_interval_is_compared_at_its_nearest_point() {
        assert_eq!(ratio(1.0, 1.2).verdict(1.1), Some(Verdict::Agrees));
        assert_eq!(ratio(1.4, 1.6).verdict(1.3), Some(Verdict::Agrees));
    }

    #[test]
    fn directions_words_and_shares_have_limits_of_their_own() {
        let more = Published::Direction(Direction::More);
        assert_eq!(more.verdict(1.03), Some(Verdict::InDirection));
        assert_eq!(more.verdict(1.01), Some(Verdict::Differs), "within the noise");
        assert_eq!(Published::Direction(Direction::Less).verdict(0.9), Some(Verdict::InDirection));
        let words = Published::Words("nearly the same".into());
        assert_eq!(
            (words.verdict(1.09), words.verdict(0.9)),
            (Some(Verdict::Agrees), Some(Verdict::Differs))
        );
        let or_more = Published::WordsOr("nearly as well as or better".into(), Direction::More);
        let verdicts = [0.9, 0.92, 2.4].map(|measured| or_more.verdict(measured));
        assert_eq!(verdicts, [Verdict::Differs, Verdict::Agrees, Verdict::Agrees].map(Some));
        let or_less = Published::WordsOr("nearly as well as or better".into(), Direction::Less);
        assert_eq!(or_less.verdict(0.4), Some(Verdict::Agrees));
        let share = Published::Share(Interval { least: 0.65, most: 0.70 });
        assert_eq!(
            (share.verdict(0.55), share.verdict(0.81)),
            (Some(Verdict::Agrees), Some(Verdict::Differs))
        );
        assert_eq!(share.verdict(0.0), Some(Verdict::Differs), "a share may be 0");
    }

    proptest! {
        #[test]
        fn a_ratio_and_its_inverse_get_the_same_verdict(
            least in 0.05f64..20.0, width in 1.0f64..1.3, measured in 0.05f64..20.0,
        ) {
            let most = least * width;
            let inverse = ratio(1.0 / most, 1.0 / least).verdict(1.0 / measured);
            prop_assert_eq!(ratio(least, most).verdict(measured), inverse);
        }

        #[test]
        fn no_gain_agrees_only_with_a_published_gain_of_five_percent(published in 1.051f64..20.0) {
            prop_assert_ne!(ratio(published, published).verdict(1.0), Some(Verdict::Agrees));
        }
    }
}
