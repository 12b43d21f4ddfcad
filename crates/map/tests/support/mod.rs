//! Common parts of the tests in this folder: storage that loses unflushed writes, random numbers, and
//! properties whose failures can be reproduced.
//!
//! `WEIR_SEED=n` makes another run of the same tests, or repeats one that failed; without it the seed is
//! always the same. `WEIR_ROUNDS=n` does n times as much.
#![allow(clippy::disallowed_methods, reason = "tests take their seed from the environment")]
#![allow(unreachable_pub, reason = "shared by several test binaries")]
#![allow(dead_code, reason = "not every test binary uses all of it")]

pub mod history;
pub mod image;
pub mod pool;
pub mod sparse;
pub mod store;
pub mod twin;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// A small generator (splitmix64): all randomness in a test follows from its seed.
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    /// Returns 64 random bits.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `end`, which must not be zero.
    pub fn below(&mut self, end: u64) -> u64 {
        self.word() % end
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")))
}

/// Runs a property, which panics where it does not hold, on `cases` inputs that follow from the seed; on
/// failure shrinks the input and prints how to repeat the run.
pub fn property<S: Strategy>(cases: u32, inputs: S, test: impl Fn(S::Value)) {
    let seed = number("WEIR_SEED").unwrap_or(1);
    let rounds = number("WEIR_ROUNDS").unwrap_or(1) as u32;
    let mut words = Rng(seed);
    let mut bytes = [0; 32];
    bytes.chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&words.word().to_le_bytes()));
    let config = Config {
        cases: cases * rounds,
        failure_persistence: None,
        max_shrink_iters: 5000,
        ..Config::default()
    };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let result = runner.run(&inputs, |input| {
        test(input);
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}\nrepeat with WEIR_SEED={seed}");
    }
}
