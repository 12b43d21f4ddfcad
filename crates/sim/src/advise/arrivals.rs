//! When the requests of a trace come, if it does not say so or they are to come at another rate.

use crate::load::synthetic::Chance;
use weir_model::{Nanos, Seed};
use weir_trace::Trace;

/// So many requests come a second on average: a trace's own times are stretched; where it has none, gaps are
/// exponential, as those of many clients who know nothing of one another.
pub fn at_rate(trace: &mut Trace, rate: f64, seed: Seed) {
    let (duration, gaps) = (trace.duration(), trace.records.len().saturating_sub(1).max(1) as f64);
    if duration > Nanos(0) {
        let stretch = gaps / rate / duration.as_secs_f64();
        for record in &mut trace.records {
            record.at = Nanos((record.at.0 as f64 * stretch) as u64);
        }
        return;
    }
    let mut random = Chance::new(seed.0);
    let mut now = 0.0;
    for record in &mut trace.records {
        record.at = Nanos::from_secs_f64(now);
        now += random.gap() / rate;
    }
}

/// The first half of the requests and the second, each beginning at time zero; `None` of a single one.
pub fn halves(trace: &Trace) -> Option<(Trace, Trace)> {
    let (mut first, mut second) = (trace.clone(), trace.clone());
    second.records = first.records.split_off(trace.records.len() / 2);
    let start = second.records.first()?.at;
    second.records.iter_mut().for_each(|record| record.at = record.at - start);
    (!first.records.is_empty()).then_some((first, second))
}
