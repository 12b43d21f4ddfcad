//! Tests of the endurance of a pool's flash, and of write budgets.

use super::{plan, pool, synthetic};
use crate::{
    AmplificationSource, DeviceEndurance, FlashRating, Mode, Outcome, budgeted, place_with_endurance,
};
use weir_model::Bytes;
use weir_policy::placement::by_name;

const RATING: FlashRating = FlashRating { cycles: 3_000, spare: 0.07 };

fn run(policy: &str, words: &str, budget: Option<Bytes>) -> Outcome {
    let pool = pool(0.2, 1.2);
    let policy = by_name(policy).expect("a policy");
    let policy = match budget {
        Some(budget) => budgeted(policy, pool.flash(), budget),
        None => policy,
    };
    let plan = plan(Mode::Open, 60);
    place_with_endurance(&pool, policy, &mut synthetic(words), &plan, RATING).expect("an outcome")
}

fn endurance(outcome: &Outcome) -> DeviceEndurance {
    outcome.devices[0].endurance.expect("an SSD")
}

/// The flash gets what weir writes to the device, and the disk has no flash.
#[test]
fn endurance_follows_from_the_writes_to_the_device() {
    let outcome = run("hierarchy", "uniform reads=50% over=64MiB rate=400", None);
    assert_eq!(outcome.devices[1].endurance, None);
    let found = endurance(&outcome);
    let per_day = outcome.devices[0].writes.bytes.0 as f64 / outcome.measured.as_secs_f64() * 86_400.0;
    let written = found.lifetime.bytes_per_day.expect("written");
    assert!((written / per_day - 1.0).abs() < 0.01, "{written} for {per_day}");
    assert!(found.amplification > 2.0, "random writes with 7 % spare: {found:?}");
    assert_ne!(found.source, AmplificationSource::ClosedForm);
    let years = found.lifetime.writable_bytes / written / 365.25;
    assert!((found.lifetime.life_years.expect("written") / years - 1.0).abs() < 1e-9);
    assert!((outcome.flash_share() - outcome.devices[0].served).abs() < 1e-12);
    let idle = run("hierarchy", "uniform reads=100% over=64MiB rate=50", None);
    assert_eq!(endurance(&idle).lifetime.life_years, None, "nothing is written");
}

/// A budget leaves promotions out: less is written to flash, which then answers fewer commands.
#[test]
fn a_write_budget_trades_hits_for_writes() {
    let words = "zipf theta=1.1 reads=95% over=64MiB rate=100";
    let written = |outcome: &Outcome| endurance(outcome).lifetime.bytes_per_day.unwrap_or(0.0);
    let of = |budget| run("adaptive", words, budget);
    let (free, ample, tight) = (of(None), of(Some(Bytes::gib(10_000))), of(Some(Bytes::mib(1))));
    assert_eq!(free.digest, ample.digest, "an ample budget changes nothing");
    assert!(written(&tight) < 0.7 * written(&free), "{} for {}", written(&tight), written(&free));
    assert!(
        tight.flash_share() < free.flash_share() - 0.02,
        "{}, {}",
        tight.flash_share(),
        free.flash_share()
    );
    assert_eq!((tight.unanswered, tight.requests), (0, free.requests));
}
