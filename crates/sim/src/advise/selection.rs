//! Ranks sets of devices and picks the one to buy.

use super::frontier::{SIMILARITY, frontier};
use super::{Cents, Years};
use schemars::JsonSchema;
use serde::Serialize;
use weir_model::Nanos;

/// The criteria by which a set is judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SetFigures {
    /// Price.
    pub price: Cents,
    /// Mean response time.
    pub mean: Nanos,
    /// 99th percentile of the response times.
    pub p99: Nanos,
    /// Flash life.
    pub life: Years,
}

/// Limits that a set must satisfy; each defaults to none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Maximum price.
    pub budget: Option<Cents>,
    /// Maximum mean response time.
    pub mean: Option<Nanos>,
    /// Maximum 99th percentile.
    pub p99: Option<Nanos>,
    /// Minimum flash life.
    pub life: Years,
}

/// The rule that picks a set of those that keep to the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// Response times are limited: the cheapest set.
    Cheapest,
    /// The price alone is limited: the fastest set, and the cheapest of those that are as fast.
    Fastest,
    /// Neither is limited: the least product of price and response time. One per cent more money has to buy
    /// one per cent shorter responses.
    Balanced,
}

impl SetFigures {
    /// Returns the geometric mean of mean and p99, in seconds; both have equal weight.
    pub fn response(&self) -> f64 {
        (self.mean.as_secs_f64() * self.p99.as_secs_f64()).sqrt()
    }
}

impl Limits {
    /// Reports whether the set satisfies the limits.
    pub fn is_satisfied_by(&self, judged: &SetFigures) -> bool {
        self.budget.is_none_or(|most| judged.price <= most)
            && self.mean.is_none_or(|most| judged.mean <= most)
            && self.p99.is_none_or(|most| judged.p99 <= most)
            && judged.life >= self.life
    }

    /// Returns the rule that goes with the limits.
    pub fn rule(&self) -> Rule {
        match (self.mean.or(self.p99), self.budget) {
            (Some(_), _) => Rule::Cheapest,
            (None, Some(_)) => Rule::Fastest,
            (None, None) => Rule::Balanced,
        }
    }

    /// Returns the largest ratio of a figure to its limit; 1 if the set satisfies all limits.
    fn excess(&self, judged: &SetFigures) -> f64 {
        let times = |is: f64, most: Option<f64>| most.map_or(1.0, |most| is / most);
        let all = [
            times(judged.price.whole(), self.budget.map(Cents::whole)),
            times(judged.mean.as_secs_f64(), self.mean.map(Nanos::as_secs_f64)),
            times(judged.p99.as_secs_f64(), self.p99.map(Nanos::as_secs_f64)),
            times(self.life.0, Some(judged.life.0)),
        ];
        all.into_iter().fold(1.0, f64::max)
    }

    /// Ranks the sets: those within the limits first, by the rule, then the others, the closest to the limits
    /// first. Among those within the limits, dominated sets come last. Figures that are alike count as equal
    /// for domination and among the fastest.
    pub fn rank(&self, choices: &[(usize, SetFigures)]) -> Vec<usize> {
        let rule = self.rule();
        let mut ranked = choices.to_vec();
        let cost = |judged: &SetFigures| (self.excess(judged), rule.cost(judged));
        ranked.sort_by(|(a, one), (b, other)| {
            let ((excess, cost_of_one), (other_excess, cost_of_other)) = (cost(one), cost(other));
            excess.total_cmp(&other_excess).then(cost_of_one.total_cmp(&cost_of_other)).then(a.cmp(b))
        });
        let kept = ranked.iter().take_while(|(_, judged)| self.is_satisfied_by(judged)).count();
        let kept = &mut ranked[..kept];
        let unbeaten = frontier(&kept.iter().map(|(_, judged)| *judged).collect::<Vec<_>>());
        let unbeaten: Vec<_> = unbeaten.into_iter().map(|at| kept[at].0).collect();
        kept.sort_by_key(|(index, _)| !unbeaten.contains(index));
        if let (Rule::Fastest, Some((_, fastest))) = (rule, kept.first()) {
            let most = fastest.response() * (1.0 + SIMILARITY);
            let as_fast =
                kept[..unbeaten.len()].iter().take_while(|(_, judged)| judged.response() <= most).count();
            kept[..as_fast].sort_by_key(|(_, judged)| judged.price);
        }
        ranked.into_iter().map(|(index, _)| index).collect()
    }
}

impl Rule {
    /// Returns the quantity that the rule minimizes.
    fn cost(self, judged: &SetFigures) -> f64 {
        match self {
            Self::Cheapest => judged.price.whole(),
            Self::Fastest => judged.response(),
            Self::Balanced => judged.price.whole() * judged.response(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(price: u64, millis: u64, life: f64) -> SetFigures {
        SetFigures {
            price: Cents(100 * price),
            mean: Nanos::millis(millis),
            p99: Nanos::millis(10 * millis),
            life: Years(life),
        }
    }

    #[test]
    fn limits_determine_the_rule_and_precede_it() {
        let choices =
            [figures(100, 10, 9.0), figures(150, 5, 9.0), figures(400, 4, 9.0), figures(110, 1, 0.5)];
        let choices: Vec<_> = choices.into_iter().enumerate().collect();
        let ranked = |limits: Limits| limits.rank(&choices);
        let long = Limits { life: Years(5.0), ..Limits::default() };
        assert_eq!(ranked(long), [1, 0, 2, 3], "half the time for half as much again");
        assert_eq!(ranked(Limits { budget: Some(Cents(40_000)), ..long }), [2, 1, 0, 3]);
        assert_eq!(ranked(Limits { budget: Some(Cents(10_000)), ..long })[0], 0);
        assert_eq!(ranked(Limits { p99: Some(Nanos::millis(50)), ..long })[0], 1);
        assert_eq!(ranked(Limits { mean: Some(Nanos::millis(4)), ..long })[0], 2);
        assert_eq!(ranked(Limits::default())[0], 3);
        assert_eq!(ranked(Limits { budget: Some(Cents(5_000)), ..long }), [0, 1, 2, 3], "the nearest first");
    }

    #[test]
    fn cheapest_of_equally_fast_sets_is_picked() {
        let set =
            |price: u64, micros: u64| SetFigures { mean: Nanos::micros(micros), ..figures(price, 10, 9.0) };
        // The second is 4 % faster than the first, the third 1 % faster than the second; the fourth is
        // slower.
        let choices = [set(400, 1000), set(500, 960), set(900, 950), set(300, 1200)];
        let choices: Vec<_> = choices.into_iter().enumerate().collect();
        let budget = Limits { budget: Some(Cents(100_000)), ..Limits::default() };
        let picked = budget.rank(&choices)[0];
        assert_eq!(picked, 0, "the p99 is the same: the mean makes the others 2.6 % faster at most");
        let judged: Vec<_> = choices.iter().map(|(_, judged)| *judged).collect();
        assert!(frontier(&judged).contains(&picked));
        // Equally fast and more expensive, whatever the last per cent says.
        let choices = [(0, set(500, 1001)), (1, set(501, 1000))];
        assert_eq!(frontier(&choices.map(|(_, judged)| judged)), [0]);
        for limits in [budget, Limits::default(), Limits { p99: Some(Nanos::millis(200)), ..budget }] {
            assert_eq!(limits.rank(&choices), [0, 1], "{limits:?}");
        }
    }
}
