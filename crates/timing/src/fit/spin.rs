//! Fits the exact rotation time, and the angle at which each zone begins.
//!
//! When a media transfer ends, a known sector is under the head: the end of a request gives the platter's
//! angle at that time. The further two requests are apart, the more precisely their angles give the rotation
//! time, but only modulo whole rotations. So the search begins with requests close together, then continues
//! with ones further and further apart.

use super::Sample;
use crate::WriteCache;
use crate::disk::{Disk, DiskParams};
use crate::pipe::duration;
use std::f64::consts::TAU;
use weir_model::{IoKind, Nanos};

/// A time at which a known angle was under the head.
#[derive(Clone, Copy, Debug)]
struct AngleObservation {
    /// Index of the sample.
    index: usize,
    zone: usize,
    time: f64,
    /// Angle in rotations.
    angle: f64,
}

/// Number of later sightings in the same zone with which each is compared.
const COMPARISONS_MAX: usize = 12;

/// Sets the rotation time and the zones' offsets so that media transfers end when the samples say. Leaves
/// them unchanged if there are too few samples.
pub(super) fn align(params: &mut DiskParams, cache: WriteCache, samples: &[Sample]) {
    let sightings = observations(params, cache, samples);
    let mut turn = params.turn.0 as f64;
    // Published rotation times are accurate to a few parts in a thousand.
    let mut reach = 0.004;
    for window in [2, 8, 30, 100, 300, 1_000, samples.len()] {
        let pairs = pairs(&sightings, params.zones.len(), window);
        let longest = pairs.iter().map(|pair| pair.0).fold(0.0, f64::max);
        if pairs.len() < 20 || longest < turn {
            continue;
        }
        let step = (0.04 * turn / longest).min(reach);
        let steps = (reach / step).ceil() as i32;
        let tried = (-steps..=steps).map(|i| turn * (1.0 + f64::from(i) * step));
        let coherent = |turn: f64| coherence(pairs.iter().map(|(time, angle)| time / turn - angle)).0;
        let best = tried.map(|turn| (coherent(turn), turn)).max_by(|a, b| a.0.total_cmp(&b.0));
        if let Some((_, found)) = best {
            turn = found;
            reach = 2.0 * step;
        }
    }
    params.turn = Nanos(turn.round() as u64);
    turn = params.turn.0 as f64;
    for (number, zone) in params.zones.iter_mut().enumerate() {
        let here = sightings.iter().filter(|s| s.zone == number);
        let (_, ahead) = coherence(here.map(|s| s.time / turn - s.angle));
        let offset = zone.offset.unwrap_or(0.0) / zone.sectors_per_track as f64 + ahead;
        zone.offset = Some(offset.rem_euclid(1.0) * zone.sectors_per_track as f64);
    }
}

/// Returns a sighting for every sample that waited for the media.
fn observations(params: &mut DiskParams, cache: WriteCache, samples: &[Sample]) -> Vec<AngleObservation> {
    for zone in &mut params.zones {
        zone.offset.get_or_insert(0.0);
    }
    let disk = Disk::new(params, params.capacity(), cache);
    // With a write cache, writes do not wait for the media but reads do; without one, writes give the exact
    // end of the transfer.
    let reads = cache != WriteCache::None;
    let waited = |sample: &Sample| sample.service_time.0 * 10 > params.turn.0 * 6;
    let used = samples.iter().enumerate().filter(|(_, s)| (s.kind == IoKind::Read) == reads && waited(s));
    used.map(|(index, sample)| {
        let (zone, begins, ends) = disk.passes(sample.offset, sample.len);
        let link = duration(sample.len, params.link_rate);
        let end = sample.at + sample.service_time;
        // Behind a slow link, the end gives the start of the transfer.
        let (time, clock) = if reads && link > ends - begins { (end - link, begins) } else { (end, ends) };
        AngleObservation { index, zone, time: time.0 as f64, angle: clock.0 as f64 / params.turn.0 as f64 }
    })
    .collect()
}

/// Returns time and angle from each sighting to later ones in the same zone, at most `window` samples further
/// on.
fn pairs(sightings: &[AngleObservation], zones: usize, window: usize) -> Vec<(f64, f64)> {
    let mut by_zone: Vec<Vec<AngleObservation>> = vec![Vec::new(); zones];
    for sighting in sightings {
        by_zone[sighting.zone].push(*sighting);
    }
    let mut pairs = Vec::new();
    for zone in by_zone {
        for (i, a) in zone.iter().enumerate() {
            let near = zone[i + 1..].iter().take_while(|b| b.index - a.index <= window);
            // If there are many, evenly spaced ones are chosen.
            let every = near.clone().count().div_ceil(COMPARISONS_MAX).max(1);
            let chosen = near.skip(every - 1).step_by(every);
            pairs.extend(chosen.map(|b| (b.time - a.time, b.angle - a.angle)));
        }
    }
    pairs
}

/// Returns how well angles, in rotations, agree, from 0 to 1, and their mean.
fn coherence(angles: impl Iterator<Item = f64>) -> (f64, f64) {
    let (mut x, mut y, mut n) = (0.0, 0.0, 0.0_f64);
    for angle in angles {
        let (sin, cos) = (angle * TAU).sin_cos();
        (x, y, n) = (x + cos, y + sin, n + 1.0);
    }
    ((x.hypot(y)) / n.max(1.0), y.atan2(x) / TAU)
}
