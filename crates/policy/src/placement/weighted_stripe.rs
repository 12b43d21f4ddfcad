//! `weighted_stripe`: extents over all devices in turn, in fixed proportions.
//!
//! Source: the static splits (50/50 to 90/10) against which Wardrop balancing is measured (the dissertation
//! behind it, chapter III, figures 10, 13, 18 and 19).
//!
//! Rule: each device has a weight. New extents go to the devices in proportion to their weights, as evenly
//! spread as possible: each extent adds every device's weight to the device's credit, and goes to the device
//! with space that has the most, which pays the sum of the weights. Nothing moves.
//!
//! Constants: the weights, in the order of the pool file; devices beyond the eighth have weight 1.
//!
//! When not: a split that suits one load is wrong for the next; `wardrop` and `adaptive` measure instead.

use super::{Access, Key, Placement, PolicyContext, Question, Reasons, Settings};
use weir_model::DeviceId;

/// The tunable constants.
pub(super) const KEYS: &[Key] = &[
    weight("weight1"),
    weight("weight2"),
    weight("weight3"),
    weight("weight4"),
    weight("weight5"),
    weight("weight6"),
    weight("weight7"),
    weight("weight8"),
];

const fn weight(name: &'static str) -> Key {
    Key::number(
        name,
        1.0,
        (0.0, 1e6),
        "the weight of the device at that place in the pool file; 0 for a spare",
    )
}

/// The state of the policy.
#[derive(Clone, Debug)]
pub struct WeightedStripe {
    weights: [f64; KEYS.len()],
    /// The credit of each device.
    credits: Vec<f64>,
}

impl WeightedStripe {
    pub(super) fn new(settings: &Settings) -> Self {
        let mut weights = [1.0; KEYS.len()];
        weights.iter_mut().zip(KEYS).for_each(|(weight, key)| *weight = settings.get(key));
        Self { weights, credits: Vec::new() }
    }

    fn weight(&self, device: usize) -> f64 {
        self.weights.get(device).copied().unwrap_or(1.0)
    }
}

impl Placement for WeightedStripe {
    fn name(&self) -> &'static str {
        "weighted_stripe"
    }

    fn allocate(&mut self, context: &mut PolicyContext<'_>, _: &Access) -> Option<DeviceId> {
        let devices = context.devices;
        self.credits.resize(devices.len(), 0.0);
        let takes = |at: &usize| devices[*at].free > 0 && self.weight(*at) > 0.0;
        let taking: Vec<usize> = (0..devices.len()).filter(takes).collect();
        let sum: f64 = taking.iter().map(|at| self.weight(*at)).sum();
        for &at in &taking {
            self.credits[at] += self.weight(at);
        }
        // Of equal credits the first device's counts.
        let most = taking.into_iter().rev().max_by(|a, b| self.credits[*a].total_cmp(&self.credits[*b]));
        let Some(at) = most else {
            // Only spare devices have space.
            return devices.iter().find(|device| device.free > 0).map(|device| device.id);
        };
        self.credits[at] -= sum;
        Some(devices[at].id)
    }

    fn explain(&self, context: &PolicyContext<'_>, about: &Question<'_>) -> Reasons {
        let mut reasons = Reasons::default();
        for (at, device) in context.devices.iter().enumerate() {
            reasons.figure(format_args!("weight of {}", about.name(device.id)), self.weight(at));
        }
        reasons.free_space(context.devices, about);
        reasons
    }
}

#[cfg(test)]
mod tests {
    use super::super::Places;
    use super::super::testing::{Pool, device, key};
    use super::*;
    use weir_model::{Bytes, Op};

    fn policy(weights: &[f64]) -> WeightedStripe {
        let mut settings = Settings::default();
        KEYS.iter().zip(weights).for_each(|(key, weight)| assert!(settings.set(key, *weight)));
        WeightedStripe::new(&settings)
    }

    /// Allocates `count` extents; returns the devices.
    fn allocate(pool: &mut Pool, policy: &mut WeightedStripe, count: usize) -> Vec<u8> {
        let access = pool.access(0, Op::Write, Bytes::kib(4));
        let mut one = || pool.ask(|context| policy.allocate(context, &access)).0.map(|device| device.0);
        (0..count).map(|_| one().expect("space")).collect()
    }

    #[test]
    fn extents_are_spread_evenly_in_proportion() {
        let mut pool = Pool::new(vec![device(0, 1000, 100), device(1, 1000, 900)]);
        let devices = allocate(&mut pool, &mut policy(&[80.0, 20.0]), 10);
        assert_eq!(devices, [0, 0, 1, 0, 0, 0, 0, 1, 0, 0]);
        let devices = allocate(&mut pool, &mut policy(&[]), 4);
        assert_eq!(devices, [0, 1, 0, 1], "all alike by default");
        let many = allocate(&mut pool, &mut policy(&[0.7, 0.3]), 1000);
        assert_eq!(many.iter().filter(|device| **device == 0).count(), 700);
    }

    #[test]
    fn full_and_spare_devices_get_nothing_while_others_have_space() {
        let mut pool = Pool::new(vec![device(0, 100, 100), device(1, 100, 100), device(2, 100, 100)]);
        let mut policy = policy(&[3.0, 1.0, 0.0]);
        assert!(allocate(&mut pool, &mut policy, 8).iter().all(|device| *device != 2));
        pool.devices[0].free = 0;
        assert_eq!(allocate(&mut pool, &mut policy, 2), [1, 1]);
        pool.devices[1].free = 0;
        assert_eq!(allocate(&mut pool, &mut policy, 2), [2, 2]);
    }

    #[test]
    fn explanation_states_the_weights() {
        let mut pool = Pool::new(vec![device(0, 100, 100), device(1, 100, 100)]);
        let policy = policy(&[3.0, 1.5]);
        let names = ["a".to_owned(), "b".to_owned()];
        let about = Question { key: key(0), block: 0, places: Places::NONE, names: &names };
        let reasons = pool.ask(|context| policy.explain(context, &about)).0;
        let weights = reasons.figures[..2].iter().map(|figure| (&*figure.name, &*figure.value));
        assert_eq!(weights.collect::<Vec<_>>(), [("weight of a", "3"), ("weight of b", "1.5")]);
    }
}
