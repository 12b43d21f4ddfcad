//! Seeds and rounds for the tests of this folder.
//!
//! `WEIR_SEED=n` makes another run of the same tests, or repeats a failed one; by default the seed is always
//! the same. `WEIR_ROUNDS=n` multiplies the amount of work by n.
#![allow(clippy::disallowed_methods, reason = "tests take their seed from the environment")]
#![allow(clippy::disallowed_macros, reason = "tests say what they did")]
#![allow(unreachable_pub, reason = "shared by several test binaries")]
#![allow(dead_code, reason = "not every test binary uses all of it")]

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use weir_model::{Rng, Seed};

/// Returns the seed of this run.
pub fn seed() -> Seed {
    Seed(number("WEIR_SEED").unwrap_or(1))
}

/// Returns the factor for the amount of work.
pub fn rounds() -> u64 {
    number("WEIR_ROUNDS").unwrap_or(1)
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")))
}

/// Runs a property on `cases` inputs (times [`rounds`]) drawn from [`seed`]; on failure it shrinks the input
/// and says how to repeat the run.
pub fn property<S>(cases: u32, inputs: S, test: impl Fn(S::Value) -> Result<(), TestCaseError>)
where
    S: Strategy,
{
    let mut words = Rng::new(seed());
    let mut bytes = [0; 32];
    for chunk in bytes.chunks_exact_mut(8) {
        chunk.copy_from_slice(&words.word().to_le_bytes());
    }
    let config = Config {
        cases: cases * rounds() as u32,
        failure_persistence: None,
        max_shrink_iters: 3_000,
        ..Config::default()
    };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    if let Err(error) = runner.run(&inputs, test) {
        panic!("{error}\nrepeat with WEIR_SEED={}", seed());
    }
}

/// Prints a line, visible with `--nocapture`.
pub fn say(what: std::fmt::Arguments<'_>) {
    println!("{what}");
}
