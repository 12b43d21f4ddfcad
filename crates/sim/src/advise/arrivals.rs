//! Arrival times for traces that have none, or that are to be replayed at another rate.

use crate::load::synthetic::LoadRng;
use weir_model::{Nanos, Seed};
use weir_trace::Trace;

/// Sets the mean arrival rate, in requests per second. A trace's own times are scaled; a trace without times
/// gets exponential gaps, as from many independent clients.
pub fn scale_to_rate(trace: &mut Trace, rate: f64, seed: Seed) {
    let (duration, gaps) = (trace.duration(), trace.records.len().saturating_sub(1).max(1) as f64);
    if duration > Nanos(0) {
        let stretch = gaps / rate / duration.as_secs_f64();
        for record in &mut trace.records {
            record.at = Nanos((record.at.0 as f64 * stretch) as u64);
        }
        return;
    }
    let mut random = LoadRng::new(seed.0);
    let mut now = 0.0;
    for record in &mut trace.records {
        record.at = Nanos::from_secs_f64(now);
        now += random.gap() / rate;
    }
}

/// Returns the first and the second half of the requests, each beginning at time zero; `None` for a single
/// request.
pub fn split_in_halves(trace: &Trace) -> Option<(Trace, Trace)> {
    let (mut first, mut second) = (trace.clone(), trace.clone());
    second.records = first.records.split_off(trace.records.len() / 2);
    let start = second.records.first()?.at;
    second.records.iter_mut().for_each(|record| record.at = record.at - start);
    (!first.records.is_empty()).then_some((first, second))
}
