//! The whole server in the simulated world: clients that speak NBD, against the oracle.

mod common;

use weir_world::{Seed, Statistics, campaign, net};

/// How many shorter histories are tried when one fails.
const SHRINK_MAX: u64 = 300;

#[test]
fn what_clients_of_the_server_are_told_is_so() {
    let mut total = Statistics::default();
    let first = common::seed().0;
    for seed in (0..8 * common::rounds()).map(|number| Seed(first.wrapping_add(number))) {
        let history = net::history(seed);
        let outcome = history.run();
        total += &outcome.statistics;
        if let Some((failure, step)) = outcome.failure {
            let mut left = SHRINK_MAX;
            let shrunk = campaign::shrink(&history, || {
                left -= 1;
                left > 0
            });
            let shrunk = shrunk.map_or_else(String::new, |shrunk| shrunk.to_string());
            panic!("seed {seed}, step {step}: {failure}\n{shrunk}repeat with WEIR_SEED={seed}");
        }
    }
    common::say(format_args!("{total} from WEIR_SEED={first}"));
    assert!(total.requests >= 3_000 && total.crashes >= 60, "{total}: too few to mean anything");
}

#[test]
fn a_seed_says_everything() {
    let history = net::history(Seed(3));
    let (first, second) = (history.run(), history.run());
    assert_eq!((first.digest, first.statistics), (second.digest, second.statistics));
    assert_ne!(first.digest, net::history(Seed(4)).run().digest);
}
