//! Draws operator commands at random, several at once and while clients have requests in flight. They have a
//! random stream of their own, so that everything else of a history is the same without them.

use super::{Maker, between, pick, weighted};
use crate::driver::{Ask, HistoryStep, Order, Submission};
use crate::{Rng, Seed};
use weir_map::Hardening;

/// Probabilities of commands after a request and after a crash.
const CHANCES: [f64; 2] = [0.002, 0.15];

impl Maker<'_> {
    /// Inserts commands among the steps.
    pub(super) fn commands(&self, seed: Seed, steps: &mut Vec<HistoryStep>) {
        let mut rng = Rng::new(Seed(seed.0.rotate_left(40) ^ 3));
        for step in std::mem::take(steps) {
            let chance = match step {
                HistoryStep::Ask(_) => CHANCES[0],
                HistoryStep::Crash(_) => CHANCES[1],
                _ => 0.0,
            };
            steps.push(step);
            if chance > 0.0 && rng.chance(chance) {
                steps.push(HistoryStep::Tell(self.submissions(&mut rng)));
            }
        }
    }

    fn submissions(&self, rng: &mut Rng) -> Vec<Submission> {
        let victim = rng.below(self.volumes) as usize;
        // Usually the volume's clients have requests in flight.
        let busy = between(rng, 0, 6);
        let ask = |rng: &mut Rng| Submission::Ask(Ask { volume: victim, ..self.ask(rng) });
        let mut all: Vec<_> = (0..busy).map(|_| ask(rng)).collect();
        for _ in 0..between(rng, 2, 10) {
            let hardening = pick(rng, &[Hardening::Flush, Hardening::Write]);
            let (any, spare) = (rng.below(self.volumes) as usize, rng.below(2) as usize);
            let choices = [(4, 0), (2, 1), (3, 2), (2, 3), (1, 4), (1, 5), (1, 6), (2, 7), (2, 8), (1, 9)];
            all.push(match weighted(rng, &choices) {
                0 => ask(rng),
                1 => Submission::Ask(self.ask(rng)),
                2 => Submission::Order(Order::Remove(victim)),
                3 => Submission::Order(Order::Succeed(victim)),
                4 => Submission::Order(Order::SameName(victim)),
                5 => Submission::Order(Order::Harden(victim, hardening)),
                6 => Submission::Order(Order::Harden(any, hardening)),
                7 => Submission::Order(Order::MakeSpare(spare)),
                8 => Submission::Order(Order::RemoveSpare(spare)),
                _ => Submission::Order(Order::Remove(any)),
            });
        }
        all
    }
}
