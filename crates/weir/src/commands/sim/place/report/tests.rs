//! Tests comparisons with long names, with large figures, and without any figures.

use super::*;
use crate::output::testing::{LONG_NAME, assert_fits};
use weir_model::Seed;
use weir_sim::place::outcome::DirectionOutcome;
use weir_sim::{FlashRating, Ramp, RampStep};

fn outcome() -> Outcome {
    let time = Nanos(999_900_000);
    let all = Responses { count: 1 << 40, mean: time, p50: time, p99: time, p999: time, max: time };
    let direction = DirectionOutcome { count: 1 << 40, bytes: Bytes(1 << 60), mean: time };
    let device = DeviceOutcome {
        name: LONG_NAME.into(),
        model: "intel-x25-m-g1-log".into(),
        room: Bytes(1 << 50),
        used: Bytes(1 << 50),
        share: 1.0,
        served: 1.0,
        load: 1.0,
        queue: 123_456.78,
        reads: direction,
        writes: direction,
        metadata: Bytes(0),
        endurance: None,
    };
    Outcome {
        policy: "a-policy-with-a-very-long-name-indeed".into(),
        rate: 123_456_789.0,
        bytes_rate: 1e12,
        all,
        reads: all,
        writes: all,
        devices: vec![device.clone(), device],
        moved: Bytes(1 << 50),
        ..Outcome::default()
    }
}

fn comparison(outcomes: Vec<Outcome>) -> Comparison {
    let plan = Plan {
        mode: Mode::Open,
        duration: Nanos::secs(1),
        requests: 1,
        warm_up: None,
        windows: 1,
        seed: Seed(1),
    };
    let limit = Nanos::millis(50);
    Comparison { load: LONG_NAME.into(), seed: 1, notes: vec![], plan, limit, outcomes }
}

#[test]
fn a_comparison_fits_the_terminal() {
    let comparison = comparison(vec![outcome(), outcome()]);
    assert_fits(|width| comparison.human(width));
}

/// A ramp is reported by step, with the point of saturation.
#[test]
fn a_ramp_has_a_point_of_saturation() {
    let step = |(rate, ms)| {
        let time = Nanos::millis(ms);
        let responses = Responses { count: 1, mean: time, p99: time, ..Responses::default() };
        RampStep { offered: rate, delivered: rate, responses }
    };
    let ramp = [(100.0, 10), (300.0, 90)].map(step).to_vec();
    let saturated = Outcome { ramp: ramp.clone(), ..outcome() };
    let fast = Outcome { policy: "fast".into(), ramp: ramp[..1].to_vec(), ..outcome() };
    let mut comparison = comparison(vec![saturated, fast]);
    let rates = [100.0, 300.0];
    comparison.plan.mode = Mode::Ramp(Ramp::new(rates, Nanos::secs(10)).expect("a ramp"));
    assert_fits(|width| comparison.human(width));
    let text = comparison.human(Width::UNLIMITED);
    assert!(text.contains("ramp of 2 steps"), "{text}");
    assert!(text.contains("saturated at 200 requests/s: the mean response is 50.0 ms"), "{text}");
    assert!(text.contains("fast: the mean response crosses 50.0 ms at no step"), "{text}");
    let document = serde_json::to_value(comparison.document()).expect("JSON");
    assert_eq!(document["loop"], "ramp");
    assert_eq!(document["saturation"]["limit_ns"], 50_000_000);
    assert_eq!(document["saturation"]["requests_per_second"], serde_json::json!([200.0, null]));
    assert_eq!(document["results"][0]["ramp"][1]["mean_ns"], 90_000_000);
}

#[test]
fn endurance_and_the_cost_of_a_budget_are_told() {
    let rating = FlashRating { cycles: 3_000, spare: 0.07 };
    let source = AmplificationSource::ClosedForm;
    let endurance = DeviceEndurance::with_amplification(rating, Bytes::gib(1), 1e12, (2.5, source));
    let mut free = outcome();
    free.devices[0].endurance = Some(endurance);
    let mut limited = Outcome { write_budget_bytes: Some(50 << 30), ..free.clone() };
    limited.devices[0].served = 0.25;
    let of = |per_day| DeviceEndurance::with_amplification(rating, Bytes::gib(1), per_day, (2.5, source));
    limited.devices[0].endurance = Some(of((60_u64 << 30) as f64));
    let mut met = limited.clone();
    met.devices[0].endurance = Some(of((40_u64 << 30) as f64));
    let within = comparison(vec![free.clone(), met]).human(Width::UNLIMITED);
    assert!(within.contains("40 GiB a day are written") && !within.contains("exceeded"), "{within}");
    let comparison = comparison(vec![free, limited]);
    assert_fits(|width| comparison.human(width));
    let text = comparison.human(Width::UNLIMITED);
    assert!(text.contains("at most 2.50") && text.contains(" (budget)"), "{text}");
    let said = "with a budget of 50 GiB a day, 60 GiB a day are written to flash instead of 931.3 GiB; flash \
                carries out 25.0 %";
    assert!(text.contains(said), "{text}");
    assert!(
        text.contains("the budget is exceeded: it does not limit writes to blocks already on flash"),
        "{text}"
    );
    assert!(text.contains(" days"), "a life below a year: {text}");
    let document = serde_json::to_value(comparison.document()).expect("JSON");
    assert_eq!(document["results"][1]["write_budget_bytes"], 50_u64 << 30);
    let device = &document["results"][0]["devices"][0];
    assert_eq!(device["endurance"]["source"], "closed_form");
    assert_eq!(device["endurance"]["lifetime"]["rated_cycles"], 3_000);
    assert!(document["results"][0]["devices"][1].get("endurance").is_none(), "no flash");
}

#[test]
fn unanswered_requests_have_no_response_time() {
    let idle = Outcome { requests: 10, unanswered: 10, measured: Nanos::secs(1), ..Outcome::default() };
    let comparison = comparison(vec![idle]);
    let text = comparison.human(Width::UNLIMITED);
    assert!(!text.contains("0 ns") && !text.contains("NaN"), "{text}");
    assert!(text.contains("cannot keep up: 0 of 10 requests/s answered"), "{text}");
    let json = serde_json::to_value(comparison.document()).expect("JSON");
    assert!(json["results"][0]["all"]["p99_ns"].is_null(), "{json}");
}

/// Each figure is in the field that is named for it: every value here is another one.
#[test]
fn figures_of_responses_and_windows_are_not_exchanged() {
    let [mean, p50, p99, p999, max] = [1, 2, 3, 4, 5].map(Nanos);
    let responses = weir_sim::Responses { count: 9, mean, p50, p99, p999, max };
    let expected = serde_json::json!({
        "count": 9, "mean_ns": 1, "p50_ns": 2, "p99_ns": 3, "p999_ns": 4, "max_ns": 5
    });
    assert_eq!(serde_json::to_value(responses).expect("a document"), expected);
    let window = weir_sim::Window {
        start: Nanos(1),
        rate: 2.0,
        work: 3.0,
        mean: Nanos(4),
        p99: Nanos(5),
        moved: Bytes(6),
        loads: vec![0.7],
        shares: vec![0.8],
        devices: Vec::new(),
    };
    let expected = serde_json::json!({
        "start_ns": 1, "requests_per_second": 2.0, "work_per_second": 3.0, "mean_ns": 4, "p99_ns": 5,
        "migrated_bytes": 6, "busy_shares": [0.7], "shares": [0.8]
    });
    assert_eq!(serde_json::to_value(window).expect("a document"), expected);
}
