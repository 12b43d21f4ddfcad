//! Draws operator commands at random, several at once and while clients have requests in flight. They have a
//! random stream of their own, so that everything else of a history is the same without them.

use super::{StepGenerator, between, pick, weighted};
use crate::driver::{HistoryStep, OperatorCommand, RequestSpec, Submission};
use crate::{Rng, Seed};
use weir_map::Hardening;

/// Probabilities of commands after a request and after a crash.
const CHANCES: [f64; 2] = [0.002, 0.15];

impl StepGenerator<'_> {
    /// Inserts commands among the steps.
    pub(super) fn commands(&self, seed: Seed, steps: &mut Vec<HistoryStep>) {
        let mut rng = Rng::new(Seed(seed.0.rotate_left(40) ^ 3));
        for step in std::mem::take(steps) {
            let chance = match step {
                HistoryStep::Request(_) => CHANCES[0],
                HistoryStep::Crash(_) => CHANCES[1],
                _ => 0.0,
            };
            steps.push(step);
            if chance > 0.0 && rng.chance(chance) {
                steps.push(HistoryStep::Submit(self.submissions(&mut rng)));
            }
        }
    }

    fn submissions(&self, rng: &mut Rng) -> Vec<Submission> {
        let victim = rng.below(self.volumes) as usize;
        // Usually the volume's clients have requests in flight.
        let busy = between(rng, 0, 6);
        let ask =
            |rng: &mut Rng| Submission::Request(RequestSpec { volume: victim, ..self.draw_request(rng) });
        let mut all: Vec<_> = (0..busy).map(|_| ask(rng)).collect();
        for _ in 0..between(rng, 2, 10) {
            let hardening = pick(rng, &[Hardening::Flush, Hardening::Write]);
            let (any, spare) = (rng.below(self.volumes) as usize, rng.below(2) as usize);
            let choices = [(4, 0), (2, 1), (3, 2), (2, 3), (1, 4), (1, 5), (1, 6), (2, 7), (2, 8), (1, 9)];
            all.push(match weighted(rng, &choices) {
                0 => ask(rng),
                1 => Submission::Request(self.draw_request(rng)),
                2 => Submission::Command(OperatorCommand::Remove(victim)),
                3 => Submission::Command(OperatorCommand::CreateSuccessor(victim)),
                4 => Submission::Command(OperatorCommand::SameName(victim)),
                5 => Submission::Command(OperatorCommand::Harden(victim, hardening)),
                6 => Submission::Command(OperatorCommand::Harden(any, hardening)),
                7 => Submission::Command(OperatorCommand::MakeSpare(spare)),
                8 => Submission::Command(OperatorCommand::RemoveSpare(spare)),
                _ => Submission::Command(OperatorCommand::Remove(any)),
            });
        }
        all
    }
}
