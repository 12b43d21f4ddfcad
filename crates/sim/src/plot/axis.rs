//! Axes: positions of values, and ticks with their units.

/// Kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// Plain numbers.
    Plain,
    /// Shares, 0 to 1.
    Percent,
    /// Sizes.
    Bytes,
    /// Times, in nanoseconds.
    Nanos,
}

const SIZES: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const TIMES: [(&str, f64); 7] =
    [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9), ("min", 60e9), ("h", 3600e9), ("days", 86_400e9)];
/// Approximate number of ticks per axis.
const TICKS: f64 = 6.0;
/// First digits of the steps between ticks.
const STEPS: [f64; 3] = [1.0, 2.0, 5.0];

/// An axis with ticks.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    from: f64,
    to: f64,
    is_logarithmic: bool,
    pub(super) name: String,
    pub(super) ticks: Vec<(f64, String)>,
}

impl Axis {
    /// Creates a linear axis.
    pub(super) fn linear(name: &str, from: f64, to: f64, unit: Unit) -> Self {
        let to = if to > from { to } else { from + 1.0 };
        // Fractions of a size are shown in the next smaller unit: 512 MiB, not 0.5 GiB.
        let (scale, suffix) = unit.of(if unit == Unit::Bytes { to / 2.0 } else { to });
        let step = unit.step((to - from) / TICKS / scale, suffix) * scale;
        let first = (from / step - 1e-9).ceil();
        let ticks =
            (0..50).map(|tick| (first + f64::from(tick)) * step).take_while(|at| *at <= to + step * 1e-9);
        let label = |at: f64| {
            let number = decimal(at / scale, step / scale);
            // Zero has no unit.
            if suffix.is_empty() || at == 0.0 { number } else { format!("{number} {suffix}") }
        };
        let ticks = ticks.map(|at| (at, label(at))).collect();
        Self { from, to, is_logarithmic: false, name: name.to_owned(), ticks }
    }

    /// Creates a logarithmic axis for positive values. Its ends are moved outwards to ticks or halves between
    /// them.
    pub(super) fn logarithmic(name: &str, from: f64, to: f64, unit: Unit) -> Self {
        let from = from.max(f64::MIN_POSITIVE);
        let to = to.max(from * 2.0);
        let ticks = if unit == Unit::Bytes { powers_of_two(from, to) } else { powers_of_ten(from, to) };
        let label = |at: f64| {
            let (scale, suffix) = unit.of(at);
            let number = significant(at / scale);
            if suffix.is_empty() { number } else { format!("{number} {suffix}") }
        };
        let ticks = ticks.into_iter().map(|at| (at, label(at))).collect();
        Self { from, to, is_logarithmic: true, name: name.to_owned(), ticks }
    }

    /// Returns the position of a value: 0 at the start of the axis, 1 at its end; values outside are clamped.
    pub(super) fn at(&self, value: f64) -> f64 {
        let share = if self.is_logarithmic {
            (value.max(f64::MIN_POSITIVE) / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        // NaN has no meaningful position.
        if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) }
    }
}

impl Unit {
    /// Returns the factor and name of the unit in which a value is shown.
    fn of(self, value: f64) -> (f64, &'static str) {
        match self {
            Self::Plain if value >= 1e9 => (1e9, "G"),
            Self::Plain if value >= 1e6 => (1e6, "M"),
            Self::Plain if value >= 1e5 => (1e3, "k"),
            Self::Plain => (1.0, ""),
            Self::Percent => (0.01, "%"),
            Self::Bytes => {
                let power = (value.max(1.0).log2() / 10.0 + 1e-9) as usize;
                let power = power.min(SIZES.len() - 1);
                (1024f64.powi(power as i32), SIZES[power])
            }
            Self::Nanos => {
                let fits = |(_, scale): &&(&str, f64)| value >= *scale * (1.0 - 1e-9);
                let (name, scale) = TIMES.iter().rfind(fits).unwrap_or(&TIMES[0]);
                (*scale, name)
            }
        }
    }

    /// Returns a step between ticks that is at least `least`.
    fn step(self, least: f64, unit: &str) -> f64 {
        let least = least.max(1e-12);
        if self == Self::Bytes && least >= 1.0 {
            return 2f64.powf(least.log2().ceil());
        }
        if matches!(unit, "min") && least > 1.0 {
            let steps = [2.0, 5.0, 10.0, 15.0, 30.0];
            return steps.into_iter().find(|step| *step >= least).unwrap_or(60.0);
        }
        let power = 10f64.powf(least.log10().floor());
        STEPS
            .iter()
            .map(|step| step * power)
            .find(|step| *step >= least * (1.0 - 1e-9))
            .unwrap_or(10.0 * power)
    }
}

/// Returns equally spaced powers of two, no more than fit on an axis.
fn powers_of_two(from: f64, to: f64) -> Vec<f64> {
    let (first, last) = ((from.log2() - 1e-9).ceil() as i32, (to.log2() + 1e-9).floor() as i32);
    let steps = [1, 2, 3, 5, 10];
    let step = steps.into_iter().find(|step| (last - first) / step < 8).unwrap_or(20);
    let all = (first..=last).filter(|power| power.rem_euclid(step) == 0);
    let all: Vec<_> = all.map(|power| 2f64.powi(power)).collect();
    if all.is_empty() { vec![from, to] } else { all }
}

/// Returns powers of ten, or halves and fifths of them where there are few.
fn powers_of_ten(from: f64, to: f64) -> Vec<f64> {
    let decades = (to / from).log10();
    let powers = (from.log10().floor() as i32)..=(to.log10().ceil() as i32);
    let thinned = (decades / 9.0).ceil().max(1.0) as i32;
    let digits: &[f64] = match decades {
        decades if decades < 0.7 => &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
        decades if decades < 2.5 => &STEPS,
        _ => &[1.0],
    };
    let powers = powers.filter(|power| power.rem_euclid(thinned) == 0);
    let all = powers.flat_map(|power| digits.iter().map(move |digit| digit * 10f64.powi(power)));
    all.filter(|at| (from * (1.0 - 1e-9)..=to * (1.0 + 1e-9)).contains(at)).collect()
}

/// Formats a multiple of `step` with as many decimal places as the step has.
fn decimal(value: f64, step: f64) -> String {
    let places = (0..9).find(|places| {
        let scaled = step * 10f64.powi(*places);
        (scaled - scaled.round()).abs() < 1e-6 * scaled
    });
    let text = format!("{value:.*}", places.unwrap_or(9) as usize);
    if text.trim_start_matches(['-', '0', '.']).is_empty() { "0".into() } else { text }
}

/// Formats a number with no more digits than needed, never with an exponent.
fn significant(value: f64) -> String {
    let places = (3 - value.abs().max(1e-12).log10().floor() as i32).clamp(0, 12) as usize;
    let text = format!("{value:.places$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn tick_labels_are_round_numbers() {
        const MIB: f64 = 1_048_576.0;
        let linear = |to, unit| labels(&Axis::linear("", 0.0, to, unit)).join(" ");
        assert_eq!(linear(1.0, Unit::Plain), "0 0.2 0.4 0.6 0.8 1.0");
        assert_eq!(linear(0.000_1, Unit::Plain), "0 0.00002 0.00004 0.00006 0.00008 0.00010");
        assert_eq!(linear(1234.0, Unit::Plain), "0 500 1000");
        assert_eq!(linear(2.5e6, Unit::Plain), "0 0.5 M 1.0 M 1.5 M 2.0 M 2.5 M");
        assert_eq!(linear(1.0, Unit::Percent), "0 20 % 40 % 60 % 80 % 100 %");
        assert_eq!(linear(3.5 * MIB, Unit::Bytes), "0 1 MiB 2 MiB 3 MiB");
        assert_eq!(linear(600.0 * MIB, Unit::Bytes), "0 128 MiB 256 MiB 384 MiB 512 MiB");
        assert_eq!(linear(20.0 * 60e9, Unit::Nanos), "0 5 min 10 min 15 min 20 min");
        assert_eq!(linear(2.5e6, Unit::Nanos), "0 0.5 ms 1.0 ms 1.5 ms 2.0 ms 2.5 ms");
        let log = |from, to, unit| labels(&Axis::logarithmic("", from, to, unit)).join(" ");
        assert_eq!(log(4096.0, 1024.0 * MIB, Unit::Bytes), "4 KiB 32 KiB 256 KiB 2 MiB 16 MiB 128 MiB 1 GiB");
        assert_eq!(log(8e4, 2e7, Unit::Nanos), "100 us 200 us 500 us 1 ms 2 ms 5 ms 10 ms 20 ms");
        assert_eq!(log(0.09, 100.0, Unit::Plain), "0.1 1 10 100");
        assert_eq!(log(120.0, 900.0, Unit::Plain), "200 500");
    }

    proptest! {
        #[test]
        fn an_axis_has_a_few_ticks_in_order_whatever_its_ends(from in -3f64..8.0, span in 0.0f64..10.0) {
            let (from, to) = (10f64.powf(from), 10f64.powf(from + span));
            for unit in [Unit::Plain, Unit::Bytes, Unit::Nanos] {
                for axis in [Axis::linear("", 0.0, to, unit), Axis::logarithmic("", from, to, unit)] {
                    prop_assert!((1..=15).contains(&axis.ticks.len()), "{:?}", axis);
                    prop_assert!(axis.ticks.windows(2).all(|pair| axis.at(pair[0].0) < axis.at(pair[1].0)), "{:?}", axis);
                    prop_assert!(axis.ticks.iter().all(|(_, label)| label.len() <= 16 && !label.contains('e')), "{:?}", axis);
                    let different: std::collections::BTreeSet<_> = labels(&axis).into_iter().collect();
                    prop_assert_eq!(different.len(), axis.ticks.len(), "{:?}", axis);
                }
            }
        }
    }
}
