use super::super::device_list;
use super::*;
use crate::output::testing::assert_fits;
use weir_sim::advise::sets;

/// Returns advice with three simulated sets: the first cannot keep up, and the mean of the last is far above
/// its p99.
fn advice() -> Advice {
    let list = device_list::read(None).expect("the shipped list");
    let wanted = RequiredCapacity { capacity: Bytes::gib(500), active: Bytes::gib(500) };
    let sets = sets(&list.offers, &wanted).expect("sets");
    let row = |at: usize, mean: u64, p99: u64, cannot: Option<&str>| {
        let (mean, p99) = (Nanos::millis(mean), Nanos::millis(p99));
        let set = sets[at];
        let price = set.price(&list.offers);
        let judged = SetFigures { price, mean: Nanos::millis(4), p99: Nanos::millis(9), life: Years(7.4) };
        let responses =
            Responses { count: 1000, mean, p99, p999: Nanos::secs(2), max: Nanos::secs(9), p50: p99 };
        let forecast = Forecast { figures: judged, responses, load: 0.5, hit_share: 0.5, fastest_share: 0.5 };
        let run = EngineRun {
            figures: SetFigures { mean, p99, ..judged },
            responses,
            unanswered: if cannot.is_some() { 9 } else { 0 },
            rates: (552.0, 1200.0),
            overload_reason: cannot.map(str::to_owned),
            served: 0.5,
            endurance: vec![],
        };
        Row { run: Some(run), ..Row::new(set, forecast) }
    };
    Advice {
        trace: "t".into(),
        notes: vec![],
        policy: "adaptive".into(),
        seed: 1,
        is_held_out: false,
        requests: 1000,
        footprint: Bytes::gib(500),
        required: wanted,
        rule: Rule::Balanced,
        limits: Limits::default(),
        rows: vec![
            row(0, 0, 0, Some("cannot keep up: 552 of 1200 requests/s answered")),
            row(1, 5, 20, None),
            row(2, 90, 30, None),
        ],
        finalists: vec![1, 2, 0],
        pick: 1,
        cell: "TLC cells".into(),
        write_budget: None,
        list,
        pool_file: None,
    }
}

#[test]
fn overloaded_sets_have_no_responses() {
    let advice = advice();
    let text = advice.human(Width::UNLIMITED);
    assert!(!text.contains("0 ns"), "{text}");
    assert!(text.contains("cannot keep up: 552 of 1200 requests/s answered"), "{text}");
    let json = serde_json::to_value(advice.document()).expect("JSON");
    let set = &json["sets"][0];
    assert!(set["simulated"]["mean_ns"].is_null() && set["simulated"]["p99_ns"].is_null(), "{set}");
    assert_eq!(set["keeps_up"], false);
    assert!(set["reason"].as_str().is_some_and(|why| why.contains("552 of 1200")), "{set}");
    assert_eq!(json["sets"][1]["simulated"]["p99_ns"], 20_000_000);
    let shown = advice.picture().sets;
    assert_eq!(shown.iter().map(|set| set.keeps_up).collect::<Vec<_>>(), [false, true, true]);
}

#[test]
fn a_mean_far_above_the_p99_is_explained() {
    let text = advice().human(Width::UNLIMITED);
    let starred: Vec<_> = text.lines().filter(|line| line.contains("90.0 ms *")).collect();
    assert_eq!(starred.len(), 1, "{text}");
    assert!(text.contains("the mean (90.0 ms) is above what 99 of 100 requests take (30.0 ms)"), "{text}");
}

#[test]
fn endurance_and_the_cost_of_a_budget_are_told() {
    let mut advice = advice();
    let rating = weir_sim::FlashRating { cycles: 3_000, spare: 0.07 };
    let source = AmplificationSource::Log;
    let endurance = DeviceEndurance::with_amplification(rating, Bytes::gib(100), 1e11, (1.5, source));
    let kind = advice.rows[1].set.slow;
    advice.rows[1].run.as_mut().expect("a run").endurance = vec![(kind, endurance)];
    let cost = BudgetCost { budget: Bytes::gib(50), written_per_day: [5e10, 2e11], hit_share: [0.4, 0.7] };
    advice.write_budget = Some((cost.budget, Some(cost)));
    assert_fits(|width| advice.human(width));
    let text = advice.human(Width::UNLIMITED);
    assert!(text.contains("programs 1.50 times as much") && text.contains("TLC cells last"), "{text}");
    assert!(text.contains("they would answer 40 % of the reads instead of 70 %"), "{text}");
    let stacked =
        |advice: &Advice| advice.human(Width::UNLIMITED).contains("segments at least as large as the SSD's");
    assert!(stacked(&advice), "{text}");
    let json = serde_json::to_value(advice.document()).expect("JSON");
    assert_eq!(json["write_budget"]["unlimited_hit_share"], 0.7);
    assert_eq!(json["sets"][1]["simulated"]["flash"][0]["endurance"]["source"], "log");
    advice.write_budget = Some((cost.budget, None));
    assert!(advice.human(Width::UNLIMITED).contains("limits nothing: no fast device is flash."));
    advice.rows[1].set.fast = None;
    let text = advice.human(Width::UNLIMITED);
    assert!(text.contains("all devices are SSDs, so writes have nowhere else to go."), "{text}");
    advice.rows[1].run.as_mut().expect("a run").endurance.clear();
    assert!(!stacked(&advice), "without flash there is no log below");
}

#[test]
fn advice_fits_the_terminal() {
    let advice = advice();
    assert_fits(|width| advice.human(width));
}
