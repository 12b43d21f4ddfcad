//! Fits the controller's times, the link and the seek curve by coordinate descent.

use super::{Sample, compare, predict, select_times};
use crate::WriteCache;
use crate::disk::DiskParams;
use weir_model::{Bytes, Nanos};

/// Changes one parameter by a signed number of nanoseconds.
type Adjust = fn(&mut DiskParams, i64);

const ADJUSTMENTS: [Adjust; 9] = [
    |p, by| shift(&mut p.overheads.read_hit, by),
    |p, by| shift(&mut p.overheads.read_miss, by),
    |p, by| shift(&mut p.overheads.write, by),
    |p, by| shift(&mut p.overheads.write_on, by),
    |p, by| shift(&mut p.write_settle, by),
    |p, by| shift(&mut p.switch, by),
    // All seeks by the same time.
    |p, by| p.seek.iter_mut().for_each(|(_, time)| shift(time, by)),
    // All seeks by the same share, the longest by this time.
    |p, by| {
        let longest = p.seek.last().map_or(1, |last| last.1.0.max(1)) as i64;
        p.seek.iter_mut().for_each(|(_, time)| shift(time, time.0 as i64 * by / longest));
    },
    // The link, by this time per 16 KiB.
    |p, by| {
        let mut time = Nanos(16_384 * 1_000_000_000 / p.link_rate.0.max(1));
        shift(&mut time, by);
        p.link_rate = Bytes(16_384 * 1_000_000_000 / time.0.max(1));
    },
];

fn shift(time: &mut Nanos, by: i64) {
    time.0 = time.0.saturating_add_signed(by);
}

/// First and last step size, in nanoseconds.
const STEPS: (i64, i64) = (160_000, 5_000);

/// Runs coordinate descent with halving steps: each parameter in turn is raised or lowered while that
/// improves the fit.
pub(super) fn descend(params: &mut DiskParams, cache: WriteCache, samples: &[Sample]) {
    let mut least = misfit(params, cache, samples);
    let mut step = STEPS.0;
    while step >= STEPS.1 {
        for vary in ADJUSTMENTS {
            for by in [step, -step] {
                loop {
                    let mut tried = params.clone();
                    vary(&mut tried, by);
                    let misfit = misfit(&tried, cache, samples);
                    if misfit >= least {
                        break;
                    }
                    (*params, least) = (tried, misfit);
                }
            }
        }
        step /= 2;
    }
}

/// Returns the objective to minimize: for reads and for writes, the distance between the distributions and
/// the differences over the requests.
fn misfit(params: &DiskParams, cache: WriteCache, samples: &[Sample]) -> f64 {
    let times: Vec<Nanos> = samples.iter().map(|s| s.service_time).collect();
    let predicted = predict(params, cache, samples);
    let of = |reads| {
        let accuracy =
            compare(&select_times(samples, &times, reads), &select_times(samples, &predicted, reads));
        accuracy.distance + accuracy.error
    };
    of(true) + of(false)
}
