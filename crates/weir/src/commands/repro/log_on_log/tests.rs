mod recorded;

use super::*;

#[test]
fn experiments_are_parsed_from_their_names() {
    for name in [
        "tpce, lower fixed, 0.9, 2 MB on 256 MB",
        "prn_1, upper fixed, 0.7, 32 MB on 8 MB",
        "prn_0, 0.9, 2 upper logs, 2 MB on 8 MB",
        "activity, 6 upper logs",
    ] {
        let Some(Experiment::Stack(stack)) = Experiment::parse(name) else { panic!("{name} is a stack") };
        assert_eq!(stack.to_string(), name);
    }
    let growth = Experiment::parse("tpce, 0.9, 1 upper log, 2 MB on 2 to 128 MB");
    assert!(matches!(growth, Some(Experiment::Derived(Derived::Growth { lowers: (2, 128), .. }))));
    let turning = Experiment::parse("prn_1, upper fixed, 0.7");
    assert!(matches!(turning, Some(Experiment::Derived(Derived::TurningPoint { .. }))));
    for name in ["", "tpce", "tpce, 0.9", "tpce, lower fixed, 0.9, 2 MB", "activity, 5 upper logs", "x, 0.9"]
    {
        assert_eq!(Experiment::parse(name), None, "{name}");
    }
}

fn prepared(name: &str) -> Prepared {
    let setting = Setting::without_files(&REPRODUCTION.publication().expect("valid data"));
    let Some(Experiment::Stack(stack)) = Experiment::parse(name) else { panic!("{name} is a stack") };
    prepare(&setting.parameters, &stack, 1).expect("usable parameters")
}

/// The sizes of table 4.2: 30.4 GiB are written before the first erase, and the upper log is smaller than
/// that by the ratio.
#[test]
fn sizes_follow_from_the_capacity_ratio() {
    let lower_fixed = prepared("tpce, lower fixed, 0.8, 2 MB on 256 MB").plan;
    let gib = |size: Bytes| size.0 as f64 * 8.0 / f64::from(1 << 30);
    let [upper, lower] = &lower_fixed.layers[..] else { panic!("two layers") };
    assert!((gib(lower.size) - 33.8).abs() < 0.01 && (gib(upper.size) - 24.34).abs() < 0.01);
    assert_eq!((upper.segment, lower.segment), (Bytes::kib(256), Bytes::mib(32)));
    assert!((lower_fixed.repetition.measured - 88.96 / 16.0).abs() < 0.01);
    let upper_fixed = prepared("prn_0, upper fixed, 0.9, 2 MB on 2 MB").plan;
    assert!((gib(upper_fixed.layers[0].size) - 22.2).abs() < 0.01);
    assert!((gib(upper_fixed.layers[1].size) - 22.2 / 0.81).abs() < 0.01);
    let six = prepared("activity, 6 upper logs");
    assert_eq!(six.plan.layers[0].shares.len(), 6);
    assert!((six.plan.layers[0].shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
}

/// Loads have the published numbers of requests of each kind.
#[test]
fn loads_write_requests_of_two_sizes() {
    let Prepared { words, .. } = prepared("prn_0, upper fixed, 0.9, 2 MB on 2 MB");
    let mut load = parse(&words, 1, pool_file::size, pool_file::duration).expect("a load");
    let (mut now, mut bytes, mut large) = (Nanos(0), 0, 0);
    for _ in 0..20_000 {
        let arrival = load.next_arrival(now);
        now = arrival.at;
        assert_eq!(arrival.op, weir_model::Op::Write);
        bytes += arrival.len.0;
        large += u32::from(arrival.len == Bytes::kib(64));
    }
    assert!((f64::from(large) / 20_000.0 - 11.0 / 93.0).abs() < 0.02, "{large}");
    // 59.09 GB in 5,585,000 requests.
    assert!((bytes as f64 / 20_000.0 / 11_360.0 - 1.0).abs() < 0.05, "{bytes}");
}
