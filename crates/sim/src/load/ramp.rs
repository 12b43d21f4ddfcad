//! An open-loop ramp: an offered load that rises in steps, the delivered rate and the response of each, and
//! the point of saturation.
//!
//! Arrivals are a Poisson process, whether or not earlier ones have been answered. The first half of a step
//! warms up; what is answered in the second half is measured, as in SPECsfs. The point of saturation is the
//! delivered rate at which the mean response reaches a limit, interpolated between two steps.
//!
//! The arrivals are a load's requests ([`crate::Mode::Ramp`]), or operations of programs
//! ([`crate::load::operations`]).

use super::synthetic::LoadRng;
use crate::responses::{ResponseHistogram, Responses};
use schemars::JsonSchema;
use serde::Serialize;
use weir_model::Nanos;

/// The rates of an offered load, in steps of equal duration.
#[derive(Clone, Debug, PartialEq)]
pub struct Ramp {
    /// Arrivals per second of each step, above 0; at least one step.
    rates: Vec<f64>,
    /// Duration of a step.
    step: Nanos,
}

impl Ramp {
    /// Creates a ramp of these rates that lasts `duration` in all. Rates that are not above 0 are left out;
    /// `None` if none is left or a step would take no time.
    pub fn new(rates: impl IntoIterator<Item = f64>, duration: Nanos) -> Option<Self> {
        let rates: Vec<_> = rates.into_iter().filter(|rate| rate.is_finite() && *rate > 0.0).collect();
        let step = Nanos(duration.0.checked_div(rates.len() as u64)?);
        (step > Nanos(1)).then_some(Self { rates, step })
    }

    /// Returns `count` rates from `first` to `last`, evenly spaced.
    pub fn even(first: f64, last: f64, count: u32) -> impl Iterator<Item = f64> {
        let gaps = f64::from(count.saturating_sub(1).max(1));
        (0..count).map(move |nth| first + (last - first) * f64::from(nth) / gaps)
    }

    /// Returns the rates of the steps.
    pub fn rates(&self) -> &[f64] {
        &self.rates
    }

    /// Returns the duration of all steps.
    pub fn duration(&self) -> Nanos {
        Nanos(self.step.0 * self.rates.len() as u64)
    }

    /// Returns the step at a time; after the last one, the last one.
    fn step_at(&self, at: Nanos) -> usize {
        ((at.0 / self.step.0) as usize).min(self.rates.len() - 1)
    }

    /// Returns the time that is measured in each step.
    fn measured(&self) -> Nanos {
        self.step - Nanos(self.step.0 / 2)
    }
}

/// The arrivals of a ramp.
#[derive(Clone, Debug)]
pub struct RampArrivals {
    ramp: Ramp,
    random: LoadRng,
    next: Nanos,
}

impl RampArrivals {
    /// Creates the arrivals that `seed` determines.
    pub fn new(ramp: Ramp, seed: u64) -> Self {
        let mut arrivals = Self { ramp, random: LoadRng::new(seed), next: Nanos(0) };
        arrivals.advance();
        arrivals
    }

    /// Returns the time of the next arrival, from the start of the load.
    pub fn next(&self) -> Nanos {
        self.next
    }

    /// Proceeds to the arrival after the next one.
    pub fn advance(&mut self) {
        // The gap in arrivals: the integral of the rate from one arrival to the next.
        let mut gap = self.random.gap();
        loop {
            let step = self.ramp.step_at(self.next);
            let rate = self.ramp.rates[step];
            let end = Nanos(self.ramp.step.0 * (step as u64 + 1));
            let rest = end.since(self.next).as_secs_f64() * rate;
            if gap < rest || step + 1 == self.ramp.rates.len() {
                self.next += Nanos::from_secs_f64(gap / rate).max(Nanos(1));
                return;
            }
            gap -= rest;
            self.next = end;
        }
    }
}

/// Collects the responses of the steps.
#[derive(Clone, Debug)]
pub struct RampRecorder {
    ramp: Ramp,
    steps: Vec<ResponseHistogram>,
}

impl RampRecorder {
    /// Creates a recorder without responses.
    pub fn new(ramp: Ramp) -> Self {
        let steps = ramp.rates.iter().map(|_| ResponseHistogram::new()).collect();
        Self { ramp, steps }
    }

    /// Notes an answer to what arrived at `arrived`; times are from the start of the load.
    pub fn note(&mut self, arrived: Nanos, answered: Nanos) {
        let step = answered.0 / self.ramp.step.0;
        let is_measured = answered.0 % self.ramp.step.0 >= self.ramp.step.0 / 2;
        if let Some(responses) = self.steps.get_mut(step as usize).filter(|_| is_measured) {
            responses.add(answered - arrived);
        }
    }

    /// Returns the steps.
    pub fn steps(&self) -> Vec<RampStep> {
        let step = |(offered, responses): (&f64, &ResponseHistogram)| {
            let responses = responses.responses();
            let delivered = responses.count as f64 / self.ramp.measured().as_secs_f64();
            RampStep { offered: *offered, delivered, responses }
        };
        self.ramp.rates.iter().zip(&self.steps).map(step).collect()
    }
}

/// A step of a ramp.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(into = "RampStepPart")]
pub struct RampStep {
    /// Arrivals per second.
    pub offered: f64,
    /// Answers per second, in the second half of the step.
    pub delivered: f64,
    /// Their response times.
    pub responses: Responses,
}

/// A step of the ramp of `--ramp`; what is answered in its second half is measured.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RampStep")]
pub(crate) struct RampStepPart {
    /// Requests offered per second.
    offered_per_second: f64,
    /// Requests answered per second.
    delivered_per_second: f64,
    /// Mean response time; `null` if none was answered.
    mean_ns: Option<u64>,
    /// 99th percentile of the response times; `null` if none was answered.
    p99_ns: Option<u64>,
}

impl From<RampStep> for RampStepPart {
    fn from(step: RampStep) -> Self {
        let RampStep { offered, delivered, responses } = step;
        let time = |time| responses.time_if_any(time).map(|time| time.0);
        Self {
            offered_per_second: offered,
            delivered_per_second: delivered,
            mean_ns: time(responses.mean),
            p99_ns: time(responses.p99),
        }
    }
}

/// Returns the point of saturation: the delivered rate at which the mean response reaches `limit`. `None` if
/// no step reaches it, or the first one already does.
pub fn saturation(steps: &[RampStep], limit: Nanos) -> Option<f64> {
    let mean = |step: &RampStep| step.responses.time_if_any(step.responses.mean);
    let is_beyond = |step: &RampStep| mean(step).is_none_or(|mean| mean > limit);
    let beyond = steps.iter().position(is_beyond)?;
    let (last, next) = (&steps[beyond.checked_sub(1)?], &steps[beyond]);
    let Some(above) = mean(next) else { return Some(last.delivered) };
    let below = mean(last)?;
    let part = (limit - below).as_secs_f64() / (above - below).as_secs_f64();
    Some(last.delivered + part * (next.delivered - last.delivered))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(delivered: f64, millis: u64) -> RampStep {
        let responses = Responses { count: 1, mean: Nanos::millis(millis), ..Responses::default() };
        RampStep { offered: delivered, delivered, responses }
    }

    #[test]
    fn saturation_is_where_the_mean_response_reaches_the_limit() {
        let limit = Nanos::millis(50);
        let steps = [step(100.0, 5), step(200.0, 10), step(300.0, 90), step(310.0, 900)];
        assert_eq!(saturation(&steps, limit), Some(250.0));
        assert_eq!(saturation(&steps[..2], limit), None, "not reached");
        assert_eq!(saturation(&steps[2..], limit), None, "reached before the first step");
        let none = RampStep { responses: Responses::default(), ..step(0.0, 0) };
        assert_eq!(saturation(&[step(100.0, 5), none], limit), Some(100.0), "nothing was answered");
    }

    #[test]
    fn arrivals_come_at_the_rate_of_each_step() {
        let ramp = Ramp::new(Ramp::even(100.0, 1000.0, 4), Nanos::secs(400)).expect("a ramp");
        assert_eq!((ramp.rates(), ramp.duration()), (&[100.0, 400.0, 700.0, 1000.0][..], Nanos::secs(400)));
        let mut arrivals = RampArrivals::new(ramp, 3);
        let mut counts = [0; 5];
        while arrivals.next() < Nanos::secs(500) {
            let (at, step) = (arrivals.next(), arrivals.next().0 / 100_000_000_000);
            counts[step as usize] += 1;
            arrivals.advance();
            assert!(arrivals.next() > at);
        }
        for (count, expected) in counts.into_iter().zip([10_000.0, 40_000.0, 70_000.0, 1e5, 1e5]) {
            assert!((f64::from(count) / expected - 1.0).abs() < 0.03, "{counts:?}");
        }
    }

    #[test]
    fn the_second_half_of_each_step_is_measured() {
        let ramp = Ramp::new([10.0, 20.0], Nanos::secs(20)).expect("a ramp");
        let mut recorder = RampRecorder::new(ramp);
        for (arrived, answered) in [(0, 1), (4, 5), (1, 9), (9, 11), (3, 19), (19, 21)] {
            recorder.note(Nanos::secs(arrived), Nanos::secs(answered));
        }
        let steps = recorder.steps();
        assert_eq!(steps.iter().map(|step| step.delivered).collect::<Vec<_>>(), [0.4, 0.2]);
        let mean = steps[0].responses.mean.as_secs_f64();
        assert!((4.4..4.6).contains(&mean), "{mean}");
    }

    #[test]
    fn a_ramp_has_rates_and_time() {
        assert_eq!(Ramp::new([], Nanos::secs(1)), None);
        assert_eq!(Ramp::new([0.0, f64::NAN, -1.0], Nanos::secs(1)), None);
        assert_eq!(Ramp::new([1.0, 2.0], Nanos(3)), None);
        assert_eq!(Ramp::even(5.0, 9.0, 1).collect::<Vec<_>>(), [5.0]);
    }
}
