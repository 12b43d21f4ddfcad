//! Tests of disk models against real disks: a model fitted to the first half of service times measured on a
//! drive predicts the second half. The tests need the traces (see `traces::folder`) and print a note if they
//! are missing.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a test that reads files"
)]

use weir_model::Nanos;
use weir_timing::drives::{disk, drive};
use weir_timing::fit::{compare, fit, predict, select_times};

mod traces;

/// Maximum distance of the distributions, as a share of the mean.
const DISTANCE_MAX: f64 = 0.10;
/// Maximum relative error of the 99th percentile.
const P99_ERROR_MAX: f64 = 0.25;
/// Minimum rank correlation of reads (Spearman).
const RANK_MIN: f64 = 0.5;

#[test]
fn models_fitted_to_first_half_predict_second() {
    for (file, name, gap) in traces::TRACES {
        let path = traces::folder().join(file);
        if !path.exists() {
            println!("skipped: {} is not there; WEIR_TRACES names the folder", path.display());
            continue;
        }
        let samples = traces::load(&path, gap).expect("a trace");
        let (params, cache) = (disk(name).expect("a disk"), drive(name).expect("a drive").cache);
        let half = samples.len() / 2;
        let fitted = fit(params, cache, &samples[..half]);
        let predicted = &predict(&fitted, cache, &samples)[half..];
        let second = &samples[half..];
        let times: Vec<Nanos> = second.iter().map(|s| s.service_time).collect();
        for reads in [true, false] {
            let accuracy =
                compare(&select_times(second, &times, reads), &select_times(second, predicted, reads));
            println!("{name}, {}: {accuracy:?}", if reads { "reads" } else { "writes" });
            assert!(accuracy.distance <= DISTANCE_MAX, "{name}: distance {}", accuracy.distance);
            assert!(
                accuracy.p99_error().abs() <= P99_ERROR_MAX,
                "{name}: p99 off by {}",
                accuracy.p99_error()
            );
            assert!(!reads || accuracy.rank >= RANK_MIN, "{name}: rank correlation {}", accuracy.rank);
        }
    }
}
