//! Every policy against a twin that looks at all candidates.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const SIZE: LogSize = LogSize { segments: 12, pages: 10 };

/// A candidate of the twin.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    valid: u32,
    /// The event and the time with which it was closed, and the time at which it was last modified.
    closed: u64,
    closed_at: u64,
    modified: u64,
    passed_over: bool,
    /// Place in the queue of `second-chance`.
    queued: u64,
}

#[derive(Clone, Debug, Default)]
struct Twin {
    candidates: BTreeMap<Segment, Candidate>,
    /// Orders what happens at the same time.
    events: u64,
}

impl Twin {
    fn greedy(&self) -> Option<Segment> {
        let key = |(segment, c): (&Segment, &Candidate)| ((c.valid, c.queued), *segment);
        self.candidates.iter().map(key).min().map(|(_, segment)| segment)
    }

    fn oldest(&self) -> Option<Segment> {
        self.candidates.iter().min_by_key(|(_, c)| c.closed).map(|(segment, _)| *segment)
    }

    /// The highest score; of empty segments, and of equal scores, the one unmodified for longest.
    fn cost_benefit(&self, now: u64, cost: impl Fn(f64) -> f64) -> Option<Segment> {
        let score = |c: &Candidate| {
            let used = f64::from(c.valid) / f64::from(SIZE.pages);
            if c.valid == 0 {
                f64::INFINITY
            } else {
                (1.0 - used) * (now - c.modified + 1) as f64 / cost(used)
            }
        };
        let highest = self.candidates.values().map(score).max_by(f64::total_cmp)?;
        let mut best: Vec<_> = self.candidates.iter().filter(|(_, c)| score(c) == highest).collect();
        best.sort_by_key(|(_, c)| (c.valid, c.queued));
        best.first().map(|(segment, _)| **segment)
    }

    /// The highest score by valid share, age since the closing and oldest such age; empty segments first, and
    /// of equal scores the segment closed first.
    fn scored(&self, now: u64, score: impl Fn(Segment, f64, f64, f64) -> f64) -> Option<Segment> {
        let age = |c: &Candidate| (now - c.closed_at + 1) as f64;
        let oldest = self.candidates.values().map(age).max_by(f64::total_cmp)?;
        let of = |segment: Segment, c: &Candidate| match c.valid {
            0 => f64::INFINITY,
            _ => score(segment, f64::from(c.valid) / f64::from(SIZE.pages), age(c), oldest),
        };
        let highest = self.candidates.iter().map(|(segment, c)| of(*segment, c)).max_by(f64::total_cmp)?;
        let best = self.candidates.iter().filter(|(segment, c)| of(**segment, c) == highest);
        best.min_by_key(|(_, c)| c.closed_at).map(|(segment, _)| *segment)
    }

    fn second_chance(&mut self) -> Option<Segment> {
        loop {
            let (first, c) = self.candidates.iter().min_by_key(|(_, c)| c.queued)?;
            let (first, c) = (*first, *c);
            let all: u32 = self.candidates.values().map(|c| c.valid).sum();
            let mean = f64::from(all) / self.candidates.len() as f64;
            if c.passed_over || f64::from(c.valid) <= mean {
                return Some(first);
            }
            self.events += 1;
            let queued = self.events;
            self.candidates.insert(first, Candidate { passed_over: true, queued, ..c });
        }
    }
}

/// What happens to the log: a segment is closed with some valid pages, loses one, or the victim is cleaned.
fn happening() -> impl Strategy<Value = (u8, u32, u32)> {
    (0_u8..8, 0..SIZE.segments, 0..=SIZE.pages)
}

/// Plays events to a policy and to the twin; `requeues` says whether an invalidation moves a segment to the
/// end of its queue. Victims must agree.
fn check(
    events: &[(u8, u32, u32)],
    policy: &mut dyn Reclaim,
    requeues: bool,
    mut select: impl FnMut(&mut Twin, u64) -> Option<Segment>,
) -> Result<(), TestCaseError> {
    let mut twin = Twin::default();
    for (now, &(kind, segment, valid)) in (0..).zip(events) {
        let segment = Segment(segment);
        twin.events += 1;
        let queued = twin.events;
        match (kind, twin.candidates.get_mut(&segment)) {
            (0..3, None) => {
                let new = Candidate {
                    valid,
                    closed: queued,
                    closed_at: now,
                    modified: now,
                    passed_over: false,
                    queued,
                };
                twin.candidates.insert(segment, new);
                policy.closed(segment, valid, now);
            }
            (3..6, Some(candidate)) if candidate.valid > 0 => {
                candidate.valid -= 1;
                candidate.modified = now;
                candidate.queued = if requeues { queued } else { candidate.queued };
                policy.invalidated(segment, candidate.valid, now);
            }
            (6, _) => {
                let victim = policy.victim(now);
                prop_assert_eq!(victim, select(&mut twin, now));
                if let Some(victim) = victim {
                    let valid = twin.candidates.remove(&victim).map(|c| c.valid);
                    policy.removed(victim, valid.expect("a candidate"));
                }
            }
            (7, Some(candidate)) => {
                policy.removed(segment, candidate.valid);
                twin.candidates.remove(&segment);
            }
            _ => {}
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn greedy_is_the_fewest_valid(events in prop::collection::vec(happening(), 0..200)) {
        check(&events, &mut Greedy::new(SIZE), true, |twin, _| twin.greedy())?;
    }

    #[test]
    fn oldest_is_the_first_closed(events in prop::collection::vec(happening(), 0..200)) {
        check(&events, &mut Oldest::new(SIZE), true, |twin, _| twin.oldest())?;
    }

    #[test]
    fn cost_benefit_is_the_highest_score(events in prop::collection::vec(happening(), 0..200)) {
        let mut policy = CostBenefit::new(SIZE, CostForm::ReadAndWrite);
        check(&events, &mut policy, true, |twin, now| twin.cost_benefit(now, |u| 1.0 + u))?;
        let mut policy = CostBenefit::new(SIZE, CostForm::TwoCopies);
        check(&events, &mut policy, true, |twin, now| twin.cost_benefit(now, |u| 2.0 * u))?;
    }

    #[test]
    fn scored_is_the_highest_score(events in prop::collection::vec(happening(), 0..200)) {
        let mut policy = Scored::new(SIZE, Score::CostBenefit);
        let score = |_, used: f64, age: f64, _| (1.0 - used) * age / (1.0 + used);
        check(&events, &mut policy, true, |twin, now| twin.scored(now, score))?;
        let mut policy = Scored::new(SIZE, Score::Weighted(Weights { space: 2.0, age: 0.5, excess: 1.0 }));
        let score = |_, used: f64, age: f64, oldest: f64| 2.0 * (1.0 - used) + 0.5 * age / oldest + 0.0;
        check(&events, &mut policy, true, |twin, now| twin.scored(now, score))?;
    }

    #[test]
    fn second_chance_passes_over_once(events in prop::collection::vec(happening(), 0..200)) {
        check(&events, &mut SecondChance::new(SIZE), false, |twin, _| twin.second_chance())?;
    }

    /// With very many draws, all candidates are drawn.
    #[test]
    fn d_choices_is_a_candidate_and_with_many_draws_the_emptiest(
        events in prop::collection::vec(happening(), 0..100), seed: u64
    ) {
        for choices in [1, 1000] {
            let mut policy = DChoices::new(SIZE, choices, Seed(seed));
            let mut twin_policy = DChoices::new(SIZE, choices, Seed(seed));
            let mut mirror: BTreeMap<Segment, u32> = BTreeMap::new();
            for (now, &(kind, segment, valid)) in (0..).zip(&events) {
                let segment = Segment(segment);
                match (kind, mirror.get_mut(&segment)) {
                    (0..3, None) => {
                        mirror.insert(segment, valid);
                        policy.closed(segment, valid, now);
                        twin_policy.closed(segment, valid, now);
                    }
                    (3..6, Some(valid)) if *valid > 0 => {
                        *valid -= 1;
                        policy.invalidated(segment, *valid, now);
                        twin_policy.invalidated(segment, *valid, now);
                    }
                    (6.., _) => {
                        let victim = policy.victim(now);
                        prop_assert_eq!(victim, twin_policy.victim(now), "a seed draws the same");
                        prop_assert_eq!(victim.is_none(), mirror.is_empty());
                        let Some(victim) = victim else { continue };
                        let valid = mirror.get(&victim).copied();
                        prop_assert!(valid.is_some(), "{victim:?} is no candidate");
                        prop_assert!(choices == 1 || valid == mirror.values().min().copied());
                        mirror.remove(&victim);
                        policy.removed(victim, valid.unwrap_or_default());
                        twin_policy.removed(victim, valid.unwrap_or_default());
                    }
                    _ => {}
                }
            }
        }
    }
}

#[test]
fn excess_of_owners_decides_by_its_weight() {
    let victim = |excess| {
        let mut policy = Scored::new(SIZE, Score::Weighted(Weights { space: 1.0, age: 0.0, excess }));
        policy.closed(Segment(0), 5, 1);
        policy.closed(Segment(1), 8, 2);
        policy.victim_of_owners(3, &mut |segment| if segment == Segment(1) { 0.8 } else { 0.0 })
    };
    assert_eq!(
        (victim(0.0), victim(0.3), victim(0.4)),
        (Some(Segment(0)), Some(Segment(0)), Some(Segment(1)))
    );
}

#[test]
fn policies_are_found_by_name() {
    for policy in ALL {
        let found = by_name(policy.name).expect("it is listed");
        let mut created = (found.create)(SIZE, Seed(1));
        assert_eq!(created.victim(0), None, "{}", policy.name);
        created.closed(Segment(3), 5, 1);
        assert_eq!(created.victim(2), Some(Segment(3)), "{}", policy.name);
    }
    assert!(by_name("none").is_none());
}
