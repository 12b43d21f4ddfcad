//! The steps of a server's ramp, as metrics in the results file and read back from there.

use crate::commands::repro::results::Metrics;
use weir_model::{DeviceId, Nanos};
use weir_sim::load::ramp::saturation;
use weir_sim::place::migrations::{Migration, MigrationLog};
use weir_sim::{Outcome, RampStep, Responses};

/// The disk that is local to each server.
const LOCAL: DeviceId = DeviceId(0);

/// The steps of a server's ramp.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Steps {
    /// Mean response at which a server counts as saturated.
    limit: Nanos,
    /// Operations per second that were offered, and answered.
    pub(super) offered: Vec<f64>,
    pub(super) delivered: Vec<f64>,
    /// Mean response of operations in seconds; infinite if none was answered.
    pub(super) response: Vec<f64>,
    /// Block requests in the step, and those that were migrated to the local disk and from it.
    pub(super) requests: Vec<f64>,
    pub(super) inward: Vec<f64>,
    pub(super) outward: Vec<f64>,
    /// For each disk, the local one first: its share of the server's commands, and of the time in which it
    /// had one in flight.
    pub(super) shares: Vec<Vec<f64>>,
    pub(super) loads: Vec<Vec<f64>>,
}

/// The letter of a server.
pub(super) fn letter(server: usize) -> char {
    ['A', 'B', 'C'][server % 3]
}

/// Returns the metrics of an experiment: those of the steps of each server.
pub(super) fn metrics(outcomes: &[Outcome], logs: &[MigrationLog], duration: Nanos) -> Metrics {
    let mut all = Metrics::new();
    for (server, (outcome, log)) in outcomes.iter().zip(logs).enumerate() {
        let steps = Steps::of(outcome, &log.migrations(), duration);
        for (name, values) in steps.lists() {
            for (step, value) in values.iter().enumerate().filter(|(_, value)| value.is_finite()) {
                all.insert(format!("{} {name} {step}", letter(server)), *value);
            }
        }
    }
    all
}

impl Steps {
    fn of(outcome: &Outcome, migrations: &[Migration], duration: Nanos) -> Self {
        let count = outcome.ramp.len();
        let length = duration.as_secs_f64() / count.max(1) as f64;
        let step_of =
            |migration: &&Migration| ((migration.at - outcome.start).as_secs_f64() / length) as usize;
        let migrated = |step: usize, wanted: fn(&Migration) -> bool| {
            migrations.iter().filter(|one| step_of(one) == step && wanted(one)).count() as f64
        };
        let mean = |step: &RampStep| step.responses.time_if_any(step.responses.mean);
        let response = |step| mean(step).map_or(f64::INFINITY, Nanos::as_secs_f64);
        // Two windows a step; the second one is measured.
        let window = |step: usize| outcome.windows.get(2 * step + 1);
        let rate = |window: usize| outcome.windows.get(window).map_or(0.0, |window| window.rate);
        let disks = 0..outcome.devices.len();
        let by_disk = |list: fn(&weir_sim::Window) -> &[f64]| {
            let of_disk = |disk: usize| {
                let value = |step| window(step).and_then(|window| list(window).get(disk)).copied();
                (0..count).map(|step| value(step).unwrap_or(0.0)).collect()
            };
            disks.clone().map(of_disk).collect()
        };
        Self {
            limit: Nanos(0),
            offered: outcome.ramp.iter().map(|step| step.offered).collect(),
            delivered: outcome.ramp.iter().map(|step| step.delivered).collect(),
            response: outcome.ramp.iter().map(response).collect(),
            requests: (0..count).map(|step| (rate(2 * step) + rate(2 * step + 1)) / 2.0 * length).collect(),
            inward: (0..count).map(|step| migrated(step, |one| one.to == LOCAL)).collect(),
            outward: (0..count).map(|step| migrated(step, |one| one.from == LOCAL)).collect(),
            shares: by_disk(|window| &window.shares),
            loads: by_disk(|window| &window.loads),
        }
    }

    fn lists(&self) -> Vec<(String, &Vec<f64>)> {
        let Self { offered, delivered, response, requests, inward, outward, shares, loads, .. } = self;
        let lists = [
            ("offered", offered),
            ("delivered", delivered),
            ("response", response),
            ("requests", requests),
            ("inward", inward),
            ("outward", outward),
        ];
        let mut all: Vec<_> = lists.into_iter().map(|(name, list)| (name.to_owned(), list)).collect();
        for (name, lists) in [("share", shares), ("load", loads)] {
            all.extend(lists.iter().enumerate().map(|(disk, list)| (format!("{name} of disk {disk}"), list)));
        }
        all
    }

    /// Reads the steps of a server that is saturated at the mean response `limit`; `None` if the experiment
    /// has no such server.
    pub(super) fn read(metrics: &Metrics, server: usize, limit: Nanos) -> Option<Self> {
        let value =
            |name: &str, step: usize| metrics.get(&format!("{} {name} {step}", letter(server))).copied();
        let count = (0..).take_while(|step| value("offered", *step).is_some()).count();
        let list = |name: &str, absent: f64| -> Vec<f64> {
            (0..count).map(|step| value(name, step).unwrap_or(absent)).collect()
        };
        let by_disk = |name: &str| -> Vec<Vec<f64>> {
            let names = (0..).map(|disk| format!("{name} of disk {disk}"));
            names.take_while(|name| value(name, 0).is_some()).map(|name| list(&name, 0.0)).collect()
        };
        (count > 0).then(|| Self {
            limit,
            offered: list("offered", 0.0),
            delivered: list("delivered", 0.0),
            response: list("response", f64::INFINITY),
            requests: list("requests", 0.0),
            inward: list("inward", 0.0),
            outward: list("outward", 0.0),
            shares: by_disk("share"),
            loads: by_disk("load"),
        })
    }

    /// Returns the steps of several servers together: the sums of rates, and the mean response of an
    /// operation. Disks are those of the bricks in order, with `disk_of` the disk of each server on a brick;
    /// their shares are of all servers' commands.
    pub(super) fn together(all: &[Self], disk_of: impl Fn(usize, usize) -> usize) -> Self {
        let count = all.first().map_or(0, |one| one.offered.len());
        let sum = |list: fn(&Self) -> &Vec<f64>| -> Vec<f64> {
            (0..count).map(|step| all.iter().map(|one| list(one)[step]).sum()).collect()
        };
        let delivered = sum(|one| &one.delivered);
        let response = |step: usize| {
            let times = all.iter().map(|one| one.delivered[step] * one.response[step]);
            times.sum::<f64>() / delivered[step]
        };
        let requests = sum(|one| &one.requests);
        let share = |brick: usize, step: usize| {
            let at_brick = all.iter().enumerate().map(|(server, one)| {
                let share = one.shares.get(disk_of(server, brick)).map_or(0.0, |shares| shares[step]);
                one.requests[step] * share
            });
            at_brick.sum::<f64>() / requests[step]
        };
        let bricks = all.first().map_or(0, |one| one.shares.len());
        Self {
            limit: all.first().map_or(Nanos(0), |one| one.limit),
            offered: sum(|one| &one.offered),
            response: (0..count).map(response).collect(),
            inward: sum(|one| &one.inward),
            outward: sum(|one| &one.outward),
            shares: (0..bricks).map(|brick| (0..count).map(|step| share(brick, step)).collect()).collect(),
            loads: Vec::new(),
            delivered,
            requests,
        }
    }

    /// Returns the point of saturation in operations per second.
    pub(super) fn saturation(&self) -> f64 {
        let step = |step: usize| {
            let is_answered = self.response[step].is_finite();
            let mean = Nanos::from_secs_f64(if is_answered { self.response[step] } else { 0.0 });
            let responses = Responses { count: u64::from(is_answered), mean, ..Responses::default() };
            RampStep { offered: self.offered[step], delivered: self.delivered[step], responses }
        };
        let steps: Vec<_> = (0..self.offered.len()).map(step).collect();
        saturation(&steps, self.limit).unwrap_or(f64::NAN)
    }

    /// Returns the number of migrated requests.
    pub(super) fn migrations(&self) -> f64 {
        self.inward.iter().chain(&self.outward).sum()
    }

    /// Returns the number of steps before the point of saturation.
    pub(super) fn below_saturation(&self) -> usize {
        let limit = self.limit.as_secs_f64();
        self.response.iter().take_while(|response| **response <= limit).count()
    }

    /// Returns the response at an offered rate, interpolated between steps; not a number if the rate is none.
    pub(super) fn response_at(&self, offered: f64) -> f64 {
        if !offered.is_finite() {
            return f64::NAN;
        }
        let after = self.offered.partition_point(|rate| *rate < offered).min(self.offered.len() - 1);
        let before = after.saturating_sub(1);
        let (low, high) = (self.offered[before], self.offered[after]);
        let part = if high > low { ((offered - low) / (high - low)).clamp(0.0, 1.0) } else { 0.0 };
        self.response[before] + part * (self.response[after] - self.response[before])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Nanos = Nanos::millis(50);

    pub(super) fn ramp(response_ms: &[f64]) -> Steps {
        let count = response_ms.len();
        let rates: Vec<f64> = (1..=count).map(|step| 100.0 * step as f64).collect();
        Steps {
            limit: LIMIT,
            delivered: rates.clone(),
            offered: rates,
            response: response_ms.iter().map(|ms| ms / 1e3).collect(),
            requests: vec![10.0; count],
            inward: vec![1.0; count],
            outward: vec![0.0; count],
            shares: vec![vec![0.6; count], vec![0.4; count]],
            loads: vec![vec![0.5; count], vec![0.3; count]],
        }
    }

    #[test]
    fn steps_are_read_back_as_they_were_kept() {
        let steps = ramp(&[5.0, 10.0, f64::INFINITY]);
        let mut metrics = Metrics::new();
        for (name, values) in steps.lists() {
            for (step, value) in values.iter().enumerate().filter(|(_, value)| value.is_finite()) {
                metrics.insert(format!("B {name} {step}"), *value);
            }
        }
        assert_eq!(Steps::read(&metrics, 1, LIMIT), Some(steps));
        assert_eq!(Steps::read(&metrics, 0, LIMIT), None);
    }

    #[test]
    fn saturation_and_responses_are_interpolated() {
        let steps = ramp(&[10.0, 30.0, 70.0]);
        assert_eq!((steps.saturation(), steps.below_saturation()), (250.0, 2));
        assert!((steps.response_at(150.0) - 0.02).abs() < 1e-9);
        assert!(
            (steps.response_at(50.0) - 0.01).abs() < 1e-9 && (steps.response_at(900.0) - 0.07).abs() < 1e-9
        );
        assert!(ramp(&[10.0, 20.0]).saturation().is_nan(), "not saturated");
    }

    #[test]
    fn servers_together_have_the_mean_response_of_an_operation() {
        let (mut one, mut other) = (ramp(&[10.0]), ramp(&[20.0]));
        other.delivered = vec![300.0];
        one.requests = vec![30.0];
        // The other server's disks are in the other order.
        let both = Steps::together(&[one, other], |server, brick| (brick + server) % 2);
        assert!((both.response[0] - 0.0175).abs() < 1e-9, "{both:?}");
        assert_eq!((both.delivered[0], both.inward[0]), (400.0, 2.0));
        assert!((both.shares[0][0] - (30.0 * 0.6 + 10.0 * 0.4) / 40.0).abs() < 1e-9, "{both:?}");
    }
}
