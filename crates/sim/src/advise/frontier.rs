//! The Pareto frontier of choices.

use super::SetFigures;

/// Response times and lives that differ by less than this share count as alike, because models are not more
/// precise.
pub(super) const SIMILARITY: f64 = 0.05;

/// Maps a choice to steps of a scale on which figures that are alike mostly coincide; smaller is better in
/// each.
fn quantize(judged: &SetFigures) -> [i64; 4] {
    let step = |figure: f64| (figure.max(1e-12).ln() / SIMILARITY.ln_1p()).floor() as i64;
    let price = i64::try_from(judged.price.0).unwrap_or(i64::MAX);
    [price, step(judged.mean.as_secs_f64()), step(judged.p99.as_secs_f64()), -step(judged.life.capped())]
}

/// Returns the indices of the choices that no other dominates, by ascending price. A choice dominates another
/// if it is at least as good in price, mean, p99 and life (all except the price in steps of 5 %), and better
/// in one. Of several that are equal in all, the first is kept.
pub fn frontier(choices: &[SetFigures]) -> Vec<usize> {
    let steps: Vec<_> = choices.iter().map(quantize).collect();
    let mut order: Vec<_> = (0..choices.len()).collect();
    order.sort_by(|a, b| steps[*a].cmp(&steps[*b]).then(a.cmp(b)));
    let mut kept: Vec<usize> = Vec::new();
    for candidate in order {
        // Any choice that dominates it comes before it in this order; if that one was not kept, the one that
        // dominates it in turn also dominates this one.
        let is_beaten =
            kept.iter().any(|kept| steps[*kept].iter().zip(&steps[candidate]).all(|(a, b)| a <= b));
        if !is_beaten {
            kept.push(candidate);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::super::{Cents, Years};
    use super::*;
    use proptest::prelude::*;
    use weir_model::Nanos;

    /// Computes the frontier by its definition, comparing each with each.
    fn naive(choices: &[SetFigures]) -> Vec<usize> {
        let steps: Vec<_> = choices.iter().map(quantize).collect();
        let beats = |a: usize, b: usize| {
            let at_least = steps[a].iter().zip(&steps[b]).all(|(a, b)| a <= b);
            at_least && (steps[a] != steps[b] || a < b)
        };
        let all = 0..choices.len();
        all.clone().filter(|one| !all.clone().any(|other| other != *one && beats(other, *one))).collect()
    }

    fn figures(price: u64, mean: u64, p99: u64, life: f64) -> SetFigures {
        SetFigures { price: Cents(price), mean: Nanos(mean), p99: Nanos(p99), life: Years(life) }
    }

    proptest! {
        #[test]
        fn frontier_matches_its_definition(
            choices in prop::collection::vec((0u64..6, 0u64..5, 0u64..5, 0u32..5), 0..60),
        ) {
            let choices: Vec<_> = choices
                .iter()
                .map(|(price, mean, p99, life)| figures(*price, 1 << mean, 1 << p99, f64::from(*life)))
                .collect();
            let mut kept = frontier(&choices);
            prop_assert!(kept.windows(2).all(|pair| choices[pair[0]].price <= choices[pair[1]].price));
            kept.sort_unstable();
            prop_assert_eq!(kept, naive(&choices));
        }
    }

    #[test]
    fn dominated_sets_are_dropped() {
        let choices = [
            figures(100, 1000, 2000, 50.0),
            figures(200, 1000, 2000, 500.0),
            figures(150, 500, 2000, 50.0),
            figures(90, 1000, 2000, 3.0),
        ];
        assert_eq!(frontier(&choices), [3, 0, 2]);
    }
}
